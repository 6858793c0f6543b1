"""A page for the documentation of a model: the parts that the records know, and a mark at each part that they do not.

The headings are the points of Annex IV of Regulation (EU) 2024/1689 (AI Act), "Technical documentation".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evidence.dvc.history import overlap
from evidence.formats.artefacts import LICENCE, TITLE
from evidence.formats.descriptions import cell
from evidence.formats.lineage import Lineage, read_lineage, text_of
from evidence.settings import SETTINGS
from ground.show import counted

MISSING = "**To be written.** The evidence does not say: "
POINTS: tuple[tuple[str, str], ...] = (
    ("1", "General description"),
    ("2(a)", "Methods and steps of the development"),
    ("2(b)", "Design specifications"),
    ("2(c)", "Architecture and computational resources"),
    ("2(d)", "Data and their provenance"),
    ("2(e)", "Human oversight"),
    ("2(f)", "Pre-determined changes"),
    ("2(g)", "Validation and testing"),
    ("2(h)", "Cybersecurity"),
    ("3", "Monitoring, functioning and control"),
    ("4", "Appropriateness of the metrics"),
    ("5", "Risk management"),
    ("6", "Changes through the lifecycle"),
    ("7", "Standards"),
    ("8", "Declaration of conformity"),
    ("9", "Monitoring after the system is on the market"),
)
"""The points of Annex IV with short titles."""
_UNKNOWN = {
    "1": "the intended purpose, the provider, the forms of the system, its users and its instructions for use.",
    "2(b)": "the rationale, the assumptions and the choices of the design.",
    "2(c)": "how the parts work together; the card or the paper of the model describes the architecture.",
    "2(d)": "how people selected, collected and labelled the sources, whom they represent, and their gaps.",
    "2(e)": "how people oversee the system (Article 14).",
    "2(f)": "which changes are planned.",
    "2(g)": "whether the metrics and the test data fit the purpose, and potentially discriminatory impacts.",
    "2(h)": "the measures that protect the system in use.",
    "3": "the capabilities and limitations in use, and foreseeable unintended outcomes.",
    "4": "why these metrics fit.",
    "5": "the risk management system (Article 9).",
    "6": "the reasons for the changes.",
    "7": "the harmonised standards that were applied.",
    "8": "the declaration (Article 47).",
    "9": "the plan (Article 72).",
}


def documentation(lineage: Lineage) -> str:
    """The page as Markdown; equal records give equal bytes."""
    known = _known(lineage)
    parts = []
    for point, title in POINTS:
        text = [known[point]] if point in known else []
        text += [f"{MISSING}{_UNKNOWN[point]}"] if point in _UNKNOWN else []
        parts.append(f"## {point} {title}\n\n" + "\n\n".join(text))
    return "\n\n".join([_head(lineage, known), *parts]) + "\n"


def _head(lineage: Lineage, known: dict[str, str]) -> str:
    return (
        f"# Technical documentation of {lineage.target or TITLE}\n\n"
        f"Made from the records of {counted(len(lineage.runs), 'run')}; digest of this history: {lineage.digest}. "
        "The headings are the points of Annex IV of Regulation (EU) 2024/1689. "
        f"The evidence fills {len(known)} of {len(POINTS)} points, some of them in part. "
        "The page does not say that the system meets the regulation. "
        f"Run `{SETTINGS.command} check` first: the page reads no file again."
    )


def _known(lineage: Lineage) -> dict[str, str]:
    """The text that the records give, by the point of the annex."""
    last = max(lineage.runs, key=lambda run: run.end)
    commits = list(dict.fromkeys(str(run.content["git"]["commit"]) for run in lineage.runs))
    found = {
        "1": _list(
            f"Project: {TITLE}, licence of the code {LICENCE}.",
            f"Version: commit {commits[-1]}, runs from {lineage.start} to {lineage.end}.",
            f"Software: Python {last.content['environment'].get('python')}, {counted(len(last.packages), 'package')}; "
            f"`{SETTINGS.command} export --format cyclonedx` lists them.",
            f"Hardware of the runs: {'; '.join(dict.fromkeys(_machine(run.content) for run in lineage.runs))}.",
        ),
        "2(a)": _table(
            ("stage", "command", "ended", "seconds", "record"),
            ((r.name, r.stage.cmd, r.end, r.content["times"]["seconds"], r.record.digest[:16]) for r in lineage.runs),
        ),
        "2(c)": _resources(lineage),
        "2(d)": _data(lineage),
        "2(g)": "Each file with figures, as its run wrote it:\n\n" + _files(lineage),
        "2(h)": _signed(lineage),
        "6": f"The runs belong to {counted(len(commits), 'commit')}: {', '.join(commits)}. "
        f"`{SETTINGS.command} diff` lists what changed between two of them.",
    }
    return {point: text for point, text in found.items() if text}


def _machine(record: dict[str, Any]) -> str:
    where = record["environment"]
    gpus = ", ".join(map(str, (where.get("cuda") or {}).get("devices", [])))
    return f"{where.get('cpu') or 'unknown processor'}, {where.get('cpus_usable', '?')} CPUs, {gpus or 'no GPU'}"


def _resources(lineage: Lineage) -> str:
    times = [run.content["times"] for run in lineage.runs]
    makers = lineage.makers(lineage.target.partition("#")[0]) if lineage.target else []
    params = [(f"{run.name}: {key}", text_of(value)) for run in makers for key, value in sorted(run.params.items())]
    total = f"{sum(time['seconds'] for time in times):,.0f} s of all runs"
    peak = f"at most {max(time['peak_rss_bytes'] for time in times) / 2**20:,.0f} MiB of memory in one process"
    return f"{total}, {peak}." + ("\n\n" + _table(("parameter", "value"), params) if params else "")


def _data(lineage: Lineage) -> str:
    """The sources, with sources of benchmarks; without a manifest of sources, the files that no run made."""
    rows = [
        (name, source["location"], source.get("revision"), source["licence"], file, entry["bytes"], entry["sha256"])
        for name, source in lineage.sources.items()
        for file, entry in sorted(source["files"].items())
    ]
    if rows:
        return _table(("source", "origin", "revision", "licence", "file", "bytes", "sha256"), rows)
    files = [file for each in lineage.external.values() for file in each.leaves()]
    return _table(("file", "bytes", "sha256"), ((file.path, file.size, file.sha256) for file in files))


def _files(lineage: Lineage) -> str:
    """The files with figures of the runs behind the target and of the runs that read it."""
    target, whole = lineage.target, read_lineage(lineage.root) if lineage.target else lineage
    users = [
        run for run in whole.runs if target and any(overlap(path, target.partition("#")[0]) for path in run.inputs)
    ]
    runs = {run.name: run for run in [*lineage.runs, *users]}.values()
    made = [file for run in runs for out in run.outputs.values() for file in out.leaves()]
    figures = [file for file in made if file.path.endswith(".json") and file.path.startswith(SETTINGS.metrics)]
    return _table(("file", "sha256"), ((file.path, file.sha256) for file in figures))


def _signed(lineage: Lineage) -> str:
    signed = [run for run in lineage.runs if run.statement]
    keys = sorted({key for run in signed for key in run.key_ids})
    return (
        f"{len(signed)} of {counted(len(lineage.runs), 'record')} have a signed statement, by "
        f"{', '.join(f'key {key[:16]}' for key in keys) or 'no key'}. `{SETTINGS.command} check` verifies every byte."
    )


def _list(*lines: str) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [[cell(str("–" if value is None else value)) for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(head), ["---"] * len(head), *cells])
