from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError, write_json
from pathfinder.core.params import Label, load_params
from pathfinder.engines.journal import Journal
from pathfinder.judge.judge import Judge, LocalJudge, describe, journal_folder, model_identity, open_judge
from pathfinder.judge.prompts import step_prompt
from pathfinder.policy.policy import deciding
from pathfinder.prm.evaluate import decisive
from tests.engines.test_metering import meter_of
from tests.support.servers import JudgeServer, judge_server

PARAMS = {
    "engine": "transformers",
    "preset": "repaired",
    "base_urls": ["http://127.0.0.1:9/v1"],
    "vllm": {
        "command": ["vllm", "serve"],
        "replicas": 1,
        "dtype": "float32",
        "tensor_parallel": 1,
        "gpu_memory_utilization": 0.9,
        "max_num_batched_tokens": 4096,
        "max_num_seqs": 16,
        "options": [],
        "start_timeout_s": 60.0,
    },
    "max_calls": 0,
    "max_tokens_total": 0,
    "max_hours": 0.0,
    "price_per_million_tokens": 0.0,
    "concurrency": 4,
    "batch_size": 4,
    "timeout_s": 5.0,
    "retries": 4,
    "temperature": 1.0,
    "top_p": 0.95,
    "max_tokens": 12,
    "max_model_len": 200,
    "parse_attempts": 2,
    "disagreement_rounds": 1,
    "prm800k_limit": 0,
    "mistral_per_rating": 10,
    "seed": 1,
}
KEYS = [f"p{n}:0" for n in range(10)]


def params(**more: object) -> Label:
    return Label.model_validate(PARAMS | more)


def prompt_of(key: str) -> str:
    number = int(key.removeprefix("p").partition(":")[0])
    return "Tom has 5 apples. " * (100 if number == 7 else 1 + number % 3) + key


def ask(judge: Judge, path: Path, keys: list[str] = KEYS) -> bytes:
    meter = meter_of()
    with Journal(path) as journal:
        assert judge.ask(keys, prompt_of, journal, meter) == {}
        assert all(key in journal for key in keys)
        assert meter.calls == len(keys)
    return path.read_bytes()


@pytest.fixture(scope="module")
def tiny(world: Path) -> Path:
    """The shipped judge."""
    return world / "models" / "judge"


def test_the_local_judge_writes_the_same_bytes_wherever_it_was_killed(tiny: Path, tmp_path: Path) -> None:
    judge = LocalJudge(tiny, params())
    whole = ask(judge, tmp_path / "whole")
    lines = whole.splitlines(keepends=True)
    assert len(lines) == len(KEYS)
    for kept in (1, 5, 8):
        torn = tmp_path / f"torn{kept}"
        torn.write_bytes(b"".join(lines[:kept]) + lines[kept][:20])
        assert ask(judge, torn) == whole
    assert ask(judge, tmp_path / "whole") == whole


