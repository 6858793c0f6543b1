"""The entities of a Provenance Run Crate, and those that several of its parts refer to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from evidence.formats.artefacts import Artefact, media_type
from evidence.formats.crate_names import action_id, data_id, named, parameter_id, value_id
from evidence.formats.identifiers import NAMESPACE, licence_url, uri
from evidence.formats.lineage import Run, text_of
from evidence.record.identity import LOCKS

TERMS = "https://w3id.org/ro/terms/workflow-run#"
"""The namespace of the profiles' own terms."""
_FORMAL = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
_PIP = "https://pip.pypa.io/en/stable/reference/requirements-file-format/"
_IMAGE = re.compile(
    r"(?:(?P<registry>[^/@]+[.:][^/@]*)/)?(?P<name>[^@:]*)(?::(?P<tag>[^@]+))?(?:@?sha256:(?P<sha>\w+))?"
)
_USAGES: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (  # what, unit (QUDT), and where a record has it
    ("wall time", "SEC", lambda record: record["times"]["seconds"]),
    ("peak memory", "BYTE", lambda record: record["times"]["peak_rss_bytes"]),
    ("processors", "NUM", lambda record: record["environment"].get("cpus_usable")),
)

Entity = dict[str, Any]


class Entities:
    """The entities by identifier. ``examples`` has the formal parameters that a file or a value is an example of."""

    def __init__(self) -> None:
        self.entities: dict[str, Entity] = {}
        self.examples: dict[str, list[str]] = {}

    def add(self, name: str, kind: str | list[str], /, **properties: Any) -> str:
        """Add an entity, unless there is one of that name; ``None`` and empty properties are left out."""
        kept = {key: value for key, value in properties.items() if value not in (None, [], {}, "")}
        self.entities.setdefault(name, {"@id": name, "@type": kind} | kept)
        return name

    def file(self, file: Artefact, **properties: Any) -> str:
        """Add a file with its size and digest."""
        return self.add(
            data_id(file),
            "File",
            encodingFormat=media_type(file.path),
            contentSize=str(file.size),
            sha256=file.sha256,
            **properties,
        )

    def terms_of(self, name: str, source: Mapping[str, Any]) -> Entity:
        """The licence and the origin of a source, as properties."""
        licence = str(source["licence"])
        self.add(licence_url(licence), "CreativeWork", name=licence, description=f"The licence {licence}.")
        revision = f" at {source['revision']}" if source.get("revision") else ""
        return {
            "license": refs([licence_url(licence)]),
            "isBasedOn": f"{source['kind']} {source['location']}{revision} ({name})",
        }

    def software(self, name: str, title: str, url: str, version: str, **properties: Any) -> str:
        """Add a piece of software with its package URL as its identifier."""
        entity = uri("software", title, version)
        return self.add(
            entity, "SoftwareApplication", name=title, url=url, version=version, identifier=name, **properties
        )

    def connection(self, maker: str, out: str, reader: str, dep: str) -> str:
        """Add the connection of an output, or of an input of the workflow, with an input."""
        source, target = parameter_id(maker, out), parameter_id(reader, dep)
        name = f"#link/{source[1:]}--{target[1:]}"
        return self.add(
            name, "ParameterConnection", sourceParameter=refs([source]), targetParameter=refs([target]), name=name[1:]
        )

    def formal(self, owner: str, path: str, artefact: Artefact) -> str:
        """Add the formal parameter for a file or folder."""
        name = parameter_id(owner, path)
        self.examples.setdefault(data_id(artefact), []).append(name)
        kind = "Dataset" if artefact.is_folder else "File"
        return self._parameter(name, path, kind, data_id(artefact))

    def formal_value(self, owner: str, key: str, value: Any) -> str:
        """Add the formal parameter for a value, and the value."""
        name, example = parameter_id(owner, named(key, value)), value_id(key, value)
        if name not in self.entities:
            self.examples.setdefault(example, []).append(name)
        self.add(example, "PropertyValue", name=key, value=text_of(value))
        return self._parameter(name, key, "Text", example)

    def _parameter(self, name: str, title: str, kind: str, example: str) -> str:
        profile = self.add(_FORMAL, "CreativeWork", name="Bioschemas FormalParameter")
        return self.add(
            name,
            "FormalParameter",
            name=title,
            additionalType=kind,
            conformsTo=refs([profile]),
            workExample=refs([example]),
        )

    def usages(self, run: Run) -> list[str]:
        """Add what the run used of the machine."""
        return [
            self.add(
                f"{action_id(run)}/{quote(name)}",
                "PropertyValue",
                name=name,
                propertyID=uri("usage", name),
                unitCode=f"https://qudt.org/vocab/unit/{unit}",
                value=str(value),
            )
            for name, unit, read in _USAGES
            if (value := read(run.content)) is not None
        ]

    def variables(self, run: Run) -> list[str]:
        """Add the environment variables of the run."""
        variables = run.content["environment"].get("variables", {})
        return [
            self.add(f"#variable/{quote(named(name, value))}", "PropertyValue", name=name, value=value or "(empty)")
            for name, value in sorted(variables.items())
        ]

    def locks(self, run: Run) -> list[str]:
        """The lock files of the run's environment."""
        if LOCKS not in run.rooms:
            return []
        form = refs([self.add(_PIP, "CreativeWork", name="pip requirements file")])
        return [self.file(file, name=file.path, conformsTo=form) for file in run.rooms[LOCKS].leaves()]

    def agent(self, run: Run) -> str:
        """The user who ran the stage; records of older versions name none."""
        user = run.actor.get("user")
        if user is None:
            return NAMESPACE
        return self.add(uri("user", str(user)), "Person", name=str(user), affiliation=refs([NAMESPACE]))

    def image(self, run: Run) -> str | None:
        """The container image, if the record names one."""
        image = run.actor.get("image")
        found = _IMAGE.fullmatch(str(image)) if image else None
        if found is None:
            return None
        return self.add(
            uri("image", str(image)),
            "ContainerImage",
            additionalType=refs([f"{TERMS}DockerImage"]),
            name=found["name"] or str(image),
            registry=found["registry"] or "unknown",
            tag=found["tag"],
            sha256=found["sha"],
        )


def is_data(entity: Entity) -> bool:
    """Whether an entity is a file or a folder."""
    return bool({"File", "Dataset"} & {*([entity["@type"]] if isinstance(entity["@type"], str) else entity["@type"])})


def refs(names: Iterable[str]) -> Any:
    """References to entities: one without a list, as RO-Crate recommends; ``None`` for none."""
    found = [{"@id": name} for name in dict.fromkeys(names)]
    return found[0] if len(found) == 1 else found or None
