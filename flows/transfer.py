"""A push of the outputs of stages and of their entries in DVC's run cache; the remote gets only what is new to it.

``dvc push`` holds the lock of its project as long as the remote takes, and every stage needs that lock. So the push
runs in a project of its own in ``.dvc/tmp/push``: the same cache and remotes, and one ``.dvc`` file with the outputs
from the lock. ``dvc push --run-cache`` would also send every entry of the run cache each time, one file at a time.
"""

from __future__ import annotations

import configparser
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.dvc.history import Locked, read_lock
from evidence.dvc.lock import dvc_lock
from evidence.dvc.stores import object_key, run_cache_entries
from ground.hashing import md5_of
from ground.io import DataError, write_bytes, write_text
from ground.remote import from_dvc, kind_of, open_store

FOLDER = Path(".dvc/tmp/push")
_NAME_LENGTH = 64  # other files are unfinished
_TIMEOUTS_S = {"connect_timeout": "20", "read_timeout": "60"}


@dataclass(frozen=True, slots=True)
class Transfer:
    """A prepared push: the folder in which ``dvc push`` sends the outputs, and the entries that follow them.

    ``can_open`` is False for a remote that only DVC can open.
    """

    folder: Path
    cache: Path
    remote: str
    can_open: bool
    stages: tuple[Locked, ...]

    @classmethod
    def prepare(cls, root: Path, names: Sequence[str]) -> Transfer:
        """Write the project that pushes the outputs of the stages ``names`` as the lock has them now.

        Raises ``DataError`` if a file is not valid, and ``TransientError`` if DVC writes its lock file for too long.
        """
        config = _config(root)
        cache = Path(config["cache"]["dir"])
        with dvc_lock(root):
            lock = read_lock(root)
        stages = tuple(lock[name] for name in names if name in lock)
        for stage in stages:
            _cache_small_files(root, cache, stage.outs)
        hashes = sorted({md5 for stage in stages for md5 in stage.outs.values()})
        folder = root / FOLDER
        (folder / ".dvc").mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        config.write(text)
        write_text(folder / ".dvc/config", text.getvalue())
        outs = [f"- {{path: 'out{number}', hash: md5, md5: {md5}}}\n" for number, md5 in enumerate(hashes)]
        write_text(folder / "push.dvc", "outs:\n" + "".join(outs))
        remote = config[_remote(config["core"]["remote"])]
        endpoint = remote.get("endpointurl", "")
        address = from_dvc(remote["url"], endpoint)
        kind = kind_of(address)
        can_open = kind.endpoint() == endpoint if kind else "://" not in address or address.startswith("file://")
        return cls(folder, cache, address, can_open, stages)

    def command(self) -> list[str]:
        """The words after ``dvc``; DVC sends the whole run cache to a remote that only it can open."""
        return ["push"] if self.can_open else ["push", "--run-cache"]

    def send_run_cache(self) -> list[str]:
        """Send the stages' entries that are new to the remote; returns their keys, and raises as a store does."""
        if not self.can_open:
            return []
        store, sent = open_store(f"{self.remote.rstrip('/')}/runs"), []
        for path in run_cache_entries(self.cache):
            key = path.relative_to(self.cache / "runs").as_posix()
            if len(path.name) == _NAME_LENGTH and self._is_mine(path.read_text()) and key not in store.keys(key):
                store.put(key, path.read_bytes())
                sent.append(key)
        return sent

    def _is_mine(self, entry: str) -> bool:
        """Return whether an entry has all digests of one of the stages."""
        digests = ({*stage.outs.values(), *stage.deps.values()} for stage in self.stages)
        return any(wanted and all(md5 in entry for md5 in wanted) for wanted in digests)


def _config(root: Path) -> configparser.ConfigParser:
    """The project's DVC settings for the folder of the push, with absolute paths and no git repository."""
    config = configparser.ConfigParser(interpolation=None)
    for name in ("config", "config.local"):
        config.read(root / ".dvc" / name, encoding="utf-8")
    for section in ("core", "cache"):
        if not config.has_section(section):
            config.add_section(section)
    name = config["core"].get("remote", "")
    if not config.has_option(_remote(name), "url"):
        raise DataError(f"{root / '.dvc/config'}: names no remote with a url; restore it with `git checkout`")
    for section in config.sections():
        if (url := config[section].get("url", "")) and "://" not in url:
            config[section]["url"] = str((root / ".dvc" / url).resolve())
    config["cache"]["dir"] = str((root / ".dvc" / config["cache"].get("dir", "cache")).resolve())
    config["core"]["no_scm"] = "true"
    if kind_of(config[_remote(name)]["url"]):
        for key, value in _TIMEOUTS_S.items():
            config[_remote(name)].setdefault(key, value)
    return config


def _cache_small_files(root: Path, cache: Path, outs: Mapping[str, str]) -> None:
    """Copy outs that git holds to the cache, which lacks them in a clone: a remote is complete only with them."""
    for path, md5 in outs.items():
        target, file = cache / object_key(md5), root / path
        if not target.exists() and file.is_file() and md5_of(file) == md5:
            write_bytes(target, file.read_bytes())
            target.chmod(0o444)


def _remote(name: str) -> str:
    return f"'remote \"{name}\"'"
