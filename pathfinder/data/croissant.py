"""The Croissant description of the training set (version 1.1, with Responsible AI terms), as plain JSON-LD.

Source: the Croissant format specification 1.1 and the Croissant RAI specification 1.0 (MLCommons). ``croissant.json``
has the properties that do not depend on the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ground.io import read_json, sha256_file
from pathfinder.data.export import NEUTRAL, STEPWISE

_FIXED = Path(__file__).with_suffix(".json")
# Columns of the stepwise rows: name, schema.org type, description, whether each row has a list.
_COLUMNS = (
    ("prompt", "sc:Text", "The problem.", False),
    ("completions", "sc:Text", "The steps of a solution.", True),
    ("labels", "sc:Boolean", "For each step: is it correct?", True),
)


def describe(folder: Path, name: str, licences: Sequence[str]) -> dict[str, Any]:
    """The description of the Parquet files in ``folder``, with the stepwise rows as record sets.

    Paths are relative to ``folder``. There is no date: equal data give equal bytes.
    """
    described: dict[str, Any] = read_json(_FIXED)
    described["rai:dataPreprocessingProtocol"].append(NEUTRAL)
    files = sorted(folder.rglob("*.parquet"))
    names = {path: "-".join(path.relative_to(folder).with_suffix("").parts) for path in files}
    return described | {
        "name": name,
        "description": f"Training data of a process reward model for mathematics. {STEPWISE.text}",
        "license": list(licences),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": names[path],
                "name": names[path],
                "description": f"Rows of {path.relative_to(folder).as_posix()}.",
                "contentUrl": path.relative_to(folder).as_posix(),
                "contentSize": f"{path.stat().st_size} B",
                "encodingFormat": "application/x-parquet",
                "sha256": sha256_file(path),
            }
            for path in files
        ],
        "recordSet": [_record_set(names[path], path.stem) for path in files if path.parent.name == "trl"],
    }


def _record_set(file: str, split: str) -> dict[str, Any]:
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{split}/{name}",
            "name": name,
            "description": description,
            "dataType": kind,
            "source": {"fileObject": {"@id": file}, "extract": {"column": name}},
            **({"isArray": True, "arrayShape": "-1"} if is_list else {}),
        }
        for name, kind, description, is_list in _COLUMNS
    ]
    description = f"Stepwise rows of the {split} split."
    return {"@type": "cr:RecordSet", "@id": split, "name": split, "description": description, "field": fields}
