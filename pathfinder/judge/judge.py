"""The LLM judge: one interface, three engines, every answer in the journal before it counts.

An engine is handed keys ``<prompt digest>:<attempt>`` and a way to build each prompt; it asks for those that the
journal lacks and writes down each answer as it comes. What the journal holds of a call is ``{"text", "tokens",
"prompt_tokens", "finish"}`` or ``{"outcome", "message"}`` (too long, refused). An engine error is reported, never
written down: it is asked again by the next run.

Source: paper section 3.3; engine settings as in ``run_inference.py`` (params: label).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from pathfinder.core.hub import read_hub_model
from pathfinder.core.io import DataError, digest_of, sha256_file
from pathfinder.core.params import Label
from pathfinder.core.prompts import LABEL_TOKENS
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import Meter
from pathfinder.engines.openai_client import Failure, Reply, Request, Sampled, ServerClient
from pathfinder.engines.vllm_server import vllm_servers

_SERVED_NAME = "judge"
_PREFILL_CELLS = 1 << 25  # rows x tokens^2 of one in-process batch: its attention takes 128 MiB a head in float32
# What chat templates in use read as structure; a step that says one of these must not end its own turn.
FOREIGN_SPECIALS: tuple[str, ...] = (
    *LABEL_TOKENS,
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<think>",
    "</think>",
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
)

PromptOf = Callable[[str], str]


class Judge(Protocol):
    """An engine. ``identity`` is all of it that determines an answer; ``specials`` must not stand in a prompt."""

    identity: dict[str, Any]
    specials: tuple[str, ...]

    def ask(self, keys: Sequence[str], prompt_of: PromptOf, journal: Journal, meter: Meter) -> dict[str, str]:
        """Bring every key into the journal as far as ``meter`` allows; returns key -> message of engine errors."""


def model_identity(folder: Path) -> dict[str, Any]:
    """What names a model folder's content: repository and revision, or the digest of its files."""
    if (model := read_hub_model(folder)) is not None:
        return {"repo": model.repo, "revision": model.revision}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise DataError(f"{folder}: no model here; run `dvc repro download`, or correct download.sources")
    return {"files": digest_of({path.relative_to(folder).as_posix(): sha256_file(path) for path in files})}


@contextmanager
def open_judge(folder: Path, params: Label, logs: Path) -> Iterator[Judge]:
    """The engine that ``params`` names, for the model in ``folder``; a server of its own writes to ``logs``.

    vLLM starts when the first answer is missing, and ends with the block.
    """
    if params.engine == "transformers":
        yield LocalJudge(folder, params)
        return
    model = model_identity(folder)
    with ExitStack() as stack:
        if params.engine == "vllm":
            name = model.get("repo", _SERVED_NAME)

            def connect() -> ServerClient:
                urls = stack.enter_context(vllm_servers(folder, name, params.max_model_len, params.vllm, logs))
                return _client(urls, params, name)

            identity = {"engine": "vllm", "model": model, "dtype": params.vllm.dtype}
        else:
            client = _client(params.base_urls, params, model.get("repo"))
            identity = {"engine": "openai", "model": model, "served": client.model}

            def connect() -> ServerClient:
                return client

        yield ServerJudge(connect, identity, Sampled(params.temperature, params.top_p, params.max_tokens))


def _client(urls: Sequence[str], params: Label, wanted: str | None) -> ServerClient:
    client = ServerClient(urls, params.concurrency, params.timeout_s, params.retries)
    client.model = client.served_model(wanted)
    return client


