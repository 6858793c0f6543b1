"""Measurements on a card: `make gpu-day` runs them and collects their figures (gpu_day.py, tests/campaigns/gpu_day.md).

The parameter ``cpu`` rehearses them at a tiny size; the kernels and the speed do so in every test run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from torch._dynamo.utils import counters

from ground.io import read_json, read_parquet, write_text
from infra.doctor.cards import VLLM
from pathfinder.core.params import load_params
from pathfinder.models.architectures import Shape
from pathfinder.models.cards import GIB
from pathfinder.models.needs import stage_needs
from pathfinder.models.shapes import KNOWN, fetched_shape
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.layout import backend_on, batch_trees
from pathfinder.tree.packing import pack
from pathfinder.tree.passes import Prompter
from pathfinder.tree.tree import Tree
from tests.campaigns.card import HEAD, TINY, Day, prepare, problems, random_model
from tests.campaigns.gpu_day import ROOT, WORK

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]
)
REHEARSED = pytest.param("cpu", marks=pytest.mark.rehearsal)
BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
BUDGET = 16384
ITEMS = 3400
"""Solutions of the whole ProcessBench."""
Figure = Callable[[str, str], None]


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Record a figure for the page, and print it, so that the log of an interrupted part has it."""

    def add(what: str, value: str) -> None:
        record_property(what, value)
        print(f"{what}: {value}", flush=True)

    return add


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the parts share."""
    return Path(os.environ[WORK]) if WORK in os.environ else tmp_path_factory.mktemp("gpu_day")


@pytest.fixture
def day(request: pytest.FixtureRequest, folder: Path, root: Path, world: Path) -> Day:
    """A day that has its data, models and parameters."""
    made = Day(request.param, folder / request.param)
    if not (made.work / "artifacts/raw/manifest.json").exists():
        prepare(made)
    return made


def on(*devices: Any) -> pytest.MarkDecorator:
    """Run a test with a ``day`` on each device."""
    return pytest.mark.parametrize("day", devices, indirect=True)


@on(REHEARSED, CUDA)
def test_inputs(day: Day, figure: Figure) -> None:
    for name, origin in prepare(day):
        figure(name, origin)
    params = yaml.safe_load((day.work / "params.yaml").read_text())
    assert (params["profile"], params["label"]["prm800k_limit"]) == ("gpu-day", day.size(500, 20))


@pytest.mark.campaign
@on("cpu", CUDA)
def test_kernels(day: Day, figure: Figure) -> None:
    """Logits, decisions and gradients of FlexAttention in both precisions, compared with float64 on the CPU.

    The reference has the weights of each precision: to round them to bfloat16 changes these logits by a fifth.
    """
    before = counters["stats"]["unique_graphs"]
    prompter, groups = problems(day, day.size(6, 1))
    trees = [prompter.tree(group)[0] for group in groups]
    vocabulary = int(max(int(tree.ids.max()) for tree in trees)) + 1
    # seven query heads per key head, as in the 7B model; its other sides would take the CPU too long in float64
    width = HEAD * day.size(7, 2)
    shape = Shape("", width, 2 * width, day.size(4, 2), width, HEAD, vocabulary, tied=False, biased=True)
    model = random_model(shape, "cpu", torch.float64)
    use_trees(model)
    pair = [prompter.ids.good, prompter.ids.bad]
    for dtype, bound in BOUNDS.items():
        model.to("cpu", dtype).to(torch.float64)
        want, want_gradient = logits_of(model, trees, "dense"), gradient_of(model, trees[:1], "dense")
        model.to(day.device, dtype)
        got, name = logits_of(model, trees, "flex"), str(dtype).removeprefix("torch.")
        off, flips = relative(got, want), int(((got[:, pair].diff() > 0) != (want[:, pair].diff() > 0)).sum())
        figure(f"{name}: relative error of {len(got)} readings (rms)", f"{off:.1e}, at most {bound:.0e} is right")
        figure(f"{name}: decisions that differ from float64", f"{flips} of {len(want)}")
        assert off < bound, f"{name} differs from float64 by {off:.1e}"
        if dtype == torch.float32:
            gradient = relative(gradient_of(model, trees[:1], backend_on(model.device)), want_gradient)
            figure(f"{name}: relative error of the gradients (rms)", f"{gradient:.1e}")
            assert gradient < 1e-3, f"the gradients differ from float64 by {gradient:.1e}"
    times = [seconds_of(partial(logits_of, model, trees[:count], "flex")) for count in range(1, len(trees) + 1)]
    graphs = counters["stats"]["unique_graphs"] - before  # each compilation takes seconds, so there must be few
    figure(f"graphs compiled for rows of {len(times)} lengths", str(graphs))
    figure("slowest and median pass", f"{max(times):.2f} s, {sorted(times)[len(times) // 2]:.3f} s")
    assert day.is_rehearsal or graphs > 0, "nothing was compiled: FlexAttention ran in its eager form"
    assert graphs <= 16, f"{graphs} graphs were compiled"


def relative(got: Tensor, want: Tensor) -> float:
    """Root mean square of the difference, divided by the root mean square of ``want``."""
    return float((got.double().cpu() - want).square().mean().sqrt() / want.square().mean().sqrt())


@torch.inference_mode()
def logits_of(model: Any, trees: Sequence[Tree], backend: Any) -> Tensor:
    """The logits of all readings in float64 on the CPU."""
    return read_logits(model, batch_trees(trees, backend).to(model.device, model.dtype)).double().cpu()


def gradient_of(model: Any, trees: Sequence[Tree], backend: Any) -> Tensor:
    """The gradient of the first layer's attention for a sum over the readings."""
    model.zero_grad(set_to_none=True)
    logits = read_logits(model, batch_trees(trees, backend).to(model.device, model.dtype))
    logits.logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
    attention = model.model.layers[0].self_attn
    found = torch.cat([attention.get_submodule(f"{name}_proj").weight.grad.flatten() for name in "qkvo"])
    model.zero_grad(set_to_none=True)
    return found.double().cpu()


