"""Compose, images, Kubernetes and Slurm, checked with their schemas and linters: no container runtime is needed.

Nothing in this module builds an image, or starts a container, a cluster or a Slurm job; ``operations.md`` in
tests/campaigns lists what was tried.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from ground.io import write_text
from pathfinder.cli import serve
from tests.support import warm
from tests.support.isolated import run_isolated

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "infra/requirements-linters.lock"
DOCKERFILE = ROOT / "infra/images/Dockerfile"
COMPOSE = ROOT / "infra/compose/compose.yaml"
KUBERNETES = ROOT / "infra/kubernetes"
PINNED = re.compile(r"\S+:\S+@sha256:[0-9a-f]{64}")

RENDER = """
import asyncio, json, sys, uuid
import kubernetes_validate
from prefect.client.schemas.objects import FlowRun
from prefect_kubernetes.worker import KubernetesWorker, KubernetesWorkerJobConfiguration

def render(template, values):
    found = asyncio.run(KubernetesWorkerJobConfiguration.from_template_and_values(template, values))
    found.prepare_for_flow_run(FlowRun(id=uuid.uuid4(), flow_id=uuid.uuid4(), name="train full"))
    return found.job_manifest

def problem(manifest):
    try:
        kubernetes_validate.validate(manifest, "1.34", strict=True)
    except kubernetes_validate.ValidationError as error:
        return error.message
    return ""

ours = render(json.load(open(sys.argv[1])), json.loads(sys.argv[2]))
default = render(KubernetesWorker.get_default_base_job_template(), {"image": "x"})
print(json.dumps({"job": ours, "ours": problem(ours), "default": problem(default)}))
"""

Tool = Callable[..., str]


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """Runs a checker of the lock on files of the project and returns its output, which shows why it failed."""

    def run(*command: str, fails: bool = False) -> str:
        settings = {"PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_HOME": str(tmp_path)}  # asked for nothing
        done = run_isolated(LOCK, command, {**os.environ, **settings}, ROOT)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr if fails else done.stdout

    return run


@pytest.mark.team
def test_compose_has_the_form_of_its_specification(tool: Tool, tmp_path: Path) -> None:
    check = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    tool(*check, str(COMPOSE))
    wrong = tmp_path / "compose.yaml"
    write_text(wrong, COMPOSE.read_text().replace("depends_on:", "depends:"))
    assert "depends" in tool(*check, str(wrong), fails=True)


@pytest.mark.team
def test_the_linter_has_nothing_to_say_about_the_images(tool: Tool, tmp_path: Path) -> None:
    assert tool("hadolint", str(DOCKERFILE)) == ""
    wrong = tmp_path / "Dockerfile"
    write_text(wrong, DOCKERFILE.read_text().replace("${PYTHON} AS base", "python:latest AS base"))
    assert "DL3007" in tool("hadolint", str(wrong), fails=True)


@pytest.mark.team
def test_the_linter_has_nothing_to_say_about_the_batch_scripts(tool: Tool, tmp_path: Path) -> None:
    scripts = sorted((ROOT / "infra/slurm").glob("*.sbatch"))
    assert len(scripts) == 1
    tool("shellcheck", "--external-sources", "--shell=bash", *map(str, scripts), "infra/slurm/requeue.sh")
    wrong = tmp_path / "wrong.sbatch"
    write_text(wrong, "#!/bin/bash\ncd $1\n")
    assert "SC2086" in tool("shellcheck", str(wrong), fails=True)


@pytest.mark.team
def test_kubernetes_accepts_the_resources_and_the_job_of_a_run(tool: Tool, tmp_path: Path) -> None:
    """The Job is rendered by Prefect's worker; the Job of Prefect's own template is refused, so the check is strict."""
    tool("kubernetes-validate", "--strict", str(KUBERNETES / "pathfinder.yaml"))
    script = tmp_path / "render.py"
    write_text(script, RENDER)
    values = {"image": f"registry/worker:cuda@sha256:{'0' * 64}", "gpus": 2, "memory": "64Gi", "env": {"A": "b"}}
    found = json.loads(tool("python", str(script), str(KUBERNETES / "job-template.json"), json.dumps(values)))
    assert found["ours"] == ""
    assert "'completions', 'parallelism' were unexpected" in found["default"]
    pod = found["job"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": 2}
    assert container["envFrom"] == [{"secretRef": {"name": "pathfinder-run"}}]
    assert {"name": "A", "value": "b"} in container["env"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/clones", "/dev/shm"}  # noqa: S108
    policies = {
        item["metadata"]["name"]: item["spec"]["podSelector"].get("matchLabels", {})
        for item in yaml.safe_load_all((KUBERNETES / "pathfinder.yaml").read_text())
        if item["kind"] == "NetworkPolicy"
    }
    assert policies["runs"].items() <= pod["metadata"]["labels"].items()


def test_the_job_template_has_the_variables_that_the_flow_sets() -> None:
    template = json.loads((KUBERNETES / "job-template.json").read_text())
    variables = template["variables"]["properties"]
    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert used == set(variables) >= {"gpus", "memory", "env"}


def test_every_image_is_pinned_by_version_and_digest() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    fetched = {service["image"] for service in services.values() if "build" not in service}
    assert len(fetched) == 3
    base = re.search(r"^ARG PYTHON=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert base is not None
    assert all(PINNED.fullmatch(image) for image in {*fetched, base[1]})


def test_compose_asks_for_exactly_the_secrets_of_the_example() -> None:
    asked = set(re.findall(r"\$\{(\w+):\?\}", COMPOSE.read_text()))
    example = (ROOT / "infra/compose/example.env").read_text()
    assert asked == set(re.findall(r"^(\w+)=$", example, re.MULTILINE))


def test_containers_are_not_root_and_cannot_become_it() -> None:
    """Only the service that prepares volumes is root; it has no network and ends at once.

    The images of PostgreSQL and Redis start as root and change to a user of their own.
    """
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert [name for name, service in services.items() if service.get("user") == "root"] == ["volumes"]
    assert services["volumes"]["network_mode"] == "none"
    assert services["store"]["user"] == "1001:1001"
    assert services["store"]["depends_on"] == {"volumes": {"condition": "service_completed_successfully"}}
    for name in services.keys() - {"database", "redis"}:
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["security_opt"] == ["no-new-privileges:true"]
    last = dict.fromkeys(("server", "cuda", "vllm", "cpu"), "")
    for stage in re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]:
        name = stage.partition("\n")[0].rpartition(" AS ")[2]
        if name in last:
            last[name] = re.findall(r"^USER (\S+)$", stage, re.MULTILINE)[-1]
    assert set(last.values()) == {"1001"}


def test_no_container_can_use_up_the_machine() -> None:
    """Memory, processors, processes, and the disk through a log without end."""
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        assert {"mem_limit", "cpus", "pids_limit"} <= set(service), name
        assert service["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "5"}}, name


def test_server_images_have_the_version_of_prefect_that_clients_have() -> None:
    ours = metadata.version("prefect")
    for lock in ("server", "linters"):
        assert f"\nprefect=={ours} " in (ROOT / f"infra/requirements-{lock}.lock").read_text()
    worker = yaml.safe_load((KUBERNETES / "worker-values.yaml").read_text())["worker"]["image"]["prefectTag"]
    assert worker.startswith(f"{ours}-python3.11-")


def test_the_image_s_server_writes_its_page_where_it_may_and_the_page_asks_its_own_host(tmp_path: Path) -> None:
    """Otherwise Prefect serves no page, or one that asks 127.0.0.1 of the reader's machine for the API."""
    server = yaml.safe_load(COMPOSE.read_text())["services"]["server"]
    writable = server["tmpfs"][0]
    assert server["read_only"]
    (stage,) = re.findall(r"^FROM base AS server$.*?(?=^FROM)", DOCKERFILE.read_text(), re.MULTILINE | re.DOTALL)
    settings = dict(re.findall(r"\b(PREFECT_UI_\w+)=(\S+)", stage.replace(f"{writable}/", f"{tmp_path}/")))
    code = """
from fastapi.testclient import TestClient
from prefect.server.api.server import create_ui_app
print(TestClient(create_ui_app(ephemeral=False)).get("/ui-settings").text)
"""
    variables = os.environ | {"PREFECT_HOME": str(tmp_path)} | settings
    done = warm.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["api_url"] == "/api"
    assert [path.name for path in (tmp_path / "prefect-ui").glob("v*")] != []
    assert found["available_uis"]


