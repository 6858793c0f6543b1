"""The LLM judge: two kinds of engine with one interface; an answer counts only once it is in the journal.

``ask`` gets keys ``<prompt digest>:<attempt>`` and a function that builds the prompt of a key. As far as the meter
allows, it writes the missing answers to the journal: as ``{"text", "tokens", "prompt_tokens", "finish"}``, with the
server's response ``id``, or as ``{"outcome", "message"}`` (too long, refused). It returns the messages of engine errors
by key. Errors are not written, so the next run asks again. ``identity`` has everything that determines an answer.
Prompts must not contain ``specials``.

Source: paper section 3.3; engine settings as in ``run_inference.py`` (params: label).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ground.io import DataError, digest_of, sha256_file
from pathfinder.core.hub import read_hub_model
from pathfinder.core.params import Label
from pathfinder.core.prompts import DIGESTS
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import Meter
from pathfinder.engines.sampling import Failure, Reply, Sampling, ServerSampling, Turns
from pathfinder.judge.prompts import FOREIGN_SPECIALS, specials_of
from pathfinder.models import cards
from pathfinder.models.folders import digests_of, uncollected

if TYPE_CHECKING:
    from pathfinder.engines.openai_client import ServerClient

_PREFILL_CELLS = 1 << 25  # rows * tokens^2 of an in-process batch: 128 MiB of float32 attention per head
_AT_ONCE = 2
"""Batches that a CPU draws at a time. The pipeline has few stages to run next to this one."""
_REFUSED_FIRST = 8  # after so many different prompts without an answer, the server is at fault
_REFUSES = "the server refuses every prompt"

PromptOf = Callable[[str], str]
"""Builds the prompt of a journal key."""


def model_identity(folder: Path) -> dict[str, Any]:
    """Identify the content of a model folder by repository and revision, or by the digest of its files.

    Raises ``DataError`` if the folder is empty or missing.
    """
    if (model := read_hub_model(folder)) is not None:
        return {"repo": model.repo, "revision": model.revision}  # no matter which of its files were fetched
    files = digests_of(folder)
    if not files:
        raise DataError(f"{folder}: contains no model; run `dvc repro download` or correct download.sources")
    return {"files": digest_of(files)}


def journal_folder(root: Path, judge: Judge, params: Label, tables: Sequence[Path]) -> Path:
    """The folder below ``root`` for a judge's journal, named by the digest of everything that determines its answers.

    A server's answers stay valid for different tables and samples. In process, rounding makes an answer depend on its
    batch, so the tables and the choice of rows count too.
    """
    sampling = params.model_dump(include={"temperature", "top_p", "max_tokens", "max_model_len"})
    identity: dict[str, Any] = {"judge": judge.identity, "prompt": DIGESTS["JUDGE_PROMPT"], "sampling": sampling}
    if params.engine == "transformers":
        choice = {"preset", "parse_attempts", "disagreement_rounds", "prm800k_limit", "mistral_per_rating", "seed"}
        identity |= {"tables": [sha256_file(table) for table in tables], "choice": params.model_dump(include=choice)}
    return root / digest_of(identity)[:32]


@contextmanager
def open_judge(folder: Path, params: Label, logs: Path) -> Iterator[Judge]:
    """Open the engine named in ``params`` with the model in ``folder``.

    vLLM starts when the first answer is missing, writes its log to ``logs`` and stops with the block.
    """
    if params.engine == "transformers":
        yield LocalJudge(folder, params)
        return
    from pathfinder.engines.openai_client import connect  # a judge in this process does not need these
    from pathfinder.engines.vllm_server import vllm_servers

    model, specials = model_identity(folder), specials_of(folder)
    sampling = ServerSampling(params.temperature, params.top_p, params.max_tokens)
    limits = (params.concurrency, params.timeout_s, params.retries)
    if params.engine == "openai":
        client = connect(params.base_urls, *limits, model.get("repo"))
        identity = {"engine": "openai", "model": model, "served": client.model}
        yield ServerJudge(lambda: client, identity, sampling, specials=specials)
        return
    name = model.get("repo", "judge")
    with ExitStack() as stack:

        @cache
        def start() -> ServerClient:
            urls = stack.enter_context(vllm_servers(folder, name, params.max_model_len, params.vllm, logs))
            return connect(urls, *limits, name)

        identity = {"engine": "vllm", "model": model} | params.vllm.deciding
        yield ServerJudge(start, identity, sampling, specials=specials)


@dataclass
class ServerJudge:
    """A judge behind OpenAI-compatible servers; every conversation starts with the turns ``before``."""

    start: Callable[[], ServerClient]
    identity: dict[str, Any]
    sampling: ServerSampling
    before: Turns = ()
    specials: tuple[str, ...] = FOREIGN_SPECIALS
    works: bool = False  # a server gave an answer

    def ask(self, keys: Sequence[str], prompt_of: PromptOf, journal: Journal, meter: Meter) -> dict[str, str]:
        """Ask for the missing answers concurrently and write each on arrival.

        Refusals wait for the first answer, which shows that the server works. Before that, no refusal is written: it
        counts as an engine error, and eight refused prompts raise ``DataError``.
        """
        missing = _missing(keys, journal, meter)
        arrivals = _Arrivals(journal, meter, self.works)
        if missing:
            requests = ((key, prompt_of(key)) for key in missing if meter.take())
            try:
                self.start().chat(requests, self.sampling, arrivals.take, self.before)
            finally:
                journal.sync()
        self.works = arrivals.works
        arrivals.drop()
        return arrivals.failed


@dataclass
class _Arrivals:
    """The results of a server's calls on their way to the journal, and the messages of engine errors by key."""

    journal: Journal
    meter: Meter
    works: bool
    failed: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, Failure] = field(default_factory=dict)

    def take(self, key: str, result: Reply | Failure) -> None:
        """Write a result, or keep a refusal; raises ``DataError`` at the eighth prompt without an answer."""
        if isinstance(result, Reply):
            self.works = True
        elif result.outcome == "engine_error":
            self._fail(key, result.message)
            return
        elif not self.works:
            self.waiting[key] = result
            if len({name.partition(":")[0] for name in self.waiting}) == _REFUSED_FIRST:
                raise DataError(f"{_REFUSES}: {result.message}; correct the server or its settings")
            return
        for name, found in {**self.waiting, key: result}.items():
            entry = _entry(found)
            self.journal.write(name, entry)
            self.meter.answered(name, entry)
        self.waiting.clear()

    def drop(self) -> None:
        """Count the waiting refusals as failed, because the server gave no answer at all."""
        for key, refusal in self.waiting.items():
            self._fail(key, f"{_REFUSES}: {refusal.message}")

    def _fail(self, key: str, message: str) -> None:
        self.failed[key] = message
        self.meter.failed()


