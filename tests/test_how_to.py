"""docs/extend.md works: each section is followed in a copy of the project, file, change and command one by one.

A section starts with ``## ``, and its name is its anchor. A fenced block starts with its use: ``python PATH`` is a file
to write, ``diff`` a change to apply, and ``console`` commands, with lines that their output must contain.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import yaml
from transformers import MistralConfig, MistralForCausalLM

from ground.io import DataError, read_json, write_json, write_jsonl, write_parquet
from pathfinder.core.records import STEPS
from pathfinder.data.upstream import UnreadableError
from pathfinder.reporting.page.contents import CLAIMS
from tests.baselines.model_folders import FOLDERS
from tests.support import warm
from tests.support.models import plain_tokenizer, sides
from tests.support.report_inputs import write_best_of_n, write_everything, write_project
from tests.support.s3 import s3_bucket, s3_environment, s3_server
from tests.support.servers import JudgeServer, judge_server
from tests.support.training import frame
from world.truth import verdict_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
SECTIONS = {
    title.lower().replace(" ", "-"): body for title, body in re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.M)
}
_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CHANGED = re.compile(r"^\+\+\+ b/(\S+)$", re.MULTILINE)
FILES = {
    "add-a-kind-of-remote": 1,
    "use-another-base-model": 3,
    "add-a-search-strategy": 1,
    "print-a-claim-in-different-words": 1,
    "add-an-error-type": 3,
}
"""The number of files that a section may write or change. Other sections are tried with the campaigns."""
OPEN = ExitStack()
"""The servers that a section needs, until its test ends."""


def steps_table(project: Path, world: Path) -> None:
    rows = [(f"a-{n}", "a", source, n, 0, "x" * n, 1) for n, source in ((2, "one"), (4, "one"), (5, "two"))]
    write_parquet(project / "artifacts/steps/steps.parquet", pl.DataFrame(rows, schema=STEPS, orient="row"))


def tiny_prm(project: Path, world: Path) -> None:
    FOLDERS["math-shepherd"](project / "artifacts/raw/models/example")
    (project / "artifacts/raw/processbench").mkdir(parents=True)
    for file in (world / "processbench").iterdir():
        items = json.loads(file.read_text())[:3]
        (project / "artifacts/raw/processbench" / file.name).write_text(json.dumps(items))


def mirror(project: Path, world: Path) -> None:
    steps = [{"text": "1 + 1 = 2", "good": True}, {"text": "2 + 1 = 4", "good": False}]
    lines = [{"question": f"What is 1 + 1 + {n}?", "steps": steps} for n in range(150)]
    write_jsonl(project / "mirror/example/lines.jsonl", [*lines, {"question": "without steps"}])
    (project / "data").symlink_to(world)


def stepcheck(project: Path, world: Path) -> None:
    row = {"problem": "What is 1 + 1?", "steps": ["We add.", "1 + 1 = 3"], "correct": [True, False]}
    write_jsonl(project / "artifacts/raw/stepcheck/stepcheck.jsonl", [row])
    shutil.copytree(world / "models/base", project / "models/full")


def graded(prompt: str, seed: int) -> str:
    """The truth about a step of the generated world, with errors of units as the fourth criterion."""
    context = prompt.partition("[Math Problem]\n")[2].partition("\n</current_step>")[0]
    problem, _, rest = context.partition("\n[Partial Solution]\n<previous_steps>\n")
    prefix, _, step = rest.partition("\n</previous_steps>\n<current_step>\n")
    verdict = verdict_of(problem, filter(None, prefix.split("\n\n")), step)
    assert verdict is not None, context
    scores = (*verdict.labels, int("unit" not in verdict.faults))
    return "".join(f"Score {letter}: {score}\n" for letter, score in zip("ABCD", scores, strict=True))


def judged_world(project: Path, world: Path) -> None:
    """A part of the world, and a judge that scores four criteria."""
    train = {"cmd": "python -m stages.train units", "deps": ["stages/train.py"]}
    (project / "dvc.yaml").write_text(
        yaml.safe_dump({"stages": {"train": train}})
    )  # without the inputs of left-out stages
    raw = project / "artifacts/raw"
    for name, count in (("prm800k/phase1_train.jsonl", 12), ("mistral/mistral.jsonl", 20)):
        with gzip.open(world / f"{name}.gz", "rt") as lines:
            write_jsonl(raw / name, map(json.loads, islice(lines, count)))
    for name in ("processbench/math.json", "prmbench/small_world_circular.jsonl", "search/math.jsonl"):
        (raw / name).parent.mkdir(parents=True)
        shutil.copyfile(world / name, raw / name)
    for model in ("base", "judge"):
        (raw / "models").mkdir(exist_ok=True)
        (raw / "models" / model).symlink_to(world / "models" / model)
    params = yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8"))
    judge = OPEN.enter_context(judge_server(JudgeServer(graded)))
    params["label"] |= {"engine": "openai", "base_urls": [judge.url], "concurrency": 4}
    params["search"]["sets"] = ["math"]
    params["build"]["test_share"] = 0.3
    (project / "params.yaml").write_text(yaml.safe_dump(params | {"runs": ["units"]}), encoding="utf-8")


def check_lengths(project: Path) -> None:
    assert read_json(project / "metrics/lengths.json") == {"one": 3.0, "two": 5.0}


def check_example(project: Path) -> None:
    assert read_json(project / "metrics/processbench/example.json")["titles"] == ["Example-PRM"]


def check_source(project: Path) -> None:
    figures = read_json(project / "metrics/prepare.json")
    assert figures["sources"]["example_steps"]["kept"] == 300
    assert figures["sources"]["example_steps"]["quarantined"] == {"unknown_shape": 1}
    record = pl.read_parquet(project / "artifacts/steps/steps.parquet")["id"][-1]
    found = json.loads(run(project, f"pathfinder record {record} --json"))
    assert found["record"]["read again from the line"] == "the same"


def nothing(project: Path, world: Path) -> None:
    pass


_TRIP = """
import subprocess, sys
from pathlib import Path
from evidence.dvc.stores import stores
from flows.local.storage import configure, preflight
from flows.local.transfer import prepare
from ground.io import DataError
from evidence.remote.publication import commit_manifest
from ground.remote import open_store

