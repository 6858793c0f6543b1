"""Leases of simulated cards between processes of different clones: exclusive, freed by a kill, shown while waiting."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.models import cards

HOLDER = """
import subprocess, sys, time
from pathfinder.models import cards
with cards.confined(int(sys.argv[1])) as mine:
    if "--child" in sys.argv:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=cards.descriptors())
        print(child.pid)
    print(",".join(card.name for card in mine), flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with four simulated cards and an own temporary folder."""
    monkeypatch.setenv(cards.SIMULATED, "4")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(cards, "_POLL_S", 0.05)


class Holder:
    """Another process that leases cards; ``names`` are those that it got."""

    def __init__(self, folder: Path, count: int, seconds: float, *flags: str) -> None:
        folder.mkdir(exist_ok=True)
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-c", HOLDER, str(count), str(seconds), *flags]
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.child = int(self.process.stdout.readline()) if flags else 0
        self.names = self.process.stdout.readline().strip()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Holder]:
    holder = Holder(tmp_path / "other clone", 3, 60)
    yield holder
    holder.end()


def names(found: list[cards.Card]) -> list[str]:
    return [card.name for card in found]


@pytest.mark.parametrize("mode", [0o700, 0o770, 0o707])
def test_a_folder_of_locks_that_another_user_controls_is_refused(tmp_path: Path, mode: int) -> None:
    """The lock would otherwise empty the file to which a link of the same name leads."""
    precious, planted = tmp_path / "precious", tmp_path / "planted"
    precious.write_text("kept")
    planted.mkdir()
    (planted / "turn").symlink_to(precious)
    folder = tmp_path / f"pathfinder-cards-{os.getuid()}"
    if mode == 0o700:
        folder.symlink_to(planted)
    else:
        planted.rename(folder).chmod(mode)
    with pytest.raises(DataError, match="another user can write to it; remove it"), cards.lease(1):
        pass
    assert precious.read_text() == "kept"


def test_two_processes_of_different_clones_never_hold_the_same_card(other: Holder) -> None:
    """Fails if two stages or servers take GPU 0."""
    with cards.lease(1) as mine:
        assert [other.names, *names(mine)] == ["0,1,2", "3"]


def test_waiting_says_who_holds_the_cards_and_ends_when_a_killed_process_frees_them(
    other: Holder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: other.process.kill())
    with cards.lease(2) as mine:
        assert len(mine) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(
        rf"waits for 2 GPUs and has 1 \(GPU 0: .*, pid {other.process.pid} in .*other clone, for 0 min", line
    )


def test_a_card_stays_leased_until_the_children_of_a_killed_process_have_ended(tmp_path: Path) -> None:
    """A server that outlives its stage for a moment still fills the card."""
    killed = Holder(tmp_path / "clone", 3, 60, "--child")
    killed.end(signal.SIGKILL)
    with cards.lease(1) as mine:
        assert names(mine) == ["3"]
    os.kill(killed.child, signal.SIGKILL)
    with cards.lease(4) as mine:
        assert names(mine) == ["0", "1", "2", "3"]


def test_parts_of_a_process_share_its_lease_and_see_only_their_own_cards() -> None:
    with cards.lease(3) as held:
        assert names(held) == ["0", "1", "2"]
        with cards.lease(2) as server, cards.confined(1) as scorer:
            assert (names(server), names(scorer)) == (["0", "1"], ["2"])
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
            assert cards.environment(server)["CUDA_VISIBLE_DEVICES"] == "0,1"
            with pytest.raises(DataError, match="0 free GPUs and a part of it needs 1"), cards.lease(1):
                pass
        with cards.lease(3) as again:
            assert sorted(names(again)) == ["0", "1", "2"]


def test_a_child_of_a_holder_may_use_what_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    with cards.lease(4) as held:
        found = subprocess.run(
            [sys.executable, "-c", HOLDER, "1", "0"],
            env=os.environ | cards.environment(held[2:3]) | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert found.stdout.strip() == "2"


def test_visible_cards_follow_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("2,0", ["2", "0"]), ("", []), ("-1", []), ("1,9,2", ["1"]), ("simulated-3", ["3"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert names(cards.visible()) == expected
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert names(cards.visible()) == ["0", "1", "2", "3"]


def test_too_few_cards_and_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="needs 5 GPUs, 4 are visible"), cards.lease(5):
        pass
    monkeypatch.setenv(cards.SIMULATED, "0")
    before = os.environ["CUDA_VISIBLE_DEVICES"]
    with cards.confined(8) as none:
        assert none == []
    assert os.environ["CUDA_VISIBLE_DEVICES"] == before


def test_the_driver_tells_names_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-aa, 1000, 2000'\necho '1, GPU-bb, 500, 2000'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(cards.SIMULATED)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert cards.visible() == [cards.Card("1", "GPU-bb")]
    assert cards.memory(cards.visible()) == [(500 * 2**20, 2000 * 2**20)]


def test_the_driver_tells_the_name_and_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-1, 80000, 81920, NVIDIA A100-SXM4-80GB'\n")
    tool.chmod(0o755)
    monkeypatch.delenv(cards.SIMULATED)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = cards.visible()[:1]
    assert cards.model(found) == "NVIDIA A100-SXM4-80GB"
    assert cards.memory(found) == [(80000 * 2**20, 81920 * 2**20)]
    assert cards.model([]) == ""
    tool.write_text("#!/bin/sh\necho '0, GPU-1, [N/A], [N/A], NVIDIA GB10'\n")
    assert cards.memory(found) == []
    assert cards.model(found) == "NVIDIA GB10"