def seconds_of(work: Callable[[], object], is_warm: bool = True) -> float:
    """Wall seconds of ``work``, unless ``is_warm`` after an unmeasured first run, which compiles the kernels."""
    for _ in range(1 if is_warm else 2):
        start = time.monotonic()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return time.monotonic() - start


@pytest.mark.campaign
@on("cpu", CUDA)
def test_share(day: Day, figure: Figure) -> None:
    """Tokens per second and the share of the peak of scoring (pass 1) and training a random model of true shape."""
    free = torch.cuda.mem_get_info()[0] / GIB if torch.cuda.is_available() else 0.0
    size = "7B" if free > 40 else "1.5B"
    shape = TINY if day.is_rehearsal else KNOWN[f"Qwen/Qwen2.5-Math-{size}-Instruct"]
    dtype = torch.float32 if day.is_rehearsal else torch.bfloat16
    model = random_model(shape, day.device, dtype)
    prompter, groups = problems(day, day.size(8, 1))
    side = day.size(8192, 512)
    left, right = (torch.randn(side, side, device=day.device, dtype=dtype) for _ in range(2))
    peak = 20 * 2 * side**3 / seconds_of(lambda: [left @ right for _ in range(20)], is_warm=False)
    figure("model", f"random weights in the shape of {shape.name}, {str(dtype).removeprefix('torch.')}")
    figure("peak of a matrix product", f"{peak / 1e12:.3g} TFLOP/s")

    def share(what: str, tokens: int, took: float, passes: int) -> None:
        rate = passes * flops(model, tokens) / took
        figure(what, f"{tokens / took:,.0f} tokens/s, {rate / 1e12:.3g} TFLOP/s, {100 * rate / peak:.0f} % of the peak")

    scoring(figure, share, model, prompter, groups)
    training(share, model, prompter, groups)


