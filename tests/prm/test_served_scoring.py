"""The served scorer returns the scores of the scorer in process; with vLLM itself if its environment is named.

Run: PATHFINDER_VLLM=<python of vLLM's environment> pytest -s tests/prm/test_served_scoring.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ground.io import DataError, TransientError, write_json
from pathfinder.cli import app
from pathfinder.core.params import Score
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.steps import Candidates, Solution, StepScore
from pathfinder.models.folders import MODEL_FILE, open_model
from pathfinder.models.model import load_model
from pathfinder.models.tokens import add_label_tokens
from pathfinder.prm.opening import open_pathfinder
from pathfinder.prm.scoring import Scorer
from pathfinder.prm.served_scoring import ServedScorer
from pathfinder.tree.passes import Mode
from stages import processbench
from tests.engines.test_vllm_server import settings
from tests.prm.test_scoring import WAYS, save_prm, stop_at
from tests.support.evaluation_inputs import evaluation_project, rows_of
from tests.support.models import plain_tokenizer, qwen_config, random_qwen, sides
from tests.support.prm_server import PRMServer, prm_server
from tests.tree.test_logits import PROBLEMS

SOLUTIONS = [Solution(str(i), problem, tuple(steps)) for i, (problem, steps) in enumerate(PROBLEMS)]


pytestmark = pytest.mark.usefixtures("short_waits")
Scores = Sequence[Sequence[StepScore | None]]


def largest_difference(mine: Scores, other: Scores) -> float:
    """The largest difference between two scorers' probabilities; every decision must be equal."""
    found = 0.0
    for left, right in zip(mine, other, strict=True):
        for a, b in zip(left, right, strict=True):
            assert a is not None
            assert b is not None
            assert (a.labels, a.reward >= 0.5) == (b.labels, b.reward >= 0.5), "a decision differs"
            assert a.first.keys() == b.first.keys()
            found = max(found, abs(a.reward - b.reward), *(abs(p - b.first[label]) for label, p in a.first.items()))
    return found


@pytest.mark.parametrize(
    ("variant", "preset"),
    [*((name, "default") for name in VARIANTS), ("full", "official-prmbench"), ("full", "official-search")],
)
def test_a_served_model_scores_as_it_does_in_process(variant: str, preset: str, tmp_path: Path) -> None:
    model, _ = save_prm(tmp_path, variant)
    heard: list[int] = []
    with prm_server(PRMServer(model)) as server:
        scorer = ServedScorer(open_model(tmp_path), [server.url], preset)
        served = scorer.score([*SOLUTIONS, Solution("empty", "P", ())], heard.append)
        calls = server.calls
    local = Scorer(open_model(tmp_path), preset).score([*SOLUTIONS, Solution("empty", "P", ())])
    assert largest_difference(local, served) < 1e-5
    assert sum(heard) == len(SOLUTIONS) + 1
    assert calls == len(SOLUTIONS) * len(scorer._prompter.passes), "one call per solution and pass"


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.BOTH])
@pytest.mark.parametrize("variant", ["full", "autoregressive"])
def test_every_mode(variant: str, mode: Mode, tmp_path: Path) -> None:
    model, _ = save_prm(tmp_path, variant)
    with prm_server(PRMServer(model)) as server:
        served = ServedScorer(open_model(tmp_path), [server.url], mode=mode).score(SOLUTIONS)
    local = Scorer(open_model(tmp_path), mode=mode).score(SOLUTIONS)
    for mine, other in zip(local, served, strict=True):
        for a, b in zip(mine, other, strict=True):
            assert b.first == pytest.approx(a.first, abs=1e-5)
            assert b.reward == pytest.approx(a.reward, abs=1e-5, nan_ok=True)


def test_waves_end_where_the_caller_stops(tmp_path: Path) -> None:
    """One solution stops at its third step, the other never; steps after a stop cost nothing."""
    model, _ = save_prm(tmp_path)
    long = Solution("long", "P", tuple(f"step {i}" for i in range(9)))
    other = Solution("other", "P", ("a", "b", "c"))

    with prm_server(PRMServer(model)) as server:
        scorer = ServedScorer(open_model(tmp_path), [server.url])
        found = scorer.score([long, other], stop=stop_at([2, -1]))
        prompts = len(server.prompts)
    local = Scorer(open_model(tmp_path)).score([long, other], stop=stop_at([2, -1]))
    assert [len(scores) for scores in found] == [3, 3]
    assert largest_difference(local, found) < 1e-5
    assert prompts == 3 * (2 + 4 + 3), (
        "three readings per step: waves of two and four steps, and three steps of the other solution"
    )


