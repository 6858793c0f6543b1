"""The plan of every GPU profile for its own machine."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from ground.io import DataError
from ground.settings import parse_yaml, read_yaml
from pathfinder.core.runs import parse_run
from pathfinder.models import launch
from pathfinder.models.cards import GIB, gpus
from pathfinder.models.footprint import with_changes
from pathfinder.planning import cards, gpu_plan, plan_text, profiles
from pathfinder.planning.estimates import busy_share, records_of, trees_of, written_per_second
from pathfinder.planning.gpu_plan import Plan
from tests.planning.test_profiles import GPU_PROFILES


def plan_of(root: Path, name: str) -> Plan:
    return Plan(profiles.load(root, name), profiles.machine_of(root, name))


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_a_profile_fits_its_machine(root: Path, name: str) -> None:
    plan = plan_of(root, name)
    assert plan.fits, [(stage, each.remedy) for stage, each in plan.verdicts.items() if each and not each.fits]
    assert plan.stages
    head = (root / f"infra/profiles/{name}.yaml").read_text()
    hours = re.search(r"# hours: about (\d+)", head)
    assert hours is not None
    assert int(hours[1]) == round(sum(each.hours or 0.0 for each in plan.estimates))
    named = re.search(r"# machine: \d+ x (.+) (\d+) GB", head)
    assert named is not None
    assert int(named[2]) == pytest.approx(cards.machine(named[1], 1).total / GIB, rel=0.1)
    smaller = Plan(plan.params, gpus(plan.device.total / GIB / 4, 1))
    assert not smaller.fits


def test_a_profile_of_ones_own_is_read_as_params_yaml_is(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / profiles.FOLDER, tmp_path / profiles.FOLDER)
    mine = tmp_path / profiles.FOLDER / "mine.yaml"
    mine.write_text("profile: mine\ntrain: {learning_rate: 2e-5}\n")
    assert profiles.load(tmp_path, "mine").train.learning_rate == 2e-5
    mine.write_text("profile: mine\ntrain: {learning_rate: -1}\nruns: [fulll]\n")
    with pytest.raises(DataError, match=r"infra/profiles/mine\.yaml: wrong parameters:\n  train\.learning_rate: "):
        profiles.load(tmp_path, "mine")


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_a_mix_holds_what_its_name_says(root: Path, name: str) -> None:
    """345,000 records of PRM800K, not all rated completions."""
    params = profiles.load(root, name)
    for mix in (run.mix for run in map(parse_run, params.runs)):
        expected = 345_000 if mix == "prm800k" else 1000 * int(mix.removesuffix("k"))
        assert records_of(params, mix) == pytest.approx(expected, rel=0.01), mix


def test_a_judge_on_one_card_holds_few_answers(root: Path) -> None:
    """The 16-bit judge leaves room for some twenty answers on a card of 80 GiB."""
    params = profiles.load(root, "paper")
    judge = Plan(params, gpus(80)).shape_of("judge")
    single = params.label.vllm.model_copy(update={"tensor_parallel": 1})
    slow, few = written_per_second(judge, single, gpus(80), 2400)
    fast, many = written_per_second(judge, params.label.vllm, gpus(80, 8), 2400)
    assert 10 < few < 40
    assert many == params.label.vllm.max_num_seqs
    assert fast > 8 * slow
    quantised, more = written_per_second(
        judge, single.model_copy(update={"options": ["--quantization", "fp8"]}), gpus(80), 2400
    )
    assert more > 2 * few
    assert quantised > slow


def test_tokens_and_cost_of_an_endpoint(root: Path) -> None:
    params = profiles.load(root, "one-gpu-24")
    label = params.label.model_copy(update={"price_per_million_tokens": 0.5})
    plan = Plan(params.model_copy(update={"label": label}), gpus(24))
    (row,) = [row for row in plan_text.hour_rows(plan.as_json()) if row[0] == "label"]
    calls = 1.2 * (params.label.prm800k_limit + 2 * params.label.mistral_per_rating)
    assert row[1:4] == ("by its server", f"{calls * 2400 / 1e6:,.0f} M", f"{calls * 2400 / 1e6 * 0.5:,.0f}")


def test_checkpoints_and_models_are_on_the_disk(root: Path) -> None:
    disk = plan_of(root, "paper").disk()
    parameters = 7_615_616_512
    assert disk["checkpoints"] == 2 * 12 * parameters
    assert disk["trained models"] == 3 * 7 * 2 * parameters
    assert plan_of(root, "paper").main_memory()["train"] > 12 * parameters
    assert plan_of(root, "paper-nodes").main_memory()["train"] < plan_of(root, "paper").main_memory()["train"]


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_checkpoints_leave_a_shared_disk_time_for_others(root: Path, name: str) -> None:
    """Training waits while the previous checkpoint is written."""
    plan = plan_of(root, name)
    if "train" in plan.stages:
        train = plan.params.train
        records = sum(records_of(plan.params, parse_run(run).mix) for run in plan.params.runs)
        steps = train.epochs * records * (1 - plan.params.build.test_share) * 2 / train.batch_samples
        seconds = train.save_every * 3600 * hours_of(plan)["train"] / steps
        assert 12 * plan._learned / seconds < 0.3e9


def test_every_process_loads_the_base_of_an_adapter_into_main_memory(root: Path) -> None:
    params = profiles.load(root, "paper")
    lora = params.train.lora.model_copy(update={"rank": 32, "base_dtype": "bfloat16"})
    adapted = params.model_copy(update={"train": params.train.model_copy(update={"lora": lora})})
    base = 7_615_616_512
    assert Plan(adapted, gpus(80, 8)).main_memory()["train"] > 8 * 2 * base


def test_a_generated_world_has_no_estimate(root: Path) -> None:
    plan = Plan(profiles.load(root, "quickstart"), gpus(24))
    assert plan.fits
    assert not list(plan_text.lines(plan.as_json()))
    assert plan.estimates == []
    (row,) = plan_text.overview({"small": plan.as_json()}, {"small": "1 x L4"})[1]
    assert row[:3] == ("small", "1 x L4", "fits")


def test_every_gpu_profile_has_a_line(root: Path) -> None:
    plans = gpu_plan.plans(root)
    assert list(plans) == GPU_PROFILES
    assert all(plan.fits for plan in plans.values())
    assert set(GPU_PROFILES) <= set(profiles.names(root))


def test_too_little_main_memory_or_disk_is_said(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def plan(memory: float, disk: float) -> Plan:
        monkeypatch.setattr("pathfinder.planning.gpu_plan.main_memory", lambda: (memory, memory))
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=disk))
        return Plan(profiles.load(root, "paper"), gpus(80, 8), tmp_path)

    assert plan(256 * GIB, 1e12).has_room
    assert not plan(256 * GIB, 500e9).has_room
    small = plan(64 * GIB, 500e9)
    assert small.fits
    assert not small.has_room
    assert [line.endswith("which is too little") for line in plan_text.lines(small.as_json())] == [True, True, False]


def test_each_of_two_disks_needs_room_for_its_own_part(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path("/dev")  # a file system of its own
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(other / "hub"))
    monkeypatch.setattr("pathfinder.planning.gpu_plan.main_memory", lambda: (256.0 * GIB, 256.0 * GIB))
    free = {tmp_path: 550e9, other: 150e9}  # neither has room for all of the 609 GB
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=free[folder]))
    plan = Plan(profiles.load(root, "paper"), gpus(80, 8), tmp_path)
    assert plan.has_room
    lines = [line for line in plan_text.lines(plan.as_json()) if line.startswith("disk")]
    assert lines[0].startswith(f"disk of {tmp_path}: 513 GB (sources and results 10, checkpoints 183, ")
    assert lines[1] == "disk of /dev: 96 GB (Hub cache 96); free here: 150 GB"
    free[other] = 50e9
    assert not Plan(plan.params, plan.device, tmp_path).has_room


def test_fetched_models_need_no_disk(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    params = profiles.load(root, "paper")

    def needed() -> float:
        return sum(room.needed for room in Plan(params, gpus(80, 8), tmp_path).rooms)

    before = needed()
    (judge,) = [source for source in params.download.sources if source.name == "models/judge"]
    snapshot = hub / f"models--{judge.location.replace('/', '--')}" / "snapshots" / str(judge.revision)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    with (snapshot / "model.safetensors").open("wb") as file:
        file.truncate(10**9)  # takes no space
    assert before - needed() == pytest.approx(1e9)


@pytest.mark.parametrize(
    ("section", "changes", "told"),
    [
        ("label", {"vllm": 5}, "label.vllm.tensor_parallel 5: vLLM .*DeepSeek-R1-Distill-Qwen-32B over 5 GPUs"),
        ("label", {"vllm": 16}, r"label\.vllm\.tensor_parallel 16: .*; use one of 1, 2, 4, 8$"),
        ("search", {"vllm": 8}, r"search\.vllm\.tensor_parallel 8: .*; use one of 1, 2, 4$"),
        ("label", {"max_tokens": 8096}, r"label: .*max_tokens 8096 leaves no room for a prompt in max_model_len 8096"),
    ],
)
def test_a_server_that_cannot_start_is_refused(
    root: Path, tmp_path: Path, section: str, changes: dict[str, int], told: str
) -> None:
    content = parse_yaml(profiles.render(root, "paper"))
    for key, value in changes.items():
        content[section][key] = content[section][key] | {"tensor_parallel": value} if key == "vllm" else value
    (tmp_path / "params.yaml").write_text(json.dumps(content))
    with pytest.raises(DataError, match=told):
        gpu_plan.plan_of(tmp_path, "", 16, 80.0)
    content[section]["engine"] = "openai"
    if "vllm" in changes:  # the server is another's
        (tmp_path / "params.yaml").write_text(json.dumps(content))
        assert gpu_plan.plan_of(tmp_path, "", 16, 80.0).stages


CARDS = {card.gib: card.name for card in cards.known()}
"""One card of each size."""


def hours_of(plan: Plan) -> dict[str, float]:
    return {each.stage: each.hours or 0.0 for each in plan.estimates}


def test_the_names_of_the_driver_are_known() -> None:
    names = {
        "NVIDIA A100-SXM4-80GB": "A100",
        "NVIDIA A100-PCIE-40GB": "A100 40GB",
        "NVIDIA H100 80GB HBM3": "H100",
        "NVIDIA H100 PCIe": "H100 PCIe",
        "NVIDIA L40S": "L40S",
        "NVIDIA L4": "L4",
        "NVIDIA RTX A6000": "A6000",
        "NVIDIA GeForce RTX 4090": "4090",
        "rtx 3090": "3090",
    }
    assert {name: cards.card_of(gpus(1, 1, name)).name for name in names} == names
    for gib, slowest in ((80, "A100"), (140, "H200"), (45, "A40"), (24, "A10G"), (16, "A10G")):
        assert cards.card_of(gpus(gib)).name == slowest, "without a name, the slowest of similar memory"
    with pytest.raises(DataError, match="Volta: no such card; expected one of B200, "):
        cards.machine("Volta", 1)


def test_a_slower_card_takes_more_hours(root: Path) -> None:
    """An A100 has the memory of an H100 and a third of its operations."""
    params = profiles.load(root, "paper")
    fast, slow = (hours_of(Plan(params, cards.machine(card, 8))) for card in ("H100", "A100"))
    assert slow["train"] / fast["train"] == pytest.approx(989 / 312)
    assert slow["label"] > 1.5 * fast["label"]


def test_the_tokens_of_a_record_depend_on_the_mix(root: Path) -> None:
    """Trees of sampled steps hold one or two records, trees of rated solutions nine."""
    params = profiles.load(root, "paper")
    found = [trees_of(params, mix).tokens_per_record for mix in ("prm800k", "400k", "550k")]
    assert found == pytest.approx([87, 115, 164], abs=1.5)


def test_more_processes_than_a_step_can_fill_wait(root: Path) -> None:
    params = profiles.load(root, "paper")
    trees, train = trees_of(params, "400k"), params.train
    shares = [busy_share(trees, train.batch_samples / 2, count, train.token_budget) for count in (1, 8, 16, 32)]
    assert shares[0] == 1.0
    assert shares == sorted(shares, reverse=True)
    assert shares[1] > 0.9 > 0.8 > shares[2] > 0.5 > shares[3]
    one, two = (hours_of(plan_of(root, name))["train"] for name in ("paper", "paper-nodes"))
    assert two > 0.6 * one, "twice the machines are not twice as fast"
    assert busy_share(trees, 10**6, 8, train.token_budget) > 0.99


def test_equal_steps_cost_every_mix_the_same_records(root: Path) -> None:
    """Four epochs of 380,000 records are 5,938 steps of 256 records; a smaller mix then takes more epochs."""
    paper, hours = profiles.load(root, "paper"), {}
    for run, steps in (("full", 0), ("full", 5938), ("full-prm800k", 0), ("full-prm800k", 5938)):
        params = paper.model_copy(update={"runs": [run], "train": paper.train.model_copy(update={"steps": steps})})
        hours[run, steps] = hours_of(Plan(params, cards.machine("H100", 8)))["train"]
    assert hours["full", 5938] == pytest.approx(hours["full", 0], rel=1e-3)
    assert hours["full-prm800k", 5938] / hours["full-prm800k", 0] == pytest.approx(400 / 345, rel=1e-3)


def test_no_card_of_four_is_left_idle(root: Path) -> None:
    settings = Plan(profiles.load(root, "paper"), gpus(80, 4)).as_json()["settings"]
    assert settings == {"label.vllm.tensor_parallel": "4", "search.vllm.replicas": "2"}
    one_machine = Plan(profiles.load(root, "paper-nodes"), gpus(80, 4)).as_json()
    assert one_machine["settings"] == {**settings, "train.launch": "machine"}
    assert one_machine["hours"]


_loaded = cache(profiles.load)
"""Files are read once for all cards: reading them takes most of the time."""
_read = cache(read_yaml)


@pytest.mark.parametrize("name", GPU_PROFILES)
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_a_plan_is_right_for_every_card(root: Path, name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    params = _loaded(root, name)
    monkeypatch.setattr(launch, "read_yaml", _read)
    for card in CARDS.values():
        plan = Plan(params, cards.machine(card, count))
        found = plan.as_json()
        adapted = Plan(with_changes(params, plan.settings), plan.device)
        for stage in found["stages"]:
            each = adapted.verdicts[stage["stage"]]
            assert stage["fits_with_settings"] == (each is None or each.fits)
            assert stage["fits_with_settings"] or "no setting of this stage fits" in stage["remedy"], (card, stage)
            assert all(process["cards"] > 0 for process in stage["processes"])
        assert bool(found["hours"]) == adapted.fits
        assert all(each["hours"] is None or each["hours"] > 0 for each in found["hours"]), card