class ServerJudge:
    """A judge behind OpenAI-compatible servers; each answer is in the journal as soon as it is here.

    Every conversation starts with the turns (role, text) ``before``.
    """

    def __init__(
        self,
        connect: Callable[[], ServerClient],
        identity: dict[str, Any],
        sampled: Sampled,
        before: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._connect = connect
        self._client: ServerClient | None = None
        self._sampled, self._before = sampled, before
        self.identity = identity
        self.specials = FOREIGN_SPECIALS

    def ask(self, keys: Sequence[str], prompt_of: PromptOf, journal: Journal, meter: Meter) -> dict[str, str]:
        """Ask for what is missing, many at once."""
        missing = []
        for key in keys:
            if key in journal:
                meter.resumed(key, journal[key])
            else:
                missing.append(key)
        failed: dict[str, str] = {}

        def requests() -> Iterator[Request]:
            for key in missing:
                if not meter.take():
                    return
                yield Request(key, prompt_of(key))

        def keep(key: str, result: Reply | Failure) -> None:
            if isinstance(result, Failure) and result.outcome == "engine_error":
                failed[key] = result.message
                meter.failed()
                return
            said = _kept(result)
            journal.write(key, said)
            meter.answered(key, said)

        if missing:
            self._client = self._client or self._connect()
            meter.begin()
            try:
                self._client.chat(requests(), self._sampled, keep, self._before)
            finally:
                journal.sync()
        return failed


class LocalJudge:
    """A judge in this process, in batches whose composition is fixed by the keys asked for.

    A batch of which the journal lacks anything is generated whole and only the missing answers are written, so a run
    that was killed ends with the same answers as one that was not.
    """

    def __init__(self, folder: Path, params: Label) -> None:
        from pathfinder.engines.generate import Generator, Sampling  # brings torch, which the other engine does without

        self._generator = Generator(folder)
        self._sampling = Sampling(params.temperature, params.top_p, params.max_tokens)
        self._batch_size, self._room = params.batch_size, params.max_model_len - params.max_tokens
        self.identity = {"engine": "transformers", "model": model_identity(folder), "batch_size": params.batch_size}
        self.specials = tuple(dict.fromkeys((*FOREIGN_SPECIALS, *self._generator.specials)))

    def ask(self, keys: Sequence[str], prompt_of: PromptOf, journal: Journal, meter: Meter) -> dict[str, str]:
        """Generate what is missing, batch by batch; lengths alike in a batch, to pad little."""
        lengths = {key: self._generator.count_tokens(self._generator.chat_prompt(prompt_of(key))) for key in keys}
        for batch in self._batches(lengths):
            missing = {key for key in batch if key not in journal}
            for key in batch:
                if key not in missing:
                    meter.resumed(key, journal[key])
            if missing and meter.take(len(missing)):
                answers = {key: said for key, said in self._answers(batch, prompt_of, lengths) if key in missing}
                journal.append({key: answers[key] for key in batch if key in missing})
                for key, said in answers.items():
                    meter.answered(key, said)
        return {}

    def _batches(self, lengths: dict[str, int]) -> Iterator[list[str]]:
        """Keys in batches whose prefill stays within memory; those too long for the model come last."""
        batch: list[str] = []
        for key in sorted(lengths, key=lambda key: (lengths[key], key)):
            full = len(batch) == self._batch_size
            if batch and (full or (len(batch) + 1) * min(lengths[key], self._room) ** 2 > _PREFILL_CELLS):
                yield batch
                batch = []
            batch.append(key)
        if batch:
            yield batch

    def _answers(self, batch: list[str], prompt_of: PromptOf, lengths: dict[str, int]) -> Iterator[tuple[str, Any]]:
        fitting = [key for key in batch if lengths[key] <= self._room]
        for key in batch:
            if lengths[key] > self._room:
                yield key, {"outcome": "too_long", "message": f"{lengths[key]} tokens, {self._room} fit"}
        prompts = [self._generator.chat_prompt(prompt_of(key)) for key in fitting]
        completions = self._generator.generate(prompts, fitting, self._sampling)
        for key, completion in zip(fitting, completions, strict=True):
            said = {"text": completion.text, "tokens": completion.tokens, "prompt_tokens": lengths[key]}
            yield key, said | {"finish": completion.finish}


def _kept(result: Reply | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"outcome": result.outcome, "message": result.message}
    return {
        "text": result.text,
        "tokens": result.tokens,
        "prompt_tokens": result.prompt_tokens,
        "finish": result.finish,
    }
