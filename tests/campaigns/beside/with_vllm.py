"""Beside vLLM: its clients ask ``pathfinder serve``, and its protocol classes take our answers without a foreign field.

Run     python with_vllm.py MODEL     in an environment with vLLM 0.32 and the extra ``serve``
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import httpx
from pydantic import BaseModel, TypeAdapter
from vllm.benchmarks.lib.endpoint_request_func import ASYNC_REQUEST_FUNCS, RequestFuncInput
from vllm.entrypoints.pooling.classify.protocol import ClassificationRequest, ClassificationResponse
from vllm.entrypoints.pooling.pooling.protocol import PoolingRequest, PoolingResponse
from vllm.entrypoints.pooling.scoring.protocol import RerankRequest, RerankResponse, ScoreRequest, ScoreResponse

PROBLEM = "What is 12 + 7?"
ANSWERS = "12 + 7 = 18.", "12 + 7 = 19."
TEXTS = [f"{PROBLEM}\n\n{answer}" for answer in ANSWERS]
CHAT = [{"role": "user", "content": PROBLEM}, {"role": "assistant", "content": ANSWERS[1]}]
REQUESTS: list[tuple[str, Any, Any, dict[str, Any]]] = [
    ("classify", ClassificationRequest, ClassificationResponse, {"input": TEXTS}),
    ("classify", ClassificationRequest, ClassificationResponse, {"messages": CHAT}),
    ("pooling", PoolingRequest, PoolingResponse, {"input": TEXTS, "task": "token_classify"}),
    ("pooling", PoolingRequest, PoolingResponse, {"messages": CHAT}),
    ("score", ScoreRequest, ScoreResponse, {"text_1": PROBLEM, "text_2": ANSWERS}),
    ("score", ScoreRequest, ScoreResponse, {"queries": PROBLEM, "documents": ANSWERS}),
    ("rerank", RerankRequest, RerankResponse, {"query": PROBLEM, "documents": ANSWERS, "top_n": 2}),
]


async def ask(url: str) -> None:
    """Send each request, in full and as it was set; then ask as ``vllm bench serve`` does."""
    answers = []
    for route, asked, answered, fields in REQUESTS:
        request = TypeAdapter(asked).validate_python({"model": "demo", **fields})
        for body in (request.model_dump(mode="json", exclude_unset=True), request.model_dump(mode="json")):
            sent = httpx.post(f"{url}{route}", json=body, timeout=60)
            assert sent.status_code == 200, (body, sent.text)
            found = answered.model_validate_json(sent.content)
            assert not extras(found), found
        answers.append(found)
    _, _, pooled, _, _, scored, ranked = answers
    assert [one.index for one in ranked.results] == [1, 0]
    scores = [one.score for one in scored.data]
    assert scores[0] < 0.5 < scores[1], scores
    assert [one.data[0][1] for one in pooled.data] == scores
    async with aiohttp.ClientSession() as session:
        for name, prompt in {"vllm-pooling": TEXTS, "vllm-rerank": [PROBLEM, *ANSWERS]}.items():
            asked = RequestFuncInput(prompt, url + name.removeprefix("vllm-"), 9, 0, "demo")
            done = await ASYNC_REQUEST_FUNCS[name](asked, session)
            assert done.success, (name, done.error)
            assert done.prompt_len > 0
    print(scores)


def extras(value: Any) -> list[str]:
    """The fields of an answer that vLLM's classes do not know."""
    parts = value if isinstance(value, list) else [getattr(value, name) for name in type(value).model_fields]
    inner = [name for part in parts if isinstance(part, list | BaseModel) for name in extras(part)]
    return inner + list(getattr(value, "model_extra", None) or ())


if __name__ == "__main__":
    command = [str(Path(sys.executable).with_name("pathfinder")), "serve", sys.argv[1], "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["url"]
            asyncio.run(ask(address))
        finally:
            server.terminate()
