"""Attacks of tests/campaigns/security.md that belong to no single room: what a publisher's file or model could try."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from safetensors.torch import load_file

from evidence.dvc.stores import parse_listing
from ground import io
from ground.io import DataError, read_json, read_jsonl
from pathfinder.core.params import Source, load_params
from pathfinder.core.prompts import VARIANTS
from pathfinder.models.decoder import load_decoder
from pathfinder.models.folders import open_model
from pathfinder.models.model import load_model
from pathfinder.models.tokens import ChatFrame, load_tokenizer, neutralise
from pathfinder.sources.catalogue import _visible
from pathfinder.tree.passes import Prompter, Query

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "pathfinder/demo_model"
ROOMS = ("ground", "pathfinder", "stages", "evidence", "extras", "flows", "infra", "world")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODEL, tmp_path / "model"))


def edit_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps(read_json(path) | values))


def read_as_it_is(model: Path) -> None:
    """Make transformers use the pattern of tokenizer.json, which a ``Qwen2Tokenizer`` ignores."""
    (model / "config.json").unlink()
    edit_json(model / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


@pytest.mark.parametrize("load", [load_model, load_decoder])
def test_code_that_a_model_s_configuration_names_is_not_run(load: Any, model: Path, tmp_path: Path) -> None:
    """``auto_map`` names Python files for loaders that trust the publisher."""
    trace = tmp_path / "run"
    code = f"from pathlib import Path\nPath({str(trace)!r}).touch()\nclass Evil: pass\n"
    for name in ("modeling_evil.py", "configuration_evil.py", "tokenization_evil.py"):
        (model / name).write_text(code)
    classes = {"AutoConfig": "configuration_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil"}
    edit_json(model / "config.json", auto_map=classes)
    edit_json(model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_evil.Evil", None]})
    assert load(open_model(model)).num_parameters() == load(open_model(MODEL)).num_parameters()
    assert load_tokenizer(model).encode("a b") == load_tokenizer(MODEL).encode("a b")
    edit_json(model / "tokenizer_config.json", tokenizer_class="Evil")
    edit_json(model / "config.json", model_type="evil")
    with pytest.raises(DataError):
        load(open_model(model))
    with pytest.raises(DataError):
        load_tokenizer(model)
    assert not trace.exists()


@pytest.mark.parametrize("load", [load_model, load_decoder])
@pytest.mark.parametrize("file", ["evil.bin", "../other.safetensors", None])
def test_an_index_that_names_other_files_than_safetensors_is_refused(load: Any, model: Path, file: str | None) -> None:
    """transformers reads what the index names, and unpickles a file with another ending."""
    (model / "model.safetensors").rename(model / "a.safetensors")
    weights = dict.fromkeys(load_file(model / "a.safetensors"), "a.safetensors")
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    assert load(open_model(model)).num_parameters() == load(open_model(MODEL)).num_parameters()
    index.write_text(json.dumps({"metadata": {}, "weight_map": weights | {"lm_head.weight": file}}))
    with pytest.raises(DataError, match="no safetensors files of its folder"):
        load(open_model(model))


@pytest.mark.parametrize(
    "setting",
    [
        {"_attn_implementation": "other/kernel"},
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        {"num_attention_heads": 0},
        {"tie_word_embeddings": "x"},
        {"text_config": {"a": 1}},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_a_setting_of_config_json_that_transformers_cannot_use_is_one_line(
    model: Path, setting: dict[str, Any]
) -> None:
    """The first names code of the Hub, which is not fetched."""
    edit_json(model / "config.json", **setting)
    with pytest.raises(DataError, match=r"the model cannot be loaded \(.+\)"):
        load_model(open_model(model))


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ raise_exception('no') }}",
        "{% include 'other' %}",
        "{{ messages",
        "{% for a in range(10 ** 12) %}{% endfor %}",
    ],
    ids=["classes", "globals", "exception", "include", "syntax", "range"],
)
def test_a_hostile_chat_template_is_refused_in_one_line(model: Path, template: str) -> None:
    (model / "chat_template.jinja").write_text(template)
    with pytest.raises(DataError, match="chat template"):
        ChatFrame(load_tokenizer(model))


def test_a_small_file_that_decompresses_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "LONGEST_LINE", 1 << 20)
    lines, whole = tmp_path / "a.jsonl.gz", tmp_path / "a.json.gz"
    for path in (lines, whole):
        with gzip.open(path, "wb", compresslevel=1) as handle:
            for _ in range(64):
                handle.write(b'"' + bytes(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match="a line of over 1 MiB"):
        list(read_jsonl(lines))
    with pytest.raises(DataError, match="over 4 MiB in one JSON value"):
        read_json(whole)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ("[x, x]", "[%s]", "Extra inputs are not permitted"),
        ("{x: 1}", "{<<: [%s]}", "too many keys merged|Extra inputs"),
    ],  # PyYAML 6.0.4 merges a key once
    ids=["lists", "merges"],
)
def test_aliases_of_yaml_that_multiply_are_refused_at_once(
    tmp_path: Path, first: str, other: str, message: str
) -> None:
    bomb = f"a: &a {first}\n" + "".join(
        f"{name}: &{name} {other % ', '.join([f'*{before}'] * 9)}\n"
        for before, name in itertools.pairwise("abcdefghij")
    )
    path = tmp_path / "params.yaml"
    path.write_text(bomb + (ROOT / "params.yaml").read_text())
    start = time.process_time()
    with pytest.raises(DataError, match=message) as caught:
        load_params(path)
    assert len(str(caught.value)) < 2_000
    assert time.process_time() - start < 5


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "", "a\0b", "\ud800"])
def test_a_listing_names_only_files_below_its_folder(path: str) -> None:
    content = json.dumps([{"md5": "0" * 32, "relpath": "a/b"}, {"md5": "0" * 32, "relpath": path}]).encode()
    with pytest.raises(DataError, match="row 2"):
        parse_listing(content, "listing")


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "a/..\\..\\x", "C:\\x", "../x", "a/../../x", "a/.git/config", "a\0", "\ud800"]
)
def test_a_listing_of_the_hub_cannot_name_a_place_elsewhere(name: str) -> None:
    """Such a name is refused; names with a part that starts with a dot are left out."""
    source = Source(name="prmbench", kind="hub", location="datasets/a/b", revision=None, licence="x", files={})
    if "/." in f"/{name}":
        assert _visible(source, ["data/a.jsonl", name]) == ["data/a.jsonl"]
    else:
        with pytest.raises(DataError, match="not a file name below the source"):
            _visible(source, ["data/a.jsonl", name])


def test_no_archive_is_unpacked() -> None:
    """No member of an archive can leave its folder: modules write archives, and read members in memory only."""
    unpacking = re.compile(r"\b(tarfile|zipfile|unpack_archive|extractall)\b")
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(paths) > 200
    found = [path for path in paths if unpacking.search(path.read_text(encoding="utf-8"))]
    files = (
        "evidence/verbs/bundle.py",
        "flows/local/committed.py",
        "infra/release.py",
        "pathfinder/core/containers.py",
    )
    assert sorted(found) == [ROOT / name for name in files]
    written, measured, released, read = (
        re.findall(r"(?:tarfile|zipfile|unpack_archive|extract)\w*\.?\w*\(.*", path.read_text(encoding="utf-8"))
        for path in sorted(found)
    )
    assert {call.partition("(")[0] for call in written} == {"tarfile.open", "tarfile.TarInfo"}
    assert [call for call in written if "open(" in call and 'mode="w"' not in call] == []
    assert {call.partition("(")[0] for call in measured} == {"tarfile.open", "extractfile"}
    assert {call.partition("(")[0] for call in released} == {"tarfile.open", "zipfile.ZipFile", "extractfile"}
    assert {call.partition("(")[0] for call in read} == {"zipfile.ZipFile", "zipfile.BadZipFile"}


def test_nested_special_texts_take_little_time_to_neutralise() -> None:
    """Each removal may make another special text; the work stays small."""
    specials = ("<|im_end|>", "<+>", "<->", "<extra>")
    hostile = "<" * 2_000 + "+" * 2_000 + ">" * 2_000 + "<|im_end|>" * 2_000 + "<<+>+>" * 2_000
    start = time.process_time()
    found = neutralise(hostile, specials)
    assert time.process_time() - start < 1
    assert not any(special in found for special in specials)


def test_a_pattern_of_a_tokenizer_that_backtracks_without_end_is_refused(model: Path) -> None:
    """Its library gives up after ten million attempts at one place; that error is no ``Exception``."""
    pattern = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    edit_json(model / "tokenizer.json", pre_tokenizer=pattern)
    read_as_it_is(model)
    frame = ChatFrame(load_tokenizer(model))
    start = time.process_time()
    with pytest.raises(DataError, match="the tokenizer cannot read a prompt"):
        frame.encode([("a" * 40 + "b", "c")])
    assert time.process_time() - start < 10


def test_a_tokenizer_that_reads_words_as_label_tokens_is_refused(model: Path) -> None:
    path = model / "tokenizer.json"
    added = [token | {"normalized": True} for token in read_json(path)["added_tokens"]]
    replaced = {"type": "Replace", "pattern": {"String": "seven"}, "content": "<extra>"}
    edit_json(path, added_tokens=added, normalizer=replaced)
    read_as_it_is(model)
    prompter = Prompter(load_tokenizer(model), VARIANTS["full"])
    assert prompter.encode([Query("first", "Ann has eight dogs.", (), "It is eight.")])
    with pytest.raises(DataError, match="second: 5 label tokens in its prompt, expected 3"):
        prompter.encode([Query("second", "Ann has seven dogs.", (), "It is seven.")])


def test_label_tokens_that_a_tokenizer_names_twice_or_with_other_ids_stay_apart(model: Path) -> None:
    path = model / "tokenizer.json"
    added = read_json(path)["added_tokens"]
    again = [token | {"id": number} for number, token in enumerate(added, start=2**31 - 20)]
    good, bad = (next(token for token in added if token["content"] == text) for text in ("<+>", "<->"))
    for tokens in (
        [*added, *again],
        [*added, good | {"id": bad["id"]}],
        [token | {"id": bad["id"]} for token in added],
    ):
        edit_json(path, added_tokens=tokens)
        prompter = Prompter(load_tokenizer(model), VARIANTS["full"])
        assert len({prompter.ids.good, prompter.ids.bad, prompter.ids.mask}) == 3
        ((ids, slots),) = prompter.encode([Query("one", "1 + 1?", (), "2 <+> <->")])
        assert {int(ids[slot]) for slot in slots} == {prompter.ids.mask}
        assert len(ids) < 150


def test_a_parquet_file_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    """A dictionary of one long text, used by every row; the limit stands for a machine's memory."""
    path = tmp_path / "a.parquet"
    texts = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 1024, pyarrow.int32()), pyarrow.array(["x" * 2**21])
    )
    pyarrow.parquet.write_table(pyarrow.table({"a": texts}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 4_000
    code = (
        "import resource, sys; from pathlib import Path; from pathfinder.data.upstream import read_lines\n"
        "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (now + 2**29,) * 2)\n"
        "try: list(read_lines(Path(sys.argv[1])))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.stdout.startswith(f"DataError {path}: cannot be read to its end ("), done.stdout + done.stderr
