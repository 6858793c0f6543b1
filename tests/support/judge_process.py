"""A judge server in its own process with one event loop, for tests with kills and for 100,000 calls.

``python -m tests.support.judge_process SECONDS`` prints its port; an answer takes SECONDS. ``GET /counts`` returns the
number of calls and of distinct calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

_REASONING = "The step follows from the previous ones, and the arithmetic was checked twice. " * 6


def answer_to(prompt: str, seed: int) -> str:
    """Determined by prompt and seed; one in eight cannot be parsed."""
    draw = hashlib.sha256(f"{seed} {prompt}".encode()).digest()
    if draw[0] < 32:
        return "I would rather not."
    a, b, c = (int(value < 140) for value in draw[1:4])
    return f"{_REASONING}\nFinal answers:\nScore A: {a}\nScore B: {b}\nScore C: {c}"


async def serve(seconds: float) -> None:
    calls: list[int] = [0]
    distinct: set[bytes] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                length = next((int(line[15:]) for line in lines if line.lower().startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                writer.write(await reply(lines[0].split()[1], body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a killed client
        finally:
            writer.close()

    async def reply(path: str, body: bytes) -> bytes:
        if path.endswith("/models"):
            value: object = {"object": "list", "data": [{"id": "fast-judge", "object": "model"}]}
        elif path == "/counts":
            value = {"calls": calls[0], "distinct": len(distinct)}
        else:
            asked = json.loads(body)
            prompt, seed = asked["messages"][0]["content"], asked["seed"]
            calls[0] += 1
            distinct.add(hashlib.sha256(f"{seed} {prompt}".encode()).digest())
            if seconds:
                await asyncio.sleep(seconds)
            text = answer_to(prompt, seed)
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 120, "total_tokens": 0}
            value = {"id": "x", "object": "chat.completion", "created": 0, "model": "fast-judge", "usage": usage}
            value |= {"choices": [choice]}
        content = json.dumps(value).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        return head.encode() + content

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**22)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


@contextmanager
def judge_process(root: str, seconds: float = 0.0) -> Iterator[str]:
    """Run the server and yield its address."""
    command = [sys.executable, "-m", "tests.support.judge_process", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def counts(url: str) -> tuple[int, int]:
    """The number of calls and of distinct calls."""
    found = httpx.get(f"{url}/counts", timeout=30).json()
    return found["calls"], found["distinct"]


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
