from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows import profiles
from pathfinder.core.io import DataError
from pathfinder.core.params import Params
from pathfinder.models import footprint
from pathfinder.models.footprint import GIB, Device, verdict
from pathfinder.models.shapes import planned_shape
from tests.support.models import plain_tokenizer, small_model
from tests.support.training import settings


def profile(root: Path, name: str, **changed: dict[str, Any]) -> Params:
    params = Params.model_validate(yaml.safe_load(profiles.render(root, name)))
    sections = {key: getattr(params, key).model_copy(update=values) for key, values in changed.items()}
    return params.model_copy(update=sections)


def test_the_papers_training_needs_several_gpus_or_an_adapter(root: Path) -> None:
    params = profile(root, "paper")
    found = verdict("train", params, Device("cuda", 80 * GIB))
    assert found is not None
    assert not found.fits
    assert found.need.parts["weights"] == 4 * 7_615_616_512
    assert found.need.parts["optimiser"] == 8 * 7_615_616_512
    assert "train.launch: machine needs" in found.remedy
    spread = verdict("train", profile(root, "paper", train={"launch": "machine"}), Device("cuda", 80 * GIB))
    assert spread is not None
    assert spread.fits
    assert spread.need.parts["optimiser"] == 7_615_616_512
    small = verdict("train", params, Device("cuda", 16 * GIB))
    assert small is not None
    assert "no setting of this stage fits" in small.remedy
    assert verdict("label", params, Device("cuda", GIB)) is None  # a server runs the judge


def test_the_remedy_is_the_smallest_change(root: Path) -> None:
    params = profile(root, "quickstart")
    whole = footprint.train_need(planned_shape("base", params.download.sources, root), params.train, "cpu")
    room = Device("cpu", whole.total - 0.02 * GIB)
    found = verdict("train", params, room, lambda name: planned_shape(name, params.download.sources, root))
    assert found is not None
    assert not found.fits
    assert found.remedy.startswith("train.gradient_checkpointing: true needs")


def test_cached_trunks_are_counted(root: Path) -> None:
    from pathfinder.prm.scoring import OPEN

    assert footprint._OPEN == OPEN
    sources, caches = profile(root, "paper").download.sources, []
    for early_stop in (False, True):
        params = profile(root, "paper", processbench={"early_stop": early_stop})
        need = footprint.stage_need("processbench", params, "cuda", lambda n: planned_shape(n, sources, root))
        assert need is not None
        caches.append(need.parts["cache"])
    assert caches[1] - caches[0] == OPEN * footprint._TRUNK * 2 * 2 * 28 * 4 * 128  # a 7B model in bfloat16


def test_every_remedy_fits(root: Path) -> None:
    params = profile(root, "quickstart")
    for stage in footprint.STAGES:
        need = footprint.stage_need(stage, params, "cpu", lambda n: planned_shape(n, params.download.sources, root))
        assert need is not None
        for share in (0.95, 0.7, 0.4):
            device = Device("cpu", footprint._PROCESS["cpu"] + share * (need.total - footprint._PROCESS["cpu"]))
            found = verdict(stage, params, device, lambda n: planned_shape(n, params.download.sources, root))
            assert found is not None
            assert not found.fits
            assert "needs" in found.remedy, (stage, share, found.remedy)


def test_a_stage_refuses_before_it_starts(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(plain_tokenizer())
    model.config.save_pretrained(tmp_path)
    params = profile(root, "quickstart", train=settings().model_dump() | {"lora": settings().lora})
    footprint.require("train", params, {"base": tmp_path})
    monkeypatch.setattr(footprint, "this_device", lambda: Device("cpu", 0.6 * GIB))
    big = model.config.to_dict() | {"hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 40}
    (tmp_path / "config.json").write_text(json.dumps(big))
    with pytest.raises(DataError, match=r"^train \(.*\) needs about \d+\.\d GiB, this machine has 0\.6 GiB"):
        footprint.require("train", params, {"base": tmp_path})
