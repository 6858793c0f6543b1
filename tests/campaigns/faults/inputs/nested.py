"""The meaning of nested values: objects with fixed keys, objects with free names, and lists, each checked as a whole.

A check returns a value as it is read, and raises ``ValueError`` if the value must be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.campaigns.faults.inputs.documents import MISSING, Field

Check = Callable[[Any], Any]
COVERED = Field(lambda _: True, lambda _: MISSING)
"""A key that is malformed but not compared: the field of an object around it covers its values."""


def whole(check: Check, may_be_missing: bool = False) -> Field:
    """A field with a nested value."""
    if may_be_missing:
        return Field(
            lambda value: value is MISSING or _passes(check, value),
            lambda value: MISSING if value is MISSING else check(value),
        )
    return Field(lambda value: _passes(check, value), check)


def _passes(check: Check, value: Any) -> bool:
    try:
        check(value)
    except ValueError:
        return False
    return True


def one(accepts: Callable[[Any], bool]) -> Check:
    """A value without parts."""

    def check(value: Any) -> Any:
        if not accepts(value):
            raise ValueError(value)
        return value

    return check


def or_null(check: Check) -> Check:
    """The value or null."""
    return lambda value: None if value is None else check(value)


def fixed(keys: Mapping[str, Check], may_be_missing: Mapping[str, Check] | None = None) -> Check:
    """An object with these keys and no other one; those that may be missing are null then."""
    optional = may_be_missing or {}

    def check(value: Any) -> Any:
        if not isinstance(value, dict) or not (keys.keys() <= value.keys() <= keys.keys() | optional.keys()):
            raise ValueError(value)
        read = {key: found(value[key]) for key, found in keys.items()}
        return read | {key: or_null(found)(value.get(key)) for key, found in optional.items()}

    return check


def free(check: Check) -> Check:
    """An object with any names."""

    def check_all(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(value)
        return {key: check(item) for key, item in value.items()}

    return check_all


def items(check: Check) -> Check:
    """A list."""

    def check_all(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError(value)
        return [check(item) for item in value]

    return check_all
