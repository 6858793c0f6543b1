"""The Croissant description of the training set (version 1.1, with Responsible AI terms), as plain JSON-LD.

Source: the Croissant format specification 1.1 and the Croissant RAI specification 1.0 (MLCommons).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathfinder.core.io import sha256_file
from pathfinder.data.export import NEUTRAL, STEPWISE

_TERMS = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty fileSet format "
    "includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS.split()},
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
        "Steps that people rated good or neutral take their labels from the rating; a language model judges the other "
        "steps for mathematics, consistency and optimality. A step is correct if all three labels are 1.",
    ],
    "rai:machineAnnotationTools": ["A language model as judge, named in the run's manifest of downloads"],
    "rai:dataBiases": ["Labels of steps that no person rated as good contain the errors of the judge."],
    "rai:dataLimitations": [
        "English mathematics with short answers. The data may contain problems and steps of public benchmarks; "
        "metrics/build.json of the run counts them.",
    ],
    "rai:dataUseCases": ["Training and testing process reward models. Not for ranking people's work."],
    "rai:personalSensitiveInformation": ["None is collected; names in story problems are invented."],
    "rai:dataReleaseMaintenancePlan": "The pipeline rebuilds the data from their sources; every file has a sha256.",
}


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
    files = sorted(folder.rglob("*.parquet"))
    names = {path: "-".join(path.relative_to(folder).with_suffix("").parts) for path in files}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": name,
        "description": f"Training data of a process reward model for mathematics. {STEPWISE.text}",
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
        "recordSet": [_record_set(names[path], path.stem) for path in files if path.parent.name == "trl"],
    }


def _record_set(file: str, split: str) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "description": f"Stepwise rows of the {split} split.",
        "field": [
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
        ],
    }
