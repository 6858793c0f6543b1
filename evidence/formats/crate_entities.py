"""The entities of a Provenance Run Crate: their identifiers, and the entities that several parts refer to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from evidence.formats.artefacts import NAMESPACE, Artefact, licence_url, media_type, uri
from evidence.formats.lineage import Run, text_of
from evidence.record.identity import LOCKS
from ground.io import digest_of

TERMS = "https://w3id.org/ro/terms/workflow-run#"
"""The namespace of the profiles' own terms."""
_LINKS = (
    "about affiliation agent author buildInstructions conformsTo connection containerImage environment exampleOfWork"
    " hasPart input instrument license mainEntity mentions object output programmingLanguage publisher resourceUsage"
    " result softwareRequirements sourceParameter step subjectOf targetParameter workExample"
)
LINKS = frozenset(_LINKS.split())
"""The properties that refer to other entities."""
_FORMAL = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
_PIP = "https://pip.pypa.io/en/stable/reference/requirements-file-format/"
_IMAGE = re.compile(
    r"(?:(?P<registry>[^/@]+[.:][^/@]*)/)?(?P<name>[^@:]*)(?::(?P<tag>[^@]+))?(?:@?sha256:(?P<sha>\w+))?"
)
_USAGES: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (  # name, unit (QUDT), and where a record has it
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
        """Add an entity, unless there is one of that name; returns the name.

        ``None`` and empty properties are left out. The names in a property of ``LINKS`` become references.
        """
        found = {key: refs(value) if key in LINKS else value for key, value in properties.items()}
        kept = {key: value for key, value in found.items() if value not in (None, [], {}, "")}
        self.entities.setdefault(name, {"@id": name, "@type": kind} | kept)
        return name

    def note(self, name: str, title: str, **properties: Any) -> str:
        """Add a profile, a licence or another published text."""
        return self.add(name, "CreativeWork", name=title, **properties)

    def licence(self, name: str) -> str:
        """Add a licence."""
        return self.note(licence_url(name), name, description=f"The licence {name}.")

    def file(self, file: Artefact, **properties: Any) -> str:
        """Add a file with its size and digest."""
        facts = {"encodingFormat": media_type(file.path), "contentSize": str(file.size), "sha256": file.sha256}
        return self.add(data_id(file), "File", **facts, **properties)

    def terms_of(self, name: str, source: Mapping[str, Any]) -> Entity:
        """The licence and the origin of a source, as properties."""
        revision = f" at {source['revision']}" if source.get("revision") else ""
        based_on = f"{source['kind']} {source['location']}{revision} ({name})"
        return {"license": self.licence(str(source["licence"])), "isBasedOn": based_on}

    def software(self, name: str, title: str, url: str, version: str, **properties: Any) -> str:
        """Add a piece of software; ``name`` is its package URL."""
        facts = {"name": title, "url": url, "version": version, "identifier": name}
        return self.add(uri("software", title, version), "SoftwareApplication", **facts, **properties)

    def connection(self, maker: str, out: str, reader: str, dep: str) -> str:
        """Add the connection of an output, or of an input of the workflow, with an input."""
        source, target = local(maker, out), local(reader, dep)
        name = f"#link/{source[1:]}--{target[1:]}"
        return self.add(name, "ParameterConnection", sourceParameter=source, targetParameter=target, name=name[1:])

    def formal(self, owner: str, path: str, artefact: Artefact) -> str:
        """Add the formal parameter for a file or folder."""
        return self._parameter(local(owner, path), path, "Dataset" if artefact.is_folder else "File", data_id(artefact))

    def formal_value(self, owner: str, key: str, value: Any) -> str:
        """Add the formal parameter for a value, and the value."""
        example = self.add(value_id(key, value), "PropertyValue", name=key, value=text_of(value) or "(empty)")
        return self._parameter(local(owner, named(key, value)), key, "Text", example)

    def _parameter(self, name: str, title: str, kind: str, example: str) -> str:
        self.examples.setdefault(example, []).append(name)
        profile = self.note(_FORMAL, "Bioschemas FormalParameter")
        facts = {"name": title, "additionalType": kind, "conformsTo": profile, "workExample": example}
        return self.add(name, "FormalParameter", **facts)

    def usages(self, run: Run) -> list[str]:
        """Add the time, memory and processors of the run."""
        found = []
        for name, unit, read in _USAGES:
            if (value := read(run.content)) is not None:
                facts = {"propertyID": uri("usage", name), "unitCode": f"https://qudt.org/vocab/unit/{unit}"}
                entity = local("run", run.name, name)
                found.append(self.add(entity, "PropertyValue", name=name, **facts, value=str(value)))
        return found

    def variables(self, run: Run) -> list[str]:
        """Add the environment variables of the run."""
        return [
            self.add(local("variable", named(name, value)), "PropertyValue", name=name, value=value or "(empty)")
            for name, value in sorted(run.content["environment"].get("variables", {}).items())
        ]

    def locks(self, run: Run) -> list[str]:
        """Add the lock files of the run's environment."""
        if LOCKS not in run.rooms:
            return []
        form = self.note(_PIP, "pip requirements file")
        return [self.file(file, name=file.path, conformsTo=form) for file in run.rooms[LOCKS].leaves()]

    def agent(self, run: Run) -> str:
        """Add the user who ran the stage; records of older versions name none."""
        user = run.actor.get("user")
        if user is None:
            return NAMESPACE
        return self.add(uri("user", str(user)), "Person", name=str(user), affiliation=NAMESPACE)

    def image(self, run: Run) -> list[str]:
        """Add the container image, if the record names one."""
        image = run.actor.get("image")
        if not image or (found := _IMAGE.fullmatch(str(image))) is None:
            return []
        names = {"name": found["name"] or str(image), "registry": found["registry"] or "unknown"}
        facts = {"additionalType": refs(f"{TERMS}DockerImage"), **names, "tag": found["tag"], "sha256": found["sha"]}
        return [self.add(uri("image", str(image)), "ContainerImage", **facts)]


def refs(names: str | Iterable[str] | None) -> Any:
    """References to entities: a single one without a list, as RO-Crate recommends; ``None`` if there are none."""
    found = [{"@id": name} for name in dict.fromkeys([names] if isinstance(names, str) else names or ())]
    return found[0] if len(found) == 1 else found or None


def local(*names: str) -> str:
    """The identifier of an entity that only this crate has: ``#step/train%40full``."""
    return "#" + quote("/".join(names))


def data_id(artefact: Artefact) -> str:
    """The identifier of a file or folder: its path, with a ``/`` behind a folder."""
    return quote(artefact.path) + ("/" if artefact.is_folder else "")


def named(key: str, value: Any) -> str:
    """A parameter with one of its values: two runs can have read different values."""
    return f"{key}/{digest_of(value)[:12]}"


def value_id(key: str, value: Any) -> str:
    """The identifier of a parameter's value."""
    return local("value", named(key, value))
