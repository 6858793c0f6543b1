"""Download one file over HTTP: resumed with range requests, retried with jitter, moved into place when complete."""

from __future__ import annotations

import hashlib
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx

from ground.io import DataError, TransientError, make_folder, read_json, sync, write_json
from ground.progress import Progress
from ground.settings import require_address, require_certificate
from ground.text import printable
from pathfinder.core.params import Download

RETRIED = (408, 416, 425, 429)
"""Refusals that may be temporary, in addition to every 5xx."""
_LONGEST_WAIT_S = 30.0
_SPARE_BYTES = 1 << 30  # left free for everything else
T = TypeVar("T")


def fetch_file(url: str, target: Path, partial: Path, settings: Download) -> None:
    """Download ``url`` to ``target``. The folder ``partial`` keeps an unfinished file for the next attempt or run.

    Raises ``TransientError`` after the last retry, ``DataError`` if the address is wrong or the server refuses it.
    """
    require_address(url, "correct download.sources")
    partial.mkdir(parents=True, exist_ok=True)
    part = partial / f"{hashlib.sha256(url.encode()).hexdigest()[:24]}.part"

    def explain(error: Exception) -> tuple[str, str]:
        if not isinstance(error, httpx.HTTPStatusError):
            require_certificate(error, url)
            return f"{url}: {error or type(error).__name__}", ""
        status, failure = (
            error.response.status_code,
            f"{url}: {error.response.status_code} {error.response.reason_phrase}",
        )
        if status < 500 and status not in RETRIED:
            raise DataError(f"{failure}; correct download.sources") from error
        if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)  # all bytes had arrived before a kill: only a new start helps
        return failure, error.response.headers.get("Retry-After", "")

    kept = "the received part is kept, run the same command to resume"
    retried(lambda: _resume(url, part, settings.timeout_s), (httpx.HTTPError, OSError), explain, settings.retries, kept)
    make_folder(target.parent)
    sync(part)
    part.replace(target)
    sync(target.parent)
    part.with_suffix(".json").unlink()


def retried(
    work: Callable[[], T],
    expected: tuple[type[Exception], ...],
    explain: Callable[[Exception], tuple[str, str]],
    retries: int,
    kept: str,
) -> T:
    """Do ``work`` until it succeeds; an ``expected`` error is retried up to ``retries`` times.

    ``explain`` returns the failure in words and the server's Retry-After header, or raises the error that ends the
    attempts. After the last attempt, raises ``TransientError``, which ends in ``kept``.
    """
    for attempt in range(retries + 1):
        try:
            return work()
        except expected as error:
            failure, retry_after = explain(error)
        if attempt < retries:
            pause(failure, attempt, retries, retry_after)
    raise TransientError(f"{failure} ({retries + 1} attempts); {kept}")


def pause(failure: str, attempt: int, retries: int, retry_after: str = "") -> None:
    """Wait before the next attempt: as long as the server's Retry-After header says, or else longer each time.

    A line on standard error names the failure, the wait, and the attempts that are left. ``attempt`` counts from 0.
    """
    wait = float(retry_after) if retry_after.isdecimal() else 0.5 * 2.0**attempt * random.uniform(0.5, 1.5)
    wait = min(wait, _LONGEST_WAIT_S)
    next_one = f"attempt {attempt + 2} of {retries + 1} in {wait:.1f} s"
    print(f"{printable(failure)}; {next_one}", file=sys.stderr, flush=True)
    time.sleep(wait)


def require_space(folder: Path, needed: int, what: str, remedy: str) -> None:
    """Raise ``DataError`` if the disk of ``folder`` (which need not exist) has no room for ``needed`` bytes."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed and needed + _SPARE_BYTES > free:
        raise DataError(
            f"{what}: {needed / 2**30:.1f} GiB are still to be fetched, but {place} has {free / 2**30:.1f} GiB free "
            f"(1 GiB stays in reserve); {remedy}"
        )


def _resume(url: str, part: Path, timeout_s: float) -> None:
    """Append the missing bytes to ``part``; write it from the start if the file on the server has changed."""
    notes = part.with_suffix(".json")
    validator = str(read_json(notes)["validator"]) if notes.exists() else ""
    have = part.stat().st_size if part.exists() and validator else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator}
    with httpx.stream("GET", url, headers=headers, timeout=timeout_s, follow_redirects=True) as response:
        response.raise_for_status()
        partial_content = response.status_code == httpx.codes.PARTIAL_CONTENT
        if partial_content and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise httpx.RemoteProtocolError(f"asked for byte {have}, got {response.headers.get('Content-Range')!r}")
        etag = response.headers.get("ETag", "")
        strong = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
        write_json(notes, {"validator": strong})
        start = have if partial_content else 0
        total = start + int(response.headers.get("Content-Length", 0))
        require_space(part.parent, total - start, url, "free some")
        with part.open("ab" if start else "wb") as handle, Progress(f"fetch {part.stem}", total, "B") as progress:
            progress.resume(start)
            for chunk in response.iter_raw():
                require_space(part.parent, len(chunk), url, "free some")  # a server need not state the length
                handle.write(chunk)
                progress.advance(len(chunk))
