"""The summary of a campaign of retrainings, from planted jobs; and the page holds the shipped one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from extras.why.why import measured
from ground.io import DataError, write_json
from tests.campaigns.influence import proof, summary

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """Four decisions on eight records: every named removal flips its own decision, one random removal flips one."""
    base = np.array([1.0, -1.0, 0.5, -0.5])
    scores = np.sign(base)[:, None] * np.tile([1.0, 0.5, 0.2, 0.1, -0.1, -0.2, -0.5, -1.0], (4, 1))
    np.save(tmp_path / "scores-000.npy", scores)
    write_json(tmp_path / "about.json", {"records": 8, "held_out_items": 9, "near": 5, "right": 0.75})

    def job(kind: str, number: int, removed: list[int], outputs: npt.NDArray[np.float64]) -> None:
        content = {"removed": removed, "outputs": outputs.tolist(), "correct": (outputs >= 0).tolist()}
        write_json(tmp_path / f"{kind}-{number:03d}.json", content)

    job("base", 0, [], base)
    for number in range(4):
        outputs = base.copy()
        outputs[number] *= -1
        job("named", number, [0, 1], outputs)
    flipped = base.copy()
    flipped[0] = -0.1
    for number in range(5):
        job("random", number, [number, 7], flipped if number == 0 else base)
    job("order", 0, [], -base)
    generator = np.random.default_rng(0)
    for number in range(6):
        removed = generator.permutation(8)[:4]
        job("half", number, removed.tolist(), base - scores[:, removed].sum(axis=1))
    return tmp_path


@pytest.mark.campaign
def test_flips_and_their_factor(finished: Path) -> None:
    found = summary.summarise(finished)
    shares = {kind: values["share"] for kind, values in found["flipped"].items()}
    assert shares == {
        "named": 1.0,
        "random": pytest.approx(1 / 20),
        "named for other decisions": 0.0,
        "another order of the same records": 1.0,
    }
    assert found["factor"]["value"] == pytest.approx(20)
    assert found["factor"]["interval"][0] <= 20 <= found["factor"]["interval"][1]
    assert (found["decisions"], found["removed"]) == (4, 2)
    assert found["named removals"]["mean change, predicted"] == pytest.approx(-1.5)
    assert found["named removals"]["mean change, actual"] == pytest.approx(-1.5)
    assert summary.summarise(finished) == found


@pytest.mark.campaign
def test_the_datamodelling_score_of_exact_predictions_is_one(finished: Path) -> None:
    halves = summary.summarise(finished)["datamodelling score"]["random halves"]
    assert halves["mean"] == pytest.approx(1)
    assert halves["retrainings"] == 6


def test_ranks_decide_the_correlation() -> None:
    left = np.array([0.1, 0.2, 0.3, 9.0])
    assert summary.spearman(left, np.exp(left)) == pytest.approx(1)
    assert summary.spearman(left, -left) == pytest.approx(-1)
    assert summary.spearman(left, np.ones(4)) == 0


@pytest.mark.campaign
def test_scores_that_no_record_can_have_are_counted(finished: Path) -> None:
    assert summary.summarise(finished)["decisions with unreliable scores"] == 0
    scores = np.load(finished / "scores-000.npy")
    scores[2, 5] = -2.5
    np.save(finished / "scores-000.npy", scores)
    assert summary.summarise(finished)["decisions with unreliable scores"] == 1


@pytest.mark.campaign
def test_a_summary_needs_every_job(finished: Path) -> None:
    with pytest.raises(DataError, match=f"{231 - 1 - 4 - 5 - 1 - 6} jobs are not finished; run `python -m"):
        proof.main(finished, "summary")
    assert not (finished / "summary.json").exists()


def test_jobs_cover_every_kind_once() -> None:
    every = list(proof.jobs("all"))
    assert len(every) == len(set(every)) == 231
    assert sorted(every) == sorted([*proof.jobs("named"), *proof.jobs("others")])
    assert list(proof.jobs("summary")) == []


def test_the_page_holds_the_shipped_figures() -> None:
    page = (ROOT / "extras/why/README.md").read_text(encoding="utf-8")
    block = page.partition("<!-- measured -->\n")[2].partition("\n<!-- /measured -->")[0]
    assert block == "\n".join(summary.as_markdown(measured()))
    assert "The 95 % intervals in the tables resample the decisions, not the retrainings" in block
