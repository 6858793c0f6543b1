"""Count the shape of the code: lines by wing, imports, circles, what a command loads, pages.

Run     python -m docs.tools.shape            counts this folder
        python -m docs.tools.shape FOLDER     counts another checkout, such as a worktree of an older commit

Product is every tracked Python file outside of tests/, examples/ and docs/. Lines include docstrings and blank lines;
code lines do not include them, nor comments.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

_NO_PRODUCT = re.compile(r"(tests|examples|docs)/")
_LOCK = re.compile(r"dvc\.lock")
_KINDS = "COMMENT NL NEWLINE INDENT DEDENT ENCODING ENDMARKER"
_NO_CODE = {getattr(tokenize, kind) for kind in _KINDS.split()}
_MODEL = "pathfinder/demo_model"
_SCORE = """
import functools, json, os, runpy, sys, threading
from pathlib import Path
import tokenizers, torch  # else every call of their imports is looked at, for a minute
root, model, tops, way = os.getcwd(), Path({model!r}).resolve(), {tops!r}, []

def is_model(value):
    folder = value if isinstance(value, (str, Path)) else getattr(value, "folder", None)
    if not isinstance(folder, (str, Path)) or "demo_model" not in str(folder)[-200:]:
        return False
    path = Path(os.path.abspath(folder))
    return path == model or model in path.parents

@functools.cache
def file_of(code):
    path = os.path.relpath(code.co_filename, root)
    return path if path.partition("/")[0] in tops else None

def called(frame, event, _):
    if event == "call" and (file := file_of(frame.f_code)) and any(map(is_model, [*frame.f_locals.values()])):
        caller = frame.f_back
        while caller is not None and file_of(caller.f_code) is None:
            caller = caller.f_back
        way.append([file_of(caller.f_code) if caller else None, file])

sys.argv = ["pathfinder", "score", "-", "--model", {model!r}]
threading.setprofile(called)
sys.setprofile(called)
try:
    runpy.run_module("pathfinder", run_name="__main__")
except SystemExit:
    pass
sys.setprofile(None)
names = sorted(name for name in sys.modules if name.partition(".")[0] in tops)
print(json.dumps([names, way]), file=sys.stderr)
"""
"""Runs ``pathfinder score`` and prints which of our modules it loaded, and each call that got the model: two files."""
_SOLUTION = '{"problem": "Eve has 7 apples.", "steps": ["1) finds 6, so 7 + 6 = 13 apples."]}\n'


def main(argv: Sequence[str] | None = None) -> None:
    """Print the counts as a table of two columns."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.shape", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="the checkout (default: this folder)")
    root = parser.parse_args(argv).folder
    for name, value in shape(root):
        print(f"{name:58} {value}")


def shape(root: Path) -> Iterator[tuple[str, str]]:
    """Every count of the checkout in ``root``, with its name."""
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    python = {path: (root / path).read_text(encoding="utf-8") for path in tracked if path.endswith(".py")}
    product = {path: text for path, text in python.items() if not _NO_PRODUCT.match(path)}
    yield from _sizes(product)
    yield from _graph(product)
    loaded, way = score_way(root, {path.partition("/")[0] for path in product})
    lines = sum(_lines(product[path]) for path in loaded if path in product)
    yield "own modules that `pathfinder score` loads; their lines", f"{len(loaded)}; {lines:,}"
    passed = {(caller, callee) for caller, callee in way if caller != callee}
    back = sum((callee, caller) in passed for caller, callee in passed) // 2
    yield "files that get its model; arrows among them; both ways", f"{len({f for _, f in way})}; {len(passed)}; {back}"
    tests = [text for path, text in python.items() if path.startswith("tests/")]
    yield "tests: lines; functions", f"{sum(map(_lines, tests)):,}; {len(re.findall(r'def test_', ''.join(tests))):,}"
    pages = [path for path in tracked if re.fullmatch(r"docs/.*\.md", path)]
    words = sum(len((root / path).read_text(encoding="utf-8").split()) for path in pages)
    yield "docs: pages; words", f"{len(pages)}; {words:,}"
    top = [path for path in pages if path.count("/") == 1]
    words = sum(len((root / path).read_text(encoding="utf-8").split()) for path in top)
    yield "docs without folders: pages; words", f"{len(top)}; {words:,}"


