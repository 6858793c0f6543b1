"""Fetch repositories of the Hub at one commit: a data set into a folder, a model into the Hub client's own cache.

Complete files are never fetched again. The client continues a failed transfer; the next run starts that file again. For
a model, only data are fetched, never code or weights in a format that can run code.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from ground.io import DataError, TransientError, sha256_file
from ground.progress import Progress
from ground.settings import caused_by, require_address, require_certificate
from pathfinder.core.hub import HubModel, cached_file, http_library, is_commit
from pathfinder.core.params import Download, Source
from pathfinder.sources.http_fetch import RETRIED, require_space, retried

WEIGHTS = ".safetensors"
_SUFFIXES = (WEIGHTS, ".json", ".jinja", ".model", ".txt")
"""A model's weights, configuration and tokenizer. ``consolidated*`` repeats the weights in a different layout."""
_THREADS = 4  # files fetched at a time
_CONNECT_S = 10.0  # a Hub that does not take a connection for so long does not respond
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listing:
    """The files to fetch from a repository at one commit: path in the repository -> size in bytes, and known sha256."""

    repo: str
    kind: str
    revision: str
    sizes: dict[str, int]
    sha256: dict[str, str]

    def as_model(self) -> HubModel:
        """The repository at its commit."""
        return HubModel(self.repo, self.revision)


def wrong(source: Source, fault: str, remedy: str = "correct download.sources") -> DataError:
    """The error for a source that cannot be fetched as described."""
    return DataError(f"source {source.name}: {fault}; {remedy}")


def look_up(source: Source, settings: Download) -> Listing:
    """Ask the Hub for the commit of a source and the files to fetch: the listed files, or else every file that is used.

    Raises ``DataError`` if repository, revision or a listed file does not exist or may not be read, ``TransientError``
    if the Hub cannot be reached.
    """
    huggingface_hub = _client()
    kind = "dataset" if source.location.startswith("datasets/") else "model"
    repo, api = source.location.removeprefix("datasets/"), huggingface_hub.HfApi()
    wanted = [source.path_of(name) for name in source.files]

    def ask() -> Listing:
        if kind == "model" and wanted and (commit := source.revision) and is_commit(commit):
            cached = {path: cached_file(HubModel(repo, commit), path) for path in wanted}
            sizes = {path: file.stat().st_size for path, file in cached.items() if file is not None}
            if len(sizes) == len(wanted):
                return Listing(repo, kind, commit, sizes, {})  # needs no network
        # Also for a commit: the client repeats a listing for 23 s without a word, but not this request.
        limits = _limits(settings.timeout_s)
        revision = str(api.repo_info(repo, repo_type=kind, revision=source.revision or "main", timeout=limits).sha)
        tree = api.list_repo_tree(repo, recursive=True, revision=revision, repo_type=kind)
        files = {entry.path: entry for entry in tree if isinstance(entry, huggingface_hub.RepoFile)}
        for path in wanted:
            if path not in files:
                raise wrong(source, f"{repo} has no file {path} at {revision}")
        paths = wanted or [path for path in files if _is_used(path, kind, source.name)]
        if not paths:
            raise wrong(source, f"{repo} at {revision} holds no file to fetch")
        if kind == "model" and not wanted and not source.name.endswith("/tokenizer"):
            _require_weights(source, paths)
        known = {path: entry.lfs.sha256 for path, entry in files.items() if path in paths and entry.lfs is not None}
        return Listing(repo, kind, revision, {path: files[path].size for path in paths}, known)

    return _retried(source, settings, ask, is_lookup=True)


def _limits(seconds: float) -> Any:
    """Seconds to wait for an answer and, fewer, for a connection, in the form of the client's HTTP library."""
    library, connect = http_library(), min(seconds, _CONNECT_S)
    return (connect, seconds) if library.__name__ == "requests" else library.Timeout(seconds, connect=connect)


def _require_weights(source: Source, paths: list[str]) -> None:
    if not any(path.endswith(WEIGHTS) for path in paths):
        raise wrong(
            source,
            f"{source.location} at {source.revision} has no safetensors weights, and other formats can run code",
            "name a revision that has them (conversions are often at refs/pr/N), or list `files`",
        )


