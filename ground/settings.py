"""Settings: one reader of YAML mappings, one check that names every wrong key, and checks of servers' addresses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ground.io import DataError
from ground.text import dotted, printable

RESTORE = "restore it with `git checkout`"
TRUST = "set {} to the certificate of its authority"
"""The remedy for a certificate that is not trusted, with the variable that the client reads."""


class Section(BaseModel):
    """A strict, frozen part of a settings file: unknown, missing and ill-typed keys, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Settings = TypeVar("Settings", bound=Section)
Caught = TypeVar("Caught", bound=BaseException)


_CONFLICT = re.compile(r"^<{7} ", re.MULTILINE)
_MOST_MERGED = 10_000


_YAML_1_2 = {
    "bool": ("tTfF", r"(true|True|TRUE|false|False|FALSE)$"),
    "int": ("-+0123456789", r"[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)$"),
    "float": (
        "-+.0123456789",
        r"([-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\._*[0-9][0-9_]*([eE][-+][0-9]+)?"
        r"|\.(inf|Inf|INF))|\.(nan|NaN|NAN))$",
    ),
}
"""The first characters and the form of the texts that DVC reads as a boolean or a number.

DVC reads and writes YAML 1.2, PyYAML reads 1.1, in which `on` is true, `010` is 8, `1:30` is 90 and `1e-5` a text.
"""


def _like_dvc(class_: Any) -> None:
    for tag, (first, form) in _YAML_1_2.items():
        class_.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(form), list(first))


class _Dumper(yaml.SafeDumper):
    """The safe dumper. It quotes texts that a reader of YAML 1.1 or 1.2 takes for a number, as it may take an md5."""


_like_dvc(_Dumper)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader (in C if PyYAML has it), which refuses a mapping with the same key twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._tags: dict[str, str] = {}

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        """The tag of a node without an explicit tag. Texts in a lock repeat, so each plain text is looked up once."""
        if kind is not yaml.ScalarNode or not implicit[0]:
            return super().resolve(kind, value, implicit)
        if (tag := self._tags.get(value)) is None:
            tag = self._tags[value] = super().resolve(kind, value, implicit)
        return tag

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node; most nodes are texts, which need no constructor."""
        is_text = isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str"
        return node.value if is_text else super().construct_object(node, deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node; raises ``ConstructorError`` for a key that occurs twice."""
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value!r}", key.start_mark)
            seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace `<<` by the keys that it merges; raises ``ConstructorError`` if nested merges give too many."""
        own = len(node.value)
        super().flatten_mapping(node)
        if len(node.value) > own + _MOST_MERGED:
            raise yaml.constructor.ConstructorError(None, None, "too many keys merged by `<<`", node.start_mark)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag.rpartition(":")[2] not in _YAML_1_2]
    for first, forms in _Loader.yaml_implicit_resolvers.items()
}
_like_dvc(_Loader)
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: _integer(loader.construct_scalar(node)))


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    return int(digits, 0 if digits.lstrip("-+")[1:2].isalpha() else 10)


def parse_yaml(text: str) -> Any:
    """The value of a YAML 1.2 text; raises ``yaml.YAMLError`` if it is not valid or a mapping has a key twice."""
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def dump_yaml(content: Any, width: int = 80) -> str:
    """A value as YAML that YAML 1.1 and 1.2 readers read alike; keys keep their order."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


def read_yaml(path: Path, remedy: str = RESTORE, parse: Callable[[str], Any] = parse_yaml) -> dict[str, Any]:
    """The mapping in a YAML file; raises ``DataError`` with ``remedy`` if the file is missing or contains no mapping.

    A key that occurs twice is an error too, because readers differ in the value that they take.
    """
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        content = parse(text)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; run this in the project's root folder, or {remedy}") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; {remedy}") from error
    except (yaml.YAMLError, ValueError) as error:
        if marker := _CONFLICT.search(text):
            line = text.count("\n", 0, marker.start()) + 1
            raise DataError(
                f"{path}: a merge left conflict markers (line {line}); take one side with `git checkout --ours` or "
                f"`--theirs`, or {remedy}"
            ) from error
        raise DataError(f"{path}: not valid YAML ({printable(' '.join(str(error).split()))}); {remedy}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a mapping; {remedy}")
    return content


def read_settings(model: type[Settings], path: Path, remedy: str = RESTORE) -> Settings:
    """Read ``path`` and check it; raises ``DataError`` with the dotted name of every wrong key."""
    return check_settings(model, read_yaml(path, remedy), path, remedy)


def check_settings(model: type[Settings], content: dict[str, Any], path: Path, remedy: str = RESTORE) -> Settings:
    """Check the mapping of the file ``path``; raises ``DataError`` with the dotted name of every wrong key."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = "\n".join(f"  {dotted(item['loc']) or '(the whole file)'}: {item['msg']}" for item in error.errors())
        raise DataError(f"{path}: wrong parameters:\n{problems}\nCorrect these keys, or {remedy}.") from error


def require_address(text: str, remedy: str) -> None:
    """Raise ``DataError``, which ends in ``remedy``, unless ``text`` is an http or https address without a password.

    Errors, logs and records name addresses, so a password in one would be stored with them.
    """
    shown = printable(text.rpartition("@")[2])
    try:
        address = urlsplit(text)
        is_one = address.scheme in ("http", "https") and address.hostname and (address.port or 1)
    except ValueError:  # an unpaired bracket, or an invalid port
        is_one = False
    if not is_one or any(map(str.isspace, text)):
        raise DataError(f"{shown}: not a server's address; {remedy}")
    if "@" in address.netloc:
        raise DataError(f"{shown}: an address must not name a user or a password; {remedy}")


def require_certificate(error: BaseException, where: str, variable: str = "SSL_CERT_FILE") -> None:
    """Raise ``DataError`` if ``error`` ended a connection because of the certificate of the server ``where``.

    Retrying would not help. ``variable`` names the file with the authorities that the client trusts.
    """
    if fault := certificate_fault(error):
        raise DataError(f"{where}: {fault}; {TRUST.format(variable)}") from error


def certificate_fault(error: BaseException) -> str:
    """The fault of the server's certificate if it is a cause of ``error``; otherwise empty."""
    import ssl  # few commands need it, and it loads slowly

    cause = caused_by(error, ssl.SSLCertVerificationError)
    return f"the server's certificate is not trusted ({cause.verify_message})" if cause else ""


def caused_by(error: BaseException, kind: type[Caught]) -> Caught | None:
    """The first exception of a kind among ``error`` and its causes, or ``None``."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__ or cause.__context__
    return cause
