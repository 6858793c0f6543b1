"""The formats that stages write for later stages: metric files, the results, and the manifest of the sources."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ground.io import DataError, read_json
from ground.manifest import read_manifest
from pathfinder.core.hub import MANIFEST
from pathfinder.core.params import load_params
from pathfinder.core.runs import parse_runs
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.finished import results_table
from pathfinder.reporting.page.contents import page_of
from pathfinder.reporting.page.exports import plots_of, summary_of
from pathfinder.reporting.results import Results, load_results
from pathfinder.training.checkpoints import Group, _is_intact
from tests.campaigns.faults.inputs.documents import (
    MISSING,
    Document,
    Field,
    Keys,
    View,
    is_sha256,
    is_some_text,
    is_text,
    is_whole,
    or_nothing,
    value_at,
)
from tests.campaigns.faults.inputs.settings import ROOT

_PARAMS = load_params(ROOT / "params.yaml")
_RUN = "full"
_FLOW = {"read": 3, "kept": 2, "dropped": {"unrated": 1}, "quarantined": {}}
_PAIR = [80.0, 90.0]
_RATE = {"value": 85.0, "interval": _PAIR}
_JUDGED: dict[str, Any] = {"steps": 9, "kept": 4} | dict.fromkeys(
    (
        "wrong",
        "error_recall",
        "error_precision",
        "false_alarms",
        "labels_right",
        "labels_right_kept",
        "labels_right_dropped",
    ),
    _RATE,
)
_SIDE = {"trees": 1, "problems": 1, "records": 2, "sources": {"prm800k": 2}}
_SHARED = {"exact_problems": 0, "near_problems": 1, "exact_steps": 2, "near_steps": 3}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_figure(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_count(value: Any) -> bool:
    return is_whole(value) and 0 <= value < 2**53


def _are(accepts: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, dict) and all(map(accepts, value.values()))


def _or_missing(accepts: Callable[[Any], bool]) -> Field:
    """A field that may be left out, because it is optional or below a map, whose keys are free names."""
    return Field(lambda value: value is MISSING or accepts(value))


_NUMBER, _FIGURE, _COUNT = Field(_is_number), Field(_is_figure), Field(_is_count)
_COUNTS = Field(partial(_are, _is_count))
_PAIR_FIELD = Field(lambda value: isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)))


def _metrics(name: str, file: str, row: Any, fields: dict[Keys, Field], take: Callable[[Results], Any]) -> Document:
    """A metric file, read with all that the report makes of it."""

    def read(path: Path) -> View:
        root = next(parent for parent in path.parents if parent.name == "metrics")
        results = load_results(root, parse_runs([_RUN]))
        evidence = Evidence(results, root / "predictions", root / "raw", _PARAMS.report)
        page_of(evidence, _PARAMS.profile, {})
        summary_of(evidence), plots_of(evidence)
        found = take(results)
        if found is None:  # the report says that it is missing
            read_json(path)
        rows = found if isinstance(found, list) else [found]
        return [{keys: value_at(one.as_json() if one else one, keys) for keys in fields} for one in rows]

    rows = tuple(row) if isinstance(row, list) else (row,)
    container: Any = "list" if isinstance(row, list) else "object"
    return Document(f"metrics of {name}", f"metrics/{file}.json", rows, fields, read, container, may_refuse=True)


METRICS = (
    _metrics(
        "prepare",
        "prepare",
        _FLOW | {"lines": {"read": 3, "quarantined": 0}, "sources": {"prm800k": _FLOW}},
        {
            ("read",): _COUNT,
            ("kept",): _COUNT,
            ("dropped",): _COUNTS,
            ("quarantined",): _COUNTS,
            ("lines", "read"): _or_missing(_is_count),
            ("sources", "prm800k", "kept"): _or_missing(_is_count),
        },
        lambda results: results.prepare,
    ),
    _metrics(
        "build",
        "build",
        _FLOW
        | {"overlap": {"gsm8k": _SHARED | {"items": 4, "steps": 9, "sources": {"prm800k": _SHARED}}}}
        | {"train": _SIDE, "test": _SIDE, "removed": {"gsm8k": {"problems": 1, "records": 1}}},
        {
            ("kept",): _COUNT,
            ("overlap", "gsm8k", "steps"): _or_missing(_is_count),
            ("overlap", "gsm8k", "sources", "prm800k", "near_steps"): _or_missing(_is_count),
            ("removed", "gsm8k", "records"): _or_missing(_is_count),
            ("train", "records"): _COUNT,
            ("train", "sources"): _COUNTS,
        },
        lambda results: results.build,
    ),
    _metrics(
        "truth",
        "truth",
        {"all": _JUDGED, "groups": {"prm800k:-1": _JUDGED, "mistral:-1": _JUDGED}},
        {
            ("all", "steps"): _COUNT,
            ("all", "wrong", "value"): _FIGURE,
            ("all", "wrong", "interval"): Field(lambda value: value is None or _PAIR_FIELD.accepts(value)),
            ("groups", "prm800k:-1", "error_recall", "value"): _or_missing(_is_figure),
        },
        lambda results: results.truth,
    ),
    _metrics(
        "sample",
        "sample",
        {
            "average": {"pass@1": 60.0},
            "intervals": {"pass@1": _PAIR},
            "sets": {"math": {"pass@1": 60.0, "n": 3}},
            "details": {"samples": 8},
        },
        {
            ("average", "pass@1"): _or_missing(_is_number),
            ("intervals", "pass@1"): _or_missing(_PAIR_FIELD.accepts),
            ("sets", "math", "pass@1"): _or_missing(_is_figure),
            ("details", "samples"): Field(or_nothing(_is_count)),
        },
        lambda results: results.sample,
    ),
    _metrics(
        "a training",
        f"train/{_RUN}",
        {
            "final_loss": 0.5,
            "sources": {"prm800k": 3},
            "train_records": 3,
            "optimiser_steps": 2,
            "tokens_an_epoch": 99,
            "test_labels": {"correctness": {"n": 3, "accuracy": 0.5, "auc": 0.5, "majority_accuracy": 0.5}},
        },
        {
            ("final_loss",): _NUMBER,
            ("sources",): _COUNTS,
            ("optimiser_steps",): _COUNT,
            ("test_labels", "correctness", "accuracy"): _or_missing(_is_number),
            ("test_labels", "correctness", "auc"): _or_missing(_is_figure),
        },
        lambda results: results.train.get(_RUN),
    ),
    _metrics(
        "the steps of a training",
        f"train/{_RUN}_log",
        [{"step": step, "loss": 0.5, "held_out_loss_math": 0.5, "held_out_accuracy_math": 0.5} for step in (1, 2)],
        {
            ("step",): _COUNT,
            ("loss",): _NUMBER,
            ("held_out_loss_math",): _or_missing(_is_number),
        },
        lambda results: results.logs.get(_RUN),
    ),
    _metrics(
        "ProcessBench",
        f"processbench/{_RUN}",
        {
            "mean_f1": 85.0,
            "interval": _PAIR,
            "preset": "repaired",
            "kept": 3,
            "subsets": {"gsm8k": {"f1": 85.0, "error_acc": 80.0, "correct_acc": 90.0}},
            "generators": {"a": {"n": 3, "f1": 85.0}},
            "official": {"mean_f1": None},
            "thresholds": {
                "curve": [[0.5, 85.0]],
                "fixed": {"threshold": 0.5, "mean_f1": 85.0, "subsets": {"gsm8k": 85.0}},
            },
        },
        {
            ("mean_f1",): _FIGURE,
            ("interval",): Field(or_nothing(_PAIR_FIELD.accepts)),
            ("kept",): Field(or_nothing(_is_count)),
            ("subsets", "gsm8k", "f1"): _or_missing(_is_figure),
            ("generators", "a", "n"): _or_missing(_is_count),
            ("official", "mean_f1"): _or_missing(_is_figure),
            ("thresholds", "curve"): Field(
                lambda value: value is MISSING or (isinstance(value, list) and all(map(_PAIR_FIELD.accepts, value)))
            ),
            ("thresholds", "fixed", "threshold"): _or_missing(_is_figure),
        },
        lambda results: results.processbench.get(_RUN),
    ),
    _metrics(
        "PRMBench",
        f"prmbench/{_RUN}",
        {
            "overall": 70.0,
            "interval": [69.0, 71.0],
            "preset": "repaired",
            "classes": {"circular": 70.0},
            "categories": {"simplicity": 70.0},
            "details": {"total": {"recall": 0.5}},
            "readings": {"definition": {"overall": 70.0, "classes": {"circular": 70.0}}},
        },
        {
            ("overall",): _FIGURE,
            ("classes", "circular"): _or_missing(_is_figure),
            ("details", "total", "recall"): _or_missing(_is_figure),
            ("readings", "definition", "overall"): _or_missing(_is_figure),
        },
        lambda results: results.prmbench.get(_RUN),
    ),
    _metrics(
        "a search",
        f"search/{_RUN}",
        {
            "average": 60.0,
            "interval": [59.0, 61.0],
            "preset": "repaired",
            "sets": {"math": {"prm@8": 60.0, "n": 3}},
            "details": {"rounds": 9, "candidates": 72},
            "repaired": {"average": 60.0, "sets": {"math": {"prm@8": 60.0, "n": 3}}},
            "best_of_n": {"n": 8, "average": {"min": 60.0}, "intervals": {"min": _PAIR}},
        },
        {
            ("average",): _FIGURE,
            ("sets", "math", "prm@8"): _or_missing(_is_figure),
            ("details", "rounds"): Field(or_nothing(_is_count)),
            ("repaired", "average"): _or_missing(_is_figure),
            ("best_of_n", "average", "min"): _or_missing(_is_number),
        },
        lambda results: results.search.get(_RUN),
    ),
)


def _results(path: Path) -> View:
    text = results_table(path)
    if "does not exist yet" in text:  # nothing has run
        read_json(path)
    system, *cells = text.splitlines()[2].split("  ")
    return [
        {
            ("results", 0, "system"): system.strip(),
            ("results", 0, "search"): [cell for cell in cells if cell][-1].strip(),
        }
    ]


_CELL = Field(lambda value: is_some_text(value) and value.isprintable(), str.strip)
RESULTS = Document(
    "results of the report",
    "reports/tables.json",
    (
        {
            "results": [
                {
                    "system": "a system",
                    "is_baseline": False,
                    "processbench": {"value": 85.0, "low": 80.0, "high": 90.0},
                    "prmbench": "missing",
                    "search": "none",
                }
            ],
            "toy": True,
            "truth": ["The judge is right."],
        },
    ),
    {
        ("results", 0, "system"): _CELL,
        ("results", 0, "search"): _CELL,
    },
    _results,
    "object",
    may_refuse=True,
)


def _manifest(path: Path) -> View:
    found = read_manifest(path)
    return [{keys: value_at(found, keys) for keys in MANIFEST_FILE.fields}]


_SOURCE = {
    "kind": "shipped",
    "location": "data/mistral",
    "licence": "Apache-2.0",
    "revision": None,
    "files": {"a.jsonl": {"bytes": 3, "sha256": "0" * 64}},
}


MANIFEST_FILE = Document(
    "manifest of the sources",
    MANIFEST.as_posix(),
    ({"mistral": _SOURCE},),
    {
        ("mistral", "kind"): _or_missing(is_text),
        ("mistral", "location"): _or_missing(is_text),
        ("mistral", "licence"): _or_missing(is_text),
        ("mistral", "revision"): _or_missing(lambda value: value is None or is_text(value)),
        ("mistral", "files"): _or_missing(lambda value: isinstance(value, dict)),
        ("mistral", "files", "a.jsonl", "sha256"): _or_missing(is_sha256),
        ("mistral", "files", "a.jsonl", "bytes"): _or_missing(lambda value: is_whole(value) and 0 <= value < 2**63),
    },
    _manifest,
    "object",
    may_refuse=True,
)


_PART, _BYTES = "part-00000-of-00001", b"weights"


def _checkpoint(path: Path) -> View:
    """A checkpoint that is not intact is not used: training reports and removes it."""
    path.with_suffix(".safetensors").write_bytes(_BYTES)
    (path.parent / "trainer_state.json").write_bytes(b"{}")
    try:
        if not _is_intact(path.parent, Group()):
            raise DataError(f"{path}: torn, removed; training resumes from the previous one: look at the disk")
        return [{("files",): _DIGESTS}]
    finally:
        path.with_suffix(".safetensors").unlink()
        (path.parent / "trainer_state.json").unlink()


_DIGESTS = {
    f"{_PART}.safetensors": hashlib.sha256(_BYTES).hexdigest(),
    "trainer_state.json": hashlib.sha256(b"{}").hexdigest(),
}
CHECKPOINT = Document(
    "part of a checkpoint",
    f"checkpoint-2/{_PART}.json",
    ({"files": _DIGESTS},),
    {("files",): Field(lambda value: value == _DIGESTS)},
    _checkpoint,
    "object",
    may_refuse=True,
)
