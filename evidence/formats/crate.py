"""A Provenance Run Crate: an RO-Crate 1.1 whose root is the project folder.

Sources: RO-Crate 1.1 (https://w3id.org/ro/crate/1.1), the profiles Process, Workflow and Provenance Run Crate 0.5
(https://w3id.org/ro/wfrun), Workflow RO-Crate 1.0. DVC is the engine, dvc.yaml the workflow, and each stage a step with
its own tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evidence.dvc import history
from evidence.dvc.pipeline import MAIN
from evidence.formats.artefacts import LICENCE, NAMESPACE, TITLE, licence_url, media_type, package_url, uri
from evidence.formats.crate_entities import TERMS, Entities, Entity, data_id, local, named, refs, value_id
from evidence.formats.lineage import Lineage, Run
from ground.io import digest_of

_CODEMETA = "https://codemeta.github.io/terms/"
_OWN_TERMS = (  # of the namespace TERMS
    "ContainerImage ParameterConnection connection containerImage environment registry resourceUsage sha256 "
    "sourceParameter tag targetParameter"
)
_CRATE, _WORKFLOW_CRATE = "https://w3id.org/ro/crate/1.1", "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    _WORKFLOW_CRATE: "Workflow RO-Crate",
}
_WORKFLOW = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
_COMPLETED = {"actionStatus": "http://schema.org/CompletedActionStatus"}
_README = "README.md"
_DVC, _PYTHON, _PYTORCH = "https://dvc.org/", "https://www.python.org/", "https://pytorch.org/"


def crate(lineage: Lineage, base: str = "") -> Entity:
    """The content of ``ro-crate-metadata.json`` for the project folder as a JSON value.

    ``base`` is the address under which the folder is published. The profile recommends an
    absolute identifier of the workflow, which a folder on a disk cannot give.
    """
    return _Crate(lineage, f"{base.rstrip('/')}/{MAIN.as_posix()}" if base else MAIN.as_posix()).document()


class _Crate(Entities):
    def __init__(self, lineage: Lineage, workflow: str) -> None:
        super().__init__()
        self.lineage, self.workflow = lineage, workflow

    def document(self) -> Entity:
        self._workflow()
        self._whole_run()
        for run in self.lineage.runs:
            self._run(run)
        folders = self._data()
        self._root(folders)
        for name, parameters in self.examples.items():
            self.entities[name]["exampleOfWork"] = refs(parameters)
        own = {"buildInstructions": f"{_CODEMETA}buildInstructions"} | {
            name: f"{TERMS}{name}" for name in _OWN_TERMS.split()
        }
        *others, descriptor, root = self.entities.values()
        return {"@context": [f"{_CRATE}/context", own], "@graph": [descriptor, root, *others]}

    def _root(self, folders: tuple[str, ...]) -> None:
        """The descriptor of the crate and its root, which names everything that no folder of the crate contains."""
        lineage = self.lineage
        if (lineage.root / _README).is_file():
            self.add(_README, "File", name=_README, encodingFormat=media_type(_README), about="./")
        kinds = {name: entity["@type"] for name, entity in self.entities.items()}
        parts = [n for n, k in kinds.items() if k == "Dataset" or ("File" in k and not n.startswith(folders))]
        for url, name in _PROFILES.items():
            self.note(url, name, version=url.rpartition("/")[2])
        licence = self.licence(LICENCE)
        self.add(NAMESPACE, "Organization", name=TITLE, url=NAMESPACE)
        about = f"what {lineage.target} was made from" if lineage.target else "a run of the pipeline"
        unrecorded = ", ".join(stage.name for stage in lineage.unrecorded)
        missing = f" Without a record here: {unrecorded}." if unrecorded else ""
        self.add("ro-crate-metadata.json", "CreativeWork", about="./", conformsTo=[_CRATE, _WORKFLOW_CRATE])
        self.add(
            "./",
            "Dataset",
            conformsTo=_PROFILES,
            name=f"{TITLE}: {lineage.target or 'all stages'}",
            description=f"The provenance of {about}: {len(lineage.runs)} recorded stages.{missing}",
            datePublished=lineage.end,
            license=licence,
            author=NAMESPACE,
            publisher=NAMESPACE,
            mainEntity=self.workflow,
            hasPart=parts,
            mentions=["#run", "#engine", *(local("run", run.name) for run in lineage.runs)],
        )

    def _workflow(self) -> None:
        """The workflow: its stages, its inputs from outside and its outputs."""
        lineage, runs, file = self.lineage, self.lineage.runs, self.lineage.root / MAIN
        newest = max(runs, key=lambda run: run.end)
        language = self.add(uri("language", "dvc"), "ComputerLanguage", name="DVC pipeline", url=_DVC)
        inputs = [self.formal("main/in", path, each) for path, each in lineage.external.items()]
        inputs += [self.formal_value("main/param", key, value) for key, value in self._values()]
        outputs = [self.formal("main/out", path, each) for path, each in lineage.final.items()]
        made = [(run, path) for run in runs for path in run.outputs if path in lineage.final]
        links = [self.connection(f"{run.name}/out", path, "main/out", path) for run, path in made]
        self.add(
            self.workflow,
            ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            name="The pipeline",
            description="The stages, what they read and what they make.",
            encodingFormat=media_type(self.workflow),
            contentSize=str(file.stat().st_size) if file.is_file() else None,
            sdDatePublished=lineage.end,
            conformsTo=self.note(_WORKFLOW, "Bioschemas ComputationalWorkflow"),
            programmingLanguage=language,
            url=uri("pipeline"),
            version=str(newest.content["git"]["commit"] or "not in a repository"),
            license=licence_url(LICENCE),
            hasPart=map(_tool, runs),
            step=(local("step", run.name) for run in runs),
            input=inputs,
            output=outputs,
            connection=links,
            buildInstructions=self.locks(newest),
        )

    def _whole_run(self) -> None:
        """The run of the workflow, and DVC, which ran the stages."""
        lineage, runs = self.lineage, self.lineage.runs
        times = {"startTime": lineage.start, "endTime": lineage.end, **_COMPLETED}
        action = self.add(
            "#run",
            "CreateAction",
            name="A run of the pipeline",
            description=f"{len(runs)} recorded runs of stages; the first started when this one did.",
            instrument=self.workflow,
            agent=[self.agent(run) for run in runs],
            **times,
            object=[*map(data_id, lineage.external.values()), *(value_id(*pair) for pair in self._values())],
            result=map(data_id, lineage.final.values()),
            containerImage=[image for run in runs for image in self.image(run)],
        )
        text = "The engine that decides which stages have to run."
        versions = [run.packages.get("dvc", "unknown") for run in runs]
        engines = [self.software(package_url("dvc", each), "DVC", _DVC, each, description=text) for each in versions]
        ran = [local("control", run.name) for run in runs]
        name = "DVC ran the stages"
        self.add("#engine", "OrganizeAction", name=name, instrument=engines, object=ran, result=action, **times)

    def _run(self, run: Run) -> None:
        """A stage as a tool and a step, and its run."""
        self._tool(run)
        step, action = local("step", run.name), local("run", run.name)
        self.add(
            step,
            "HowToStep",
            name=run.name,
            position=str(self.lineage.runs.index(run)),
            workExample=_tool(run),
            connection=self._links(run),
            buildInstructions=self.locks(run),
        )
        self._action(run, action)
        name = f"Step {run.name}"
        self.add(local("control", run.name), "ControlAction", name=name, instrument=step, object=action, **_COMPLETED)

    def _tool(self, run: Run) -> None:
        name, requirements = run.name, self._requirements(run)
        inputs = [self.formal(f"{name}/in", path, each) for path, each in run.inputs.items()]
        inputs += [self.formal_value(f"{name}/param", key, value) for key, value in run.params.items()]
        self.add(
            _tool(run),
            "SoftwareApplication",
            name=f"{name}: {run.stage.cmd}",
            url=uri("stage", name),
            softwareVersion=digest_of({path: each.sha256 for path, each in run.rooms.items()}),
            description="The version is the digest of the code and the locked packages.",
            hasPart=map(data_id, run.rooms.values()),
            softwareRequirements=requirements,
            mainEntity=requirements[-1:],
            input=inputs,
            output=[self.formal(f"{name}/out", path, each) for path, each in run.outputs.items()],
        )

    def _action(self, run: Run, name: str) -> None:
        configuration = self.add(
            "params.yaml",
            "File",
            name="params.yaml",
            description="The parameters of every stage; the values that a run read are among its objects.",
            additionalType="configuration",
            encodingFormat=media_type("params.yaml"),
        )
        values = [value_id(key, value) for key, value in run.params.items()]
        self.add(
            name,
            "CreateAction",
            name=f"Run of {run.name}",
            description=f"{run.stage.cmd}, recorded as {run.record.digest}",
            instrument=_tool(run),
            agent=self.agent(run),
            startTime=run.start,
            endTime=run.end,
            **_COMPLETED,
            object=[*map(data_id, run.inputs.values()), *values, *([configuration] if values else [])],
            result=map(data_id, run.outputs.values()),
            resourceUsage=self.usages(run),
            environment=self.variables(run),
            containerImage=self.image(run),
            subjectOf=self._evidence(run, name),
        )

    def _requirements(self, run: Run) -> list[str]:
        """Python, then PyTorch if the run had loaded it, in the versions of the run."""
        python = str(run.content["environment"].get("python", "unknown"))
        found = [self.software(package_url("python", python, "generic"), "Python", _PYTHON, python)]
        if run.content["environment"].get("torch"):
            version = run.packages.get("torch", "unknown")
            found.append(self.software(package_url("torch", version), "PyTorch", _PYTORCH, version))
        return found

    def _data(self) -> tuple[str, ...]:
        """The data and the code; returns the identifiers of the folders."""
        folders = []
        for artefact in [*self.lineage.artefacts.values(), *self.lineage.code.values()]:
            source = self.lineage.source_of(artefact.path)
            if artefact.is_folder:
                files = f"{len(artefact.files)} files of {artefact.size} bytes"
                folders.append(data_id(artefact))
                self.add(
                    data_id(artefact),
                    "Dataset",
                    name=artefact.path,
                    description=f"{files}; version: sha256 of their list.",
                    version=artefact.sha256,
                    hasPart=map(data_id, artefact.leaves()),
                    **(self.terms_of(*source) if source else {}),
                )
            for file in artefact.leaves():
                self.file(file, name=file.path)
        return tuple(folders)

    def _evidence(self, run: Run, action: str) -> Iterable[str]:
        """The record and its signed statement as files."""
        yield self.file(run.file, name=f"Record of {run.name}", about=action)
        if run.statement:
            text = f"An in-toto statement in a DSSE envelope, by {', '.join(run.key_ids)}."
            yield self.file(run.statement, name=f"Statement about {run.name}", about=action, description=text)

    def _links(self, run: Run) -> list[str]:
        """The connections of the run's inputs and parameters with the workflow and the runs before it."""
        ends = []
        for path in run.inputs:
            ends += [("main/in", path, "in", path)] if path in self.lineage.external else []
            made = [(maker.name, out) for maker in self.lineage.makers(path) for out in maker.outputs]
            ends += [(f"{maker}/out", out, "in", path) for maker, out in made if history.overlap(out, path)]
        values = [named(key, value) for key, value in run.params.items()]
        ends += [("main/param", value, "param", value) for value in values]
        return [self.connection(maker, out, f"{run.name}/{side}", dep) for maker, out, side, dep in ends]

    def _values(self) -> list[tuple[str, Any]]:
        return [(key, value) for run in self.lineage.runs for key, value in run.params.items()]


def _tool(run: Run) -> str:
    """The identifier of the tool that the stage runs."""
    return uri("stage", run.name)
