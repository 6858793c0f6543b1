"""The formats of settings: params.yaml, the exclusion list, and what a model's folder says about the model."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from flows.team.pools.table import FILE, needs, slots
from ground.io import read_json
from pathfinder.core.hub import HUB_FILE, read_hub_model
from pathfinder.core.params import load_params
from pathfinder.core.prompts import VARIANTS
from pathfinder.data.exclusions import read_exclusions
from pathfinder.models.architectures import shape_of
from pathfinder.models.folders import MODEL_FILE, variant_of
from pathfinder.planning import profiles
from pathfinder.planning.profiles import FOLDER
from tests.campaigns.faults.inputs.documents import (
    MISSING,
    Document,
    Field,
    Keys,
    View,
    is_some_text,
    is_text,
    is_whole,
    null_as_missing,
    or_nothing,
    value_at,
)

ROOT = Path(__file__).resolve().parents[4]
_EVERY = 12  # of the leaves of params.yaml, one in twelve: the types repeat


def like(valid: Any) -> Field:
    """A field that may hold only values of the type of ``valid``; a whole number is a fraction too."""
    if isinstance(valid, float):
        return Field(lambda value: type(value) in (int, float) and math.isfinite(value), float)
    return Field(lambda value: type(value) is type(valid))


def like_or_null(valid: Any) -> Field:
    """``like``, or null."""
    return Field(lambda value: value is None or type(value) is type(valid))


def _leaves(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*keys, key))
    else:
        yield keys, value


_VALID = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
_LEAVES = dict(list(_leaves(_VALID))[::_EVERY])


def _params(path: Path) -> View:
    content = load_params(path).model_dump(by_alias=True)
    return [{keys: value_at(content, keys) for keys in _LEAVES}]


_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
_PARAMS_TEXT = yaml.safe_dump(_VALID, sort_keys=False)
PARAMS = Document(
    "params.yaml",
    "params.yaml",
    (_VALID,),
    {keys: like(value) for keys, value in _LEAVES.items()},
    _params,
    "yaml",
    texts={
        "aliases that multiply": (_BOMB + _PARAMS_TEXT).encode(),
        "aliases that multiply in a key": _PARAMS_TEXT.replace(
            "targets: []", f"targets:\n  {_BOMB.strip()}".replace("\n", "\n  ")
        ).encode(),
        "object of Python": _PARAMS_TEXT.replace(
            "targets: []", "targets: !!python/object/apply:os.system ['true']"
        ).encode(),
        "unknown tag": _PARAMS_TEXT.replace("targets: []", "targets: !x []").encode(),
        "tabs": _PARAMS_TEXT.replace("  ", "\t").encode(),
        "second document": (_PARAMS_TEXT + "---\na: 1\n").encode(),
        "alias to itself": _PARAMS_TEXT.replace("targets: []", "targets: &t [*t]").encode(),
        "unknown alias": _PARAMS_TEXT.replace("targets: []", "targets: *t").encode(),
        "merge of another mapping": (_PARAMS_TEXT + "<<: {profile: other}\n").encode(),
        "key twice": (_PARAMS_TEXT + "profile: other\n").encode(),
        "a list as a key": (_PARAMS_TEXT + "? [a]\n: 1\n").encode(),
        "nested deeply": (_PARAMS_TEXT.replace("targets: []", "targets: " + "[" * 5000 + "]" * 5000)).encode(),
        "number with 5,000 digits": _PARAMS_TEXT.replace("retries: 6", "retries: " + "9" * 5000).encode(),
        "octal number": _PARAMS_TEXT.replace("retries: 6", "retries: 0o17").encode(),
        "number of base sixty": _PARAMS_TEXT.replace("retries: 6", "retries: 1:30").encode(),
        "date": _PARAMS_TEXT.replace("retries: 6", "retries: 2022-01-01").encode(),
        "yes": _PARAMS_TEXT.replace("retries: 6", "retries: yes").encode(),
    },
    is_strict=True,
    may_refuse=True,
)


def _exclusions(path: Path) -> View:
    return [
        {(key,): getattr(one, key) for key in ("content", "step", "completion", "reason", "id")}
        for one in read_exclusions(path)
    ]


def _is_note(value: Any) -> bool:
    return value is MISSING or is_text(value)


EXCLUSIONS = Document(
    "exclusions.jsonl",
    "exclusions.jsonl",
    tuple({"content": "ab" * 16, "step": number, "completion": 0, "reason": "wrong", "id": "x"} for number in range(2)),
    {
        ("content",): Field(is_some_text),
        ("step",): Field(lambda value: is_whole(value) and value >= 0),
        ("completion",): Field(lambda value: is_whole(value) and value >= 0),
        ("reason",): Field(_is_note),
        ("id",): Field(_is_note),
    },
    _exclusions,
    is_strict=True,
    may_be_empty=True,
    may_refuse=True,
)


def _hub(path: Path) -> View:
    model = read_hub_model(path.parent)
    if model is None:  # a folder without the file holds its model itself
        read_json(path)
    assert model is not None
    return [{("repo",): model.repo, ("revision",): model.revision, ("files",): model.files}]


def _are_files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(one, dict) and is_whole(one.get("bytes")) for one in value.values()
    )


HUB = Document(
    "pointer to the Hub",
    f"model/{HUB_FILE}",
    ({"repo": "a/b", "revision": "0" * 40, "files": {"config.json": {"sha256": "0" * 64, "bytes": 3}}},),
    {
        ("repo",): Field(lambda value: isinstance(value, str) and bool(re.fullmatch(r"[\w.-]+(/[\w.-]+)?", value))),
        ("revision",): Field(lambda value: isinstance(value, str) and len(value) == 40),
        ("files",): Field(lambda value: value is MISSING or _are_files(value)),
    },
    _hub,
    "object",
    may_refuse=True,
)


def _description(path: Path) -> View:
    found = variant_of(path.parent)
    if not path.exists():  # then it is a published checkpoint
        read_json(path)
    return [{("variant",): next(name for name, variant in VARIANTS.items() if variant == found)}]


DESCRIPTION = Document(
    "pathfinder.json",
    f"model/{MODEL_FILE}",
    (read_json(ROOT / "pathfinder/demo_model/pathfinder.json"),),
    {("variant",): Field(lambda value: isinstance(value, str) and value in VARIANTS)},
    _description,
    "object",
)
_SIZES = {
    "hidden_size": "hidden",
    "intermediate_size": "inner",
    "num_hidden_layers": "layers",
    "vocab_size": "vocabulary",
}


def _config(path: Path) -> View:
    shape = shape_of(read_json(path), str(path))
    return [{(key,): getattr(shape, name) for key, name in _SIZES.items()}]


CONFIG = Document(
    "config.json",
    "model/config.json",
    (read_json(ROOT / "pathfinder/demo_model/config.json"),),
    {(key,): Field(lambda value: is_whole(value) and 0 < value < 2**40) for key in _SIZES},
    _config,
    "object",
    may_refuse=True,
)


def _resources(path: Path) -> View:
    found = needs(path.parents[1], ["label"])["label"]
    if not path.exists():  # then every stage runs here
        read_json(path)
    values: dict[Keys, Any] = {("stages", 0, key): getattr(found, key) for key in ("pool", "parts", "gpus", "memory")}
    values |= {("stages", 0, "time"): found.time_s, ("stages", 0, "retries", "lost"): found.retries.lost}
    return [values | {("slots",): slots(path.parents[1])}]


def _in_seconds(value: Any) -> Any:
    return (
        MISSING if value in (MISSING, None) else float(value[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[value[-1]]
    )


def _for_label(view: View) -> View:
    """Only a line whose pattern matches the stage says something about it."""
    (row,) = view
    pattern = row["stages", 0, "stage"]
    return [{keys: row[keys] for keys in row if keys == ("slots",) or fnmatchcase("label", pattern)} | _PATTERN]


_PATTERN: dict[Keys, Any] = {("stages", 0, "stage"): MISSING}
RESOURCES = Document(
    "resources.yaml",
    FILE.as_posix(),
    (
        {
            "stages": [
                {
                    "stage": "*",
                    "pool": "gpu",
                    "parts": 2,
                    "gpus": 1,
                    "memory": "64Gi",
                    "time": "2h",
                    "retries": {"transient": 3, "lost": 1, "error": 0},
                }
            ],
            "slots": {"judge": 1},
        },
    ),
    {
        ("stages", 0, "stage"): Field(is_text),
        ("stages", 0, "pool"): Field(or_nothing(is_text), null_as_missing),
        ("stages", 0, "parts"): Field(or_nothing(is_whole), null_as_missing),
        ("stages", 0, "gpus"): Field(or_nothing(is_whole), null_as_missing),
        ("stages", 0, "memory"): Field(or_nothing(is_text), null_as_missing),
        ("stages", 0, "time"): Field(
            or_nothing(lambda value: is_text(value) and bool(re.fullmatch(r"\d+[smhd]", value))),
            _in_seconds,
        ),
        ("stages", 0, "retries", "lost"): Field(lambda value: value is MISSING or is_whole(value)),
        ("slots",): Field(lambda value: value is MISSING or isinstance(value, dict)),
    },
    _resources,
    "yaml",
    together=_for_label,
    texts={
        "key twice": b"stages: []\nstages: []\n",
        "object of Python": b"stages: !!python/object/apply:os.system ['true']\n",
        "aliases that multiply": (_BOMB + "stages: []\n").encode(),
        "unknown tag": b"stages: !x []\n",
        "tabs": b"stages:\n\t- {stage: a}\n",
        "second document": b"stages: []\n---\na: 1\n",
    },
    is_strict=True,
    may_refuse=True,
)


def _profile(path: Path) -> View:
    """Read the settings that ``pathfinder profile`` writes for it."""
    root, base = path.parents[2], path.with_name("paper.yaml")
    if not path.exists():  # there is no such profile
        read_json(path)
    shutil.copyfile(ROOT / FOLDER / "paper.yaml", base)
    try:
        profiles.write(root, path.stem)
        content = load_params(root / "params.yaml").model_dump(by_alias=True)
        return [{keys: value_at(content, keys) for keys in PROFILE.fields}]
    finally:
        base.unlink()
        (root / "params.yaml").unlink(missing_ok=True)


PROFILE = Document(
    "profile",
    f"{FOLDER.as_posix()}/mine.yaml",
    ({"profile": "mine", "search": {"width": 4, "temperature": 0.5}},),
    {
        ("profile",): Field(lambda value: value == "mine"),
        ("search", "temperature"): Field(
            lambda value: value is MISSING or (type(value) in (int, float) and math.isfinite(value)),
            lambda value: value if value is MISSING else float(value),
        ),
        ("search", "width"): Field(  # `4.` is a whole number in YAML 1.2
            lambda value: value is MISSING or is_whole(value) or (type(value) is float and value.is_integer()),
            lambda value: value if value is MISSING else int(value),
        ),
    },
    _profile,
    "yaml",
    texts={
        "extends itself": b"extends: mine\n",
        "extends nothing": b"extends: none\n",
        "extends a list": b"extends: [paper]\n",
        "key twice": b"profile: mine\nprofile: mine\n",
        "object of Python": b"profile: !!python/object/apply:os.system ['true']\n",
        "aliases that multiply": (_BOMB + "profile: mine\n").encode(),
    },
    is_strict=True,
    may_refuse=True,
)


def _adapter(path: Path) -> View:
    from pathfinder.baselines.backbone import adapter_scale

    return [{("scale",): adapter_scale(path.parent)}]


ADAPTER = Document(
    "adapter_config.json",
    "lora/adapter_config.json",
    ({"peft_type": "LORA", "r": 8, "lora_alpha": 32, "bias": "none", "use_dora": False, "rank_pattern": {}},),
    {
        ("r",): Field(lambda value: is_whole(value) and value > 0),
        ("lora_alpha",): Field(lambda value: type(value) in (int, float) and 0 < value < 2**31),
        ("peft_type",): Field(lambda value: value in (MISSING, "LORA")),
        ("bias",): Field(lambda value: value in (MISSING, "none")),
        ("use_dora",): Field(lambda value: value is MISSING or value == 0),
        ("rank_pattern",): Field(lambda value: value is MISSING or not value),
        ("use_rslora",): Field(lambda value: value is MISSING or isinstance(value, bool)),
    },
    _adapter,
    "object",
    together=lambda view: [
        {("scale",): row["lora_alpha",] / row["r",] ** (0.5 if row["use_rslora",] is True else 1)} for row in view
    ],
    may_refuse=True,
)
