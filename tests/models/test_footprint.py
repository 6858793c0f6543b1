from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from ground.io import DataError
from pathfinder.core.params import Params
from pathfinder.models import cards, footprint, needs
from pathfinder.models.cards import GIB, Device, gpus
from pathfinder.models.footprint import verdict
from pathfinder.models.shapes import planned_shape
from pathfinder.planning import cards as planning_cards
from pathfinder.planning import profiles
from tests.support.models import plain_tokenizer, small_model
from tests.support.training import settings


def profile(root: Path, name: str, **changed: dict[str, Any]) -> Params:
    params = Params.model_validate(yaml.safe_load(profiles.render(root, name)))
    sections = {key: getattr(params, key).model_copy(update=values) for key, values in changed.items()}
    return params.model_copy(update=sections)


def test_the_papers_training_needs_several_gpus_or_an_adapter(root: Path) -> None:
    single = profile(root, "paper", train={"launch": ""})
    found = verdict("train", single, gpus(80, 8))
    assert found is not None
    assert not found.fits
    assert found.needs[0].parts["weights"] == 4 * 7_615_616_512
    assert found.needs[0].parts["optimiser"] == 8 * 7_615_616_512
    assert "train.launch: machine needs" in found.remedy
    spread = verdict("train", profile(root, "paper", train={"launch": "machine"}), gpus(80, 8))
    assert spread is not None
    assert spread.fits
    assert spread.needs[0].parts["optimiser"] == 7_615_616_512
    assert spread.needs[0].cards == 8
    nodes = verdict("train", profile(root, "paper-nodes"), gpus(80, 8))  # each machine has its own eight
    assert nodes is not None
    assert nodes.fits
    assert nodes.needs[0].parts["optimiser"] == 7_615_616_512 / 2
    small = verdict("train", single, gpus(12))
    assert small is not None
    assert "no setting of this stage fits" in small.remedy
    assert verdict("label", profile(root, "paper", label={"engine": "openai"}), gpus(1)) is None  # a server elsewhere


def test_a_remedy_fits_the_machine_that_was_asked_about(root: Path) -> None:
    """One GPU is never told to use eight."""
    found = verdict("train", profile(root, "paper", train={"launch": "machine"}), gpus(80))
    assert found is not None
    assert not found.fits
    assert "train.lora.rank: 16" in found.remedy
    assert "machine" not in found.remedy


def test_no_remedy_goes_below_the_longest_record(root: Path) -> None:
    """A longer record has a pass of its own, so a smaller token budget saves nothing and none is recommended."""
    small = profile(root, "paper", train={"launch": "", "token_budget": 1024})
    large = profile(root, "paper", train={"launch": "", "token_budget": needs.LONGEST_RECORD})
    shapes = partial(planned_shape, sources=small.download.sources)
    assert needs.stage_needs("train", small, "cuda", shapes) == needs.stage_needs("train", large, "cuda", shapes)
    adapter = {"launch": "", "lora": small.train.lora.model_copy(update={"rank": 16})}
    enough, more = (
        needs.stage_needs("train", profile(root, "paper", train={**adapter, "token_budget": budget}), "cuda", shapes)
        for budget in (needs.LONGEST_RECORD, 8192)
    )
    between = (enough[0].total + more[0].total) / 2 / GIB
    found = verdict("train", profile(root, "paper", train={"launch": ""}), gpus(between))
    assert found is not None
    assert not found.fits
    assert f"train.token_budget: {needs.LONGEST_RECORD}" in found.remedy


