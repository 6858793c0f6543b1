"""dvc.yaml expanded without DVC. That the names are DVC's own is tested with the graph in tests/flows."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.dvc import history
from evidence.dvc.pipeline import Stage, read_pipeline, value_at
from ground.io import DataError
from ground.settings import read_yaml
from tests.flows.test_graph import EXPANDED


def stages_of(folder: Path, text: str) -> dict[str, Stage]:
    (folder / "dvc.yaml").write_text(text)
    return read_pipeline(folder)


def test_expansion_fills_commands_and_paths(tmp_path: Path) -> None:
    stages = stages_of(tmp_path, EXPANDED)
    assert stages["grid@2-rule1"].cmd == "make 2 2-rule1"
    assert stages["each@left"].deps == ("two.txt",)
    assert stages["each@right"].metrics == ("m_right.json",)
    assert stages["listed@true"].outs == ("listed_true.txt",)
    assert stages["numbered@0"].outs == ("numbered_y.txt",)


def test_a_path_may_come_from_the_parameters_and_a_command_may_not(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("download: {world: artifacts/one, odd: $(rm)}\n")
    stage = "stages: {{a: {{cmd: 'x {0}', deps: ['{1}']}}}}"
    assert stages_of(tmp_path, stage.format("", "${download.world}"))["a"].deps == ("artifacts/one",)
    for cmd, dep in (("${download.world}", "b"), ("", "${download.odd}"), ("", "${download.none}")):
        with pytest.raises(DataError, match=r"a uses \$\{download"):
            stages_of(tmp_path, stage.format(cmd, dep))


def test_unknown_interpolation_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"uses \$\{model\}"):
        stages_of(tmp_path, 'stages: {a: {cmd: "x ${model}"}}')


@pytest.mark.parametrize(
    ("params", "message"),
    [("other: []\n", "no list `runs`"), ("runs: [full, $(rm)]\n", "expected words of"), (None, "no list `runs`")],
)
def test_an_axis_takes_only_a_list_of_plain_names(tmp_path: Path, params: str | None, message: str) -> None:
    if params is not None:
        (tmp_path / "params.yaml").write_text(params)
    for stage in ("matrix: {run: '${runs}'}, cmd: 'x ${item.run}'", "foreach: '${runs}', do: {cmd: 'x ${item}'}"):
        with pytest.raises(DataError, match=message):
            stages_of(tmp_path, f"stages: {{a: {{{stage}}}}}")
    (tmp_path / "params.yaml").write_text("runs: [full, ResNet50, 0.5]\nraw: data/Raw.csv\n")
    found = stages_of(tmp_path, f"stages: {{a: {{{stage}}}}}")
    assert [found[f"a@{name}"].cmd for name in ("full", "ResNet50", "0.5")] == ["x full", "x ResNet50", "x 0.5"]
    assert stages_of(tmp_path, "stages: {a: {cmd: x, deps: ['${raw}']}}")["a"].deps == ("data/Raw.csv",)


@pytest.mark.parametrize(("text", "message"), [("a: [", "not valid YAML"), ("[]", "expected a mapping")])
def test_a_file_without_a_mapping_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "dvc.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        read_yaml(tmp_path / "dvc.yaml")


def test_dotted_keys() -> None:
    content = {"a": {"b": None, "c": [1]}}
    assert value_at(content, "a.c") == [1]
    assert value_at(content, "a.b", 5) is None
    assert [value_at(content, key, 5) for key in ("a.d", "a.c.d", "b")] == [5, 5, 5]


@pytest.mark.parametrize(
    "stage",
    ["{outs: [a]}", "[a]", "{foreach: [1], cmd: a}", "{cmd: 7}", "{cmd: a, deps: 3}", "{cmd: a, outs: [{}]}"],
)
def test_a_stage_of_another_form_is_one_error(tmp_path: Path, stage: str) -> None:
    with pytest.raises(DataError, match=r"^dvc\.yaml: a stage is not as DVC expects .*`dvc status` names the place$"):
        stages_of(tmp_path, f"stages: {{a: {stage}}}")


LOCK = """schema: '2.0'
stages:
  plain:
    cmd: fit
    outs:
    - path: a
  quoted:
    cmd: "x
    --- y"
"""


def test_a_run_is_read_as_its_text_in_the_lock(tmp_path: Path) -> None:
    """The run's entry is parsed unless the lock has the same text, and the text means the same there."""
    (tmp_path / "dvc.lock").write_text(LOCK)
    stages = history.read_stages(tmp_path / "dvc.lock", "dvc.lock")
    (tmp_path / "plain").write_text("cmd: fit\nouts:\n- path: a\n")
    (tmp_path / "other").write_text("cmd: fit\nouts:\n- path: b\n")
    (tmp_path / "quoted").write_text('cmd: "x\n--- y"\n')
    assert history.read_run(tmp_path / "plain", "run") is stages["plain"]
    assert list(history.read_run(tmp_path / "other", "run").outs) == ["b"]
    with pytest.raises(DataError, match="not valid YAML"):
        history.read_run(tmp_path / "quoted", "run")
