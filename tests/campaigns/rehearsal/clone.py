"""A fresh clone of the working tree, with this environment as its ``.venv`` and vLLM's substitute as ``.venv-vllm``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.campaigns.rehearsal import material

ROOT = material.ROOT
_GIT = ("git", "-c", "user.name=rehearsal", "-c", "user.email=rehearsal@example.org", "-c", "commit.gpgsign=false")


def clone(target: Path, cache: Path, committed: bool = False) -> Path:
    """Clone the project to ``target`` and commit the uncommitted changes there, unless ``committed``.

    DVC's cache is the folder ``cache``, which clones share: a stage that one of them ran is restored in the others.
    The environments are folders of links. Stamps newer than every file tell make that they are complete.
    """
    _run("git", "clone", "-q", "--shared", str(ROOT), str(target))
    if not committed:
        names = _run("git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard").split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target / name)
            else:
                (target / name).unlink(missing_ok=True)
    _run(sys.executable, "-m", "dvc", "config", "--project", "cache.dir", str(cache), folder=target)
    commit(target, "Working tree")
    environment = Path(sys.prefix)
    (target / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (target / ".venv" / name).symlink_to(environment / name)
    for name in (".installed", ".installed-cpu", ".installed-dev"):
        (target / ".venv" / name).touch()
    return target


def commit(target: Path, subject: str) -> None:
    """Commit everything in the clone."""
    _run(*_GIT, "-C", str(target), "add", "-A")
    _run(*_GIT, "-C", str(target), "commit", "-q", "--allow-empty", "-m", subject)


def add_vllm(target: Path, address: Path) -> None:
    """Put a ``vllm`` command into the clone's ``.venv-vllm`` that talks to the process at ``address``."""
    command = target / ".venv-vllm/bin/vllm"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"#!{material.vllm_python()}\nimport sys\n\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.campaigns.rehearsal.vllm_client import main\n\nmain({str(address)!r})\n",
        encoding="utf-8",
    )
    command.chmod(0o755)
    (target / ".venv-vllm/.installed").touch()


def environment(target: Path, work: Path, hub: dict[str, str]) -> dict[str, str]:
    """The variables of every command in the clone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PATHFINDER_", "HF_", "MAKE"))}
    temporary = work / "tmp"
    temporary.mkdir(exist_ok=True)
    return kept | hub | {
        "PATH": f"{target / '.venv/bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{target}{os.pathsep}{ROOT / 'tests/campaigns/rehearsal/site'}",
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(temporary),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PATHFINDER_KERNELS": "native",  # bfloat16 is ten times slower with the kernels that all machines share
        "DO_NOT_TRACK": "1",
        "DVC_NO_ANALYTICS": "1",
        "COLUMNS": "160",
    }  # fmt: skip


def _run(*words: str, folder: Path | None = None) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
