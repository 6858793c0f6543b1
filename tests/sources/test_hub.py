"""The download stage against the stand-in of the Hub, with the real client."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from huggingface_hub.utils._xet_progress_reporting import XetDownloadProgressReporter

from ground.io import DataError, TransientError, read_json
from ground.progress import Progress
from pathfinder.core.params import load_params
from pathfinder.judge.prompts import specials_of
from pathfinder.models.folders import open_model, special_texts
from pathfinder.models.model import load_model
from pathfinder.models.tokens import load_tokenizer
from pathfinder.planning import profiles
from pathfinder.sources.catalogue import Fetched, pin
from pathfinder.sources.hub import Listing, byte_bar, require_cache_space
from pathfinder.sources.named_models import model_folder
from stages.download import main as download
from tests.support.hub_server import HubServer, hub_server
from tests.support.models import plain_tokenizer, small_model
from tests.support.stage_inputs import ROOT, write_params

RAW = Path("artifacts/raw")
BASE = RAW / "models" / "base"
USED = {
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}
REFUSED = (
    "pytorch_model.bin",
    "modeling_mine.py",
    "consolidated.safetensors",
    "other/model.safetensors",
    ".hidden.json",
)


class Project(NamedTuple):
    """A project's folder and the server that its catalogue names."""

    folder: Path
    hub: HubServer
    model: Path
    commit: str

    def write(self, *sources: dict[str, Any], retries: int = 2, baselines: Sequence[str] = ()) -> None:
        write_params(self.folder, download={"retries": retries, "timeout_s": 5.0, "sources": list(sources)})
        text = Path("params.yaml").read_text()
        assert text.count("baselines: []") == 1
        Path("params.yaml").write_text(text.replace("baselines: []", f"baselines: {list(baselines)}"))


