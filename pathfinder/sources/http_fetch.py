"""Download one file over HTTP: resumed with range requests, retried with jitter, moved into place when complete."""

from __future__ import annotations

import hashlib
import random
import shutil
import sys
import time
from pathlib import Path

import httpx

from ground.io import DataError, TransientError, make_folder, read_json, sync, write_json
from ground.progress import Progress
from ground.settings import require_address, require_certificate
from ground.text import printable
from pathfinder.core.params import Download

RETRIED = (408, 416, 425, 429)
"""Refusals that may end, besides every 5xx."""
_LONGEST_WAIT_S = 30.0
_SPARE_BYTES = 1 << 30  # left free for everything else


def fetch_file(url: str, target: Path, partial: Path, settings: Download) -> None:
    """Download ``url`` to ``target``. The folder ``partial`` keeps an unfinished file for the next attempt or run.

    Raises ``TransientError`` after the last retry, ``DataError`` if the address is wrong or the server refuses it.
    """
    require_address(url, "correct download.sources")
    partial.mkdir(parents=True, exist_ok=True)
    part = partial / f"{hashlib.sha256(url.encode()).hexdigest()[:24]}.part"
    for attempt in range(settings.retries + 1):
        retry_after = ""
        try:
            _resume(url, part, settings.timeout_s)
        except httpx.HTTPStatusError as error:
            response = error.response
            failure = f"{response.status_code} {response.reason_phrase}"
            if response.status_code < 500 and response.status_code not in RETRIED:
                raise DataError(f"{url}: {failure}; correct download.sources") from error
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)  # all bytes were received before a kill: only a new start helps
            retry_after = response.headers.get("Retry-After", "")
        except (httpx.RequestError, OSError) as error:
            require_certificate(error, url)
            failure = str(error) or type(error).__name__
        else:
            make_folder(target.parent)
            sync(part)
            part.replace(target)
            sync(target.parent)
            part.with_suffix(".json").unlink()
            return
        if attempt < settings.retries:
            pause(f"{url}: {failure}", attempt, settings.retries, retry_after)
    raise TransientError(
        f"{url}: {failure} ({settings.retries + 1} attempts); the received part is kept, run the same command to resume"
    )


def pause(failure: str, attempt: int, retries: int, retry_after: str = "") -> None:
    """Wait before the next attempt: as long as the server's Retry-After header asks for, or longer each time.

    A line on standard error says what failed, how long the wait is, and how many attempts are left. ``attempt`` counts
    from 0.
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
                require_space(part.parent, len(chunk), url, "free some")  # a server need not say how much it sends
                handle.write(chunk)
                progress.advance(len(chunk))
