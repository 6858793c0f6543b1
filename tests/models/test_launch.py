from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from ground.io import DataError, TransientError
from pathfinder.models import cards, launch

TORCHRUN = ["pathfinder.models.launch", "--nproc-per-node"]


def test_the_shipped_configurations_give_their_commands(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    for variable in ("RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", cards.SIMULATED):
        monkeypatch.delenv(variable, raising=False)
    work = ["stages.train", "full"]
    for name, count in (("cpu", "2"), ("machine", "8")):
        assert launch.command(name, work)[2:] == [*TORCHRUN, count, "--standalone", "-m", *work]
    assert [launch.division(name) for name in ("", "cpu", "machine", "nodes")] == [(1, 1), (2, 1), (8, 8), (16, 16)]
    with pytest.raises(DataError, match=r"nodes: 2 machines, and NODE_RANK and MASTER_ADDR not set"):
        launch.command("nodes", work)
    monkeypatch.setenv("NODE_RANK", "1")
    monkeypatch.setenv("MASTER_ADDR", "first")
    options = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "first", "--master-port", "29500"]
    found = launch.command("nodes", work)[2:]
    assert found[: 3 + len(options)] == [*TORCHRUN, "8", *options]
    assert found[-3:] == ["-m", *work]
    assert found[found.index("--rdzv-id") + 1] == " ".join(work)
    with pytest.raises(DataError, match=r"train\.launch is one of: cpu, machine, nodes"):
        launch.command("many", work)


@pytest.mark.parametrize(("visible", "started"), [(1, 1), (3, 3), (8, 8), (9, 8)])
def test_one_machine_starts_a_process_for_each_visible_gpu(
    root: Path, monkeypatch: pytest.MonkeyPatch, visible: int, started: int
) -> None:
    monkeypatch.chdir(root)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv(cards.SIMULATED, str(visible))
    assert launch.division("machine") == (started, started)
    assert launch.needed_cards("machine") == started
    assert launch.command("machine", ["x"])[4] == str(started)
    assert (launch.needed_cards("cpu"), launch.division("cpu")) == (0, (2, 1))
    assert launch.needed_cards("nodes") == 8


def test_processes_get_the_variables_that_accelerate_would_set(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    monkeypatch.chdir(root)
    file = str(launch.FOLDER / "machine.yaml")
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(["--config_file", file, "script.py"]))
    theirs = prepare_multi_gpu_env(arguments)
    mine = launch.environment("machine")
    assert mine.pop("FSDP_VERSION") == theirs["FSDP_VERSION"] == "2"
    assert mine.items() <= theirs.items()
    assert launch.environment("nodes") == launch.environment("machine")
    assert launch.environment("cpu") == {"ACCELERATE_USE_CPU": "True", "CUDA_VISIBLE_DEVICES": ""}


def test_accelerate_reads_every_configuration(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    for path in sorted((root / launch.FOLDER).glob("*.yaml")):
        read = load_config_from_file(str(path))
        written = yaml.safe_load(path.read_text())
        assert read.num_processes == written["num_processes"]
        assert getattr(read, "fsdp_config", {}) == written.get("fsdp_config", {})
    nodes, machine = (yaml.safe_load((root / launch.FOLDER / f"{n}.yaml").read_text()) for n in ("nodes", "machine"))
    assert nodes["fsdp_config"] == machine["fsdp_config"]


def test_a_launched_process_reads_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert launch.launched()
    assert launch.division("") == (4, 1)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert launch.division("") == (4, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("- 1\n", r"odd\.yaml: expected a mapping; see infra/accelerate/machine\.yaml"),
        ("distributed_type: FSDP\n", r"odd\.yaml: not an accelerate configuration; see infra/accelerate/machine\.yaml"),
    ],
)
def test_a_malformed_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "infra/accelerate").mkdir(parents=True)
    (tmp_path / "infra/accelerate/odd.yaml").write_text(content)
    with pytest.raises(DataError, match=message):
        launch.configuration("odd")


RANKS = """
import os, sys, time
from contextlib import suppress
from pathlib import Path
rank = int(os.environ["RANK"])
number = Path(f"{__file__}.{rank}")
part = Path(f"{number}.part")
part.write_text(str(os.getpid()))
part.rename(number)

def outlive(other):
    number = Path(f"{__file__}.{other}")
    while not number.exists():
        time.sleep(0.01)
    status = Path(f"/proc/{number.read_text()}/stat")
    with suppress(OSError):  # the launcher has seen that the process ended
        while status.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
"""
"""The start of a program that knows its rank and can wait until the process of a different rank has ended."""


def test_a_failing_process_ends_the_stage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "command", lambda name, module: ["false"])
    with pytest.raises(SystemExit, match="ended with status 1"):
        launch.launch("cpu", ["stages.train", "full"])


@pytest.mark.usefixtures("warm_starts")
@pytest.mark.parametrize(
    ("ending", "error", "said"),
    [
        ("sys.exit(75 if rank else 0)", TransientError, "process 1 failed first: status 75"),
        ("rank or outlive(1); sys.exit(75 if rank else 1)", TransientError, "failed first: status "),
        ("sys.exit(0 if rank else 3)", SystemExit, "process 0 failed first: status 3"),
        ("os.kill(os.getpid(), 9)", SystemExit, "failed first: ended by SIGKILL"),
    ],
)
def test_the_launcher_keeps_the_status_of_the_process_that_failed(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    ending: str,
    error: type[BaseException],
    said: str,
) -> None:
    (tmp_path / "ending.py").write_text(f"{RANKS}\n{ending}\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    with pytest.raises(error, match=r"^ending: "):
        launch.launch("cpu", ["ending"])
    assert list((tmp_path / "scratch").iterdir()) == []
    printed = capfd.readouterr().err
    assert said in printed
    assert "Traceback" not in printed


@pytest.mark.campaign
def test_a_process_waits_longer_for_the_others_than_a_slow_disk_takes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "waiting.py").write_text(
        "import os, torch\nfrom pathlib import Path\nfrom pathfinder.models import launch\nlaunch.join(cpu=True)\n"
        "group = torch.distributed.distributed_c10d._get_default_group()\n"
        "seconds = group._get_backend(torch.device('cpu')).options._timeout.total_seconds()\n"
        "Path(__file__).with_name(os.environ['RANK']).write_text(str(seconds))\n"
        "torch.distributed.destroy_process_group()\n"
    )
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    launch.launch("cpu", ["waiting"])
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["3600.0"] * 2
