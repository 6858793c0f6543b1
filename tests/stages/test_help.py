"""Every stage explains itself and refuses unknown arguments, before it reads or writes anything."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path

import pytest

from ground.io import DataError

ROOT = Path(__file__).resolve().parents[2]
STAGES = sorted(path.stem for path in ROOT.glob("stages/[a-z]*.py"))


def test_the_stages_were_found() -> None:
    assert len(STAGES) > 15


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize(("words", "status"), [(["--help"], 0), (["--no-such-option"], 2)])
def test_help_and_a_wrong_argument_touch_nothing(
    name: str,
    words: list[str],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = importlib.import_module(f"stages.{name}")
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    with pytest.raises(SystemExit) as stopped:
        module.main(words)
    assert stopped.value.code == status
    assert list(tmp_path.iterdir()) == []
    assert dict(os.environ) == before
    shown = capsys.readouterr()
    assert f"usage: python -m stages.{name}" in (shown.out if status == 0 else shown.err)
    if status == 0:
        assert (module.__doc__ or "").splitlines()[0] in shown.out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["train", "fulll"], "full"),
        (["processbench", "fulll"], "full"),
        (["prmbench", "ful-s2"], "full-s2"),
        (["search", "fulll"], "full"),
        (["baseline", "skywrok", "prmbench"], "skywork"),
        (["critic", "critic-gpt-4", "processbench"], "critic-gpt-4o"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_name_is_blamed_before_a_missing_input(
    words: list[str], meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, *given = words
    shutil.copyfile(ROOT / "params.yaml", tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=rf"{given[0]}.*did you mean {meant}\?") as error:
        importlib.import_module(f"stages.{stage}").main(given)
    assert "params.yaml" not in str(error.value), "the argument is wrong, not the file"
