"""A Provenance Run Crate: an RO-Crate 1.1 whose root is the project folder.

Sources: RO-Crate 1.1 (https://w3id.org/ro/crate/1.1), the profiles Process, Workflow and Provenance Run Crate 0.5
(https://w3id.org/ro/wfrun), Workflow RO-Crate 1.0. DVC is the engine, dvc.yaml the workflow, a stage is a step with a
tool of its own.
"""

from __future__ import annotations

from typing import Any

from evidence.dvc import history
from evidence.dvc.pipeline import MAIN
from evidence.formats.artefacts import media_type
from evidence.formats.crate_entities import TERMS, Entities, Entity, is_data, refs
from evidence.formats.crate_names import action_id, control_id, data_id, named, step_id, tool_id, value_id
from evidence.formats.identifiers import LICENCE, NAMESPACE, PROJECT, licence_url, package_url, uri
from evidence.formats.lineage import Lineage, Run
from ground.io import digest_of

_CODEMETA = "https://codemeta.github.io/terms/"
_OWN_TERMS = (
    "ContainerImage",
    "ParameterConnection",
    "connection",
    "containerImage",
    "environment",
    "registry",
    "resourceUsage",
    "sha256",
    "sourceParameter",
    "tag",
    "targetParameter",
)
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
_WORKFLOW = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
_COMPLETED = "http://schema.org/CompletedActionStatus"
_README = "README.md"
_DVC = "https://dvc.org/"
_PYTHON, _PYTORCH = "https://www.python.org/", "https://pytorch.org/"
CONFIGURATION = "configuration"
"""The additionalType of files that configure the runs."""


def crate(lineage: Lineage, base: str = "") -> Entity:
    """The content of ``ro-crate-metadata.json`` for the project folder as a JSON value.

    ``base`` is the address under which the folder is published, with a ``/`` at its end. The profile recommends an
    absolute identifier of the workflow, which a folder on a disk cannot give.
    """
    return _Crate(lineage, base + MAIN.as_posix()).document()


