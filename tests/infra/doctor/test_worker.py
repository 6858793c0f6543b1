"""``make doctor`` on the key and the packages of a worker: each line is made wrong and right."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from evidence.record.signing import KEY_FILE, key_id, own_public_keys
from infra.doctor import worker

VERSION = metadata.version("pydantic")


def lines(root: Path) -> list[str]:
    return [finding.line() for finding in worker.findings(root)]


def test_the_key_and_the_packages_of_a_worker_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "signing.pem"))
    table, lock = tmp_path / "infra/resources.yaml", tmp_path / "infra/locks/cpu.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("pydantic==1.0\n")
    (tmp_path / "dvc.yaml").write_text("stages:\n  label: {cmd: label, deps: [a], outs: [b]}\n")
    assert lines(tmp_path) == []
    table.write_text("stages:\n- {stage: '*', pool: here}\n")
    assert lines(tmp_path) == [], "no run elsewhere takes what this machine makes"
    table.write_text("stages:\n- {stage: label, pool: judge}\n- {stage: '*', pool: here}\n")
    pem = own_public_keys()[0]
    key = key_id(pem)[:12]
    assert lines(tmp_path) == [
        f"trust      infra/keys/ has no key {key}: WRONG; commit its public half there (docs/audit.md): runs on other "
        "machines refuse what it signs",
        f"packages   pydantic {VERSION} instead of 1.0 (pinned in infra/locks): WRONG; run `make env`: runs on other "
        "machines refuse the results",
    ]
    (tmp_path / "infra/keys").mkdir()
    (tmp_path / "infra/keys/judge.pem").write_bytes(pem)
    table.write_text("stages:\n- {stage: label, pool: judge, packages: any}\n- {stage: '*', pool: here}\n")
    assert lines(tmp_path) == [
        f"trust      infra/keys/ has key {key}: ok",
        f"packages   pydantic {VERSION} instead of 1.0 (pinned in infra/locks): ok",
    ]
    lock.write_text(f"pydantic=={VERSION}\n")
    table.write_text("stages:\n- {stage: label, pool: judge}\n")
    assert lines(tmp_path)[1] == "packages   as infra/locks pins them: ok"
    table.write_text("stages:\n- {stage: label, pools: judge}\n")
    assert "stages.0.pools" in lines(tmp_path)[0]
