"""The training set's Croissant description (version 1.1, with terms of Responsible AI), as plain JSON-LD.

Source: the Croissant format specification 1.1 and the Croissant RAI specification 1.0 (MLCommons).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathfinder.core.io import sha256_file
from pathfinder.data.export import NEUTRAL, STEPWISE_CARD

_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_RAI: dict[str, Any] = {
    "rai:dataCollection": "Rated steps of solutions to mathematical problems, from the sources that the licences name.",
    "rai:dataCollectionType": ["Secondary data analysis", "Software collection"],
    "rai:dataPreprocessingProtocol": [
        "Steps whose rating and labels contradict each other are left out.",
        "Training and test problems are disjoint, near duplicates included.",
        NEUTRAL,
    ],
    "rai:dataAnnotationProtocol": [
        "Steps that people rated good or neutral take their labels from the rating; other steps are judged by a "
        "language model for mathematics, consistency and optimality. A step is right where all three are.",
    ],
    "rai:machineAnnotationTools": ["A language model as judge, named in the run's manifest of downloads"],
    "rai:dataBiases": ["Labels of steps that no person rated as good carry the judge's own errors."],
    "rai:dataLimitations": [
        "English mathematics with short answers. Problems and steps of public benchmarks may be among the data; "
        "metrics/build.json of the run counts them.",
    ],
    "rai:dataUseCases": ["Training and testing process reward models. Not for ranking people's work."],
    "rai:personalSensitiveInformation": ["None is collected; names in story problems are invented."],
    "rai:dataReleaseMaintenancePlan": "Made again from its sources by the pipeline; every file is known by its sha256.",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a file: its name, schema.org type, what it says, and whether each row has a list."""

    name: str
    kind: str
    says: str
    is_list: bool = False


STEPWISE_COLUMNS = (
    Column("prompt", "sc:Text", "The problem."),
    Column("completions", "sc:Text", "The steps of a solution.", is_list=True),
    Column("labels", "sc:Boolean", "For each step: is it right?", is_list=True),
)


def describe(folder: Path, name: str, licences: Sequence[str]) -> dict[str, Any]:
    """The description of ``folder``'s Parquet files; what can be loaded as records are the stepwise rows.

    Paths are relative to ``folder``, where the description is to stand. No date is given: equal data give equal bytes.
    """
    files = sorted(path for path in folder.rglob("*.parquet"))
    names = {path: "-".join(path.relative_to(folder).with_suffix("").parts) for path in files}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": name,
        "description": f"Training data of a process reward model for mathematics. {STEPWISE_CARD}",
        "license": list(licences),
        "version": "1.0.0",
        "inLanguage": ["en"],
        "keywords": ["process reward model", "mathematics", "error typing"],
        **_RAI,
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
        "recordSet": [
            _record_set(names[path], split, STEPWISE_COLUMNS)
            for path in files
            if path.parent.name == "trl"
            for split in [path.stem]
        ],
    }


def _record_set(file: str, split: str, columns: Sequence[Column]) -> dict[str, Any]:
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{split}/{column.name}",
            "name": column.name,
            "description": column.says,
            "dataType": column.kind,
            "source": {"fileObject": {"@id": file}, "extract": {"column": column.name}},
            **({"isArray": True, "arrayShape": "-1"} if column.is_list else {}),
        }
        for column in columns
    ]
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "description": f"Stepwise rows of the {split} split.",
        "field": fields,
    }
