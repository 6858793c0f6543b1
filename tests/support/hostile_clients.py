"""Clients that harm a server of step scores on this machine, for the benchmark of what others notice.

Run     python -m tests.support.hostile_clients ADDRESS

There are 64 at a time, for as long as standard input is open: 24 send 50 KB and go after half a second, 24 send 1 MiB,
and 16 send a byte of a request now and then. Each waits half a second before it starts again. At the end, print a JSON
object: how many requests were refused with each status.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from contextlib import suppress
from urllib.parse import urlsplit

PAUSE_S = 0.5
CLIENTS = ("abandoned",) * 24 + ("large",) * 24 + ("slow",) * 16
HEAD = "POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "


def request(size: int) -> bytes:
    """A valid request of about ``size`` bytes: solutions of 64 steps."""
    step = "The number of apples is 3 + 4 = 7, so we have 7 apples."
    one = {"problem": "How many apples are there?", "steps": [step] * 64}
    text = json.dumps({"solutions": [one] * max(1, size // len(json.dumps(one)))})
    return f"{HEAD}{len(text)}\r\n\r\n{text}".encode()


async def harm(kind: str, host: str, port: int, refused: Counter[str]) -> None:
    """One client, for one connection."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        if kind == "slow":
            for byte in HEAD.encode():
                writer.write(bytes([byte]))
                await asyncio.sleep(PAUSE_S)
        else:
            writer.write(BODIES[kind])
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S if kind == "abandoned" else None):
                    status = (await reader.readline()).decode()[9:12]
                    refused[status] += 1
    finally:
        writer.transport.abort()


BODIES = {"abandoned": request(50_000), "large": request(1 << 20)}


async def harm_until_the_end(address: str) -> Counter[str]:
    """All clients; the number of answers with each status."""
    place = urlsplit(address)
    refused = Counter[str]()

    async def repeat(kind: str) -> None:
        await asyncio.sleep(random.random() * 2 * PAUSE_S)
        while True:
            with suppress(OSError):
                await harm(kind, str(place.hostname), int(place.port or 0), refused)
            await asyncio.sleep(PAUSE_S)

    tasks = [asyncio.create_task(repeat(kind)) for kind in CLIENTS]
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return refused


if __name__ == "__main__":
    print(json.dumps(asyncio.run(harm_until_the_end(sys.argv[1]))))
