from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pathfinder.core.io import DataError
from pathfinder.models import launch


def test_the_shipped_configurations_give_their_commands(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    monkeypatch.delenv("RANK", raising=False)
    work = ["stages.train", "full"]
    cpu, machine = launch.command("cpu", work), launch.command("machine", work)
    assert cpu[2:] == ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", *work]
    file = str(Path("infra/accelerate/machine.yaml"))
    assert machine[2:] == ["accelerate.commands.launch", "--config_file", file, "-m", *work]
    assert [launch.division(name) for name in ("", "cpu", "machine", "nodes")] == [(1, 1), (2, 1), (8, 8), (16, 16)]
    with pytest.raises(DataError, match="2 machines cannot be started from one; start the stage on each machine"):
        launch.command("nodes", work)
    with pytest.raises(DataError, match=r"train\.launch is one of: cpu, machine, nodes"):
        launch.command("many", work)


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


def test_a_failing_process_ends_the_stage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "command", lambda name, module: ["false"])
    with pytest.raises(SystemExit, match="ended with status 1"):
        launch.launch("cpu", ["stages.train", "full"])
