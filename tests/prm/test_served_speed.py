"""Speed of vLLM's prefix cache, the trees and the published way on real problems: one run, one core.

Run: PATHFINDER_VLLM=<python of vLLM's environment> pytest -m benchmarks -s tests/prm/test_served_speed.py

Processor seconds count the server's processes and the client; on a machine with other work they are more
reliable than the clock. The parts take turns, and the server scores no problem twice, so its cache holds none of it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import torch

from ground.io import write_json
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.steps import Solution
from pathfinder.models.folders import MODEL_FILE, open_model
from pathfinder.prm.opening import open_pathfinder
from pathfinder.prm.scoring import Scorer
from pathfinder.prm.served_scoring import ServedScorer
from pathfinder.tree.passes import Prompter, Query
from tests.prm.test_served_scoring import largest_difference, score_settings
from tests.support.models import model_256, plain_tokenizer, published_rewards

pytestmark = pytest.mark.benchmarks
_PROBLEMS = int(os.environ.get("PATHFINDER_BENCHMARK_PROBLEMS", "24"))
_TURNS = 2
_LONG = 10  # steps, the average of OlympiadBench


# vLLM without a server: its engine in one process reads lines of prompts and prints log-probabilities and times.
OFFLINE = """
import json, sys, time
from vllm import LLM, SamplingParams
answers = sys.stdout
sys.stdout = sys.stderr
engine = LLM(model="prm", tokenizer=sys.argv[1], dtype="float32", max_model_len=8192, enforce_eager=True, block_size=32,
             enable_prefix_caching=True, max_num_batched_tokens=4096, max_num_seqs=64)
print("ready", file=answers, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    good, bad = asked["tokens"]
    one = SamplingParams(max_tokens=1, temperature=0.0, logprobs=None, logprob_token_ids=[good, bad], ignore_eos=True)
    processor, wall = time.process_time(), time.monotonic()

    def read(prompts):
        outs = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], one, use_tqdm=False)
        return [[out.outputs[0].logprobs[0][token].logprob for token in (good, bad)] for out in outs]

    firsts = [ids[:slot] for ids, slots in asked["steps"] for slot in slots[:2]]
    labels = [row[0] >= row[1] for row in read(firsts)]
    seconds = []
    for (ids, slots), math, consistency in zip(asked["steps"], labels[::2], labels[1::2]):
        prompt = ids[: slots[2]]
        prompt[slots[0]], prompt[slots[1]] = (good if math else bad), (good if consistency else bad)
        seconds.append(prompt)
    rows = read(seconds)
    spent = time.process_time() - processor, time.monotonic() - wall
    print(json.dumps({"rows": rows, "spent": spent}), file=answers, flush=True)
