"""``vllm serve`` without kernels: vLLM's parser, model checks, tokenizer and request protocol, and scripted answers.

The command line goes through vLLM's parser and ``create_engine_config``, a request through the request class, its
length checks and ``to_sampling_params``. It refuses what vLLM refuses, with the same message. What vLLM would ignore
or add silently is refused here: unknown fields, penalties or ``top_k`` that the request does not ask for, and two
servers on one card. Every check appends a line to the log folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.campaigns.rehearsal.answers import chat_answer, completion
from tests.support.servers import JSONHandler

os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.common.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.serve.utils.api_utils import get_max_tokens
from vllm.exceptions import VLLMClientError
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.utils.argparse_utils import FlexibleArgumentParser

_NEUTRAL = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_p": 0.0}


class RefusedError(Exception):
    """A request that this server must not answer."""


def warm_up(model: str) -> None:
    """Import what vLLM imports late, for every server that this process will fork."""
    AsyncEngineArgs(model=model, quantization="fp8_per_tensor", enforce_eager=True).create_engine_config()


def serve(arguments: list[str], log: Path) -> None:
    """Run ``vllm <arguments>`` until the process ends."""
    if arguments[:1] != ["serve"]:
        raise SystemExit(f"vllm {' '.join(arguments)}: the substitute knows only `vllm serve`")
    args = make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(arguments[1:])
    validate_parsed_serve_args(args)
    args.model = args.model_tag or args.model
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
    cards = _lease_cards(config.parallel_config.world_size, log)
    record(log, "servers", {"arguments": arguments, "cards": [name for name, _ in cards]})
    weights = list(_weights(config.model_config).glob("*.safetensors"))
    if not weights:
        raise SystemExit(f"{args.model}: no safetensors weights")
    server = Model(config, args, log)
    handler = type("Handler", (_Handler,), {"model": server})
    with _Server((args.host or "127.0.0.1", args.port), handler) as http:
        http.serve_forever(poll_interval=0.1)


def record(log: Path, name: str, value: Any) -> None:
    """Append a line to a file of the log folder."""
    with (log / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(value, sort_keys=True, default=str) + "\n")


def _lease_cards(wanted: int, log: Path) -> list[tuple[str, Any]]:
    """Take the first cards that this process may see, as vLLM does; a card in use is an error, as out of memory is."""
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = names or [str(number) for number in range(int(os.environ.get("PATHFINDER_SIMULATED_CARDS", "8")))]
    if len(names) < wanted:
        raise SystemExit(f"tensor parallelism over {wanted} cards, but only {names} are visible")
    taken = []
    for name in names[:wanted]:
        file = (log / f"card-{name}").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            record(log, "violations", f"two servers on card {name}")
            raise SystemExit(f"card {name} already belongs to another server: out of memory on a real card") from None
        taken.append((name, file))
    return taken


def _weights(config: Any) -> Path:
    """The folder with the weights, fetched from the Hub if the model is a repository, as vLLM does."""
    if Path(config.model).is_dir():
        return Path(config.model)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(config.model, revision=config.revision, allow_patterns=["*.safetensors"]))


class Model:
    """The served model: requests in, answers out."""

    def __init__(self, config: Any, args: Any, log: Path) -> None:
        self.config, self.log = config.model_config, log
        self.names = list(args.served_model_name or [args.model])
        self.tokenizer: Any = cached_tokenizer_from_config(self.config)
        self.defaults = self.config.get_diff_sampling_param()
        self.logprobs_mode = self.config.logprobs_mode
        self._seen: set[str] = set()
        self._network: Any = None
        self._loading = threading.Lock()

    def chat(self, body: Any) -> dict[str, Any]:
        """Answer /v1/chat/completions."""
        request = self.read(ChatCompletionRequest, body)
        turns = [dict(turn) for turn in request.messages]
        ids = self.tokenizer.apply_chat_template(turns, tokenize=True, add_generation_prompt=True, return_dict=False)
        asked = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
        most = self.check(request, asked, ids)
        text = chat_answer(turns, request.seed or 0)
        text, tokens, finish = self.cut(text, most)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return self.answer("chat.completion", [choice], len(ids), tokens)

    def complete(self, body: Any) -> dict[str, Any]:
        """Answer /v1/completions: text for a text, log-probabilities of the next token for lists of ids."""
        request = self.read(CompletionRequest, body)
        if isinstance(request.prompt, list):
            return self.score(request)
        ids = self.tokenizer.encode(request.prompt)
        most = self.check(request, request.max_tokens, ids)
        stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
        text = completion(request.prompt, request.seed or 0, stops, bool(request.include_stop_str_in_output))
        text, tokens, finish = self.cut(text, most)
        choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
        return self.answer("text_completion", [choice], len(ids), tokens)

    def score(self, request: Any) -> dict[str, Any]:
        """Log-probabilities of the next token by the real tiny weights: a PRM behind vLLM."""
        import torch

        choices = []
        for index, ids in enumerate(request.prompt):
            self.check(request, request.max_tokens, ids)
            with torch.inference_mode():
                answer = self.network()(input_ids=torch.tensor([ids]), logits_to_keep=1)
            likely = answer.logits[0, -1].float().log_softmax(-1)
            wanted = {*(request.logprob_token_ids or likely.topk(request.logprobs or 1).indices.tolist())}
            wanted.add(int(likely.argmax()))
            row = {f"token_id:{token}": float(likely[token]) for token in wanted}
            choices.append({"index": index, "text": "", "finish_reason": "length", "logprobs": {"top_logprobs": [row]}})
        return self.answer("text_completion", choices, sum(map(len, request.prompt)), len(choices))

    def network(self) -> Any:
        """The model in transformers, loaded by the first request: transformers cannot load in several threads."""
        with self._loading:
            if self._network is None:
                from transformers import AutoModelForCausalLM

                network: Any = AutoModelForCausalLM.from_pretrained(_weights(self.config))
                self._network = network.eval()
        return self._network

    def read(self, kind: Any, body: Any) -> Any:
        """The request as vLLM reads it; raises ``ValueError`` as vLLM does, and ``RefusedError`` for ignored fields."""
        request = kind.model_validate(body)
        if request.model_extra:
            raise RefusedError(f"vLLM ignores the fields {sorted(request.model_extra)}")
        if request.model not in (None, *self.names):
            raise RefusedError(f"The model `{request.model}` does not exist; this server offers {self.names}")
        return request

    def check(self, request: Any, asked: int | None, ids: list[int]) -> int:
        """The length checks and the sampling that vLLM would use; returns the most tokens of the answer."""
        request.build_tok_params(self.config)._validate_tokens(self.tokenizer, ids)
        most = get_max_tokens(self.config.max_model_len, asked, len(ids), self.defaults)
        sampling = request.to_sampling_params(most, self.defaults)
        sampling.verify(self.config, None, None, self.tokenizer)
        added = {name: getattr(sampling, name) for name, value in _NEUTRAL.items() if getattr(sampling, name) != value}
        if sampling.top_k not in (0, -1) and request.top_k in (None, 0, -1):
            added["top_k"] = sampling.top_k
        if added:
            raise RefusedError(f"the model's generation_config.json adds {added}; expected --generation-config vllm")
        names = ("temperature", "top_p", "top_k", "max_tokens", "stop", "include_stop_str_in_output", "n")
        shown = {name: getattr(sampling, name) for name in names} | {"served": self.names}
        shown["max_tokens"] = "to the end" if most == self.config.max_model_len - len(ids) else most
        if (key := json.dumps(shown, default=str, sort_keys=True)) not in self._seen:
            self._seen.add(key)
            record(self.log, "sampling", shown)
        return int(most)

    def cut(self, text: str, most: int) -> tuple[str, int, str]:
        """Text, its number of tokens, and why it ended."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        if len(ids) < most:
            return text, len(ids) + 1, "stop"
        return self.tokenizer.decode(ids[:most]), most, "length"

    def answer(self, kind: str, choices: list[Any], asked: int, given: int) -> dict[str, Any]:
        """The body of an answer."""
        usage = {"prompt_tokens": asked, "completion_tokens": given, "total_tokens": asked + given}
        return {"id": "x", "object": kind, "created": 0, "model": self.names[0], "choices": choices, "usage": usage}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024  # a stage opens 256 connections at once


class _Handler(JSONHandler):
    model: Model

    def do_GET(self) -> None:
        if self.path == "/health":
            self.send(200, {})
        elif self.path == "/v1/models":
            longest = self.model.config.max_model_len
            about = {"object": "model", "owned_by": "vllm", "max_model_len": longest}
            data = [{"id": name, **about} for name in self.model.names]
            self.send(200, {"object": "list", "data": data})
        else:
            self.send(404, {"error": {"message": "Not Found", "code": 404}})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        answers = {"/v1/chat/completions": self.model.chat, "/v1/completions": self.model.complete}
        if self.path not in answers:
            self.send(404, {"error": {"message": "Not Found", "code": 404}})
            return
        try:
            self.send(200, answers[self.path](json.loads(content)))
        except RefusedError as error:
            record(self.model.log, "violations", str(error))
            self.send(404, {"error": {"message": str(error), "type": "NotFoundError", "code": 404}})
        except (ValueError, VLLMClientError) as error:  # vLLM's own refusals, pydantic's among them
            self.send(400, {"error": {"message": str(error), "type": "BadRequestError", "code": 400}})