class _Crate(Entities):
    def __init__(self, lineage: Lineage, workflow: str) -> None:
        super().__init__()
        self.lineage, self.workflow = lineage, workflow
        self.folders: list[str] = []

    def document(self) -> Entity:
        self._workflow()
        self._whole_run()
        for run in self.lineage.runs:
            self._run(run)
        self._data()
        self._root()
        for name, parameters in self.examples.items():
            self.entities[name]["exampleOfWork"] = refs(parameters)
        own = {"buildInstructions": f"{_CODEMETA}buildInstructions"} | {name: f"{TERMS}{name}" for name in _OWN_TERMS}
        context = ["https://w3id.org/ro/crate/1.1/context", own]
        return {"@context": context, "@graph": list(self.entities.values())}

    def _root(self) -> None:
        lineage, own = self.lineage, self.entities
        if (lineage.root / _README).is_file():
            text = media_type(_README)
            self.add(_README, "File", name=_README, encodingFormat=text, about=refs(["./"]))
        parts = [name for name, entity in own.items() if is_data(entity) and not self._is_part(name)]
        mentions = [name for name, entity in own.items() if entity["@type"] in ("CreateAction", "OrganizeAction")]
        for url, name in _PROFILES.items():
            self.add(url, "CreativeWork", name=name, version=url.rpartition("/")[2])
        self.add(licence_url(LICENCE), "CreativeWork", name=LICENCE, description=f"The licence {LICENCE}.")
        self.add(NAMESPACE, "Organization", name=PROJECT, url=NAMESPACE)
        about = f"what {lineage.target} was made from" if lineage.target else "a run of the pipeline"
        unrecorded = ", ".join(stage.name for stage in lineage.unrecorded)
        missing = f" Without a record here: {unrecorded}." if unrecorded else ""
        root: Entity = {
            "@id": "./",
            "@type": "Dataset",
            "conformsTo": refs(_PROFILES),
            "name": f"{PROJECT}: {lineage.target or 'all stages'}",
            "description": f"The provenance of {about}: {len(lineage.runs)} recorded stages.{missing}",
            "datePublished": lineage.end,
            "license": refs([licence_url(LICENCE)]),
            "author": refs([NAMESPACE]),
            "publisher": refs([NAMESPACE]),
            "mainEntity": refs([self.workflow]),
            "hasPart": refs(parts),
            "mentions": refs(mentions),
        }
        descriptor = {
            "@id": "ro-crate-metadata.json",
            "@type": "CreativeWork",
            "about": {"@id": "./"},
            "conformsTo": refs(["https://w3id.org/ro/crate/1.1", "https://w3id.org/workflowhub/workflow-ro-crate/1.0"]),
        }
        self.entities = {descriptor["@id"]: descriptor, "./": root} | self.entities

    def _is_part(self, name: str) -> bool:
        """Whether a folder of the crate names the file as its part."""
        return any(name.startswith(folder) and name != folder and name[-1] != "/" for folder in self.folders)

    def _workflow(self) -> None:
        """The workflow: its stages, what it reads from outside and what it leaves."""
        lineage, main = self.lineage, self.workflow
        file = lineage.root / MAIN
        newest = max(lineage.runs, key=lambda run: run.end)
        language = self.add(uri("language", "dvc"), "ComputerLanguage", name="DVC pipeline", url=_DVC)
        inputs = [
            *(self.formal("main/in", path, each) for path, each in lineage.external.items()),
            *dict.fromkeys(self.formal_value("main/param", key, value) for key, value in self._values()),
        ]
        outputs = [self.formal("main/out", path, each) for path, each in lineage.final.items()]
        links = [
            self.connection(f"{run.name}/out", path, "main/out", path)
            for run in lineage.runs
            for path in run.outputs
            if path in lineage.final
        ]
        self.add(
            main,
            ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            name="The pipeline",
            description="The stages, what they read and what they make.",
            encodingFormat=media_type(main),
            contentSize=str(file.stat().st_size) if file.is_file() else None,
            sdDatePublished=lineage.end,
            conformsTo=refs([self.add(_WORKFLOW, "CreativeWork", name="Bioschemas ComputationalWorkflow")]),
            programmingLanguage=refs([language]),
            url=uri("pipeline"),
            version=str(newest.content["git"]["commit"] or "not in a repository"),
            license=refs([licence_url(LICENCE)]),
            hasPart=refs(tool_id(run) for run in lineage.runs),
            step=refs(step_id(run) for run in lineage.runs),
            input=refs(inputs),
            output=refs(outputs),
            connection=refs(links),
            buildInstructions=refs(self.locks(newest)),
        )

    def _whole_run(self) -> None:
        """The run of the workflow, and DVC, which ran the stages."""
        lineage, runs = self.lineage, self.lineage.runs
        action = self.add(
            "#run",
            "CreateAction",
            name="A run of the pipeline",
            description=f"{len(runs)} recorded runs of stages; the first started when this one did.",
            instrument=refs([self.workflow]),
            agent=refs(dict.fromkeys(self.agent(run) for run in runs)),
            startTime=lineage.start,
            endTime=lineage.end,
            actionStatus=_COMPLETED,
            object=refs(
                [
                    *map(data_id, lineage.external.values()),
                    *dict.fromkeys(value_id(key, value) for key, value in self._values()),
                ]
            ),
            result=refs(map(data_id, lineage.final.values())),
            containerImage=refs(dict.fromkeys(image for run in runs if (image := self.image(run)))),
        )
        self.add(
            "#engine",
            "OrganizeAction",
            name="DVC ran the stages",
            instrument=refs(self._engine(run) for run in runs),
            object=refs(control_id(run) for run in runs),
            result=refs([action]),
            startTime=lineage.start,
            endTime=lineage.end,
            actionStatus=_COMPLETED,
        )

    def _run(self, run: Run) -> None:
        """A stage as a tool and a step, and its run."""
        self._tool(run)
        self.add(
            step_id(run),
            "HowToStep",
            name=run.name,
            position=str(self.lineage.runs.index(run)),
            workExample=refs([tool_id(run)]),
            connection=refs(self._links(run)),
            buildInstructions=refs(self.locks(run)),
        )
        self._action(run)
        self.add(
            control_id(run),
            "ControlAction",
            name=f"Step {run.name}",
            instrument=refs([step_id(run)]),
            object=refs([action_id(run)]),
            actionStatus=_COMPLETED,
        )

    def _tool(self, run: Run) -> None:
        name = run.name
        requirements = self._requirements(run)
        self.add(
            tool_id(run),
            "SoftwareApplication",
            name=f"{name}: {run.stage.cmd}",
            url=uri("stage", name),
            softwareVersion=digest_of({path: each.sha256 for path, each in run.rooms.items()}),
            description="The version is the digest of the code and the locked packages.",
            hasPart=refs(data_id(each) for each in run.rooms.values()),
            softwareRequirements=refs(requirements),
            mainEntity=refs(requirements[-1:]),
            input=refs(
                [
                    *(self.formal(f"{name}/in", path, each) for path, each in run.inputs.items()),
                    *(self.formal_value(f"{name}/param", key, value) for key, value in run.params.items()),
                ]
            ),
            output=refs(self.formal(f"{name}/out", path, each) for path, each in run.outputs.items()),
        )

    def _action(self, run: Run) -> None:
        configuration = self.add(
            "params.yaml",
            "File",
            name="params.yaml",
            description="The parameters of every stage; the values that a run read are among its objects.",
            additionalType=CONFIGURATION,
            encodingFormat=media_type("params.yaml"),
        )
        self.add(
            action_id(run),
            "CreateAction",
            name=f"Run of {run.name}",
            description=f"{run.stage.cmd}, recorded as {run.record.digest}",
            instrument=refs([tool_id(run)]),
            agent=refs([self.agent(run)]),
            startTime=run.start,
            endTime=run.end,
            actionStatus=_COMPLETED,
            object=refs(
                [
                    *map(data_id, run.inputs.values()),
                    *(value_id(key, value) for key, value in run.params.items()),
                    *([configuration] if run.params else []),
                ]
            ),
            result=refs(map(data_id, run.outputs.values())),
            resourceUsage=refs(self.usages(run)),
            environment=refs(self.variables(run)),
            containerImage=refs(filter(None, [self.image(run)])),
            subjectOf=refs(self._evidence(run)),
        )

    def _engine(self, run: Run) -> str:
        version = run.packages.get("dvc", "unknown")
        text = "The engine that decides which stages have to run."
        return self.software(package_url("dvc", version), "DVC", _DVC, version, description=text)

    def _requirements(self, run: Run) -> list[str]:
        """Python, then PyTorch if the run had loaded it, in the versions of the run."""
        python = str(run.content["environment"].get("python", "unknown"))
        found = [self.software(package_url("python", python, "generic"), "Python", _PYTHON, python)]
        if run.content["environment"].get("torch"):
            version = run.packages.get("torch", "unknown")
            found.append(self.software(package_url("torch", version), "PyTorch", _PYTORCH, version))
        return found

    def _data(self) -> None:
        for artefact in [*self.lineage.artefacts.values(), *self.lineage.code.values()]:
            source = self.lineage.source_of(artefact.path)
            if artefact.is_folder:
                self.folders.append(data_id(artefact))
                self.add(
                    data_id(artefact),
                    "Dataset",
                    name=artefact.path,
                    description=f"{len(artefact.files)} files of {artefact.size} bytes; version: sha256 of their list.",
                    version=artefact.sha256,
                    hasPart=refs(map(data_id, artefact.leaves())),
                    **(self.terms_of(*source) if source else {}),
                )
            for file in artefact.leaves():
                self.file(file, name=file.path)

    def _evidence(self, run: Run) -> list[str]:
        """The record and its signed statement as files."""
        record = self.file(run.file, name=f"Record of {run.name}", about=refs([action_id(run)]))
        if run.statement is None:
            return [record]
        text = f"An in-toto statement in a DSSE envelope, by {', '.join(run.key_ids)}."
        about = refs([action_id(run)])
        return [record, self.file(run.statement, name=f"Statement about {run.name}", about=about, description=text)]

    def _links(self, run: Run) -> list[str]:
        """The connections of the run's inputs and parameters with the workflow and the runs before it."""
        found = []
        for path in run.inputs:
            if path in self.lineage.external:
                found.append(self.connection("main/in", path, f"{run.name}/in", path))
            for maker in self.lineage.makers(path):
                outs = [out for out in maker.outputs if history.overlap(out, path)]
                found += [self.connection(f"{maker.name}/out", out, f"{run.name}/in", path) for out in outs]
        values = run.params.items()
        found += [
            self.connection("main/param", named(key, value), f"{run.name}/param", named(key, value))
            for key, value in values
        ]
        return found

    def _values(self) -> list[tuple[str, Any]]:
        return [(key, value) for run in self.lineage.runs for key, value in run.params.items()]
