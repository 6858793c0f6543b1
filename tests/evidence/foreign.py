"""Projects that are not ours: the shape of DVC's example-get-started, and a pipeline of shell and awk.

Run     python -m tests.evidence.foreign     in such a project: plant every tampering in a copy, print what check says
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import warm
from tests.support.miniature import GIT, ROOT

WRAPPER = "python -m evidence record --"
_DATA = "".join(f'<row Id="{n}" Title="question {n}" Tags="{"r" if n % 3 else "python"}" />\n' for n in range(40))
_SCRIPT = """
import json, random, sys
from pathlib import Path
import yaml
params = yaml.safe_load(Path("params.yaml").read_text())
"""
EXAMPLE = {
    "dvc.yaml": f"""
stages:
  prepare:
    cmd: {WRAPPER} python src/prepare.py data/data.xml
    deps: [data/data.xml, src/prepare.py]
    params: [prepare.seed, prepare.split]
    outs: [data/prepared]
  featurize:
    cmd: {WRAPPER} python src/featurization.py data/prepared data/features
    deps: [data/prepared, src/featurization.py]
    params: [featurize.max_features, featurize.ngrams]
    outs: [data/features]
  train:
    cmd: {WRAPPER} python src/train.py data/features model.pkl
    deps: [data/features, src/train.py]
    params: [train.min_split, train.n_est, train.seed]
    outs: [model.pkl]
  evaluate:
    cmd: {WRAPPER} python src/evaluate.py model.pkl data/features
    deps: [data/features, model.pkl, src/evaluate.py]
    outs: [eval]
metrics: [eval/metrics.json]
""",
    "params.yaml": """
prepare:
  split: 0.25
  seed: 20170428
featurize:
  max_features: 200
  ngrams: 2
train:
  seed: 20170429
  n_est: 50
  min_split: 0.01
""",
    "data/data.xml": _DATA,
    "src/prepare.py": _SCRIPT
    + """
rows, split = Path(sys.argv[1]).read_text().splitlines(), params["prepare"]["split"]
random.Random(params["prepare"]["seed"]).shuffle(rows)
Path("data/prepared").mkdir(parents=True)
cut = int(len(rows) * split)
Path("data/prepared/test.tsv").write_text("\\n".join(rows[:cut]))
Path("data/prepared/train.tsv").write_text("\\n".join(rows[cut:]))
""",
    "src/featurization.py": _SCRIPT
    + """
Path(sys.argv[2]).mkdir()
for name in ("train", "test"):
    rows = Path(sys.argv[1], f"{name}.tsv").read_text().splitlines()
    features = [[len(row), row.count("r"), int('"r"' in row)] for row in rows]
    Path(sys.argv[2], f"{name}.json").write_text(json.dumps(features[: params["featurize"]["max_features"]]))
""",
    "src/train.py": _SCRIPT
    + """
rows = json.loads(Path(sys.argv[1], "train.json").read_text())
Path(sys.argv[2]).write_text(json.dumps(sum(row[2] for row in rows) / len(rows) + params["train"]["min_split"]))
""",
    "src/evaluate.py": """
import json, sys
from pathlib import Path
Path("eval").mkdir()
rows = json.loads(Path(sys.argv[2], "test.json").read_text())
share = sum(row[2] for row in rows) / len(rows)
Path("eval/metrics.json").write_text(json.dumps({"gap": abs(share - json.loads(Path(sys.argv[1]).read_text()))}))
""",
    ".gitignore": "/eval\n",
}
"""The stages, parameters and outs of https://github.com/iterative/example-get-started, with small data and scripts."""
SHELL = {
    "dvc.yaml": f"""
stages:
  count:
    cmd: {WRAPPER} sh src/count.sh 'two words' words
    deps: [data/text.txt, src/count.sh]
    outs: [words]
  top:
    cmd: {WRAPPER} awk -f src/top.awk words/counts.txt
    deps: [src/top.awk, words]
    outs: [top.txt]
""",
    "data/text.txt": "one two two\nthree three three\n",
    "src/count.sh": 'set -e\nmkdir "$2"\necho "$1" > "$2/title.txt"\n'
    'tr " " "\\n" < data/text.txt | sort | uniq -c > "$2/counts.txt"\n',
    "src/top.awk": '$1 > most { most = $1; word = $2 }\nEND { print word > "top.txt" }\n',
}
"""Two stages without Python."""


def run_in(project: Path, *command: str) -> str:
    """The output of a command in the project, with a key of the project's own; a failure shows what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PATHFINDER_")} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "DVC_NO_ANALYTICS": "1",
        "EVIDENCE_SIGNING_KEY": str(project.parent / "keys/signing.pem"),
    }
    python = {"python": [sys.executable], "dvc": [sys.executable, "-m", "dvc"]}.get(command[0], [command[0]])
    done = warm.run([*python, *command[1:]], cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def write_project(project: Path, files: dict[str, str]) -> None:
    """Write the project, run its pipeline, push the outs to a remote that is a folder, and publish the evidence."""
    data = next(name for name in files if name.startswith("data/"))
    # The file keeps the settings of this repository, where the package is not installed, away from the project.
    for name, text in (files | {"evidence.toml": "# This project needs no settings.\n"}).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    with (project / ".gitignore").open("a") as ignored:
        ignored.write("/storage\n/.evidence\n")
    run_in(project, "git", "init", "-q")
    run_in(project, "dvc", "init", "-q")
    run_in(project, "dvc", "add", "-q", data)
    run_in(project, "dvc", "remote", "add", "-d", "-q", "storage", "storage")
    commit(project)
    run_in(project, "dvc", "repro", "-q")
    run_in(project, "dvc", "push", "-q", "--run-cache")
    commit(project)
    run_in(project, "python", "-m", "evidence", "publish")


def commit(project: Path) -> None:
    """Commit everything."""
    for words in (["add", "-A"], ["commit", "-qm", "run"]):
        run_in(project, *GIT, *words)


def main() -> None:
    """Print a JSON list: the name of each tampering, what a finding must say, and the findings."""
    from evidence.verbs.check import check
    from ground.io import DataError
    from tests.evidence.tampering.anywhere import tamperings

    project, found = Path.cwd(), []
    for name, tamper in tamperings(project):
        with tempfile.TemporaryDirectory(dir=project.parent) as folder:
            copy = Path(folder) / "project"
            subprocess.run(["cp", "-r", "--reflink=auto", str(project), str(copy)], check=True)
            expected = tamper(copy)
            try:
                findings = [str(finding) for finding in check(None, copy).findings]
            except DataError as error:
                findings = [f"error: {error}"]
            found.append([name, expected, findings])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
