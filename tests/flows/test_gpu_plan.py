"""The plan of every GPU profile for its own machine."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows import gpu_plan, profiles
from flows.estimates import CARDS, records_of, written_per_second
from flows.gpu_plan import Plan
from pathfinder.core.io import DataError
from pathfinder.core.runs import parse_run
from pathfinder.core.settings import parse_yaml
from pathfinder.models.devices import GIB, gpus
from tests.flows.test_profiles import GPU_PROFILES


def plan_of(root: Path, name: str) -> Plan:
    return Plan(gpu_plan.load(root, name), gpu_plan.machine_of(root, name))


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_a_profile_fits_its_machine(root: Path, name: str) -> None:
    plan = plan_of(root, name)
    assert plan.fits, [(stage, each.remedy) for stage, each in plan.verdicts.items() if each and not each.fits]
    assert plan.stages
    head = (root / f"infra/profiles/{name}.yaml").read_text()
    hours = re.search(r"# hours: about (\d+)", head)
    assert hours is not None
    assert int(hours[1]) == round(plan.hours)
    smaller = Plan(plan.params, gpus(plan.device.total / GIB / 4, 1))
    assert not smaller.fits


def test_a_profile_of_ones_own_is_read_as_params_yaml_is(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / profiles.FOLDER, tmp_path / profiles.FOLDER)
    mine = tmp_path / profiles.FOLDER / "mine.yaml"
    mine.write_text("profile: mine\ntrain: {learning_rate: 2e-5}\n")
    assert gpu_plan.load(tmp_path, "mine").train.learning_rate == 2e-5
    mine.write_text("profile: mine\ntrain: {learning_rate: -1}\nruns: [fulll]\n")
    with pytest.raises(DataError, match=r"infra/profiles/mine\.yaml: wrong parameters:\n  train\.learning_rate: "):
        gpu_plan.load(tmp_path, "mine")


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_a_mix_holds_what_its_name_says(root: Path, name: str) -> None:
    """345,000 records of PRM800K, not all rated completions."""
    params = gpu_plan.load(root, name)
    for mix in (run.mix for run in map(parse_run, params.runs)):
        expected = 345_000 if mix == "prm800k" else 1000 * int(mix.removesuffix("k"))
        assert records_of(params, mix) == pytest.approx(expected, rel=0.01), mix


def test_a_judge_on_one_card_holds_few_answers(root: Path) -> None:
    """The 16-bit judge leaves room for some twenty answers on a card of 80 GiB."""
    params = gpu_plan.load(root, "paper")
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
    params = gpu_plan.load(root, "one-gpu-24")
    label = params.label.model_copy(update={"price_per_million_tokens": 0.5})
    plan = Plan(params.model_copy(update={"label": label}), gpus(24))
    (row,) = [row for row in plan.hour_rows() if row[0] == "label"]
    calls = 1.2 * (params.label.prm800k_limit + 2 * params.label.mistral_per_rating)
    assert row[1:4] == ("by its server", f"{calls * 2400 / 1e6:,.0f} M", f"{calls * 2400 / 1e6 * 0.5:,.0f}")


def test_checkpoints_and_models_are_on_the_disk(root: Path) -> None:
    disk = plan_of(root, "paper").disk()
    parameters = 7_615_616_512
    assert disk["checkpoints"] == 2 * 12 * parameters
    assert disk["trained models"] == 3 * 7 * 2 * parameters
    assert plan_of(root, "paper").main_memory()["train"] > 12 * parameters
    assert plan_of(root, "paper-nodes").main_memory()["train"] < plan_of(root, "paper").main_memory()["train"]


def test_every_process_loads_the_base_of_an_adapter_into_main_memory(root: Path) -> None:
    params = gpu_plan.load(root, "paper")
    lora = params.train.lora.model_copy(update={"rank": 32, "base_dtype": "bfloat16"})
    adapted = params.model_copy(update={"train": params.train.model_copy(update={"lora": lora})})
    base = 7_615_616_512
    assert Plan(adapted, gpus(80, 8)).main_memory()["train"] > 8 * 2 * base


def test_a_generated_world_has_no_estimate(root: Path) -> None:
    plan = Plan(gpu_plan.load(root, "quickstart"), gpus(24))
    assert plan.fits
    assert not list(plan.lines())
    assert plan.estimates == []


def test_every_gpu_profile_has_a_line(root: Path) -> None:
    rows = gpu_plan.overview(root)
    assert [row[0] for row in rows] == GPU_PROFILES
    assert {row[2] for row in rows} == {"fits"}
    assert list(CARDS) == sorted(CARDS, reverse=True)
    assert set(GPU_PROFILES) <= set(profiles.names(root))


def test_too_little_main_memory_or_disk_is_said(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def plan(memory: float, disk: float) -> Plan:
        monkeypatch.setattr("flows.gpu_plan.main_memory", lambda: (memory, memory))
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=disk))
        return Plan(gpu_plan.load(root, "paper"), gpus(80, 8), tmp_path)

    assert plan(256 * GIB, 1e12).has_room
    assert not plan(256 * GIB, 500e9).has_room
    small = plan(64 * GIB, 500e9)
    assert small.fits
    assert not small.has_room
    assert [line.endswith("which is too little") for line in small.lines()] == [True, True, False]


def test_each_of_two_disks_needs_room_for_its_own_part(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path("/dev")  # a file system of its own
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(other / "hub"))
    monkeypatch.setattr("flows.gpu_plan.main_memory", lambda: (256.0 * GIB, 256.0 * GIB))
    free = {tmp_path: 550e9, other: 150e9}  # neither has room for all of the 609 GB
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=free[folder]))
    plan = Plan(gpu_plan.load(root, "paper"), gpus(80, 8), tmp_path)
    assert plan.has_room
    lines = [line for line in plan.lines() if line.startswith("disk")]
    assert lines[0].startswith(f"disk of {tmp_path}: 513 GB (sources and results 10, checkpoints 183, ")
    assert lines[1] == "disk of /dev: 96 GB (Hub cache 96); free here: 150 GB"
    free[other] = 50e9
    assert not Plan(plan.params, plan.device, tmp_path).has_room


def test_fetched_models_need_no_disk(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    params = gpu_plan.load(root, "paper")

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
