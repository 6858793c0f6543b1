"""Profiles are complete, valid and commented, and never replace a file that was edited by hand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from ground.io import DataError
from pathfinder.core.mixes import share_of
from pathfinder.core.params import load_params
from pathfinder.core.runs import parse_runs
from pathfinder.models.cards import gpus
from pathfinder.planning import profiles
from pathfinder.planning.estimates import estimates

GPU_PROFILES = [
    "evaluate-published",
    "one-gpu-24",
    "one-gpu-48",
    "one-gpu-80",
    "paper",
    "paper-data",
    "paper-nodes",
    "paper-official",
]
PROFILES = [*GPU_PROFILES, "quickstart", "readings", "replica", "replica-small", "sample", "seeds"]


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    shutil.copytree(root / "infra/profiles", tmp_path / "infra/profiles")
    return tmp_path


def test_there_are_profiles(root: Path) -> None:
    assert set(PROFILES) == set(profiles.names(root))


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_complete_and_valid(copy: Path, name: str) -> None:
    assert profiles.write(copy, name)
    params = load_params(copy / "params.yaml")
    assert params.profile == name
    for run in parse_runs(params.runs):
        assert 0 <= share_of(params.mixes, run.mix) <= 1
    assert not profiles.write(copy, name)
    text = (copy / "params.yaml").read_text()
    assert "section 4.1" in text  # comments of the base are kept
    assert YAML(typ="safe").load(text) == yaml.safe_load(text)  # DVC and the stages read YAML 1.2, other programs 1.1


def test_the_committed_parameters_are_a_profile(root: Path) -> None:
    text = (root / "params.yaml").read_text()
    assert text in [profiles.render(root, name) for name in profiles.names(root)]


def test_overlays_stack_and_the_papers_number_stays_readable(copy: Path) -> None:
    text = profiles.render(copy, "sample")
    content = yaml.safe_load(text)
    overlay = yaml.safe_load((copy / "infra/profiles/quickstart.yaml").read_text())
    assert content["train"]["learning_rate"] == overlay["train"]["learning_rate"]
    assert '# paper: 1e-05; Table "Training Configuration"' in text
    assert "extends" not in content


def test_one_source_is_changed_removed_or_added_by_name(copy: Path) -> None:
    whole = yaml.safe_load(profiles.render(copy, "paper"))["download"]["sources"]
    added: dict[str, Any] = {"kind": "mirror", "location": "x", "revision": None, "licence": "MIT", "files": {}}
    changes = {"models/base": {"files": {"config.json": None}}, "models/judge": None, "extra": added}
    overlay = {"profile": "changed", "download": {"sources": changes}}
    (copy / "infra/profiles/changed.yaml").write_text(yaml.safe_dump(overlay))
    sources = yaml.safe_load(profiles.render(copy, "changed"))["download"]["sources"]
    expected = [
        source | ({"files": {"config.json": None}} if source["name"] == "models/base" else {})
        for source in whole
        if source["name"] != "models/judge"
    ]
    assert sources == [*expected, {"name": "extra", **added}]


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_the_head_of_a_gpu_profile_names_machine_and_command(root: Path, name: str) -> None:
    text = (root / f"infra/profiles/{name}.yaml").read_text()
    for word in ("machine", "hours", "cost", "command"):
        assert f"\n# {word}: " in text, word
    found = profiles.summary(root, name)
    assert found.machine
    assert 20 < len(found.purpose) < 200


def test_an_edited_file_is_kept(copy: Path) -> None:
    profiles.write(copy, "quickstart")
    assert profiles.write(copy, "paper")  # a file that a profile wrote may be replaced
    path = copy / "params.yaml"
    path.write_text(path.read_text().replace("epochs: 4", "epochs: 3"))
    with pytest.raises(DataError, match="edited by hand"):
        profiles.write(copy, "quickstart")
    assert "epochs: 3" in path.read_text()
    assert profiles.write(copy, "quickstart", force=True)


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        ("profile: bad\ntrain: {lr: 1}\n", "lr is not a key"),
        ("profile: bad\ntrain: {epochs: many}\n", "train.epochs"),
        ("extends: nobody\nprofile: bad\n", "cannot extend nobody"),
        ("[]\n", "expected a mapping"),
        ("profile: bad\ndownload: {sources: {models/nobody: null}}\n", "models/nobody cannot be removed"),
        ("profile: bad\ndownload: {sources: {models/base: {place: x}}}\n", "models/base: place is not a key"),
    ],
)
def test_a_wrong_overlay_is_named_and_writes_nothing(copy: Path, overlay: str, message: str) -> None:
    profiles.write(copy, "quickstart")
    before = (copy / "params.yaml").read_bytes()
    (copy / "infra/profiles/bad.yaml").write_text(overlay)
    with pytest.raises(DataError, match=message):
        profiles.write(copy, "bad", force=True)
    assert (copy / "params.yaml").read_bytes() == before
    assert not list(copy.glob(".params*"))


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_a_source_that_is_not_pinned_says_so(root: Path, copy: Path, name: str) -> None:
    profiles.write(copy, name)
    lines = [
        line
        for path in (root / "infra/profiles").glob("*.yaml")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    for source in load_params(copy / "params.yaml").download.sources:
        if not source.is_pinned:
            told = [line for line in lines if source.location in line and "not pinned" in line]
            assert told, f"{source.name}: no comment says that it is not pinned"


def test_the_calls_of_judges_follow_votes_and_limits(root: Path) -> None:
    """Fails if a plan leaves out the votes on PRMBench, or items that the limits leave, or plans others."""
    paper, found = profiles.load(root, "evaluate-published"), list[str]()
    for votes, limit in ((0, 0), (8, 0), (8, 10)):
        limits = {
            name: getattr(paper, name).model_copy(update={"limit": limit}) for name in ("processbench", "prmbench")
        }
        critic = paper.critic.model_copy(update={"votes": votes})
        asked = paper.model_copy(update={"critics": ["critic-gpt-4o"], "critic": critic, **limits})
        (estimate,) = estimates(asked, gpus(80), lambda _: pytest.fail("reads a model"), ())
        found.append(estimate.basis)
    assert found == ["10,369 calls", "82,952 calls", "1,120 calls"]