def _client() -> Any:
    import huggingface_hub

    client: Any = huggingface_hub
    client.logging.set_verbosity_error()  # failures are reported here
    return client


def _is_used(path: str, kind: str, source: str) -> bool:
    name = PurePosixPath(path)
    if any(part.startswith(".") for part in name.parts):
        return False
    if kind == "dataset":
        return True
    if len(name.parts) > 1 or name.suffix not in _SUFFIXES or name.name.startswith("consolidated"):
        return False
    return name.suffix != WEIGHTS or not source.endswith("/tokenizer")


def cache_folder() -> Path:
    """The folder of the Hub client's cache, which need not exist."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def require_cache_space(listings: dict[str, Listing]) -> None:
    """Refuse, before any transfer, models that do not fit on the disk of the Hub's cache; raises ``DataError``."""
    missing = {
        name: sum(size for path, size in listing.sizes.items() if cached_file(listing.as_model(), path) is None)
        for name, listing in listings.items()
        if listing.kind == "model"
    }
    needed = {name: size for name, size in missing.items() if size}
    parts = ", ".join(f"{name} {size / 2**30:.1f} GiB" for name, size in needed.items())
    remedy = "free some, or set HF_HOME to a folder on a larger disk"
    require_space(cache_folder(), sum(needed.values()), f"download.sources ({parts})", remedy)


def fetch_model(source: Source, listing: Listing, settings: Download) -> HubModel:
    """Fetch the files of a model into the Hub's cache and check their digests.

    Raises ``DataError`` for a refused or wrong file, ``TransientError`` if the network fails.
    """
    _fetch(source, listing, settings, None)
    files = {}
    with Progress(f"sha256 of {source.name}", sum(listing.sizes.values()), "B") as progress:
        for path in sorted(listing.sizes):
            files[path] = _checked(source, listing, path)
            progress.advance(listing.sizes[path])
    return HubModel(listing.repo, listing.revision, files)


def _checked(source: Source, listing: Listing, path: str) -> dict[str, Any]:
    """The sha256 and the size of a file in the Hub's cache; a wrong file is removed and raises ``DataError``."""
    file = cached_file(listing.as_model(), path)
    if file is None:
        raise wrong(source, f"{path} vanished from the Hub cache during the fetch", "run it again")
    digest = sha256_file(file)
    for expected in (listing.sha256.get(path), source.sha256_of(path)):
        if expected not in (None, digest):
            file.resolve().unlink()  # the blob to which the snapshot's name links
            file.unlink(missing_ok=True)
            raise DataError(
                f"source {source.name}: {path} of {listing.repo} at {listing.revision} has sha256 {digest}, expected "
                f"{expected}. The file was removed from the Hub cache; run the same command again, or correct "
                "download.sources"
            )
    return {"sha256": digest, "bytes": file.stat().st_size}


def fetch_dataset(source: Source, listing: Listing, folder: Path, settings: Download) -> None:
    """Fetch the files of a data set into ``folder``; raises as ``fetch_model`` does."""
    missing = sum(size for path, size in listing.sizes.items() if not (folder / path).exists())
    require_space(folder, missing, f"source {source.name}", "free some")
    _fetch(source, listing, settings, folder)


def _fetch(source: Source, listing: Listing, settings: Download, folder: Path | None) -> None:
    """Fetch every file of the listing, ``_THREADS`` at a time, into ``folder`` or (``None``) into the Hub's cache."""
    client = _client()

    def is_here(path: str) -> bool:
        return (cached_file(listing.as_model(), path) is not None) if folder is None else (folder / path).exists()

    left = {path: size for path, size in listing.sizes.items() if not is_here(path)}
    with Progress(f"fetch {listing.repo}", sum(listing.sizes.values()), "B") as progress:
        progress.resume(sum(listing.sizes.values()) - sum(left.values()))
        stopped = threading.Event()
        bar = byte_bar(progress, stopped)

        def fetch(path: str) -> None:
            _retried(
                source,
                settings,
                lambda: client.hf_hub_download(
                    listing.repo,
                    path,
                    repo_type=listing.kind,
                    revision=listing.revision,
                    local_dir=folder,
                    etag_timeout=settings.timeout_s,
                    tqdm_class=bar,
                ),
            )

        with ThreadPoolExecutor(_THREADS) as pool:
            futures = [pool.submit(fetch, path) for path in left]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


