"""The environment of a run: interpreter, processor, packages, variables, git, and who ran it.

Paths of the machine and values of variables that may be secret are never written; a digest replaces a path.

An installer writes RECORD, which has the sha256 of every file of a package. Python also runs lines of ``.pth`` files
and the modules ``sitecustomize`` and ``usercustomize`` when it starts.
"""

from __future__ import annotations

import base64
import getpass
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from evidence.settings import PREFIX
from ground.io import sha256_file, sha256_of, text_digest

FLOW_RUN = f"{PREFIX}FLOW_RUN"
"""The id of the scheduler's run that started the stage."""
IMAGE = f"{PREFIX}IMAGE"
"""The digest of the container image, which a process inside the container cannot see."""
_VARIABLE = re.compile(
    r"(ATEN|BLIS|CUBLAS|CUDA|CUDNN|DNNL|GOTO|HF|KMP|LC|LD|MALLOC|MKL|NCCL|NPY|NUMBA|NUMEXPR|NVIDIA|OMP|ONEDNN|OPENBLAS"
    r"|POLARS|PYTHON|PYTORCH|RAYON|TOKENIZERS|TORCH|TRANSFORMERS|VECLIB|VLLM)_?[A-Z0-9_]*|LANG|" + f"{PREFIX}[A-Z0-9_]*"
)
_SECRET = re.compile(r"TOKEN(?!IZERS)|KEY|SECRET|PASS|CREDENTIAL|AUTH|NOTIFY|WEBHOOK|COOKIE")
_FILTER = re.compile(r"filter\..*\.(clean|smudge|process|required)", re.I)
"""Settings of git that name programs, which status, diff, hash-object and worktree would start."""
_DIFFERS = ("diff", "log", "show")
_NO_PROGRAMS = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--submodule=short")
_GIT_OFF = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false", "core.quotePath=false")
GIT_ALONE = {"GIT_GRAFT_FILE": os.devnull, "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "", "GIT_NONE": ""}
GIT_ALONE["GIT_LITERAL_PATHSPECS"] = "1"  # a path is no pattern
"""No grafts, which give a commit different parents; no writing to the index; no fetching of missing objects."""
_PROCESSOR = "/proc/cpuinfo"
_PODMAN = Path("/run/.containerenv")
_LARGEST_DIGESTED = 64 << 20
_MOST_CHANGES = 500
_HASH = b",sha256="
Records = Mapping[str, Sequence[bytes]]
"""The lines of RECORD about files that are the same in every installation, by the package's name."""
_OF_INSTALLER = re.compile(
    rb"\.\./|__editable__|[^/]+\.dist-info/(INSTALLER|REQUESTED|direct_url\.json|uv_[a-z]+\.json),"
)
"""Lines about files that differ between two installations of one wheel."""
_AT_START = ("sitecustomize", "usercustomize")
_UNSURE = " (where packages have no RECORD)"


def describe_environment() -> dict[str, Any]:
    """Interpreter, machine, variables and installed packages as a JSON value; unknown facts are ``None``."""
    records = installed_records()
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _stated(_PROCESSOR, "model name"),
        "cpu_flags": " ".join(sorted((_stated(_PROCESSOR, "flags") or "").split())) or None,
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch": _torch(),
        "cuda": _cuda(),
        "variables": {name: _value(os.environ[name]) for name in sorted(os.environ) if _is_kept(name)},
        "packages": installed_packages(),
        "wheels": installed_wheels(records),
        "edited_files": edited_files(records),
    }


def describe_actor() -> dict[str, Any]:
    """User, host, container and flow run as a JSON value; unknown facts are ``None``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for the user's number
        user = str(os.getuid())
    markers = {"docker": Path("/.dockerenv"), "podman": _PODMAN}
    return {
        "user": user,
        "host": platform.node() or None,
        "container": next((name for name, marker in markers.items() if marker.exists()), None),
        "image": os.environ.get(IMAGE) or image_of(_PODMAN),
        "flow_run": os.environ.get(FLOW_RUN) or None,
    }


def image_of(marker: Path) -> str | None:
    """The digest of the image in the file that Podman puts into its containers; ``None`` if there is none."""
    found = re.search(r'^imageid="([0-9a-f]{64})"', marker.read_text() if marker.is_file() else "", re.MULTILINE)
    return f"sha256:{found[1]}" if found else None


def installed_packages() -> dict[str, str]:
    """Version by name of every distribution that this interpreter can import."""
    return {name: version for name, (version, _) in _distributions().items()}


def _distributions() -> dict[str, tuple[str, Path]]:
    """Version and ``.dist-info`` folder by name of every distribution; the first on the path counts."""
    found: dict[str, tuple[str, Path]] = {}
    for folder in filter(os.path.isdir, sys.path):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".dist-info"):
                distribution, _, version = name.removesuffix(".dist-info").partition("-")
                found.setdefault(re.sub(r"[-_.]+", "-", distribution).lower(), (version, Path(folder, name)))
    return dict(sorted(found.items()))


def peak_rss_bytes() -> int:
    """Peak resident memory of this process or of its largest finished child, whichever is larger."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak if sys.platform == "darwin" else peak * 1024  # KiB elsewhere


