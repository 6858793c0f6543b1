"""A PRM behind vLLM's completions protocol: token ids in, log-probabilities of the next token out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.support.servers import Faults, JSONHandler, serving


@dataclass
class PRMServer:
    """A model that answers one prompt at a time without a cache. ``fault`` names the fault of call n (from 0).

    ``old``: the server does not support ``logprob_token_ids`` and sends only the likeliest tokens.
    """

    model: Any
    fault: Faults = lambda _: "none"
    old: bool = False
    longest: int = 4096
    url: str = ""
    calls: int = 0
    prompts: list[list[int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @torch.inference_mode()
    def next(self, asked: dict[str, Any], prompt: list[int]) -> dict[str, float]:
        """Log-probabilities by ``token_id:…``; the likeliest token is always among them."""
        logits = self.model(input_ids=torch.tensor([prompt])).logits[0, -1].float()
        likely = logits.log_softmax(-1)
        wanted = likely.topk(asked["logprobs"]).indices.tolist() if self.old else asked["logprob_token_ids"]
        return {f"token_id:{token}": float(likely[token]) for token in (*wanted, int(likely.argmax()))}


@contextmanager
def prm_server(server: PRMServer) -> Iterator[PRMServer]:
    """``server`` behind ``server.url`` (…/v1)."""

    class Handler(JSONHandler):
        def do_GET(self) -> None:
            self.send(200, {"object": "list", "data": [{"id": "prm", "object": "model"}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:  # one model, one thread at a time
                number, server.calls = server.calls, server.calls + 1
                fault = server.fault(number)
                if fault != "none":
                    self.send(int(fault), {"error": {"message": "fault"}})
                    return
                if max(map(len, asked["prompt"])) >= server.longest:
                    self.send(400, {"error": {"message": f"maximum context length is {server.longest} tokens"}})
                    return
                server.prompts += asked["prompt"]
                rows = [server.next(asked, prompt) for prompt in asked["prompt"]]
            choices = [
                {"index": index, "text": "", "finish_reason": "length", "logprobs": {"top_logprobs": [row]}}
                for index, row in enumerate(rows)
            ]
            # out of order: the index decides
            answer = {"id": "x", "object": "text_completion", "created": 0, "model": "prm"}
            self.send(200, answer | {"choices": choices[::-1]})

    with serving(Handler) as url:
        server.url = f"{url}/v1"
        yield server
