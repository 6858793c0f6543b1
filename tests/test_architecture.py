"""Which way imports point, who may import a vendor, and whether dvc.yaml names all the code that its stages run."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

from evidence.dvc.pipeline import MAIN, PIPELINES, Stage, read_pipeline, read_pipelines
from evidence.record.identity import LOCKS, imported_names, is_code, module_of
from infra.deps import code_deps, differences
from tests.support import warm

ROOT = Path(__file__).resolve().parent.parent
WINGS = {
    "ground": (),
    "pathfinder": ("ground",),
    "evidence": ("ground",),
    "world": ("ground", "pathfinder", "evidence"),
    "stages": ("ground", "pathfinder", "evidence", "world"),
    "extras": ("ground", "pathfinder", "evidence", "world"),
    "flows": ("ground", "pathfinder", "evidence"),
    "infra": ("ground", "pathfinder", "evidence", "flows"),
    "docs": ("ground", "pathfinder", "evidence", "world", "extras", "flows", "infra"),
}
"""The wings, and those that each may import.

Of ``flows``, ``flows/team`` may import ``extras``, too, and ``flows/local`` nothing above it.
"""
STAGE = "evidence/record/stage.py"
"""All that ``stages`` and ``world`` see of the evidence."""
SOURCES = sorted(path for wing in WINGS for path in (ROOT / wing).rglob("*.py"))

FENCE = {
    "prefect": r"flows/(?!local/).*|flows/local/storage\.py",  # the name of a deployment, for its remote
    "prefect_aws": r"flows/.*",
    "vllm": r"(?!)",  # reached over HTTP only
    "openai": r"pathfinder/engines/openai_client\.py",
    "great_expectations": r"pathfinder/gates/checker\.py",
    "boto3": r"ground/remote\.py",
    "botocore": r"ground/remote\.py",
    "dvc": r"flows/local/forks\.py",  # otherwise a subprocess of flows/local/dvc.py
    "huggingface_hub": r"pathfinder/(core|sources)/hub\.py|extras/publish/client\.py",
    "latex2mathml": r"pathfinder/pages/formulas\.py",
    "math_verify": r"pathfinder/benchmarks/grading\.py",
    "pebble": r"pathfinder/benchmarks/grading\.py",
    "datasketch": r"(?!)",
    "ruamel": r"pathfinder/core/commented_yaml\.py",
    "peft": r"pathfinder/training/network\.py",
    "datasets": r"pathfinder/core/containers\.py",  # reads; the exports are plain Parquet and JSON
    "mlcroissant": r"(?!)",
    "cyclonedx": r"(?!)",  # the formats of other tools are written as plain JSON; tests validate them with these
    "openlineage": r"(?!)",
    "rdflib": r"(?!)",
    "pickle": r"(?!)",
    "joblib": r"(?!)",
}
LIGHT = (
    "pathfinder",
    "pathfinder.cli",
    "ground.io",
    "pathfinder.core.params",
    "evidence.verbs.check",
    "evidence.record.stage",
    "flows.cli",
)
HEAVY = ("torch", "transformers", "great_expectations", "prefect", "boto3", "openai")
ROOMS = (
    "core",
    "pages",
    "sources",
    "models",
    "engines",
    "benchmarks",
    "data",
    "gates",
    "judge",
    "tree",
    "training",
    "prm",
    "baselines",
    "policy",
    "reporting",
)
"""The rooms of ``pathfinder/``, lowest floor first: each may import those before it."""
DOORS = ("bench", "planning", "adapters")
"""The folders of verbs. They belong to the door, as the files outside the rooms do."""


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def wing(path: str) -> str:
    """The wing that a file belongs to."""
    return path.partition("/")[0]


def room(path: str) -> str:
    """The room of ``pathfinder`` that a file belongs to; ``door`` is what outsiders open; empty for other wings."""
    top, _, rest = path.partition("/")
    found = rest.partition("/")[0] if "/" in rest else "door"
    return "" if top != "pathfinder" else "door" if found in DOORS else found


BELOW = {room: {*ROOMS[: place + 1]} for place, room in enumerate(ROOMS)} | {"door": {*ROOMS, "door"}}


def project_imports(path: Path) -> Iterator[str]:
    """The project's modules that a file imports, as files."""
    for module in imported_names(path, ROOT):
        file = module.replace(".", "/") + ".py"
        if (ROOT / file).exists():
            yield file


