"""``make doctor``: what a machine with a card lacks, by requirement."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.doctor import cards


def test_an_old_driver_and_an_old_card_are_named() -> None:
    lines = (
        "NVIDIA A100-SXM4-80GB, 570.86.15, 81920, 8.0",
        "Tesla T4, 580.65.06, 15360, 7.5",
        "GB10, 600.1, [N/A], 12.1",
    )
    found = cards.card_findings(cards.read_cards("\n".join(lines)))
    assert [finding.what for finding in found if finding.remedy] == ["driver", "card"]
    assert found[0].remedy.startswith("install driver 580 or newer")
    assert found[1].line() == "card       NVIDIA A100-SXM4-80GB, 80 GiB, compute capability 8.0: ok"
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
    lines = [finding.line() for finding in cards.findings()]
    assert lines[0].startswith("driver     550.54.15: WRONG; install driver 580")
    assert lines[-1].endswith("not installed; stages that start a server need it: make vllm")


def test_without_a_card_nothing_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [finding.is_wrong for finding in cards.findings()] == [False]