class LocalJudge:
    """A judge in this process. Only the keys determine its batches, and it draws two batches at a time.

    If any answer of a batch is missing, the whole batch is generated and only the missing answers are written. A run
    that was killed and resumed therefore has the same answers as an uninterrupted one.
    """

    def __init__(self, folder: Path, params: Label) -> None:
        with uncollected():  # the other engines need no torch
            from torch import get_num_threads

            from pathfinder.engines.generate import Generator
        self._generator = Generator(folder)
        cores = 1 if cards.visible() else len(os.sched_getaffinity(0)) // get_num_threads()
        self._at_once = min(_AT_ONCE, max(1, cores))
        self._sampling = Sampling(params.temperature, params.top_p, params.max_tokens)
        self._batch_size, self._longest_prompt = params.batch_size, params.max_model_len - params.max_tokens
        self.identity = {"engine": "transformers", "model": model_identity(folder), "batch_size": params.batch_size}
        self.specials = tuple(dict.fromkeys((*FOREIGN_SPECIALS, *self._generator.specials)))

    def ask(self, keys: Sequence[str], prompt_of: PromptOf, journal: Journal, meter: Meter) -> dict[str, str]:
        """Generate the missing answers in batches of similar length."""
        generator = self._generator
        prompts = {key: generator.encode(generator.chat_prompt(prompt_of(key))) for key in keys}
        lengths = {key: len(prompt) for key, prompt in prompts.items()}

        def drawn(batch: list[str]) -> dict[str, Reply]:
            fitting = [key for key in batch if lengths[key] <= self._longest_prompt]
            completions = generator.generate([prompts[key] for key in fitting], fitting, self._sampling)
            pairs = [(key, c) for key, c in zip(fitting, completions, strict=True) if c.finish != "too_long"]
            return {key: Reply(c.text, c.tokens, c.finish, lengths[key]) for key, c in pairs}

        missing_of = ((batch, _missing(batch, journal, meter)) for batch in self._batches(lengths))
        taken = ((batch, missing) for batch, missing in missing_of if missing and meter.take(len(missing)))
        for missing, answers in _ahead(drawn, taken, self._at_once):
            for key in missing:
                reply = answers.get(key)
                entry = _entry(reply or Failure("too_long", f"{lengths[key]} tokens, {self._longest_prompt} fit"))
                journal.write(key, entry)
                meter.answered(key, entry)
            journal.sync()
        return {}

    def _batches(self, lengths: dict[str, int]) -> Iterator[list[str]]:
        """Batches whose prefill fits into memory; prompts too long for the model are last."""
        batch: list[str] = []
        for key in sorted(lengths, key=lambda key: (lengths[key], key)):
            cells = (len(batch) + 1) * min(lengths[key], self._longest_prompt) ** 2
            if batch and (len(batch) == self._batch_size or cells > _PREFILL_CELLS):
                yield batch
                batch = []
            batch.append(key)
        yield batch