def test_the_sources_were_found() -> None:
    assert {wing(name(path)) for path in SOURCES} == set(WINGS)
    assert {room(name(path)) for path in SOURCES} == {*BELOW, ""}
    assert len(SOURCES) > 150


def test_no_folder_is_a_corridor() -> None:
    counts = Counter(name(path).rpartition("/")[0] for path in SOURCES)
    assert {folder: count for folder, count in counts.items() if count > 18} == {}


def test_stages_are_exactly_those_of_the_pipeline() -> None:
    modules = {f"stages.{path.stem}" for path in (ROOT / "stages").glob("*.py")} - {"stages.__init__"}
    assert modules == {module_of(stage.cmd) for stage in every_stage()}


def every_stage() -> list[Stage]:
    """The stages of dvc.yaml, including the stages of empty lists in params.yaml."""
    content = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    return [Stage(stage, body["cmd"], (), (), ()) for stage, body in content["stages"].items()]


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_imports_point_one_way(path: Path) -> None:
    own = name(path)
    wrong = [file for file in project_imports(path) if not may_import(own, file)]
    assert not wrong, f"{own} must not import {wrong}; see WINGS and ROOMS"


def may_import(own: str, file: str) -> bool:
    """True if the wings and, within the method, the rooms allow an import."""
    if wing(file) == "evidence" and wing(own) in ("stages", "world"):
        return file == STAGE
    if wing(file) == "extras" and own.startswith("flows/team/"):
        return True
    if wing(file) != wing(own):
        return wing(file) in WINGS[wing(own)]
    if own.startswith("flows/local/"):
        return file.startswith("flows/local/")
    if wing(own) == "flows":
        return not file.startswith("flows/team/") or own.startswith("flows/team/")
    return wing(own) != "stages" and (wing(own) != "pathfinder" or room(file) in BELOW[room(own)])


def test_no_module_imports_itself_by_a_circle() -> None:
    """Imports inside functions count, since a reader follows them too."""
    imports = {name(path): {*project_imports(path)} - {name(path)} for path in SOURCES}
    order = TopologicalSorter(imports)
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(error.args[1]))}")


@pytest.mark.parametrize("top", ["ground", "pathfinder", "evidence"])
def test_a_wing_can_be_taken_alone(top: str, tmp_path: Path) -> None:
    """Every module of the wing is imported where no other wing than those below it exists."""
    for each in (top, *WINGS[top]):
        shutil.copytree(ROOT / each, tmp_path / each, ignore=shutil.ignore_patterns("__pycache__"))
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in SOURCES
        if wing(name(path)) == top and path.stem not in ("__init__", "__main__")
    ]
    code = f"""
import importlib, sys
sys.path[:] = [{str(tmp_path)!r}, *(p for p in sys.path if p not in ({str(ROOT)!r}, "") and "editable" not in p)]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
for name in {modules!r}:
    importlib.import_module(name)
print(*sorted({{name.partition(".")[0] for name in sys.modules}} & {set(WINGS)!r}))
"""
    done = warm.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {top, *WINGS[top]} & {top, "ground"}


def test_evidence_names_nothing_of_this_project() -> None:
    """The facts about one project are in evidence.toml."""
    ours = re.compile(r"pathfinder|trajector|process reward|artifacts/(?!export|raw)", re.IGNORECASE)
    texts = [path for path in (ROOT / "evidence").rglob("*") if path.suffix in (".py", ".html", ".js", ".css", ".md")]
    lines = [(name(path), line) for path in texts for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) > 5_000
    assert [(file, line) for file, line in lines if ours.search(line.replace("PathfinderError", ""))] == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_vendor_is_imported_where_it_is_wrapped(path: Path) -> None:
    tops = {module.split(".")[0] for module in imported_names(path, ROOT)}
    wrong = {vendor for vendor in tops & FENCE.keys() if not re.fullmatch(FENCE[vendor], name(path))}
    assert not wrong, f"{name(path)} imports {sorted(wrong)}; call the module that wraps it: {FENCE}"


