"""Start, use and stop a vLLM server: a fake one, and the real one if its environment is named.

Run: PATHFINDER_VLLM=<python of vLLM's environment> pytest -s tests/engines/test_vllm_server.py
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from ground.io import DataError, TransientError, read_json, read_parquet, write_json
from pathfinder.core.hub import HubModel, write_hub_model
from pathfinder.core.params import Vllm
from pathfinder.core.records import ANSWERS
from pathfinder.engines.vllm_server import vllm_servers
from pathfinder.models import cards
from pathfinder.planning.profiles import render
from tests.support.searches import SERVER

FAKE_SERVER = """
import http.server, os, signal, sys, time
if "--fail" in sys.argv:
    print("no such GPU \\x1b[31m", flush=True)
    sys.exit(3)
started = time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if "--never" not in sys.argv else 503)
        self.end_headers()
        variable = os.environ.get(self.path.removeprefix("/"))
        self.wfile.write((variable or " ".join([*sys.argv[1:], os.environ.get("CUDA_VISIBLE_DEVICES", "")])).encode())
    def log_message(self, *_):
        pass
if "--stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def settings(*options: str, **more: Any) -> Vllm:
    started = {"command": [sys.executable, "-c", FAKE_SERVER], "options": list(options)}
    return Vllm.model_validate(SERVER | started | more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    write_json(model / "config.json", {"model_type": "qwen2"})
    (model / "tokenizer.json").write_text("{}", encoding="utf-8")
    return model


def arguments(url: str) -> str:
    """The command line of the fake server."""
    return httpx.get(url.removesuffix("/v1") + "/health", timeout=5).text


def variable(url: str, name: str) -> str:
    """A variable in the environment of the fake server."""
    return httpx.get(f"{url.removesuffix('/v1')}/{name}", timeout=5).text


def is_gone(url: str) -> bool:
    try:
        arguments(url)
    except httpx.HTTPError:
        return True
    return False


def test_replicas_start_with_the_profiles_flags_and_stop_with_the_block(folder: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with vllm_servers(folder, "judge", 8096, settings(replicas=2), logs) as urls:
        words = [shlex.split(arguments(url).rpartition(" ")[0]) for url in urls]
        assert len(set(urls)) == 2
        assert variable(urls[0], "VLLM_USE_FLASHINFER_SAMPLER") == "0", "nvcc would compile this sampler"
    assert all(is_gone(url) for url in urls)
    for given in words:
        assert given[0] == str(folder)
        pairs = dict(zip(given[1::2], given[2::2], strict=True))
        assert pairs["--max-model-len"] == "8096"
        assert pairs["--served-model-name"] == "judge"
        assert "--tokenizer" not in pairs
    assert not any("trust" in word for given in words for word in given)


def test_a_repository_is_served_from_the_cache_at_its_commit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server fetches nothing, and an emptied cache is an error before anything starts."""
    commit = tmp_path / "hub" / "models--o--n" / "snapshots" / ("c" * 40)
    write_hub_model(folder, HubModel("o/n", "c" * 40))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with (
        pytest.raises(DataError, match="is not in the Hub cache"),
        vllm_servers(folder, "o/n", 100, settings(), tmp_path),
    ):
        pass
    commit.mkdir(parents=True)
    (commit / "config.json").write_text("{}")
    (commit / "tokenizer.json").write_text("{}")
    with vllm_servers(folder, "o/n", 100, settings(), tmp_path / "logs") as (url,):
        assert arguments(url).startswith(f"{commit} --")


def test_each_server_has_cards_of_its_own_and_plain_sampling(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if two servers take GPU 0, or if the model's generation_config.json changes the sampling."""
    monkeypatch.setenv(cards.SIMULATED, "6")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,4,3,2,1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chosen = settings(replicas=2, tensor_parallel=2)
    with (
        cards.lease(5),
        cards.lease(4) as mine,
        vllm_servers(folder, "policy", 100, chosen, tmp_path / "logs", mine) as urls,
    ):
        found = [arguments(url) for url in urls]
    assert [text.rpartition(" ")[2] for text in found] == ["5,4", "3,2"]
    assert all(" --generation-config vllm " in text for text in found)
    too_many = settings(replicas=3, tensor_parallel=2)
    with (
        pytest.raises(DataError, match="need 6 GPUs, 5 are visible"),
        vllm_servers(folder, "policy", 100, too_many, tmp_path / "logs"),
    ):
        pass


def test_a_missing_command_a_failed_start_and_a_timeout_are_distinct_errors(folder: Path, tmp_path: Path) -> None:
    def start(chosen: Vllm) -> None:
        with vllm_servers(folder, "judge", 100, chosen, tmp_path / "logs"):
            pass

    with pytest.raises(DataError, match="create vLLM's environment"):
        start(settings(command=["no-such-vllm"]))
    with pytest.raises(DataError, match=r"status 3 while it started.*\nno such GPU \\x1b\[31m"):
        start(settings("--fail"))
    with pytest.raises(TransientError, match="start_timeout_s"):
        start(settings("--never", start_timeout_s=2.0))


STAGE = """
import sys, time
from pathlib import Path
from pathfinder.core.params import Vllm
from pathfinder.core.records import ANSWERS
from pathfinder.engines.vllm_server import vllm_servers
with vllm_servers(Path(sys.argv[1]), "judge", 100, Vllm.model_validate_json(sys.argv[2]), Path(sys.argv[3])) as urls:
    print(urls[0], flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_no_server_outlives_its_stage(folder: Path, tmp_path: Path, ending: signal.Signals) -> None:
    command = [sys.executable, "-c", STAGE, str(folder), settings().model_dump_json(), str(tmp_path / "logs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as stage:
        assert stage.stdout is not None
        url = stage.stdout.readline().strip()
        assert not is_gone(url)
        stage.send_signal(ending)
        status = stage.wait(30)
    deadline = time.monotonic() + 30
    while not is_gone(url):
        assert time.monotonic() < deadline, "the server outlived its stage"
        time.sleep(0.1)
    assert status == {signal.SIGTERM: 143, signal.SIGKILL: -9}.get(ending, status)


def widened(source: Path, target: Path) -> None:
    """The same model with heads of 32 instead of 24, a width that vLLM's CPU attention does not support.

    Every width grows by a third, filled with zeros. A mean over more entries shrinks to 3/4; the norms' weights and
    epsilon compensate for that. Attention divides by the root of the wider head; the queries compensate. Rotation
    stays on the first 24 entries of a head.
    """
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    config = read_json(source / "config.json")
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    narrow, wide = hidden // heads, 32
    tensors = load_file(source / "model.safetensors")
    for name, tensor in tensors.items():
        if "norm" in name:
            tensor = torch.nn.functional.pad(tensor * (narrow / wide) ** 0.5, (0, heads * wide - hidden))
        else:
            if ".self_attn." in name and "o_proj" not in name:  # rows are heads
                tensor = tensor.view(heads, narrow, -1) * ((wide / narrow) ** 0.5 if "q_proj" in name else 1.0)
                tensor = torch.nn.functional.pad(tensor, (0, 0, 0, wide - narrow)).flatten(0, 1)
                tensor = tensor.squeeze(-1) if name.endswith("bias") else tensor
            if "o_proj" in name:  # columns are heads
                tensor = torch.nn.functional.pad(tensor.view(-1, heads, narrow), (0, wide - narrow)).flatten(1)
            shape = [heads * wide if size == hidden else size for size in tensor.shape]
            grown = torch.zeros(shape, dtype=tensor.dtype)
            grown[tuple(slice(size) for size in tensor.shape)] = tensor
            tensor = grown
        tensors[name] = tensor.contiguous()
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config["hidden_size"] = heads * wide
    config["rms_norm_eps"] *= narrow / wide
    config["rope_parameters"]["partial_rotary_factor"] = narrow / wide
    write_json(target / "config.json", config)


@pytest.mark.slow
def test_vllm_serves_the_shipped_judge(
    vllm_python: str, world: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Label 300 steps of the small world: vLLM gives the same answers as the in-process engine.

    At temperature 0 both should pick the same tokens; rounding may change a few.
    """
    from stages import download, label, prepare

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    Path("data").symlink_to(world)
    params = yaml.safe_load(render(root, "quickstart"))
    params["label"] |= {"prm800k_limit": 200, "mistral_per_rating": 50, "concurrency": 64, "temperature": 0.0}
    command = [vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model"]
    params["label"]["vllm"] = settings("--enforce-eager", command=command, start_timeout_s=500.0).model_dump()
    figures, answers = {}, {}
    for engine in ("transformers", "vllm"):
        params["label"]["engine"] = engine
        Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
        if engine == "transformers":
            download.main()
            prepare.main()
        else:
            judge = Path("artifacts/raw/models/judge")
            shutil.move(judge, "narrow")
            widened(Path("narrow"), judge)
        start = time.monotonic()
        label.main()
        figures[engine] = found = read_json(Path("metrics/label.json"))
        answers[engine] = read_parquet(Path("artifacts/labels/answers.parquet"), ANSWERS)
        agrees = {name: round(entry["share"], 3) for name, entry in found["agreement"].items()}
        print(f"\n{engine}: {found['calls']} calls, {found['tokens']} tokens in {time.monotonic() - start:.1f} s with "
              f"its start, parsed {found['parsed_share']:.3f}, agreement {json.dumps(agrees)}")  # fmt: skip
    local, served = figures["transformers"], figures["vllm"]
    assert served["answer_outcomes"].keys() == local["answer_outcomes"].keys()
    assert served["prompt_tokens"] / served["calls"] == pytest.approx(local["prompt_tokens"] / local["calls"], rel=0.02)
    both = answers["transformers"].join(answers["vllm"], on=["id", "attempt"], suffix="_vllm")
    equal = int((both["answer"] == both["answer_vllm"]).sum()) / len(both)
    print(f"{len(both)} answers to compare, {100 * equal:.1f} % equal to the letter")
    assert len(both) >= 300
    assert equal > 0.95