def _ahead(
    drawn: Callable[[list[str]], dict[str, Reply]], batches: Iterable[tuple[list[str], list[str]]], at_once: int
) -> Iterator[tuple[list[str], dict[str, Reply]]]:
    """The missing keys and the answers of each batch, in order; ``at_once`` batches are drawn at a time."""
    with ThreadPoolExecutor(at_once) as pool:
        waiting: deque[tuple[list[str], Future[dict[str, Reply]]]] = deque()
        for batch, missing in batches:
            waiting.append((missing, pool.submit(drawn, batch)))
            if len(waiting) == at_once:
                missing, answers = waiting.popleft()
                yield missing, answers.result()
        for missing, answers in waiting:
            yield missing, answers.result()


Judge = ServerJudge | LocalJudge


def describe(judge: Judge, sampling: dict[str, Any]) -> dict[str, Any]:
    """Everything that determines the answers, for a stage's record: engine and model, prompts, sampling and seeds."""
    drawn = "first 28 bits" if isinstance(judge, ServerJudge) else "Philox stream"
    seed = f"{drawn} of the sha256 of an answer's key"
    return {"judge": judge.identity, "prompts": DIGESTS, "sampling": sampling, "seed": seed}


def _missing(keys: Sequence[str], journal: Journal, meter: Meter) -> list[str]:
    """The keys without an answer; ``meter`` counts the answers."""
    missing = []
    for key in keys:
        if key in journal:
            meter.resumed(key, journal[key])
        else:
            missing.append(key)
    return missing


def _entry(reply: Reply | Failure) -> dict[str, Any]:
    if isinstance(reply, Failure):
        return asdict(reply)
    entry = {"text": reply.text, "tokens": reply.tokens, "prompt_tokens": reply.prompt_tokens, "finish": reply.finish}
    return entry | ({"id": reply.response} if reply.response else {})