def describe_commit(paths: Sequence[str]) -> dict[str, Any]:
    """The commit checked out, and the ``paths`` that differ from it; ``None`` for what git does not know."""
    commit, found = revision("HEAD"), changed_files(*paths)
    changed = None if commit is None or found is None else sorted(map(_printable, found))
    return {"commit": commit, "dirty": None if changed is None else bool(changed), "changed": changed}


def describe_tree() -> dict[str, Any]:
    """The commit that is checked out, its tree, and every file that differs from it with its digest.

    ``changed`` maps a path to its sha256, or to ``None`` if the file is deleted or larger than 64 MiB. After 500 files
    only their number is given, in ``more``. A value that git does not know is ``None``.
    """
    commit, tree, found = revision("HEAD"), revision("HEAD^{tree}"), changed_files()
    if commit is None or tree is None or found is None:
        return {"commit": commit, "tree": tree, "changed": None, "more": None}
    changed = {_printable(path): _sha256(Path(path)) for path in sorted(found)[:_MOST_CHANGES]}
    return {"commit": commit, "tree": tree, "changed": changed, "more": len(found) - len(changed)}


def revision(name: str, root: Path = Path(".")) -> str | None:
    """The digest of the git object ``name``, such as HEAD; ``None`` if it does not exist."""
    found = git("rev-parse", name, root=root)
    return found and found.strip()


def git(*words: str, root: Path = Path(".")) -> str | None:
    """Run a git command in ``root`` and return its output; ``None`` if it fails or git is not installed.

    It starts no program that the repository names, asks no remote, and reads commits as they were made: without
    replacements and grafts.
    """
    after = 1 + next(place for place, word in enumerate(words) if not word.startswith("-"))  # options of git come first
    off = _NO_PROGRAMS if words[after - 1] in _DIFFERS else ()
    try:
        result = subprocess.run(
            [*git_in(root.absolute()), *words[:after], *off, *words[after:]],
            env=os.environ | GIT_ALONE,
            capture_output=True,
            check=False,
        )
    except (FileNotFoundError, ValueError):  # no git, or a name with a NUL
        return None
    # Bytes, because a text stream changes the ends of lines, which a patch must keep.
    return result.stdout.decode("utf-8", "surrogateescape") if result.returncode == 0 else None


@cache
def git_in(root: Path) -> list[str]:
    """The words that start git in ``root`` without the programs that the repository's own settings name.

    The settings of the user and of the machine are kept. Without these programs, the files of another user are safe.
    """
    start = ["git", "-c", "safe.directory=*", "--no-replace-objects", "-C", str(root)]
    listing = [*start, "config", "--list", "--includes", "--show-scope", "--name-only", "-z"]
    found = subprocess.run(listing, capture_output=True, check=False).stdout.decode("utf-8", "surrogateescape")
    scopes, names = found.split("\0")[::2], found.split("\0")[1::2]
    own = {name for scope, name in zip(scopes, names, strict=False) if scope in ("local", "worktree")}
    filters = sorted(f"--config-env={name}=GIT_NONE" for name in own if _FILTER.fullmatch(name))  # a name may have =
    return [*start, *(word for setting in _GIT_OFF for word in ("-c", setting)), *filters]


def hidden_edits(root: Path) -> list[str]:
    """Files that a flag of the index keeps out of ``git status``, and submodules, whose programs git would start."""
    entries = [entry.partition("\t") for entry in (git("ls-files", "-vsz", root=root) or "").split("\0")]
    flagged = [name for about, _, name in entries if about[:1] == "S" or about[:1].islower()]
    kept = [name for name in flagged if (root / name).is_file()]  # a sparse checkout has the flag and no file
    found = [n for n in kept if git("rev-parse", f":./{n}", root=root) != git("hash-object", "--", n, root=root)]
    modules = [name for about, _, name in entries if about[2:8] == "160000" and (root / name / ".git").exists()]
    own = [name for name in modules if (root / name).resolve() == root.resolve() / name]  # no link back to the project
    return found + [name for name in own if changed_files(root=root / name) != []]


def changed_files(*paths: str, root: Path = Path(".")) -> list[str] | None:
    """The files below ``paths``, or all files, that differ from the commit, new files included.

    Names and ``paths``, some of which may be outside of the repository, are relative to ``root``. Returns ``None`` if
    git cannot tell, as with a damaged index.
    """
    words = ("--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")
    status = git("status", *words, root=root)
    if status is None:
        return None
    folder = (git("rev-parse", "--show-prefix", root=root) or "").strip("\n")
    changed = [entry[3:] for entry in status.split("\0") if entry]
    below = (os.path.relpath(name, folder) if folder else name for name in changed)
    found = dict.fromkeys([*below, *hidden_edits(root)])
    places = [os.path.relpath(root / path, root) for path in paths or (".",)]
    return [name for name in found if "." in places or f"{name}/".startswith(tuple(f"{each}/" for each in places))]