def test_rounds_too(tmp_path: Path) -> None:
    model, _ = save_prm(tmp_path)
    asked = {s.id: Candidates(s.problem, s.steps[:1], WAYS) for s in SOLUTIONS} | {"none": Candidates("P", (), ())}
    with prm_server(PRMServer(model)) as server:
        served = ServedScorer(open_model(tmp_path), [server.url]).rounds()(asked)
    local = Scorer(open_model(tmp_path)).rounds()(asked)
    assert served.keys() == local.keys()
    assert largest_difference([local[key] for key in asked], [served[key] for key in asked]) < 1e-5


def test_prompts_end_before_the_label_and_hold_no_foreign_label_token(tmp_path: Path) -> None:
    """In a request the last token is the one that predicts, and outside text adds no label token."""
    model, tokenizer = save_prm(tmp_path)
    with prm_server(PRMServer(model)) as server:
        ServedScorer(open_model(tmp_path), [server.url]).score(SOLUTIONS[2:])
        sent = [str(tokenizer.decode(prompt)) for prompt in server.prompts]
    steps = len(SOLUTIONS[2].steps)
    assert len(sent) == 3 * steps, "three readings per step"
    ends = [f"{name}: " for name in ("Math reasoning", "Consistency")] * steps + ["Correctness: "] * steps
    for text, end in zip(sent, ends, strict=True):
        assert text.endswith(end)
        tokens = sum(text.count(token) for token in ("<+>", "<->", "<extra>"))
        assert tokens == {"Math reasoning: ": 0, "Consistency: ": 1, "Correctness: ": 2}[end]


def test_faults_are_retried_and_a_long_solution_has_no_scores(tmp_path: Path) -> None:
    model, _ = save_prm(tmp_path)
    with prm_server(PRMServer(model, fault=lambda n: {0: "429", 2: "503"}.get(n % 5, "none"))) as server:
        served = ServedScorer(open_model(tmp_path), [server.url]).score(SOLUTIONS)
    assert largest_difference(Scorer(open_model(tmp_path)).score(SOLUTIONS), served) < 1e-5
    with prm_server(PRMServer(model, longest=300)) as server:
        long = Solution("long-one", "P", ("a", "b " * 500))
        scorer = ServedScorer(open_model(tmp_path), [server.url])
        assert [len(scores) for scores in scorer.score([long, SOLUTIONS[0]])] == [0, len(SOLUTIONS[0].steps)]
        asked = {"1": Candidates("P", ("a",), ("b", "b " * 500)), "2": Candidates("P", ("a",), ("b",))}
        scored = scorer.rounds()(asked)
        assert {key: [score is None for score in scores] for key, scores in scored.items()} == {
            "1": [False, True],
            "2": [False],
        }
        assert scored["1"][0] == scored["2"][0]
    with prm_server(PRMServer(model, fault=lambda _: "503")) as server, pytest.raises(TransientError):
        ServedScorer(open_model(tmp_path), [server.url]).score(SOLUTIONS)
    with prm_server(PRMServer(model, fault=lambda _: "401")) as server, pytest.raises(DataError, match="API_KEY"):
        ServedScorer(open_model(tmp_path), [server.url]).score(SOLUTIONS)


def test_a_server_that_omits_a_label_is_refused(tmp_path: Path) -> None:
    """Only the 20 likeliest of 480 tokens come back; they seldom include the labels, and no number is invented."""
    model, _ = save_prm(tmp_path)
    with (
        prm_server(PRMServer(model, old=True)) as server,
        pytest.raises(DataError, match=r"do not include token_id:\d+.*logprob_token_ids"),
    ):
        ServedScorer(open_model(tmp_path), [server.url]).score(SOLUTIONS)


def test_the_command_scores_over_a_server(tmp_path: Path) -> None:
    model, _ = save_prm(tmp_path / "prm")
    lines = tmp_path / "solutions.jsonl"
    lines.write_text(
        "".join(json.dumps({"id": s.id, "problem": s.problem, "steps": list(s.steps)}) + "\n" for s in SOLUTIONS)
    )
    with prm_server(PRMServer(model)) as server:
        command = ["score", str(lines), "--model", str(tmp_path / "prm")]
        served, local = (CliRunner().invoke(app, [*command, *more]) for more in (["--url", server.url], []))
        assert server.calls == 2 * len(SOLUTIONS)
    assert (served.exit_code, local.exit_code) == (0, 0), served.output
    rows, expected = ([json.loads(line) for line in run.stdout.splitlines()] for run in (served, local))
    assert [row["id"] for row in rows] == [s.id for s in SOLUTIONS]
    for row, other in zip(rows, expected, strict=True):
        for step, wanted in zip(row["steps"], other["steps"], strict=True):
            assert step["errors"] == wanted["errors"]
            assert step["reward"] == pytest.approx(wanted["reward"], abs=1e-5)


