"""The pipeline's stages on the card: the judge behind vLLM, LoRA training, both benchmarks, and the level replica."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from ground.io import DataError, read_json, read_parquet, write_text
from infra.gpu_day.day import ROOT, VLLM, Day, Report, run
from pathfinder.core.params import load_params
from pathfinder.models.devices import GIB
from pathfinder.models.needs import stage_needs
from pathfinder.models.shapes import fetched_shape

_SAMPLE_S = 0.25


def judge(day: Day) -> Report:
    """Label real steps with a vLLM server that the stage starts and stops. Raises ``DataError`` without vLLM."""
    if not day.rehearsal and not VLLM.exists():
        raise DataError(f"{VLLM} does not exist; run `make vllm`")
    report = Report()
    _stage(day, report, "prepare")
    seconds = _stage(day, report, "label")
    metrics = read_json(day.work / "metrics/label.json")
    answers = read_parquet(day.work / "artifacts/labels/answers.parquet")
    report.add("steps judged", f"{len(answers):,} answers in {seconds:.0f} s with the start of the server")
    prompts, generated = metrics["prompt_tokens"], metrics["tokens"]
    report.add("tokens", f"{prompts:,} of prompts, {generated:,} generated, {generated / seconds:,.0f} per s")
    report.add("answers that parse", f"{metrics['parsed_share']:.1%}")
    report.check(len(answers) > 0, "no step was judged")
    return report


def lora(day: Day) -> Report:
    """Filter, build and train an adapter on the records that the judge part labelled."""
    report = Report()
    if not (day.work / "artifacts/labels/labels.parquet").exists():
        _label_in_process(day, report)
    for name in ("filter", "validate", "build"):
        _stage(day, report, name)
    seconds = _stage(day, report, "train", "full")
    figures = read_json(day.work / "metrics/train/full.json")
    rows = read_json(day.work / "metrics/train/full_log.json")
    records = figures["train_records"]
    report.add(
        "records", f"{records:,} in {seconds:.0f} s with loading and the evaluation, {records / seconds:.1f} per s"
    )
    report.add("loss, first and last step", f"{rows[0]['loss']:.3f}, {rows[-1]['loss']:.3f}")
    report.check(day.rehearsal or rows[-1]["loss"] < rows[0]["loss"], "the loss did not fall")
    return report


def benchmarks(day: Day) -> Report:
    """ProcessBench and PRMBench with the adapter's model. Raises ``DataError`` if there is none."""
    if not (day.work / "models/full").is_dir():
        raise DataError("no trained model; the part lora makes it")
    report = Report()
    for name in ("processbench", "prmbench"):
        seconds = _stage(day, report, name, "full")
        lines = (day.work / f"artifacts/predictions/{name}/full.jsonl").read_text(encoding="utf-8").splitlines()
        report.add(name, f"{len(lines)} items in {seconds:.0f} s with the start of Python and the loading of the model")
    return report


def replica(day: Day) -> Report:
    """The world of level ``replica`` (docs/replica.md); an unfinished one resumes with the same command."""
    report = Report()
    if not day.rehearsal:
        seconds, _ = run(["make", "world", "LEVEL=replica"], ROOT)
        report.add("make world LEVEL=replica", f"{seconds / 60:.0f} min")
        return report
    recipes = yaml.safe_load((ROOT / "infra/pretraining/params.yaml").read_text(encoding="utf-8"))["levels"]
    plan = {"steps": 2, "tokens": 512, "rate": 0.001}
    tiny = {"device": "cpu", "shape": {"hidden": 32, "layers": 2, "heads": 2, "feed": 48}}
    tiny |= {"plans": dict.fromkeys(recipes["replica"]["plans"], plan)}
    path = "infra/pretraining/params.yaml"
    write_text(day.work / path, yaml.safe_dump({"levels": {"replica": recipes["replica"] | tiny}}))
    for part in ("base", "judge"):
        seconds, _ = run([sys.executable, "-m", "world.pretrain", part, "replica"], day.work)
        report.add(part, f"{seconds:.0f} s")
    return report


def _stage(day: Day, report: Report, name: str, *words: str) -> float:
    """Run a stage, record its peak memory next to the planned figure, and return its wall-clock seconds."""
    peaks: list[float] = []
    with _card_memory(peaks):
        seconds, rss = run([sys.executable, "-m", f"stages.{name}", *words], day.work)
    if planned := _planned(day, name):
        measured = rss / GIB if day.rehearsal else (max(peaks) - peaks[0]) / GIB if peaks else float("nan")
        report.add(f"{name}: memory, measured and planned", f"{measured:.1f} GiB, {planned:.1f} GiB")
    return seconds


def _planned(day: Day, name: str) -> float:
    """GiB that the plan gives one process of the stage; 0 for a server, which takes what it is given."""
    before = Path.cwd()
    os.chdir(day.work)
    try:
        params = load_params()
        needs = stage_needs(name, params, day.device, lambda model: fetched_shape(Path("artifacts/raw/models", model)))
        return sum(need.total for need in needs if not need.share) / GIB
    finally:
        os.chdir(before)


@contextmanager
def _card_memory(peaks: list[float]) -> Iterator[None]:
    """Sample the used bytes of the first card; on a machine without a card the list stays empty."""
    done = threading.Event()

    def sample() -> None:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
        while not done.is_set():
            try:
                text = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            except (OSError, subprocess.CalledProcessError):
                return
            peaks.append(float(text) * 2**20)
            done.wait(_SAMPLE_S)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _label_in_process(day: Day, report: Report) -> None:
    """Labels without vLLM: one step goes to the shipped judge, and the ratings of the others decide."""
    params = day.work / "params.yaml"
    content = yaml.safe_load(params.read_text(encoding="utf-8"))
    content["label"] |= {"engine": "transformers", "prm800k_limit": 1, "max_tokens": 64, "max_model_len": 1024}
    write_text(params, yaml.safe_dump(content, sort_keys=False))
    report.add("labels", "without the judge part: steps whose rating implies the labels")
    for name in ("prepare", "label"):
        _stage(day, report, name)
