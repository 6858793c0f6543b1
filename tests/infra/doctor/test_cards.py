"""``make doctor``: the missing requirements of a machine with a card."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from infra.doctor import cards
from pathfinder.planning import profiles


def test_an_old_driver_and_an_old_card_are_named() -> None:
    lines = (
        "NVIDIA A100-SXM4-80GB, 570.86.15, 81920, 8.0",
        "Tesla T4, 580.65.06, 15360, 7.5",
        "GB10, 600.1, [N/A], 12.1",
        "Tesla K20, 600.1, 5000, [N/A]",
    )
    found = cards.card_findings(cards.read_cards("\n".join(lines)))
    assert [finding.what for finding in found if finding.remedy] == ["driver", "card", "card"]
    assert found[0].remedy.startswith("install driver 580 or newer")
    assert found[1].line() == "card       NVIDIA A100-SXM4-80GB, 80 GiB, compute capability 8.0, planned as A100: ok"
    assert "8.0 or higher" in found[3].remedy


def test_the_wheels_of_the_lock_need_the_stated_driver(root: Path) -> None:
    """CUDA 13 needs driver 580; another major version in the lock needs another one."""
    for name in ("infra/locks/cuda.lock", "infra/requirements-vllm.lock"):
        assert "\ncuda-toolkit==13." in (root / name).read_text()


def test_a_machine_with_a_card_fails_until_nothing_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA L4, 550.54.15, 23034, 8.9'\n")
    smi.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    lines = [finding.line() for finding in cards.findings(tmp_path)]
    assert lines[0].startswith("driver     550.54.15: WRONG; install driver 580")
    assert lines[-1].endswith("not installed; stages that start a server need it: make vllm")


def test_without_a_card_nothing_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [finding.is_wrong for finding in cards.findings(tmp_path)] == [False]


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("one-gpu-24", [": WRONG; repair or update the driver", "(`pathfinder profile` lists them)"]),
        ("quickstart", ["; only the profiles for the CPU run on this machine: ok"]),
    ],
)
def test_a_broken_driver_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ends: list[str]
) -> None:
    project(root, tmp_path, name, monkeypatch)
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'Driver/library version mismatch'\nexit 18\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("pathfinder.models.cards._has_driver", lambda: False)
    lines = [finding.line() for finding in cards.findings(tmp_path)]
    assert lines[0].startswith("card       nvidia-smi fails: Driver/library version mismatch")
    assert all(line.endswith(end) for line, end in zip(lines, ends, strict=True))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "paper",
            "card       profile paper needs 8 NVIDIA cards of 80 GiB, and there is none: WRONG; use a machine with",
        ),
        ("one-gpu-24", "card       profile one-gpu-24 needs an NVIDIA card of 24 GiB, and there is none: WRONG; "),
        ("quickstart", "card       no NVIDIA card; only the profiles for the CPU run on this machine: ok"),
    ],
)
def test_without_a_card_a_profile_for_cards_is_wrong(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    project(root, tmp_path, name, monkeypatch)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("pathfinder.models.cards._has_driver", lambda: False)
    (line,) = [finding.line() for finding in cards.findings(tmp_path)]
    assert line.startswith(told)


def project(root: Path, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the profiles, of which ``name`` is active."""
    for path in ("infra/profiles", "infra/accelerate"):
        shutil.copytree(root / path, folder / path)
    (folder / "data").symlink_to(root / "data")
    (folder / "params.yaml").write_text(profiles.render(root, name))
    monkeypatch.chdir(folder)


def test_a_server_needs_a_card_whatever_the_profile_is_called(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(root, tmp_path, "one-gpu-80", monkeypatch)
    text = (tmp_path / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(text.replace("profile: one-gpu-80", "profile: mine"))
    monkeypatch.setattr("pathfinder.models.cards._has_driver", lambda: False)
    found = cards.profile_finding(tmp_path, [])
    assert found is not None
    assert re.match(r"profile mine needs an NVIDIA card of \d\d GiB, and there is none$", found.found)


def test_a_profile_that_is_too_large_for_the_cards_is_wrong(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(root, tmp_path, "paper", monkeypatch)
    h100 = cards.Card("NVIDIA H100 80GB HBM3", "580.1", 81559, 9.0)
    assert cards.profile_finding(tmp_path, [h100] * 8) is None
    lacking = cards.profile_finding(tmp_path, [h100])
    assert lacking is not None
    assert lacking.found.startswith("profile paper does not fit on an NVIDIA card of 80 GiB: label, train")
    assert "`pathfinder plan --gpu`" in lacking.remedy