root, address = Path(), sys.argv[1]
assert configure(root) == address
preflight(root, address)
assert prepare(root, []).is_dir()
for words in (["add", "out.txt"], ["push", "out.txt.dvc"]):
    subprocess.run([sys.executable, "-m", "dvc", "-q", *words], check=True)
store = open_store(address)
assert [key for key in store.keys("files/md5/")], store.keys()
assert commit_manifest(store, {"a": 1}).number == 1
(there,) = [each for each in stores(root) if each.folder is None]
assert there.address == address
assert there.opened().keys("log/") == ["log/00000001.json"]
try:
    open_store("gs://no-such-bucket").read("x")
except DataError as error:
    assert "PATHFINDER_GS_ENDPOINT" in str(error) and "HMAC" in str(error), error
"""


def check_remote(project: Path) -> None:
    """Results go to a server behind ``gs://`` and come back."""
    (project / "out.txt").write_text("a result")
    with s3_server() as endpoint:
        address = s3_bucket(endpoint).replace("s3://", "gs://") + "/runs"
        keys = {name: value for name, value in s3_environment(endpoint).items() if name.startswith("AWS_")}
        names = {"PATHFINDER_REMOTE": address, "PATHFINDER_GS_ENDPOINT": endpoint, "PYTHONPATH": str(project)}
        command = [sys.executable, "-c", _TRIP, address]
        done = warm.run(command, cwd=project, env=os.environ | keys | names, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def mistral(project: Path, world: Path) -> None:
    """A random base model in a mirror, and a training set."""
    (project / "data").symlink_to(world)
    for name, trees in (("train", 24), ("test", 4)):
        write_parquet(project / f"artifacts/train/{name}.parquet", frame(trees))
    write_json(project / "metrics/validate_train.json", {})
    tokenizer, folder = plain_tokenizer(), project / "mirror/tiny-mistral"
    shape = sides(32, 48, 2, 4, 2) | {"head_dim": 8, "initializer_range": 0.2, "vocab_size": len(tokenizer) + 16}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        MistralForCausalLM(MistralConfig(**shape, sliding_window=None)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


_SCORED_TWICE = """
from pathlib import Path
from pathfinder.core.steps import Solution
from pathfinder.models.folders import open_model
from pathfinder.models.model import load_model
from pathfinder.prm.steps import open_prompter, queries_of
from pathfinder.prm.scoring import Scorer
from pathfinder.models.decoder import supports
from tests.support.models import published_rewards
import torch

opened = open_model(Path("models/full"))
solution = Solution("s", "What is 2?", ("first 2", "then more", "so 2"))
scorer = Scorer(opened)
with torch.no_grad():
    assert supports(scorer._reader._model)
trees = [step.reward for step in scorer.score([solution])[0]]
separate = published_rewards(
    load_model(opened), opened.tokenizer, open_prompter(opened, "default"), queries_of(solution)
)
assert len(set(trees)) == 3, trees
assert max(abs(a - b) for a, b in zip(trees, separate, strict=True)) < 1e-5, (trees, separate)
"""


def check_base(project: Path) -> None:
    """The trained model is of the new architecture, has learned, and its trees equal separate prompts."""
    assert read_json(project / "models/full/config.json")["model_type"] == "mistral"
    assert read_json(project / "metrics/train/full.json")["optimiser_steps"] > 1
    names = {"PYTHONPATH": os.pathsep.join([str(project), str(ROOT)])}
    command = [sys.executable, "-c", _SCORED_TWICE]
    done = warm.run(command, cwd=project, env=os.environ | names, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def check_units(project: Path) -> None:
    labels = pl.read_parquet(project / "artifacts/labels/labels.parquet")
    assert labels.columns[:5] == ["id", "math", "consistency", "optimality", "units"]
    gates = read_json(project / "reports/validation/validation.json")["gates"]
    expected = {"units is 0 or 1", "units is 1 where step_source == 'prm800k' and rating == 0"}
    assert expected <= {gate["says"] for gate in gates}
    report = (project / "reports/report.md").read_text(encoding="utf-8")
    assert re.search(r"units \| units", report), "no accuracy of the label"


def check_stepcheck(project: Path) -> None:
    assert read_json(project / "metrics/stepcheck/full.json")["items"] == 1


def predictions(project: Path, world: Path) -> None:
    """The inputs of the report, with the choices of a rule that the page adds."""
    (project / "dvc.yaml").unlink()  # its other stages have not run
    with contextlib.chdir(project):
        write_project(ROOT, "quickstart")
        write_everything()
        write_best_of_n("full")
        path = Path("artifacts/predictions/best_of_n/full.jsonl")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        more = {"weighted_median": False}
        write_jsonl(path, [row | {"right": row["right"] | more | {"median": row["set"] == "math"}} for row in rows])


def check_strategy(project: Path) -> None:
    tables = read_json(project / "reports/tables.json")
    assert [row["median"] if index else row["median"]["value"] for index, row in enumerate(tables["results"][:4])] == [
        50.0,
        "missing",
        "missing",
        "–",
    ]
    assert tables["tables"]["Results"][0]["headers"][-1] == "best of n by median reward"
    rows = tables["tables"][CLAIMS][0]["rows"]
    assert {"guided search beats best of n by median", "guided search beats weighted vote of n by median"} <= {
        row[0] for row in rows
    }


def check_claims(project: Path) -> None:
    page = (project / "reports/report.md").read_text()
    cells = [row[1] for row in read_json(project / "reports/tables.json")["tables"][CLAIMS][0]["rows"]]
    assert all(re.match(r"\w.*: [+-][\d.]+ points \[", cell) for cell in cells if cell != "–"), cells
    answers = [line for line in page.splitlines() if line.startswith(("1. Does", "2. Does"))]
    assert len(answers) == 2
    assert all("points \\[" in line for line in answers)
    assert not re.search(r"\bopen\b", "".join(cells))


GIVEN: dict[str, tuple[Callable[[Path, Path], None], Callable[[Path], None]]] = {
    "add-a-stage": (steps_table, check_lengths),
    "add-a-data-source": (mirror, check_source),
    "add-a-published-prm": (tiny_prm, check_example),
    "add-a-benchmark": (stepcheck, check_stepcheck),
    "add-a-kind-of-remote": (nothing, check_remote),
    "use-another-base-model": (mistral, check_base),
    "add-a-search-strategy": (predictions, check_strategy),
    "print-a-claim-in-different-words": (predictions, check_claims),
    "add-an-error-type": (judged_world, check_units),
}
"""The files that each section needs in the copy, and a check of its result; in the order of the page."""


def copy_project(folder: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "infra/world/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)


def run(folder: Path, command: str) -> str:
    """Run a command of the page there, with this environment's interpreter and the copy's code."""
    words = shlex.split(command)
    cli = "import sys; from pathfinder.cli import main; sys.exit(main())"
    start = {"python": list[str](), "dvc": ["-m", "dvc"], "pathfinder": ["-c", cli]}[words[0]]
    named = {"PYTHONPATH": str(folder), "PATHFINDER_MIRROR": str(folder / "mirror")}
    done = warm.run(
        [sys.executable, *start, *words[1:]],
        cwd=folder,
        env=os.environ | named | warm.inherited(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return str(done.stdout)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    with OPEN:
        yield


def test_every_section_is_followed() -> None:
    assert list(SECTIONS) == list(GIVEN)


def block(path: str, folder: Path) -> dict[str, Any]:
    """The names that a file of the page defines."""
    (body,) = (body for _, name, body in _BLOCK.findall(PAGE) if name == path)
    (folder / "block.py").write_text(body, encoding="utf-8")
    return runpy.run_path(str(folder / "block.py"))


@pytest.mark.parametrize("value", [[], {"steps": []}, {"question": "q", "steps": ["a"]}, {"question": "q"}])
def test_the_reader_of_the_page_refuses_a_different_line(value: object, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="unknown_shape: "):
        block("pathfinder/data/example_steps.py", tmp_path)["read_example_steps"](value, None)


@pytest.mark.parametrize(
    "row", [1, {"steps": [], "correct": []}, {"problem": "p", "steps": None, "correct": []}, {"problem": "p"}]
)
def test_the_benchmark_of_the_page_names_a_different_row(row: object, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [{"problem": "p", "steps": ["a"], "correct": [True]}, row])
    with pytest.raises(DataError, match=r"rows\.jsonl:2: .*; correct the row$"):
        block("pathfinder/benchmarks/stepcheck.py", tmp_path)["read_stepcheck"](tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    "section", [pytest.param(one, marks=[] if one in FILES else [pytest.mark.campaign]) for one in SECTIONS]
)
def test_a_section_can_be_followed(section: str, world: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    copy_project(project)
    given, check = GIVEN[section]
    given(project, world)
    blocks = _BLOCK.findall(SECTIONS[section])
    kinds = {kind for kind, _, _ in blocks}
    assert {"diff", "console"} <= kinds <= {"python", "diff", "console"}
    files = {path for _, path, _ in blocks if path} | {file for _, _, body in blocks for file in _CHANGED.findall(body)}
    assert len(files) <= FILES.get(section, 9), files
    for kind, path, body in blocks:
        if kind == "python":
            (project / path).write_text(body, encoding="utf-8")
        elif kind == "diff":
            applied = subprocess.run(
                ["git", "apply", "--recount", "-C1", "-"], cwd=project, input=body, text=True, capture_output=True
            )
            assert applied.returncode == 0, applied.stderr + body
        else:
            output = ""
            for line in body.splitlines():
                if line.startswith("$ "):
                    output = run(project, line[2:])
                else:
                    assert line in output, f"{line!r} is not in {output!r}"
    check(project)