def flops(model: Any, tokens: int) -> float:
    """The matrix FLOP of one forward pass: two per weight and token, without embedding and output layers."""
    weights: int = sum(p.numel() for n, p in model.named_parameters() if "embed" not in n and "lm_head" not in n)
    return 2.0 * weights * tokens


@torch.inference_mode()
def scoring(figure: Figure, share: Callable[..., None], model: Any, prompter: Prompter, groups: Any) -> None:
    """Pass 1 over trees, compared with one prompt per step as published."""
    first = prompter.passes[:1]
    encoded = [prompter.encode(group) for group in groups]
    trees = [prompter.tree_of(each, first)[0] for each in encoded]
    prompts = [(prompter.prompt(ids, slots, (), first[0].asked), slots[:2]) for each in encoded for ids, slots in each]

    def published() -> Tensor:
        found = []
        for ids, slots in prompts:
            row = torch.tensor(ids.tolist(), device=model.device)[None]
            at = torch.tensor([slot - 1 for slot in slots], device=model.device)
            found.append(model(input_ids=row, use_cache=False, logits_to_keep=at).logits[0])
        return torch.cat(found)

    model.config._attn_implementation = "sdpa"
    want, official = published().double().cpu(), seconds_of(published, is_warm=False)
    model.config._attn_implementation = "eager"
    noise = relative(published(), want)
    use_trees(model)
    got, mine = over_trees(model, trees), seconds_of(lambda: over_trees(model, trees), is_warm=False)
    off = relative(got, want)
    share("scoring, pass 1", sum(len(tree) for tree in trees), mine, 1)
    figure("one prompt per step, as published", f"{official:.2f} s against {mine:.2f} s: {official / mine:.1f} times")
    figure("the whole ProcessBench, pass 1 (extrapolated)", f"{ITEMS * mine / len(groups) / 60:.1f} min")
    figure(
        "difference of trees and separate prompts (rms)", f"{off:.1e}; of separate prompts by two kernels {noise:.1e}"
    )
    assert off < max(noise, 1e-4), f"trees and separate prompts differ by {off:.1e}"


def over_trees(model: Any, trees: Sequence[Tree]) -> Tensor:
    """Logits of all readings in the order of the trees."""
    found: dict[int, Tensor] = {}
    for group in pack([len(tree) for tree in trees], BUDGET):
        logits = read_logits(model, batch_trees([trees[i] for i in group], "flex").to(model.device, model.dtype))
        found |= zip(group, torch.split(logits, [len(trees[i].reads) for i in group]), strict=True)
    return torch.cat([found[i] for i in range(len(trees))])


def training(share: Callable[..., None], model: Any, prompter: Prompter, groups: Any) -> None:
    """Forward and backward pass of gold-label trees with gradient checkpointing, without an optimiser step."""
    built = [prompter.tree(group, [[True, True, True]] * len(group))[0] for group in groups]
    chosen = [built[i] for i in next(iter(pack([len(tree) for tree in built], BUDGET)))]
    batch = batch_trees(chosen, backend_on(model.device)).to(model.device, model.dtype)
    model.activation_checkpointing_enable()
    model.train()

    def step() -> None:
        read_logits(model, batch).float().logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    took = seconds_of(step, is_warm=False)
    share("training, recomputation not counted", sum(len(tree) for tree in chosen), took, 3)


@on(REHEARSED, CUDA)
def test_judge(day: Day, figure: Figure) -> None:
    """Label real steps with a vLLM server that the stage starts and stops; on the CPU, with transformers."""
    if not day.is_rehearsal and not (ROOT / VLLM).exists():
        pytest.fail(f"{ROOT / VLLM} does not exist; run `make vllm`")
    run_stage(day, figure, "prepare")
    seconds = run_stage(day, figure, "label")
    metrics = read_json(day.work / "metrics/label.json")
    answers = read_parquet(day.work / "artifacts/labels/answers.parquet")
    figure("steps judged", f"{len(answers):,} answers in {seconds:.0f} s with the start of the server")
    asked, generated = metrics["prompt_tokens"], metrics["tokens"]
    figure("tokens", f"{asked:,} of prompts, {generated:,} generated, {generated / seconds:,.0f} per s")
    figure("answers that parse", f"{metrics['parsed_share']:.1%}")
    assert len(answers) > 0, "no step was judged"