def test_what_other_processes_use_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards of 80 GiB, one of which another process fills."""
    monkeypatch.setattr(cards, "_has_driver", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(cards, "held", lambda: [cards.Card("0", "a"), cards.Card("1", "b")])
    monkeypatch.setattr(cards, "memory", lambda _: [(79 * GIB, 80 * GIB), (12 * GIB, 80 * GIB)])
    assert cards.this_device() == Device("cuda", 12 * GIB, 80 * GIB, 2)


def test_memory_of_a_container_is_what_its_processes_leave(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  2048 kB\nMemFree: 100 kB\nMemAvailable:  1024 kB\n")
    assert cards.main_memory(meminfo, tmp_path) == (1024 * 1024, 2048 * 1024)
    for name, text in {"max": "1000000", "current": "900000", "stat": "anon 1\ninactive_file 200000"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert cards.main_memory(meminfo, tmp_path) == (300_000, 1_000_000)


def test_a_server_and_the_prm_share_one_card_or_have_their_own(root: Path) -> None:
    params = profile(root, "paper")
    shapes = partial(planned_shape, sources=params.download.sources)
    server = needs.served_need("search", shapes("policy"), params.search.vllm, 2304)
    assert server.share == params.search.vllm.gpu_memory_utilization
    alone = verdict("search", params, gpus(40, server.cards + 1))
    assert alone is not None
    assert alone.fits
    one = {"vllm": params.search.vllm.model_copy(update={"replicas": 1})}
    together = verdict("search", profile(root, "paper", search=one), gpus(80))
    assert together is not None
    assert not together.fits
    assert "search.shared_card: true, search.vllm.gpu_memory_utilization: 0." in together.remedy


@pytest.mark.parametrize("gib", [4, 5, 6, 10])
def test_a_remedy_divides_the_heads_of_a_server(root: Path, gib: int) -> None:
    one = profile(root, "paper").search.vllm.model_copy(update={"tensor_parallel": 1, "replicas": 1})
    found = verdict("sample", profile(root, "paper", search={"vllm": one}), gpus(gib, 8))
    assert found is not None
    assert not found.fits
    assert "tensor_parallel: 8" not in found.remedy  # the policy has 28 attention heads
    assert ("search.vllm.tensor_parallel: " in found.remedy) == (gib > 5)


def test_weights_that_a_server_quantises_are_loaded_in_full_first(root: Path) -> None:
    params = profile(root, "paper")
    judge = planned_shape("judge", params.download.sources, root)
    one = {"tensor_parallel": 1, "max_num_batched_tokens": 8192, "options": ["--quantization", "fp8"]}
    settings = params.label.vllm.model_copy(update=one)
    need = needs.served_need("label", judge, settings, 8096)
    assert need.parts["weights"] == judge.parameters
    assert need.total - need.parts["process"] == pytest.approx(2 * judge.parameters)


def test_a_server_has_room_for_the_context_and_the_pass_that_it_measures(root: Path) -> None:
    """Fails if the plan lets a server of the policy take a share of the card in which vLLM does not start."""
    params, card = profile(root, "one-gpu-48"), planning_cards.machine("L40S", 1)
    policy = planned_shape("policy", params.download.sources, root)
    server, vllm = needs.stage_needs("sample", params, "cuda", lambda _: policy)[0], params.search.vllm
    assert server.parts["cache"] == 2 * policy.keys_and_values * (2048 + 30 * 512)
    assert server.parts["activations"] > 2 * vllm.max_num_batched_tokens * 3 * policy.inner
    less = vllm.model_copy(update={"gpu_memory_utilization": 0.4, "max_num_batched_tokens": 16384})
    small = profile(root, "one-gpu-48", search={"vllm": less})
    assert [found.fits for each in (params, small) if (found := verdict("sample", each, card))] == [True, False]


def test_a_bfloat16_base_halves_the_frozen_weights(root: Path) -> None:
    """1.5B parameters train on a card of 24 GB with an adapter over a bfloat16 base."""
    params, lora = profile(root, "one-gpu-24"), profile(root, "one-gpu-24").train.lora
    base = planned_shape("base", params.download.sources, root)
    halves = [
        needs.train_need(
            base, params.train.model_copy(update={"lora": lora.model_copy(update={"base_dtype": dtype})}), "cuda"
        )
        for dtype in ("float32", "bfloat16")
    ]
    assert halves[0].parts["weights"] - halves[1].parts["weights"] >= 2 * base.parameters
    assert halves[1].total > 4 * base.parameters  # the adapter is merged in float32


def test_cached_trunks_are_counted(root: Path) -> None:
    from pathfinder.prm.steps import OPEN

    assert needs._OPEN == OPEN
    sources, caches = profile(root, "paper").download.sources, []
    for early_stop in (False, True):
        params = profile(root, "paper", processbench={"early_stop": early_stop})
        (need,) = needs.stage_needs("processbench", params, "cuda", lambda n: planned_shape(n, sources, root))
        caches.append(need.parts["cache"])
    assert caches[1] - caches[0] == OPEN * needs._TRUNK * 2 * 2 * 28 * 4 * 128  # a 7B model in bfloat16


def test_every_remedy_fits(root: Path) -> None:
    params = profile(root, "quickstart")
    process = needs._PROCESS["cpu"]
    shapes = partial(planned_shape, sources=params.download.sources, root=root)
    for stage in needs.STAGES:
        (need,) = needs.stage_needs(stage, params, "cpu", shapes)
        for share in (0.95, 0.7, 0.4):
            memory = process + share * (need.total - process)
            found = verdict(stage, params, Device("cpu", memory, memory), shapes)
            assert found is not None
            assert not found.fits
            least = re.search(r" needs ([\d.]+) GiB", found.remedy)
            assert least is not None, (stage, share, found.remedy)
            assert float(least[1]) <= memory / GIB + 0.05, (stage, share, found.remedy)


def test_a_stage_refuses_before_it_starts(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(plain_tokenizer())
    model.config.save_pretrained(tmp_path)
    params = profile(root, "quickstart", train=settings().model_dump() | {"lora": settings().lora})
    footprint.require("train", params, {"base": tmp_path})
    monkeypatch.setattr(footprint, "this_device", lambda: Device("cpu", 0.6 * GIB, GIB))
    big = model.config.to_dict() | {"hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 40}
    (tmp_path / "config.json").write_text(json.dumps(big))
    with pytest.raises(DataError, match=r"^train does not fit: .*; this machine has 0\.6 of 1\.0 GiB free\. Nearest"):
        footprint.require("train", params, {"base": tmp_path})
