"""Run the documentation's commands for every GPU profile in a fresh clone, against substitutes of Hub and servers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ground.io import DataError, read_json
from pathfinder.core.params import Params, load_params
from pathfinder.judge.critics import critic_named
from pathfinder.planning.profiles import render
from tests.campaigns.rehearsal import clone, faults, material, profiles, times
from tests.campaigns.rehearsal.models import model_folder
from tests.campaigns.rehearsal.records import write_records
from tests.campaigns.rehearsal.show import RehearsalError, show
from tests.support.hub_server import HubServer, hub_server

FAULTS = "faults"
"""In the place of a profile: the tests of the known faults."""
_ANY_MODEL = "Qwen/Qwen2.5-7B-Instruct"
_CRASH = re.compile(r"^.*(?:Fatal Python error|Traceback \(most recent call last\)).*$", re.MULTILINE)
_FAILED = re.compile(r"^\[(\S+)\] `dvc repro.* failed: ", re.MULTILINE)


@dataclass
class Rehearsal:
    """A clone, its substitutes and what was found."""

    work: Path
    clone: Path
    hub: HubServer
    environment: dict[str, str]
    log: Path
    names: list[str]
    verbose: bool = False

    def run(self) -> None:
        """Set up and rehearse every profile that no other lane has taken; raises ``RehearsalError`` if one fails.

        A lane takes a profile by making a folder, which only one can.
        """
        failures, taken = [], self.work.parent / "taken"
        for command in profiles.commands(self.clone, "setup"):
            if command.startswith("make "):  # the clone exists, and its variables are set
                self.command(_here(command))
        for name in self.names:
            if not _made(taken / name):
                continue
            left = times.left(other for other in self.names if not (taken / other).exists())
            show(f"{name} ({left} after it)")
            start, cpu = time.monotonic(), times.cpu_seconds()
            try:
                faults.check(self.clone) if name == FAULTS else self.profile(name)
            except (RehearsalError, DataError) as error:
                failures.append(name)
                show(f"{name} FAILED: {error}")
                continue
            took, worked = time.monotonic() - start, times.cpu_seconds() - cpu
            times.keep(name, worked)
            show(f"{name} took {took:.0f} s, {worked:.0f} s of CPU without its servers")
        if failures:
            raise RehearsalError(f"{', '.join(failures)} (the reasons are above)")

    def profile(self, name: str) -> None:
        """Run the commands of one profile."""
        params, machine = self.serve(name), profiles.machine(self.clone, name)
        self.environment["PATHFINDER_SIMULATED_CARDS"] = str(machine.cards)
        with ExitStack() as stack:
            servers = self.servers(params, stack)
            for command in profiles.commands(self.clone, name):
                if "NODE_RANK=0" in command:
                    runs = load_params(self.clone / "params.yaml").runs
                    joined = profiles.second_machine(self.clone, name, runs)
                    stack.enter_context(self.second_machine([_here(line, machine) for line in joined]))
                self.command(_here(command, machine))
                if command.startswith("pathfinder profile "):
                    self.override(name, servers)
                if "--pin" in command:
                    self.check_pins()
        self.check_critics()
        self.check()

    def check_pins(self) -> None:
        """Raise ``RehearsalError`` if a source of the profile can still change."""
        wanted = load_params(self.clone / "params.yaml").download.sources
        if moving := [source.name for source in wanted if not source.is_pinned]:
            raise RehearsalError(f"{', '.join(moving)}: not pinned by `python -m stages.download --pin`")

    def check_critics(self) -> None:
        """Raise ``RehearsalError`` if a critic's answer had no result: the substitute's answers can all be read."""
        for path in sorted((self.clone / "metrics").glob("*/critic-*.json")):
            if unread := read_json(path)["asked"]["items_unread"]:
                raise RehearsalError(f"{path.relative_to(self.clone)}: {unread} items without an answer")

    def serve(self, name: str) -> Params:
        """Make the substitutes of a profile's sources available."""
        path = self.work / "profile.yaml"
        path.write_text(render(self.clone, name), encoding="utf-8")
        params = load_params(path)
        with material.lock():  # the lanes share the folder of the models
            profiles.serve_sources(params, self.hub, write_records(self.work / "records"))
        (self.clone / "params.yaml").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        return params

    def override(self, name: str, servers: dict[str, str]) -> None:
        """Apply and show the overrides of a profile."""
        notes = profiles.override(self.clone, self.hub.url, servers)
        notes += profiles.launch_overrides(self.clone, load_params(self.clone / "params.yaml"))
        for note in notes:
            show(f"    override {note}")
        clone.commit(self.clone, f"Overrides of {name}")

    def servers(self, params: Params, stack: ExitStack) -> dict[str, str]:
        """Start the servers that the profile expects to exist, as the documentation says, on free ports."""
        models = {source.name: source.location for source in params.download.sources}
        wanted = {}
        if params.label.engine == "openai":
            wanted["label"] = [models["models/judge"], "--max-model-len", str(params.label.max_model_len)]
        if params.search.engine == "openai":
            wanted["search"] = [models["models/policy"]]
        if params.comparisons:  # one server answers in the place of the hosted critics, too
            names = [critic.served for critic in map(critic_named, profiles.CRITICS)]
            wanted["critic"] = [names[0], "--served-model-name", *names]
            self.hub.add(names[0], model_folder("critic", names[0]))
        found = {}
        for number, (section, words) in enumerate(wanted.items()):
            words = ["serve", *words, "--generation-config", "vllm"]
            found[section] = stack.enter_context(self.vllm(words, number, section))
        return found

    @contextmanager
    def vllm(self, words: Sequence[str], card: int, name: str) -> Iterator[str]:
        """A ``vllm`` command of ours on a card of its own; yields its base URL."""
        from pathfinder.engines.vllm_server import _free_port

        port, log = _free_port(), self.log / f"{name}.txt"
        environment = self.environment | {"CUDA_VISIBLE_DEVICES": f"elsewhere-{card}"}  # another machine's card
        command = [str(self.clone / ".venv-vllm/bin/vllm"), *words, "--port", str(port)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self.clone, env=environment)
        try:
            deadline = time.monotonic() + 120
            while not _is_healthy(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RehearsalError(f"{shlex.join(command)}: {_tail(log)}")
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait()

    @contextmanager
    def second_machine(self, commands: Sequence[str]) -> Iterator[None]:
        """Run the commands of the documentation's second machine, which has its own temporary folder."""
        temporary = self.work / "second-machine"
        temporary.mkdir(exist_ok=True)
        log = self.log / "second-machine.txt"
        show(f"    on the second machine: {'; '.join(commands)}")
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["bash", "-ec", "\n".join(commands)],
                cwd=self.clone,
                env=self.environment | {"TMPDIR": str(temporary)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield
            if process.wait(60):
                raise RehearsalError(f"the second machine failed:\n{_tail(log)}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()

    def command(self, command: str) -> None:
        """Run one command of the documentation in the clone; raises ``RehearsalError`` if it fails."""
        show(f"    $ {command}")
        start = time.monotonic()
        log = self.log / "output.txt"
        with log.open("ab") as output:
            output.write(f"\n$ {command}\n".encode())
            output.flush()
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.clone,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=None if self.verbose else output,
                stderr=None if self.verbose else output,
                start_new_session=True,
            )
            try:
                status = process.wait()
            except BaseException:
                os.killpg(process.pid, signal.SIGTERM)
                raise
        show(f"      {time.monotonic() - start:.0f} s")
        if status:
            self.check()  # a violation explains the failure
            raise RehearsalError(f"`{command}` ended with status {status}:\n{self.failures() or _last(self.output())}")
        self.check()
        if crashes := sorted(set(_CRASH.findall(self.output()))):
            raise RehearsalError(f"`{command}` succeeded, but processes crashed:\n" + "\n".join(crashes))

    def output(self) -> str:
        """The output of the last command."""
        text = (self.log / "output.txt").read_text(encoding="utf-8", errors="replace")
        return text.rpartition("\n$ ")[2]

    def failures(self) -> str:
        """The end of the log of every stage that failed in the last command."""
        names = list(dict.fromkeys(_FAILED.findall(self.output())))
        logs = {name: self.clone / ".pathfinder/logs" / f"{name}.log" for name in names}
        return "\n".join(f"--- {name}\n{_tail(path)}" for name, path in logs.items() if path.exists())

    def check(self) -> None:
        """Raise ``RehearsalError`` if a substitute noted a violation."""
        file = self.log / "violations.jsonl"
        if file.exists():
            lines = list(dict.fromkeys(json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()))
            raise RehearsalError("; ".join(lines))


@contextmanager
def rehearsal(
    work: Path, names: Sequence[str] = (), committed: bool = False, verbose: bool = False
) -> Iterator[Rehearsal]:
    """A clone with running substitutes in the new folder ``work``, for the profiles ``names`` (default: every one).

    Rehearsals in the same parent folder share the profiles and DVC's cache.
    """
    start = time.monotonic()
    with material.lock():
        python, any_model = material.vllm_python(), model_folder("policy", _ANY_MODEL)
    with ExitStack() as stack:
        log = work / "log"
        log.mkdir(parents=True)
        hub = HubServer()
        stack.enter_context(hub_server(hub))
        address = stack.enter_context(_vllm_parent(python, work, log, any_model, hub.environment(work / "hf")))
        project = clone.clone(work / "clone", work.parent / "dvc-cache", committed)
        clone.add_vllm(project, address)
        known = profiles.gpu_profiles(project)
        if unknown := [name for name in names if name not in (*known, FAULTS)]:
            raise DataError(f"{', '.join(unknown)}: not a GPU profile; expected one of {', '.join(known)}")
        environment = clone.environment(project, work, hub.environment(work / "hf"))
        show(f"clone and substitutes: {time.monotonic() - start:.0f} s in {work}")
        yield Rehearsal(work, project, hub, environment, log, list(names) or known, verbose=verbose)


def _made(folder: Path) -> bool:
    """True if this process made ``folder``; False if it existed."""
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
        return True
    return False


@contextmanager
def _vllm_parent(python: Path, work: Path, log: Path, model: Path, hub: dict[str, str]) -> Iterator[Path]:
    address = work / "vllm.socket"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(material.ROOT), "HOME": os.environ.get("HOME", "/")}
    environment["OMP_NUM_THREADS"] = "1"  # threads would not survive a fork
    environment |= hub  # the client of the Hub reads them when it is imported
    command = [str(python), "-m", "tests.campaigns.rehearsal.vllm_parent", str(address), str(log), str(model)]
    with (log / "vllm.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, env=environment)
    try:
        assert process.stdout is not None
        if b"ready\n" not in process.stdout:
            raise RehearsalError(f"vLLM cannot be imported:\n{_tail(log / 'vllm.txt')}")
        yield address
    finally:
        process.terminate()
        process.wait()


def _here(command: str, machine: profiles.Machine | None = None) -> str:
    """The command on this machine: no GPU, no second machine, and a plan for the cards that are simulated."""
    if command == "pathfinder plan --gpu" and machine:
        return f"{command} --memory {machine.gigabytes} --gpus {machine.cards}"
    if command == "make run":  # which starts as many stages as there are GPUs
        return "make data && pathfinder run --jobs 2"
    return command.replace("BUILD=cuda", "BUILD=cpu").replace("first-machine", "127.0.0.1")


def _is_healthy(port: int) -> bool:
    import httpx

    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _tail(path: Path) -> str:
    return _last(path.read_text(encoding="utf-8", errors="replace"))


def _last(text: str) -> str:
    return "\n".join(text.splitlines()[-40:])