class _StoppedError(Exception):
    """Ends a running transfer, because a file failed or the user interrupted."""


def byte_bar(progress: Progress, stopped: threading.Event) -> Any:
    """A progress bar for ``huggingface_hub`` that counts into ``progress``; raises ``_StoppedError`` once stopped."""
    from tqdm import tqdm  # as the client does

    lock = threading.Lock()

    class Bar(tqdm):  # type: ignore[type-arg]  # no generic at run time
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(disable=True)

        def update(self, count: float | None = 1) -> None:
            """Count ``count`` more bytes. Raises ``_StoppedError`` if the transfer should stop."""
            if stopped.is_set():
                raise _StoppedError
            with lock:
                progress.advance(int(count or 0))

        def update_transfer(self, count: float | None = 1) -> None:
            """Counts only bytes over the network; the client also counts bytes on the disk."""

        set_transfer_postfix_str = tqdm.set_postfix_str

    return Bar


def _retried(source: Source, settings: Download, work: Callable[[], T], is_lookup: bool = False) -> T:
    """Do ``work`` until it succeeds, is refused (``DataError``) or has used up the retries (``TransientError``).

    A look-up also ends if the Hub's name does not resolve: waiting helps during a download that has begun, but not on
    a machine without a network or with a wrong ``HF_ENDPOINT``. Messages name this address, so it has no password.
    """
    from huggingface_hub.constants import ENDPOINT

    require_address(ENDPOINT, "correct HF_ENDPOINT")
    where = f"source {source.name}: {source.location} at {source.revision}"

    def explain(error: Exception) -> tuple[str, str]:
        _refuse(error, where)
        response = getattr(_origin(error), "response", None)
        failure = f"{where}: {_one_line(error)}" if response is not None else f"{where}: {ENDPOINT}: {_one_line(error)}"
        if is_lookup and caused_by(error, socket.gaierror):
            raise TransientError(
                f"{failure}; connect this machine to the network, or correct HF_ENDPOINT or the proxy, and run the "
                "same command again"
            ) from error
        return failure, "" if response is None else response.headers.get("Retry-After", "")

    expected = (http_library().HTTPError, OSError, RuntimeError)  # RuntimeError: the transfer library hf_xet
    return retried(work, expected, explain, settings.retries, "complete files are kept, run the same command again")


def _origin(error: BaseException) -> BaseException:
    """The error of the request: the client may report it as a file that is missing in the cache."""
    while getattr(error, "response", None) is None and error.__cause__ is not None:
        error = error.__cause__
    return error


def _refuse(error: Exception, where: str) -> None:
    """Raise ``DataError`` for an error that a retry cannot solve."""
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled

    require_certificate(error, where)
    origin = _origin(error)
    if isinstance(origin, OfflineModeIsEnabled):
        raise DataError(f"{where}: HF_HUB_OFFLINE forbids access to the Hub; unset it for the download") from error
    if isinstance(origin, GatedRepoError):
        raise DataError(
            f"{where}: access is restricted; accept the terms on the repository's page and set HF_TOKEN to a token of "
            "that account"
        ) from error
    if getattr(error, "errno", None) == errno.ENOSPC:
        raise DataError(f"{where}: no space left on the disk; free some, or set HF_HOME to a larger disk") from error
    status = getattr(getattr(origin, "response", None), "status_code", None)
    if status is not None and 400 <= status < 500 and status not in RETRIED:
        raise DataError(
            f"{where}: {_one_line(error)}; correct the name or the revision (of a stage: in download.sources), or give "
            "access with HF_TOKEN"
        ) from error


def _one_line(error: BaseException) -> str:
    text = " ".join(str(_origin(error)).split())
    return text[:300] or type(error).__name__