def test_two_batches_at_a_time_write_what_one_does(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, written, meeting = LocalJudge(tiny, params()), list[bytes](), threading.Barrier(2)
    generate = judge._generator.generate
    for at_once in (1, 2):
        judge._at_once = at_once
        written.append(ask(judge, tmp_path / f"by{at_once}", KEYS[:8]))

        def met(*given: Any) -> Any:
            meeting.wait(30)  # fails unless the other batch comes, too
            return generate(*given)

        monkeypatch.setattr(judge._generator, "generate", met)
    assert written[0] == written[1]


def test_a_prompt_that_does_not_fit_is_too_long(tiny: Path, tmp_path: Path) -> None:
    ask(LocalJudge(tiny, params()), tmp_path / "j")
    with Journal(tmp_path / "j") as journal:
        outcomes = {key: journal[key].get("outcome") for key in KEYS}
    assert {key for key, outcome in outcomes.items() if outcome == "too_long"} == {"p7:0"}


def test_another_attempt_gives_another_answer(tiny: Path, tmp_path: Path) -> None:
    keys = ["p1:0", "p1:1", "p1:2"]
    ask(LocalJudge(tiny, params(temperature=3.0)), tmp_path / "j", keys)
    with Journal(tmp_path / "j") as journal:
        assert len({journal[key]["text"] for key in keys}) == 3


def test_the_server_judge_asks_only_for_what_is_missing(tiny: Path, tmp_path: Path) -> None:
    with (
        judge_server(JudgeServer(lambda prompt, seed: f"{len(prompt)} {seed}")) as server,
        open_judge(tiny, params(engine="openai", base_urls=[server.url]), tmp_path) as judge,
    ):
        assert judge.identity["served"] == "tiny-judge"
        first = sorted(ask(judge, tmp_path / "j", KEYS[:6]).splitlines())
        assert server.calls == 6
        again = sorted(ask(judge, tmp_path / "j").splitlines())
        assert server.calls == 10
    assert len(again) == 10
    assert set(first) <= set(again)
    assert all(count == 1 for count in server.answered.values())


@pytest.mark.usefixtures("short_waits")
def test_engine_errors_are_reported_and_never_written(tiny: Path, tmp_path: Path) -> None:
    with judge_server(JudgeServer(lambda prompt, seed: "x")) as server:
        settings = params(engine="openai", base_urls=[server.url], concurrency=1, retries=1)
        server.fault = lambda n: "500" if n in (3, 4) else "none"
        with open_judge(tiny, settings, tmp_path) as judge, Journal(tmp_path / "j") as journal:
            failed = judge.ask(KEYS, prompt_of, journal, meter_of())
            assert list(failed) == ["p3:0"]
            assert "p3:0" not in journal
            assert len(journal) == len(KEYS) - 1
            assert judge.ask(KEYS, prompt_of, journal, meter_of()) == {}
            assert "p3:0" in journal


def test_a_server_that_refuses_every_prompt_ends_the_run_and_nothing_is_kept(tmp_path: Path) -> None:
    """As vLLM answers with a chat template that it cannot use; the journal would hold these refusals for good."""
    (tmp_path / "model.safetensors").write_bytes(b"1")
    with (
        judge_server(JudgeServer(lambda prompt, seed: "x", fault=lambda n: "400")) as server,
        open_judge(tmp_path, params(engine="openai", base_urls=[server.url]), tmp_path) as judge,
        Journal(tmp_path / "j") as journal,
    ):
        with pytest.raises(DataError, match=r"refuses every prompt: .*fault.*; correct the server"):
            judge.ask(KEYS, prompt_of, journal, meter_of())
        assert len(journal) == 0
        votes = [f"p{prompt}:{vote}" for prompt in range(1, 8) for vote in range(1, 3)]
        failed = judge.ask(votes, prompt_of, journal, meter_of())
        assert sorted(failed) == votes, "seven prompts end no run"
        assert "refuses every prompt: " in failed["p1:1"]
        assert len(journal) == 0
        server.calls, server.fault = 0, lambda n: "400" if n < 5 else "none"
        assert judge.ask(KEYS, prompt_of, journal, meter_of()) == {}
        assert sum("outcome" in journal[key] for key in KEYS) == 5
        server.fault = lambda n: "400"
        assert judge.ask(votes[:1], prompt_of, journal, meter_of()) == {}
        assert journal[votes[0]]["outcome"] == "refused", "the server has answered in this run"


@pytest.mark.parametrize("engine", ["openai", "transformers"])
def test_a_budget_stops_between_calls_and_a_larger_one_resumes(tiny: Path, tmp_path: Path, engine: str) -> None:
    with (
        judge_server(JudgeServer(lambda prompt, seed: "x")) as server,
        open_judge(tiny, params(engine=engine, base_urls=[server.url]), tmp_path) as judge,
        Journal(tmp_path / "j") as journal,
    ):
        meter = meter_of(max_calls=6)
        assert judge.ask(KEYS, prompt_of, journal, meter) == {}
        held = len(journal)
        assert held == meter.calls == (6 if engine == "openai" else 4)  # in process, whole batches of four
        assert meter.stopped == "max_calls 6"
        meter = meter_of(max_calls=10)
        judge.ask(KEYS, prompt_of, journal, meter)
        assert (len(journal), meter.calls, meter.stopped) == (10, 10, "")


def test_a_model_is_identified_by_its_commit_or_its_bytes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="contains no model"):
        model_identity(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"1")
    first = model_identity(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert model_identity(tmp_path) != first
    files = {"config.json": {"sha256": "0" * 64, "bytes": 1}}
    write_json(tmp_path / "hub.json", {"repo": "o/n", "revision": "c" * 40, "files": files})
    assert model_identity(tmp_path) == {"repo": "o/n", "revision": "c" * 40}


def test_a_server_s_answers_name_their_responses_and_the_record_what_determines_them(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    with (
        judge_server(JudgeServer(lambda prompt, seed: str(seed))) as server,
        open_judge(tmp_path, params(engine="openai", base_urls=[server.url]), tmp_path) as judge,
    ):
        ask(judge, tmp_path / "journal.jsonl", KEYS[:2])
    with Journal(tmp_path / "journal.jsonl") as journal:
        assert [journal[key]["id"] for key in KEYS[:2]] == ["x", "x"]
    found = describe(judge, {"temperature": 1.0})
    assert found["judge"]["engine"] == "openai"
    assert set(found["judge"]["model"]) == {"files"}
    assert (found["sampling"], "28 bits" in found["seed"], set(found)) == (
        {"temperature": 1.0},
        True,
        {"judge", "prompts", "sampling", "seed"},
    )


def test_a_server_s_prompts_break_up_the_tokens_of_its_own_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    tokens = [{"content": "[INST]", "special": True}, {"content": "<tool_call>", "special": False}]
    write_json(tmp_path / "tokenizer.json", {"added_tokens": tokens})
    with (
        judge_server(JudgeServer(lambda prompt, seed: "")) as server,
        open_judge(tmp_path, params(engine="openai", base_urls=[server.url]), tmp_path) as judge,
    ):
        prompt = step_prompt("prm800k", "P", ["[INST]"], "<tool_call> <|im_end|>", judge.specials, "repaired")
    assert "[\u2060INST]" in prompt
    assert "<tool_call> <\u2060|im_end|>" in prompt


def test_a_journal_is_filed_under_everything_that_determines_its_answers(tmp_path: Path) -> None:
    """A server's answers are valid for every table and sample; in process a row's neighbours matter."""
    judge, table = LocalJudge.__new__(LocalJudge), tmp_path / "steps.parquet"
    judge.identity = {"engine": "any"}

    def folder(**more: object) -> str:
        return journal_folder(tmp_path, judge, params(**more), [table]).name

    for engine in ("openai", "transformers"):
        table.write_bytes(b"1")
        first = folder(engine=engine)
        assert first == folder(engine=engine, max_calls=5, concurrency=1), "budget and concurrency change no answer"
        assert first != folder(engine=engine, temperature=0.5)
        assert (first == folder(engine=engine, seed=2)) == (engine == "openai")
        table.write_bytes(b"2")
        assert (first == folder(engine=engine)) == (engine == "openai")
        judge.identity = {"engine": "another"}
        assert first != folder(engine=engine)


def test_answers_of_vllm_are_filed_under_its_options(tmp_path: Path, root: Path) -> None:
    """Fails if the answers of the unquantised weights pass for those of another quantisation."""
    (tmp_path / "model.safetensors").write_bytes(b"1")
    read, found = load_params(root / "params.yaml"), list[list[object]]()
    for options in ([], ["--quantization", "fp8_per_tensor"]):
        label = params(engine="vllm", vllm=PARAMS["vllm"] | {"options": options})  # type: ignore[operator]
        served = {"engine": "vllm", "vllm": label.vllm}
        with open_judge(tmp_path, label, tmp_path) as judge:
            folder = journal_folder(tmp_path, judge, label, [])
        found.append([folder, deciding(read.search.model_copy(update=served))])
        found[-1].append(decisive(read.score.model_copy(update=served)))
    assert all(one != other for one, other in zip(*found, strict=True))
