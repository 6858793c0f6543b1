# make run    set up the environment, run the pipeline, print the results
# make test   the tests, in the same environment
# make help   everything else
#
# BUILD=cuda takes PyTorch's CUDA build from the package index instead of the CPU build.
# LEVEL names what `make world` makes: a level of infra/pretraining/params.yaml.
# TORCH_INDEX is where the CPU build comes from when pip is not configured to find it.

SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BUILD ?= cpu
LEVEL ?= quickstart
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Where uv looks for PyTorch's CPU build when it renews the locks: where pip is told to look, or on that index.
LINKS = $(or $(UV_FIND_LINKS),$(shell $(BIN)/python -m pip config get global.find-links 2>/dev/null))
CPU_TORCH = $(if $(LINKS),--find-links $(LINKS),--extra-index-url $(TORCH_INDEX) --index-strategy unsafe-best-match)
COMPILE = uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-find-links
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# uv installs a lock in seconds; where it does not reach the index that pip is configured for, pip takes minutes.
INDEX = $(addprefix --default-index ,$(or $(PIP_INDEX_URL),$(shell $(BIN)/python -m pip config get global.index-url 2>/dev/null)))
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
LOCKED := --no-deps --require-hashes
install = $(UV) $(INDEX) $(LOCKED) -r $(1) 2>/dev/null || $(PIP) install $(LOCKED) -r $(1)
STAMP := $(VENV)/.installed-$(BUILD)
DEV_STAMP := $(VENV)/.installed-dev

# Stages and tests find this environment's python, dvc and prefect; nothing phones home.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DO_NOT_TRACK := 1
export DVC_NO_ANALYTICS := 1
export GX_ANALYTICS_ENABLED := false
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export PYTHONHASHSEED := 0
# Python keeps what it compiled: without that every process compiles torch and Great Expectations anew (5 s each).
export PYTHONDONTWRITEBYTECODE :=
export TOKENIZERS_PARALLELISM := false

.DEFAULT_GOAL := help
.PHONY: help env run world results test check lock deploy undeploy bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | awk -F ':.*  ## ' '{printf "  make %-10s %s\n", $$1, $$2}'

env: $(STAMP)  ## set up .venv from the hash-locked requirements

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "Python 3.11 is needed; name it with: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV) (a few minutes, once)"
	@$(PYTHON) -m venv $(VENV)

$(STAMP): infra/locks/$(BUILD).lock infra/torch-cpu.lock pyproject.toml | $(VENV)/bin/python
	@$(PIP) install $(LOCKED) -r infra/uv.lock
ifeq ($(BUILD),cpu)
	@$(PIP) install $(LOCKED) -r infra/torch-cpu.lock 2>/dev/null || \
	  $(PIP) install $(LOCKED) --index-url $(TORCH_INDEX) -r infra/torch-cpu.lock
endif
	@$(call install,infra/locks/$(BUILD).lock)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV_STAMP): infra/requirements-dev.lock $(STAMP)
	@$(call install,infra/requirements-dev.lock)
	@touch $@

data: data.dvc | $(STAMP)  ## fetch the small world and its models from the remote that travels with the repository
	@dvc pull --quiet data.dvc
	@touch $@

run: $(STAMP) data  ## run the pipeline of the active profile and print the results
	@pathfinder run

world: $(STAMP)  ## make what data/ ships from a seed (LEVEL=replica-small: the richer world); a good hour, resumable
	@nice dvc repro infra/pretraining/dvc.yaml:corpus@$(LEVEL) infra/pretraining/dvc.yaml:measure@$(LEVEL)

results: $(STAMP)  ## print the results table of the last run
	@python -c 'from pathfinder.reporting.results import results_table; print(results_table(), end="")'

test: $(DEV_STAMP) data  ## style, types and tests
	@$(MAKE) --no-print-directory check
	@OMP_NUM_THREADS=1 python -m pytest -n 3 --dist loadscope -m "not benchmarks"

check: $(DEV_STAMP)  ## style and types alone
	@ruff check .
	@ruff format --check .
	@mypy

lock: $(STAMP)  ## renew the lock files from infra/requirements*.in (UPGRADE=--upgrade takes newer versions)
	@echo uv | uv pip compile --quiet --generate-hashes --no-header --no-annotate $(UPGRADE) - -o infra/uv.lock
	@$(COMPILE) $(UPGRADE) infra/requirements.in -o infra/locks/cuda.lock
	@$(COMPILE) $(UPGRADE) $(CPU_TORCH) -c <(grep -oE '^[a-z0-9._-]+==[^ ]+' infra/locks/cuda.lock | grep -v ^torch=) --no-emit-package torch \
	  infra/requirements.in -o infra/locks/cpu.lock
	@$(COMPILE) $(UPGRADE) $(CPU_TORCH) -c infra/locks/cpu.lock --no-emit-package torch \
	  infra/requirements-dev.in -o infra/requirements-dev.lock
	@$(COMPILE) $(UPGRADE) infra/requirements-vllm.in -o infra/requirements-vllm.lock

deploy: $(STAMP)  ## put up the Prefect deployment (process pool, nightly schedule, inactive until asked for)
	@python -m flows.deploy up

undeploy: $(STAMP)  ## take the deployment down
	@python -m flows.deploy down

bench: $(DEV_STAMP) data  ## benchmarks, side by side in one run
	@OMP_NUM_THREADS=1 python -m pytest -m benchmarks -s

clean:  ## remove what the pipeline made here (not .venv, not the remote storage)
	@git clean -fdXq -- artifacts models metrics reports dvc_plots
