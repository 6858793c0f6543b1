"""Fetching one file over HTTP so that nothing is fetched twice: range requests, retries with jitter, atomic arrival."""

from __future__ import annotations

import hashlib
import http.client
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, TransientError, read_json, write_json
from pathfinder.core.progress import Progress

_CHUNK = 1 << 18
_LONGEST_WAIT_S = 30.0
_RETRIED = (408, 425, 429)


class _CutOffError(ConnectionError):
    """The body ended before its announced length."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Keeps unfinished files in ``partial``, each beside the validator (ETag or date) that it began with."""

    partial: Path
    retries: int
    timeout_s: float

    def fetch(self, url: str, target: Path) -> None:
        """Bring ``url`` to ``target``; ``TransientError`` after the last retry, ``DataError`` where it is not there."""
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise DataError(f"{url}: expected an http or https address")
        self.partial.mkdir(parents=True, exist_ok=True)
        part = self.partial / f"{hashlib.sha256(url.encode()).hexdigest()[:24]}.part"
        for attempt in range(self.retries + 1):
            try:
                self._continue(url, part)
                break
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code not in _RETRIED:
                    raise DataError(f"{url}: {error.code} {error.reason}; correct download.sources") from error
                self._pause(url, attempt, error)
            except (OSError, http.client.HTTPException) as error:
                self._pause(url, attempt, error)
        target.parent.mkdir(parents=True, exist_ok=True)
        part.replace(target)
        part.with_suffix(".json").unlink(missing_ok=True)

    def _pause(self, url: str, attempt: int, error: Exception) -> None:
        if attempt == self.retries:
            raise TransientError(
                f"{url}: {error} ({attempt + 1} tries); what came is kept, the same command goes on from there"
            ) from error
        headers: Any = getattr(error, "headers", None)
        asked = headers.get("Retry-After", "") if headers is not None else ""
        wait = float(asked) if asked.isdigit() else 0.5 * 2.0**attempt * random.uniform(0.5, 1.5)
        time.sleep(min(wait, _LONGEST_WAIT_S))

    def _continue(self, url: str, part: Path) -> None:
        notes = part.with_suffix(".json")
        validator = str(read_json(notes)["validator"]) if notes.exists() else ""
        have = part.stat().st_size if part.exists() and validator else 0
        request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})  # noqa: S310 - scheme checked
        if have:
            request.add_header("Range", f"bytes={have}-")
            request.add_header("If-Range", validator)
        with urllib.request.urlopen(request, timeout=self.timeout_s) as response:  # noqa: S310 - scheme checked
            start = _range_start(response) if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
            if start not in (0, have):
                raise _CutOffError(f"the server goes on at byte {start}, asked for {have}")
            tag = response.headers.get("ETag", "")
            strong = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
            write_json(notes, {"validator": strong})
            length = response.headers.get("Content-Length")
            _receive(response, part, start, int(length) if length is not None else None)


def _range_start(response: Any) -> int:
    found = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    if not found.isdigit():
        raise _CutOffError(f"unreadable Content-Range {response.headers.get('Content-Range')!r}")
    return int(found)


def _receive(response: Any, part: Path, start: int, length: int | None) -> None:
    total = start + (length or 0)
    with part.open("r+b" if start else "wb") as handle, Progress(f"fetch {part.stem}", total, "B") as progress:
        handle.seek(start)
        handle.truncate()
        progress.resume(start)
        while chunk := response.read(_CHUNK):
            handle.write(chunk)
            progress.advance(len(chunk))
        if length is not None and handle.tell() < total:
            raise _CutOffError(f"{handle.tell()} of {total} bytes came")
