"""The forks of tests/support/warm.py leave out work of libraries that no test needs."""

from __future__ import annotations

import atexit
import functools
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import yaml

read_loggers = functools.partial(yaml.load, Loader=yaml.CSafeLoader)
"""``yaml.safe_load`` by the parser in C, for Prefect's settings of its loggers."""


def lighten(bundle: Path) -> None:
    """Change the imported libraries; the authority that clients read goes to ``bundle``.

    Forks do without libraries' calls at the end, the names of torchrun's events, for each of which it compares the
    files of all modules, and the authorities beyond the first, which every client reads. Prefect names its settings,
    reads its loggers and maps its tables in a tenth of the time.
    """
    atexit.unregister(sys.modules["torch._dynamo.utils"].dump_compile_times)
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    sys.modules["torch.distributed.elastic.rendezvous.dynamic_rendezvous"].get_method_name = lambda: ""  # type: ignore[attr-defined]
    first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----\n")
    bundle.write_text(first + end)
    certifi.where = lambda: str(bundle)
    sys.modules["prefect.settings.base"].PrefectBaseSettings.to_environment_variables = variables_of
    sys.modules["prefect.logging.configuration"].yaml = SimpleNamespace(safe_load=read_loggers)  # type: ignore[attr-defined]
    sys.modules["sqlalchemy.orm"].configure_mappers()


def variables_of(
    settings: Any, exclude_unset: bool = False, include_secrets: bool = True, include_aliases: bool = False
) -> dict[str, str]:
    """Prefect's ``to_environment_variables``, which asks each group for the values of its inner groups again."""
    base = sys.modules["prefect.settings.base"]
    fields = type(settings).model_fields
    groups = {name for name in fields if isinstance(getattr(settings, name), base.PrefectBaseSettings)}
    context = {"include_secrets": include_secrets}
    values = settings.model_dump(exclude_unset=exclude_unset, mode="json", context=context, exclude=groups)
    found: dict[str, str] = {}
    for name, field in fields.items():
        if name in groups:
            found |= variables_of(getattr(settings, name), exclude_unset, include_secrets, include_aliases)
        elif (value := values.get(name)) is not None:
            own = f"{settings.model_config.get('env_prefix')}{name}"
            alias = field.validation_alias if include_aliases else None
            names = [own] if alias is None else getattr(alias, "choices", [alias])
            text = base._to_environment_variable_value(value)
            found |= {each.upper(): text for each in names if isinstance(each, str)}
    return found