def test_every_fenced_vendor_in_use_has_its_wrapper() -> None:
    """The fence is about modules that exist: a renamed wrapper must not leave a hole."""
    names = [name(path) for path in SOURCES]
    assert [
        v for v, fence in FENCE.items() if fence != r"(?!)" and not any(re.fullmatch(fence, n) for n in names)
    ] == []


def test_dvc_is_started_in_one_place() -> None:
    starters = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.List) and node.elts and isinstance(node.elts[0], ast.Constant):
                starters |= {name(path)} if node.elts[0].value == "dvc" else set()
    assert starters <= {"flows/local/dvc.py", "flows/local/forks.py"}


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_import_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*[n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("file", PIPELINES, ids=str)
def test_dvc_yaml_names_all_code_that_its_stages_run(file: Path) -> None:
    content = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    assert len(content["stages"]) > 3
    lines = differences(content["stages"])
    assert not lines, "\n".join([*lines, "Run `python -m infra.deps --write`."])


def test_dvc_yaml_is_one_page() -> None:
    assert len((ROOT / MAIN).read_text(encoding="utf-8").splitlines()) <= 220


def test_every_stage_depends_on_its_module_its_rooms_and_the_locks() -> None:
    stages = read_pipelines(ROOT)
    assert len(stages) > len(read_pipeline(ROOT)) > 15
    for stage in stages.values():
        code = [dep for dep in stage.deps if is_code(dep)]
        assert code == code_deps(stage.cmd, ROOT), stage.name
        rooms = 11 if module_of(stage.cmd) == "stages.report" else 9  # the report reads the record of every writer
        packages = {"stages/__init__.py", "pathfinder/__init__.py"}
        assert 2 <= len(set(code) - {LOCKS, "ground"} - packages) <= rooms, stage.name
        assert packages <= set(code) or stage.file != MAIN.as_posix(), stage.name
        assert not any(dep.startswith("evidence") for dep in code), stage.name


@pytest.mark.parametrize("file", PIPELINES, ids=str)
def test_no_parameter_is_spliced_into_a_command(file: Path) -> None:
    """A value like ``$(…)`` would be run by the shell: items are written in dvc.yaml, or are checked names."""
    content = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    for stage, body in content["stages"].items():
        items = body.get("matrix", {})
        for values in items.values():
            assert values in ("${runs}", "${baselines}", "${critics}", "${comparisons}") or all(
                re.fullmatch(r"[a-z0-9_]+(-[a-z0-9_]+)*", value) for value in values
            ), stage
        rest = body["cmd"]
        for item in items:
            rest = rest.replace(f"${{item.{item}}}", "")
        assert re.fullmatch(r"python -m [a-z0-9_. ]+", rest), f"{stage}: {body['cmd']!r} is more than a module"


def test_files_are_short_enough_to_hold_one_idea() -> None:
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {file: lines for file, lines in lengths.items() if lines > 400} == {}


def test_public_functions_that_raise_document_it() -> None:
    """The commands of the CLI and the ``main`` of a module report errors to people, not to callers."""
    public = [
        (name(path), node)
        for path in SOURCES
        if path.name not in ("cli.py", "__main__.py")
        for owner in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(owner, (ast.Module, ast.ClassDef))
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name != "main"
    ]
    raising = [(file, node) for file, node in public if any(isinstance(n, ast.Raise) and n.exc for n in ast.walk(node))]
    assert len(raising) > 60
    assert [
        f"{file}: {node.name}"
        for file, node in raising
        if not re.search(r"\b[Rr]ais|[Rr]efus", ast.get_docstring(node) or "")
    ] == []


def test_the_picture_of_the_rooms_is_true() -> None:
    """In docs/architecture.md a room is above every room that it imports."""
    lines = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    floors = {
        each: int(found[1])
        for line in lines
        if (found := re.match(r"    (\d)  ((?:[a-z]+ +)+) ", line)) is not None
        for each in found[2].split()
    }
    assert floors.keys() == set(ROOMS)
    wrong = {
        (own, other)
        for path in SOURCES
        if (own := room(name(path))) in floors
        for file in project_imports(path)
        if (other := room(file)) in floors and other != own and floors[other] >= floors[own]
    }
    assert wrong == set()