"""


@contextmanager
def offline(python: str) -> Iterator[Callable[[Prompter, list[Query]], tuple[list[float], list[float]]]]:
    """vLLM's engine in its own process: rewards of steps, and the processor and wall seconds they took."""
    environment = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
    command = [python, "-c", OFFLINE, ".pathfinder/vllm/prm/tokenizer"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines, into = process.stdout, process.stdin
        while (line := lines.readline()) != "ready\n":
            assert line, "vLLM's engine did not start"

        def ask(prompter: Prompter, queries: list[Query]) -> tuple[list[float], list[float]]:
            steps = [(ids.tolist(), slots) for ids, slots in prompter.encode(queries)]
            tokens = (prompter.ids.good, prompter.ids.bad)
            into.write(json.dumps({"steps": steps, "tokens": tokens}) + "\n")
            into.flush()
            answer = json.loads(lines.readline())
            return [1 / (1 + math.exp(bad - good)) for good, bad in answer["rows"]], answer["spent"]

        yield ask
        into.close()


@contextmanager
def one_core() -> Iterator[None]:
    """Pin this process and its children to the last core that it may use."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def processor_seconds() -> float:
    """Processor seconds of this process and all its descendants."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return float(sum(sum(process.cpu_times()[:2]) for process in tree))


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall seconds of ``work``."""
    processor, wall = processor_seconds(), time.monotonic()
    work()
    return processor_seconds() - processor, time.monotonic() - wall


def solutions_of(mirror: Path, subset: str) -> list[Solution]:
    """The last problems of a subset; ``long``: other MATH problems with ten steps or more."""
    rows = json.loads((mirror / "processbench" / f"{'math' if subset == 'long' else subset}.json").read_text())
    wanted = [row for row in rows[:-_PROBLEMS] if len(row["steps"]) >= _LONG] if subset == "long" else rows
    return [Solution(row["id"], row["problem"], tuple(row["steps"])) for row in wanted[-_PROBLEMS:]]


def test_scoring_speed_compared_with_vllm(
    vllm_python: str, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = json.loads((mirror / "processbench" / "math.json").read_text())[:300]
    tokenizer = plain_tokenizer([text for row in rows for text in (row["problem"], *row["steps"])], 2000)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model = model_256(tokenizer)
    model.save_pretrained(tmp_path / "prm")
    tokenizer.save_pretrained(tmp_path / "prm")
    write_json(tmp_path / "prm" / MODEL_FILE, {"variant": "full"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "2")
    chosen = score_settings([vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model"]).model_copy(
        update={"concurrency": 32}
    )
    local = Scorer(open_model(Path("prm")))
    with one_core(), open_pathfinder(open_model(Path("prm")), chosen) as served, offline(vllm_python) as engine:
        assert isinstance(served, ServedScorer)
        warm = [Solution("warm", "What is 1 + 1?", ("It is 2.", "So 2."))]
        local.score(warm)
        served.score(warm)
        engine(prompter, [Query("q", "What is 1 + 1?", (), "It is 2.")])
        for subset in ("gsm8k", "math", "long"):
            solutions = solutions_of(mirror, subset)
            assert not {s.id for s in solutions} & {row["id"] for row in rows}, "the tokenizer must not have seen them"
            spent = {name: [0.0, 0.0] for name in ("published", "trees", "server", "engine")}
            steps, worst = 0, 0.0
            for turn in range(_TURNS):
                mine = solutions[turn::_TURNS]
                queries = [Query("q", s.problem, s.steps[:t], step) for s in mine for t, step in enumerate(s.steps)]
                steps += len(queries)
                found: dict[str, object] = {}
                ways: dict[str, Callable[[], object]] = {
                    "published": lambda queries=queries: published_rewards(model, tokenizer, prompter, queries),  # type: ignore[misc]
                    "trees": lambda mine=mine, found=found: found.update(trees=local.score(mine)),  # type: ignore[misc]
                    "server": lambda mine=mine, found=found: found.update(served=served.score(mine)),  # type: ignore[misc]
                }
                for name, work in ways.items():
                    for place, seconds in enumerate(measured(work)):
                        spent[name][place] += seconds
                # the engine's own time, without encoding its prompts, which the other times include
                rewards, seconds_of_engine = engine(prompter, queries)
                for place, seconds in enumerate(seconds_of_engine):
                    spent["engine"][place] += seconds
                trees = [score.reward for scores in found["trees"] for score in scores]  # type: ignore[attr-defined]
                assert rewards == pytest.approx(trees, abs=2e-5)
                worst = max(worst, largest_difference(found["trees"], found["served"]))  # type: ignore[arg-type]
            print(f"\n{subset}: {len(solutions)} solutions, {steps} steps, largest difference {worst:.1e}")
            for name, (processor, wall) in spent.items():
                ratio = spent["published"][0] / processor
                print(f"  {name:9}  {steps / processor:6.1f} steps per processor second, {ratio:5.2f} x; "
                      f"{steps / wall:6.1f} by the clock")  # fmt: skip
            assert worst < 2e-5