def _printable(name: str) -> str:
    """A file name that is not valid UTF-8, with escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _sha256(path: Path) -> str | None:
    is_small = path.is_file() and path.stat().st_size <= _LARGEST_DIGESTED
    return sha256_file(path) if is_small else None


def _is_kept(name: str) -> bool:
    return _VARIABLE.fullmatch(name) is not None and _SECRET.search(name) is None


def _value(text: str) -> str:
    """A variable's value; one that may name a place on this machine is replaced by its digest."""
    return f"sha256 {text_digest(text)}" if "/" in text or "@" in text else text


def _stated(path: str, key: str = "") -> str | None:
    """The text after the colon of the first line that begins with ``key``; ``None`` if the system has no such file."""
    with suppress(OSError):
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)
    return None


def _torch() -> dict[str, Any] | None:
    """The settings that choose PyTorch's kernels on a CPU; ``None`` if the stage has not imported it."""
    torch = sys.modules.get("torch")  # never import it here: a stage that has not done so does not use it
    if torch is None:
        return None
    return {
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "mkl": torch.backends.mkl.is_available(),
        "mkldnn": torch.backends.mkldnn.is_available(),
    }


def _cuda() -> dict[str, Any] | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"version": torch.version.cuda, "driver": _stated("/proc/driver/nvidia/version"), "devices": devices}


def may_be_sound(name: str) -> bool:
    """True for a file that no package has, if the environment can have such files without an edit."""
    return name.startswith("_virtualenv.") or name.endswith(_UNSURE)


def installed_wheels(records: Records) -> dict[str, str]:
    """Half of the sha256 of the lines in each installed package's RECORD, by the package's name."""
    return {name: sha256_of(b"\n".join(sorted(lines)))[:32] for name, lines in records.items()}


def edited_files(records: Records) -> dict[str, list[str | None]]:
    """Files that this process ran and that differ from a package's RECORD: the sha256 there, and the sha256 now.

    The former is ``None`` for a file that Python ran at its start and that no package has.
    """
    loaded = sorted(_loaded().items())
    names = {name.encode() for _, name in loaded}
    lines = (line.rpartition(_HASH) for lines in records.values() for line in lines)
    stated = {own: rest for start, _, rest in lines if (own := start.strip(b'"')) in names}
    found: dict[str, list[str | None]] = {}
    for file, name in loaded:
        expected = _hexadecimal(stated.get(name.encode()))
        is_own = name.startswith("__editable__")  # the record names the modules that it leads to
        if is_own or (expected is None and file.suffix != ".pth" and file.stem not in _AT_START):
            continue
        if (now := sha256_file(file)) != expected:
            found[name if expected or _has_records(file.parent) else f"{name}{_UNSURE}"] = [expected, now]
    return found


def _hexadecimal(stated: bytes | None) -> str | None:
    """The hexadecimal form of a sha256 in RECORD, which its size follows."""
    return None if stated is None else base64.urlsafe_b64decode(stated.partition(b",")[0] + b"==").hex()


def _has_records(folder: Path) -> bool:
    """True if an installer wrote RECORD for every package in a folder."""
    packages = [*folder.glob("*.dist-info"), *folder.glob("*.egg-info")]
    return bool(packages) and all((package / "RECORD").is_file() for package in packages)


def installed_records() -> Records:
    """The lines of the RECORD of each installed package."""
    files = ((name, folder / "RECORD") for name, (_, folder) in _distributions().items())
    lines = ((name, file.read_bytes().splitlines()) for name, file in files if file.is_file())
    return {name: [line for line in of if _HASH in line and not _OF_INSTALLER.match(line)] for name, of in lines}


def _loaded() -> dict[Path, str]:
    """The loaded modules of packages, ``.pth`` files, and modules that Python runs at its start, with their names."""
    paths = [Path(name) for name in dict.fromkeys(sys.path) if os.path.isabs(name)]
    folders = [folder for folder in paths if any(folder.glob("*.dist-info"))]
    found = {file: file.name for folder in folders for file in folder.glob("*.pth")}
    places = tuple(f"{folder}/" for folder in folders)
    for name, module in [*sys.modules.items()]:
        file = Path(str(getattr(module, "__file__", None) or ""))
        place = next((place for place in places if str(file).startswith(place)), None)
        if (place is not None or name in _AT_START) and file.is_file():
            found[file] = str(file).removeprefix(place) if place is not None else file.name
    return found
