"""The project in which ``dvc push`` sends the outputs of stages, so that no stage waits for it.

``dvc push`` holds the lock of its project as long as the remote takes, and every stage needs that lock. So the push
runs in a separate project in ``.dvc/tmp/push``: the same cache and remotes, and one ``.dvc`` file with the outputs from
the lock.
"""

from __future__ import annotations

import configparser
import io
from collections.abc import Sequence
from pathlib import Path

from evidence.dvc.history import read_lock
from evidence.dvc.lock import dvc_lock
from evidence.dvc.stores import cache_of, object_key, remote_of
from ground.hashing import md5_of
from ground.io import write_bytes, write_text
from ground.remote import kind_of

FOLDER = Path(".dvc/tmp/push")
_TIMEOUTS_S = {"connect_timeout": "20", "read_timeout": "60"}


def prepare(root: Path, names: Sequence[str]) -> Path:
    """Write the project that pushes the outs of stages as the lock has them; returns its folder.

    Raises ``DataError`` if a file is not valid, and ``TransientError`` if DVC writes its lock file for too long.
    """
    config = _config(root)
    with dvc_lock(root):
        lock = read_lock(root)
    outs = [out for name in names if name in lock for out in lock[name].outs.items()]
    for path, md5 in outs:
        # Git holds small outs, so the cache of a clone lacks them, and a remote is complete only with them.
        target, file = Path(config["cache"]["dir"]) / object_key(md5), root / path
        if not target.exists() and file.is_file() and md5_of(file) == md5:
            write_bytes(target, file.read_bytes())
            target.chmod(0o444)
    folder = root / FOLDER
    (folder / ".dvc").mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    config.write(text)
    write_text(folder / ".dvc/config", text.getvalue())
    hashes = enumerate(sorted({md5 for _, md5 in outs}))
    lines = [f"- {{path: 'out{number}', hash: md5, md5: '{md5}'}}\n" for number, md5 in hashes]
    write_text(folder / "push.dvc", "outs:\n" + "".join(lines))
    return folder


def _config(root: Path) -> configparser.ConfigParser:
    """The project's DVC settings for the folder of the push, with absolute paths and no git repository."""
    remote = remote_of(root)
    section = f"'remote \"{remote.name}\"'"
    config = configparser.ConfigParser(interpolation=None)
    config.read_dict({"core": {}, "cache": {}, section: _TIMEOUTS_S if kind_of(remote.address) else {}})
    config.read([root / ".dvc/config", root / ".dvc/config.local"], encoding="utf-8")
    if remote.folder is not None:
        config[section]["url"] = str(remote.folder)
    config["cache"]["dir"] = str(cache_of(root).resolve())
    config["core"]["no_scm"] = "true"
    return config