@on(REHEARSED, CUDA)
def test_lora(day: Day, figure: Figure) -> None:
    """Filter, build and train an adapter on the records that the judge labelled."""
    if not (day.work / "artifacts/labels/labels.parquet").exists():
        label_in_process(day, figure)
    for name in ("filter", "validate", "build"):
        run_stage(day, figure, name)
    seconds = run_stage(day, figure, "train", "full")
    records = read_json(day.work / "metrics/train/full.json")["train_records"]
    rows = read_json(day.work / "metrics/train/full_log.json")
    figure("records", f"{records:,} in {seconds:.0f} s with loading and the evaluation, {records / seconds:.1f} per s")
    figure("loss, first and last step", f"{rows[0]['loss']:.3f}, {rows[-1]['loss']:.3f}")
    assert day.is_rehearsal or rows[-1]["loss"] < rows[0]["loss"], "the loss did not fall"


@on(REHEARSED, CUDA)
def test_benchmarks(day: Day, figure: Figure) -> None:
    """ProcessBench and PRMBench with the adapter's model."""
    if not (day.work / "models/full").is_dir():
        pytest.fail("no trained model; the part lora makes it")
    for name in ("processbench", "prmbench"):
        seconds = run_stage(day, figure, name, "full")
        lines = (day.work / f"artifacts/predictions/{name}/full.jsonl").read_text(encoding="utf-8").splitlines()
        figure(name, f"{len(lines)} items in {seconds:.0f} s with the start of Python and the loading of the model")


def label_in_process(day: Day, figure: Figure) -> None:
    """Labels without vLLM: one step goes to the shipped judge, and the ratings of the others decide."""
    params = day.work / "params.yaml"
    content = yaml.safe_load(params.read_text(encoding="utf-8"))
    content["label"] |= {"engine": "transformers", "prm800k_limit": 1, "max_tokens": 64, "max_model_len": 1024}
    write_text(params, yaml.safe_dump(content, sort_keys=False))
    figure("labels", "without the judge part: steps whose rating implies the labels")
    for name in ("prepare", "label"):
        run_stage(day, figure, name)


def run_stage(day: Day, figure: Figure, name: str, *words: str) -> float:
    """Run a stage, record its peak memory next to the planned figure, and return its wall-clock seconds."""
    command = [sys.executable, "-m", f"stages.{name}", *words]
    print(f"$ {' '.join(command)}", flush=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    with card_memory() as peaks:
        start = time.monotonic()
        process = subprocess.Popen(command, cwd=day.work, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
    assert not status, f"{' '.join(command)} ended with status {process.returncode}; its error is in the log"
    with chdir(day.work):
        # a server takes the memory that it is given
        needs = stage_needs(
            name, load_params(), day.device, lambda model: fetched_shape(Path("artifacts/raw/models", model))
        )
    if planned := sum(need.total for need in needs if not need.share) / GIB:
        on_card = (max(peaks) - peaks[0]) / GIB if peaks else float("nan")
        measured = usage.ru_maxrss * 1024 / GIB if day.is_rehearsal else on_card
        figure(f"{name}: memory, measured and planned", f"{measured:.1f} GiB, {planned:.1f} GiB")
    return seconds


@contextmanager
def card_memory() -> Iterator[list[float]]:
    """Sample the used bytes of the first card; on a machine without a card the list stays empty."""
    peaks: list[float] = []
    done = threading.Event()

    def sample() -> None:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
        while not done.wait(0.25 * bool(peaks)):
            try:
                text = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            except (OSError, subprocess.CalledProcessError):
                return
            peaks.append(float(text) * 2**20)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()
