"""The Hub's own client reads the cards with its classes, and uploads folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from extras.publish.folder import Repository
from ground.io import DataError, TransientError
from ground.settings import require_certificate
from pathfinder.core.hub import http_library

TOKEN = "HF_TOKEN"  # noqa: S105 - the name of a variable


def read_card(path: Path, kind: str) -> dict[str, Any]:
    """The header of a card as ``ModelCard`` or ``DatasetCard`` reads it; raises ``DataError`` if it is not valid."""
    from huggingface_hub import DatasetCard, ModelCard

    reader: Any = ModelCard if kind == "model" else DatasetCard
    try:
        found: dict[str, Any] = reader(path.read_text(encoding="utf-8"), ignore_metadata_errors=False).data.to_dict()
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: the Hub's client refuses the header ({reason}); run its stage again") from error
    if not found.get("license"):
        raise DataError(f"{path}: the header names no licence; run its stage again")
    return found


def card_figures(path: Path) -> list[tuple[str, Any, dict[str, Any]]]:
    """Name, value and place of every result in the ``model-index`` of a card; raises ``DataError`` as ``read_card``."""
    from huggingface_hub import ModelCard

    read_card(path, "model")
    data: Any = ModelCard(path.read_text(encoding="utf-8")).data
    return [(str(each.metric_name), each.metric_value, each.metric_args or {}) for each in data.eval_results or ()]


def upload(repository: Repository, name: str) -> str:
    """Upload a folder as one commit of a repository, which is made private if it does not exist; returns the address.

    The token comes from ``HF_TOKEN``. Raises ``DataError`` if there is none or the Hub refuses it, and
    ``TransientError`` if the Hub does not answer.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    token = os.environ.get(TOKEN)
    if not token:
        raise DataError(f"{TOKEN} is not set; set it to a token of the Hub that may write {name}")
    api = HfApi(token=token)
    try:
        api.create_repo(name, repo_type=repository.kind, private=True, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            repo_type=repository.kind,
            folder_path=repository.folder,
            commit_message="Publish with the lineage in the card",
        )
    except ValueError as error:  # the name, or the header of the card
        raise DataError(f"{name}: {' '.join(str(error).split())}; correct the name or the card") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        said = f"the Hub answered {status} for {name}: {error.server_message or 'no reason given'}"
        if status >= 500 or status == 429:
            raise TransientError(f"{said}; try again later") from error
        raise DataError(f"{said}; check the name, and that {TOKEN} may write there") from error
    except (http_library().HTTPError, OSError, RuntimeError) as error:  # RuntimeError: the transfer library hf_xet
        require_certificate(error, name)
        raise TransientError(f"the upload to {name} failed ({error}); try again later") from error
    return str(commit.commit_url)