def source(name: str, location: str, revision: str | None = "main", files: Any = None) -> dict[str, Any]:
    entry = {"name": name, "kind": "hub", "location": location, "revision": revision, "licence": "MIT"}
    return entry | {"files": files or {}}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as authors publish it, with files that must not be fetched."""
    folder = tmp_path_factory.mktemp("published")
    tokenizer = plain_tokenizer()
    small_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for name in REFUSED:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"unwanted")
    return folder


@pytest.fixture
def project(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pathfinder.sources.http_fetch.time.sleep", lambda _: None)
    model = tmp_path / "model"
    shutil.copytree(weights, model)
    hub = HubServer(page_files=3)
    with hub_server(hub):
        hub.lead_here(monkeypatch, tmp_path / "hf")
        yield Project(tmp_path, hub, model, hub.add("owner/base", model))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_weights_are_fetched_and_read_without_a_network(project: Project) -> None:
    """A base model of the Hub was a pointer only: its weights were never fetched, and the export could not read it."""
    project.hub.fail("/tree/", 503, retry_after=0)
    project.hub.fail("resolve", 429, retry_after=0)
    project.hub.cut("model.safetensors", after=1000)
    project.write(source("models/base", "owner/base"))
    variables = project.hub.environment(project.folder / "hf") | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "stages.download"]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"models/base is not pinned: owner/base at main can change; fetched commit {project.commit}" in done.stderr
    assert not any(request.address.endswith(REFUSED) for request in project.hub.requests)
    manifest = read_json(RAW / "manifest.json")["models/base"]
    assert (manifest["location"], manifest["revision"], manifest["pinned"]) == ("owner/base", project.commit, False)
    assert set(manifest["cached"]) == USED
    assert {name: entry["sha256"] for name, entry in manifest["cached"].items()} == {
        name: digest(project.model / name) for name in USED
    }
    pointer = {"repo": "owner/base", "revision": project.commit, "files": manifest["cached"]}
    assert read_json(BASE / "hub.json") == pointer
    assert [path.name for path in BASE.iterdir()] == ["hub.json"]
    shutil.rmtree(project.model)  # everything below is read from the cache
    assert open_model(BASE).files.name == project.commit
    assert load_model(open_model(BASE)).config.model_type == "qwen2"
    assert special_texts(BASE) == special_texts(open_model(BASE).files)
    assert len(load_tokenizer(open_model(BASE).files)) > 3


def test_an_emptied_cache_is_named_and_filled_again(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.write(source("models/base", "owner/base", project.commit))
    download()
    weights = open_model(BASE).files / "model.safetensors"
    weights.resolve().write_bytes(b"cut")
    with pytest.raises(DataError, match=r"model\.safetensors of owner/base at .* is not in the Hub cache") as caught:
        open_model(BASE)
    assert "`python -m stages.download --models`" in str(caught.value)
    shutil.rmtree("hf")
    with pytest.raises(DataError, match="set HF_HOME to the cache that has it"):
        open_model(BASE)
    download(["--models"])
    assert capsys.readouterr().out == "download: the Hub cache holds models/base\n"
    assert digest(open_model(BASE).files / "model.safetensors") == digest(project.model / "model.safetensors")


def test_a_named_model_is_fetched_again_into_an_emptied_cache(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.folder / "cache"))
    for _ in range(2):
        assert open_model(model_folder("owner/base", project.commit)).files.name == project.commit
        shutil.rmtree("hf")


def test_listed_files_only_are_fetched_and_need_no_network_later(project: Project) -> None:
    """A model that runs on a server of its own needs no weights here."""
    files = dict.fromkeys(("config.json", "tokenizer.json"))
    project.write(source("models/judge", "owner/base", project.commit, files))
    download()
    assert set(read_json(RAW / "models/judge/hub.json")["files"]) == set(files)
    assert {*special_texts(project.model)} < {*specials_of(RAW / "models/judge")}
    with pytest.raises(DataError, match=r"leave `files` of its source in download\.sources empty"):
        load_model(open_model(RAW / "models/judge"))
    asked = len(project.hub.requests)
    download()
    assert len(project.hub.requests) == asked
    project.write(source("models/judge", "owner/base", project.commit, {"config.json": "0" * 64}))
    found = digest(project.model / "config.json")
    with pytest.raises(DataError, match=f"config.json of owner/base at .* has sha256 {found}, expected 0000"):
        download()
    project.write(source("models/judge", "owner/base", files={"absent.json": None}))
    with pytest.raises(DataError, match=r"owner/base has no file absent\.json at .*; correct download\.sources"):
        download()


def test_pins_are_written_and_hold_although_the_branch_moves(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = project.folder / "rows"
    rows.mkdir()
    (rows / "a.jsonl").write_bytes(b"{}\n")
    data = project.hub.add("datasets/owner/rows", rows)
    entries = [source("mistral", "datasets/owner/rows"), source("models/base", "owner/base", "refs/pr/4")]
    project.write(*entries)
    text = Path("params.yaml").read_text().replace("world: data", "world: data  # a comment")
    Path("params.yaml").write_text(text)
    download(["--pin"])
    assert "params.yaml now pins mistral, models/base; run the pipeline next" in capsys.readouterr().out
    assert not RAW.exists()
    assert "world: data  # a comment" in Path("params.yaml").read_text()
    first, second = load_params().download.sources
    assert (first.revision, second.revision) == (data, project.commit)
    assert first.files == {"a.jsonl": digest(rows / "a.jsonl")}
    assert set(second.files) == USED
    moved = project.folder / "moved"
    shutil.copytree(project.model, moved)
    (moved / "config.json").write_text("{}")
    assert project.hub.add("owner/base", moved) != project.commit
    before = len(project.hub.transfers("a.jsonl"))
    download()
    assert "not pinned" not in capsys.readouterr().err
    assert len(project.hub.transfers("a.jsonl")) == before, "what --pin fetched is not fetched again"
    manifest = read_json(RAW / "manifest.json")
    assert [manifest[name]["revision"] for name in ("mistral", "models/base")] == [data, project.commit]
    assert [manifest[name]["pinned"] for name in ("mistral", "models/base")] == [True, True]


def test_pins_leave_the_rest_of_the_file_as_it_was(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(profiles.render(root, "evaluate-published"))
    before = path.read_text()
    known = {source.name: source for source in load_params(path).download.sources}
    search = known["search"]
    fetched = {"search": Fetched(search.revision, {name: {"sha256": search.sha256_of(name)} for name in search.files})}
    assert pin(path, fetched) == []
    assert path.read_text() == before
    adapter = "checkpoint-2127/adapter_config.json"
    fetched["models/math-psa/lora"] = Fetched("c" * 40, {}, {adapter: {"sha256": "d" * 64}})
    fetched["models/skywork"] = Fetched("e" * 40, {}, {"config.json": {"sha256": "f" * 64}})
    fetched["search"].files["math.jsonl"]["sha256"] = "a" * 64
    changed = ["search", "models/math-psa/lora", "models/skywork"]
    assert pin(path, fetched) == changed
    assert re.findall("# .*", path.read_text()) == re.findall("# .*", before)
    after = {source.name: source for source in load_params(path).download.sources}
    assert after["search"].sha256_of("math.jsonl") == "a" * 64
    assert after["search"].path_of("math.jsonl") == search.path_of("math.jsonl")
    assert after["models/math-psa/lora"].sha256_of(adapter) == "d" * 64
    assert after["models/skywork"].files == {"config.json": "f" * 64}
    assert {name for name in known if after[name] != known[name]} == {
        "search",
        "models/math-psa/lora",
        "models/skywork",
    }
    assert pin(path, fetched) == []


def test_the_bar_counts_bytes_of_both_kinds_of_transfer() -> None:
    """The client's reporter for its transfer library counts bytes on the disk and bytes over the network."""
    progress = Progress("fetch", 10, "B")
    bar = byte_bar(progress, threading.Event())
    reporter = XetDownloadProgressReporter(reconstruction_desc="a", total=10, log_level=30, tqdm_class=bar)
    for done in (4, 10):
        counts = {"total_bytes_completed": done, "total_transfer_bytes_completed": done // 2, "total_bytes": 10}
        rates = {"total_bytes_completion_rate": 1.0, "total_transfer_bytes_completion_rate": 1.0}
        reporter.update_progress(SimpleNamespace(**counts, **rates))
    reporter.close()
    assert progress.done == 10


def test_restricted_and_unknown_repositories_have_a_remedy(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.hub.add("owner/closed", project.model, gated=True)
    project.write(source("models/base", "owner/closed"))
    for token in ("", "hf_other"):
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(DataError, match="accept the terms on the repository's page and set HF_TOKEN"):
            download()
    monkeypatch.setenv("HF_TOKEN", project.hub.token)
    download()
    project.write(source("models/base", "owner/none"))
    with pytest.raises(DataError, match=r"correct the name or the revision \(of a stage: .* HF_TOKEN") as caught:
        download()
    assert "\n" not in str(caught.value)


def test_a_failing_hub_is_a_passing_failure(project: Project) -> None:
    project.hub.fail("/revision/", 503, times=2)
    project.write(source("models/base", "owner/base"), retries=1)
    with pytest.raises(TransientError, match=r"503 .* \(2 attempts\); complete files are kept"):
        download()
    project.hub.fail("/revision/", 503)
    download()


def test_a_name_that_does_not_resolve_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four rounds of the client's five silent retries took 100 s on a machine without a network."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    nowhere = HubServer(url="http://no-such-host.invalid")
    nowhere.lead_here(monkeypatch, tmp_path)
    with pytest.raises(TransientError, match=r"no-such-host\.invalid: .*; connect this machine to the network"):
        model_folder("owner/base", "c" * 40)
    assert (waits, capsys.readouterr().err) == ([], "")


def test_a_hub_that_refuses_connections_is_waited_for_visibly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with hub_server(HubServer()) as url:
        pass
    HubServer(url=url).lead_here(monkeypatch, tmp_path)
    with pytest.raises(TransientError, match=rf"{url}: .*refused \(4 attempts\)"):
        model_folder("owner/base", "c" * 40)
    assert 0 < sum(waits) < 6
    told = capsys.readouterr().err.splitlines()
    assert [re.findall(r"attempt \d of \d in", line) for line in told] == [[f"attempt {n} of 4 in"] for n in (2, 3, 4)]
    assert all(f"source owner/base: owner/base at {'c' * 40}: {url}: " in line for line in told)


def test_the_hub_s_address_must_not_name_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HubServer(url="http://me:secret@127.0.0.1:9").lead_here(monkeypatch, tmp_path)
    with pytest.raises(DataError, match=r"^127\.0\.0\.1:9: an address must not name .*; correct HF_ENDPOINT$"):
        model_folder("owner/base", "c" * 40)


def test_an_outage_during_a_transfer_is_waited_for(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names do not resolve either while a network is away, here the name of the host of the weights."""
    resolve_name, failures = socket.getaddrinfo, iter(range(8))

    def away(host: Any, *rest: Any, **more: Any) -> Any:
        if host in ("localhost", b"localhost") and next(failures, None) is not None:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve_name(host, *rest, **more)

    monkeypatch.setattr("socket.getaddrinfo", away)
    project.write(source("models/base", "owner/base"))
    download()
    assert list(failures) == []
    assert digest(open_model(BASE).files / "model.safetensors") == digest(project.model / "model.safetensors")
    assert "attempt 2 of 3 in" in capsys.readouterr().err


def test_a_full_disk_is_named_before_any_transfer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    huge = {
        f"models/{name}": Listing(f"o/{name}", "model", "a" * 40, {"model.safetensors": size << 30}, {})
        for name, size in (("base", 15), ("judge", 60_000))
    }
    with pytest.raises(DataError, match=r"models/base 15\.0 GiB, models/judge 60000\.0 GiB\): 60015\.0 GiB are still"):
        require_cache_space(huge)
    require_cache_space({"models/base": Listing("o/b", "model", "a" * 40, {"model.safetensors": 1}, {})})


def test_a_part_of_a_model_may_come_from_another_repository(project: Project) -> None:
    part = project.folder / "tree" / "owner" / "tokenizer"
    part.mkdir(parents=True)
    shutil.copy(project.model / "tokenizer.json", part)
    shutil.copy(project.model / "model.safetensors", part)
    commit = "c" * 40
    assert project.hub.add_tree(project.folder / "tree", {"owner/tokenizer": commit}) == {"owner/tokenizer": commit}
    entries = [source("models/llemma", "owner/base"), source("models/llemma/tokenizer", "owner/tokenizer", commit)]
    files = dict.fromkeys(("checkpoint-9/adapter_config.json", "checkpoint-9/adapter_model.safetensors"))
    for name in files:
        (project.folder / "tree/owner/lora" / name).parent.mkdir(parents=True, exist_ok=True)
        (project.folder / "tree/owner/lora" / name).write_bytes(b"{}")
    project.hub.add("owner/lora", project.folder / "tree/owner/lora")
    entries += [source("models/math-psa", "owner/base"), source("models/math-psa/lora", "owner/lora", files=files)]
    project.write(*entries, source("models/skywork", "owner/unused"), baselines=["llemma", "math-psa"])
    download()
    folder = RAW / "models/llemma"
    found = open_model(folder).part("tokenizer")
    assert found is not None
    assert (found.name, open_model(folder).files.name) == (commit, project.commit)
    assert {path.name for path in found.iterdir()} == {"tokenizer.json"}
    assert open_model(folder).part("lora") is None
    adapter = open_model(RAW / "models/math-psa").part("lora")
    assert adapter is not None
    assert {path.name for path in adapter.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert not Path(RAW / "models/skywork").exists(), "only the listed baselines are fetched"
    assert open_model(project.model).part("other") == project.model / "other"


def test_a_model_without_safetensors_is_refused_before_any_transfer(project: Project) -> None:
    (project.model / "model.safetensors").unlink()
    project.hub.add("owner/pickled", project.model)
    project.write(source("models/base", "owner/pickled"))
    with pytest.raises(DataError, match=r"owner/pickled at main has no safetensors weights.* refs/pr/N"):
        download()
    assert project.hub.transfers("resolve") == []


def test_a_pointer_needs_a_commit(tmp_path: Path) -> None:
    (tmp_path / "hub.json").write_text(json.dumps({"repo": "o/n", "revision": "main"}))
    with pytest.raises(DataError, match=r"hub\.json: no repository with a full commit id"):
        open_model(tmp_path)