def test_the_devcontainer_builds_an_existing_target() -> None:
    path = ROOT / ".devcontainer/devcontainer.json"
    content = json.loads(path.read_text())
    dockerfile = (path.parent / content["build"]["dockerfile"]).resolve()
    assert dockerfile == DOCKERFILE
    assert f" AS {content['build']['target']}\n" in dockerfile.read_text()
    assert inspect.signature(serve).parameters["port"].default in content["forwardPorts"]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock with two packages that this environment has, and one for another platform."""
    text = "".join(
        f"{name}=={metadata.version(name)} \\\n    --hash=sha256:{0:064}\n" for name in ("pydantic", "httpx")
    )
    path = tmp_path / "some.lock"
    write_text(path, f'{text}httpx==0 ; sys_platform == "win32" \\\n    --hash=sha256:{0:064}\n')
    return path


def test_each_environment_of_an_image_is_compared_with_its_locks_and_described() -> None:
    blocks = [text for text in re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE) if "--dry-run" in text]
    assert len(blocks) == 4
    for block in blocks:
        installed, described = block.split("--dry-run")
        compared, _, bill = described.partition('| grep "Would make no changes" \\\n && ')
        assert set(_locks(installed)) == set(_locks(compared)) != set()
        assert bill.startswith("/opt/uv/bin/cyclonedx-py environment")
        assert "--output-file /opt/sbom.json /opt/venv/bin/python" in bill


def _locks(text: str) -> list[str]:
    return re.findall(r"-r (\S+)", text)


def test_the_comparison_fails_for_a_package_that_differs_from_the_lock(lock: Path) -> None:
    command = next(line for line in DOCKERFILE.read_text().splitlines() if "--dry-run" in line)
    command = command.strip(" &\\").replace("/opt/uv/bin/uv", str(Path(sys.executable).with_name("uv")))
    command = re.sub(r"-r \S+", "", command).replace("--dry-run", f"--dry-run --offline -r {lock}")
    shell, environment = ["bash", "-o", "pipefail", "-c", command], os.environ | {"UV_PYTHON": sys.executable}
    assert subprocess.run(shell, env=environment, check=False).returncode == 0
    lock.write_text(f"pydantic==1.0 \\\n    --hash=sha256:{0:064}\n")
    assert subprocess.run(shell, env=environment, check=False).returncode != 0
