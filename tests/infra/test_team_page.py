"""The pages of a team's server name files, targets and settings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from flows.server import RETENTION

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/operations.md", *(f"infra/{name}/README.md" for name in ("compose", "kubernetes", "slurm")))
PAGE = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
INDENTED = "\n".join(line for line in PAGE.splitlines() if line.startswith("    "))


def test_every_file_of_the_pages_exists() -> None:
    named = set(re.findall(r"\b(?:infra|\.devcontainer)/[\w./-]*\w", PAGE)) - {"infra/compose/.env"}
    assert len(named) >= 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_table_of_services_is_that_of_compose() -> None:
    services = yaml.safe_load((ROOT / "infra/compose/compose.yaml").read_text())["services"]
    table = re.search(r"\| service \|.*?\n\n", PAGE, re.DOTALL)
    assert table is not None
    assert set(re.findall(r"`([a-z]+)`", table[0])) - {"pathfinder"} == set(services)


def test_a_team_s_servers_keep_records_as_long_as_a_local_one() -> None:
    services = yaml.safe_load((ROOT / "infra/compose/compose.yaml").read_text())["services"]
    values = yaml.safe_load((ROOT / "infra/kubernetes/server-values.yaml").read_text())
    charts = {entry["name"]: entry["value"] for entry in values["global"]["prefect"]["env"]}
    for found in (services["server"]["environment"], services["services"]["environment"], charts):
        assert {name: found.get(name) for name in RETENTION} == RETENTION


def test_the_images_of_the_pages_are_targets_and_are_used() -> None:
    dockerfile = (ROOT / "infra/images/Dockerfile").read_text()
    built = dict(re.findall(r"--target (\w+) +-t (\S+)", INDENTED))
    assert [target for target in built if f" AS {target}\n" not in dockerfile] == []
    services = yaml.safe_load((ROOT / "infra/compose/compose.yaml").read_text())["services"]
    used = {service["image"] for service in services.values() if "build" in service}
    assert used == {built["server"], built["cpu"]}


def test_the_secrets_of_kubernetes_are_those_that_the_values_name() -> None:
    created = set(re.findall(r"create secret generic (\S+)", INDENTED))
    values = "".join((ROOT / f"infra/kubernetes/{name}-values.yaml").read_text() for name in ("server", "worker"))
    named = set(re.findall(r"existingSecret: ([\w-]+)", values)) | {"prefect-database", "pathfinder-run"}
    assert created == named
    assert "secret: {create: false, name: prefect-database}" in values