def test_a_stage_reads_its_scores_from_a_server(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ProcessBench in process, then over a server: the same predictions, and rewards that differ only by rounding."""
    found = []
    evaluation_project(tmp_path, world, processbench={"limit": 2})
    monkeypatch.chdir(tmp_path)
    processbench.main(["full"])
    found.append(rows_of(Path("artifacts/predictions/processbench/full.jsonl")))
    model = load_model(open_model(Path("models/full")), "float32")
    (tmp_path / "models" / "full" / "model.safetensors").unlink()  # the weights are not needed here any more
    with prm_server(PRMServer(model)) as server:
        values = yaml.safe_load(Path("params.yaml").read_text())
        values["score"] |= {"engine": "vllm", "base_url": server.url}
        Path("params.yaml").write_text(yaml.safe_dump(values))
        processbench.main(["full"])
    found.append(rows_of(Path("artifacts/predictions/processbench/full.jsonl")))
    for mine, other in zip(*found, strict=True):
        assert [mine["id"], mine["prediction"], mine["prediction_quality"]] == [
            other["id"],
            other["prediction"],
            other["prediction_quality"],
        ]
        for step, served in zip(mine["steps"], other["steps"], strict=True):
            assert served["reward"] == pytest.approx(step["reward"], abs=1e-5)


def test_the_strict_preset_sees_the_likeliest_token(tmp_path: Path) -> None:
    model, _ = save_prm(tmp_path)
    with prm_server(PRMServer(model)) as server, pytest.raises(DataError, match="neither"):
        ServedScorer(open_model(tmp_path), [server.url], "official-processbench").score(SOLUTIONS)


def save_served(folder: Path, texts: Sequence[str]) -> None:
    """A random PRM with heads of 32, the smallest that vLLM's attention supports on a CPU."""
    tokenizer = plain_tokenizer(texts, 1200)
    add_label_tokens(tokenizer)
    more = {"tie_word_embeddings": True, "initializer_range": 0.1}
    random_qwen(qwen_config(tokenizer, len(tokenizer), **sides(128, 192, 2, 4, 2), **more)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / MODEL_FILE, {"variant": "full"})


def score_settings(command: Sequence[str]) -> Score:
    """Parameters that make a stage start vLLM on a CPU."""
    options = ("--enforce-eager", "--enable-prefix-caching", "--block-size", "32")
    vllm = settings(*options, command=list(command), max_num_batched_tokens=4096, start_timeout_s=500.0)
    return Score(engine="vllm", processes=1, base_url="", concurrency=8, vllm=vllm, dtype="float32", token_budget=8192)


@pytest.mark.slow
def test_vllm_returns_the_scores_of_the_trees(
    vllm_python: str, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real and hostile solutions, every preset, rounds of a search; the scorer starts and ends the server."""
    rows = [
        row
        for subset in ("gsm8k", "math")
        for row in json.loads((mirror / "processbench" / f"{subset}.json").read_text())[:8]
    ]
    solutions = [*SOLUTIONS, *(Solution(row["id"], row["problem"], tuple(row["steps"])) for row in rows)]
    save_served(tmp_path / "prm", [text for row in rows for text in (row["problem"], *row["steps"])])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    chosen = score_settings([vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model"])
    with open_pathfinder(open_model(Path("prm")), chosen) as served:
        assert isinstance(served, ServedScorer)
        (server,) = served._client._replicas.all
        for preset in ("default", "official-prmbench", "official-search"):
            found = ServedScorer(open_model(Path("prm")), [server.url], preset).score(solutions)
            local = Scorer(open_model(Path("prm")), preset).score(solutions)
            difference = largest_difference(local, found)
            steps = sum(map(len, local))
            print(f"\nvLLM, {preset}: {steps} steps, largest difference of a probability {difference:.1e}")
            assert difference < 2e-5
        with pytest.raises(DataError, match="neither"):
            ServedScorer(open_model(Path("prm")), [server.url], "official-processbench").score(solutions)
        assert served.score([Solution("long-one", "P", ("word " * 5000,))]) == [[]]
        asked = {s.id: Candidates(s.problem, s.steps[:2], WAYS) for s in solutions}
        mine, theirs = Scorer(open_model(Path("prm"))).rounds()(asked), served.rounds()(asked)
        assert largest_difference([mine[key] for key in asked], [theirs[key] for key in asked]) < 2e-5