def _sizes(product: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    lines = {path: _lines(text) for path, text in product.items()}
    yield (
        "product: files; lines; code lines",
        (f"{len(product)}; {sum(lines.values()):,}; {sum(map(_code_lines, product.values())):,}"),
    )
    wings = Counter[str]()
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for path, count in lines.items():
        wing, *rest = path.split("/")
        wings[wing] += count
        rooms[wing][rest[0] if len(rest) > 1 else "(files)"] += count
    for wing, count in wings.items():
        yield f"  {wing}/", f"{count:,}"
        if len(rooms[wing]) > 1:
            for room, inner in sorted(rooms[wing].items()):
                yield f"    {room}", f"{inner:,}"
    yield (
        "median file; longest file; files over 400 lines",
        (f"{median(lines.values()):.0f}; {max(lines.values())}; {sum(count > 400 for count in lines.values())}"),
    )
    yield (
        "files under 30 lines; under 40",
        (f"{sum(count < 30 for count in lines.values())}; {sum(count < 40 for count in lines.values())}"),
    )
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for text in product.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    yield (
        "functions; median; over 40 lines",
        (f"{len(functions):,}; {median(functions):.0f}; {sum(size > 40 for size in functions)}"),
    )
    yield "modules that name dvc.lock", str(sum(bool(_LOCK.search(text)) for text in product.values()))


def _graph(product: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    imports = {path: set(_imports(path, text, product)) - {path} for path, text in product.items()}
    stages = {path for path in product if path.startswith("stages/")}
    reached, waiting = set(stages), [*stages]
    while waiting:
        for path in imports[waiting.pop()] - reached:
            reached.add(path)
            waiting.append(path)
    behind = sum(_lines(text) for path, text in product.items() if path in reached)
    total = sum(map(_lines, product.values()))
    yield "lines that stages reach; that no stage reaches", f"{behind:,}; {total - behind:,}"
    by_one = [path for path in product if sum(path in others for others in imports.values()) == 1]
    yield "modules that one module imports", str(len([path for path in by_one if not path.endswith("__init__.py")]))
    rooms: dict[str, set[str]] = defaultdict(set)
    for path, others in imports.items():
        rooms[_room(path)] |= {_room(other) for other in others} - {_room(path)}
    yield "circles among modules; among rooms", f"{_circles(imports)}; {_circles(rooms)}"


def _circles(graph: Mapping[str, set[str]]) -> int:
    """How many arrows must be removed, one at a time, until no circle is left."""
    left, count = {node: set(others) for node, others in graph.items()}, 0
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            one, other = error.args[1][:2]  # ``other`` imports ``one``
            left[other].discard(one)
            count += 1
        else:
            return count


def _room(path: str) -> str:
    """The folder of a file."""
    return path.rpartition("/")[0]


def _imports(path: str, text: str, product: Mapping[str, str]) -> Iterator[str]:
    """The files of the product that a file imports."""
    package = path.split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for stem in (name.replace(".", "/") for name in names):
            yield from (file for file in (f"{stem}.py", f"{stem}/__init__.py") if file in product)


def score_way(root: Path, tops: set[str]) -> tuple[list[str], list[tuple[str | None, str]]]:
    """The files of our modules that ``pathfinder score`` loads, and the calls that get the model: (caller, callee).

    A call gets the model if an argument is its folder or a file in it, or has an attribute ``folder`` that is.
    """
    if not (root / _MODEL).exists():
        return [], []
    code = _SCORE.format(tops=tops, model=_MODEL)
    done = subprocess.run([sys.executable, "-c", code], cwd=root, input=_SOLUTION, capture_output=True, text=True)
    names, way = json.loads(done.stderr.splitlines()[-1])
    stems = [name.replace(".", "/") for name in names]
    files = [next((f for f in (f"{s}.py", f"{s}/__init__.py") if (root / f).exists()), s) for s in stems]
    return files, [(caller, callee) for caller, callee in way]


def _lines(text: str) -> int:
    return len(text.splitlines())


def _code_lines(text: str) -> int:
    """Lines with code: neither blank, nor only a comment, nor in a docstring."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


if __name__ == "__main__":
    main()
