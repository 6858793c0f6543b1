# make run    set up the environment, run the pipeline, print the results
# make test   run style checks, type checks and tests
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
# uv looks for PyTorch's CPU build in pip's find-links, if configured, and otherwise on TORCH_INDEX.
LINKS = $(or $(UV_FIND_LINKS),$(shell $(BIN)/python -m pip config get global.find-links 2>/dev/null))
CPU_TORCH = $(if $(LINKS),--find-links $(LINKS),--extra-index-url $(TORCH_INDEX) --index-strategy unsafe-best-match)
COMPILE = uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-find-links
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# uv installs a lock in seconds; if uv cannot reach pip's index, pip installs it in minutes.
INDEX = $(addprefix --default-index ,$(or $(PIP_INDEX_URL),$(shell $(BIN)/python -m pip config get global.index-url 2>/dev/null)))
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
LOCKED := --no-deps --require-hashes
install = $(UV) $(INDEX) $(LOCKED) -r $(1) 2>/dev/null || $(PIP) install $(LOCKED) -r $(1)
STAMP := $(VENV)/.installed-$(BUILD)
DEV_STAMP := $(VENV)/.installed-dev

# Stages and tests use this environment's python, dvc and prefect. Telemetry is off.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DO_NOT_TRACK := 1
export DVC_NO_ANALYTICS := 1
export GX_ANALYTICS_ENABLED := false
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export PYTHONHASHSEED := 0
# Bytecode caching stays on: without it every process compiles torch and Great Expectations again (5 s each).
export PYTHONDONTWRITEBYTECODE :=
export TOKENIZERS_PARALLELISM := false

.DEFAULT_GOAL := help
.PHONY: help env run world results test check lock deploy undeploy bench clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | awk -F ':.*  ## ' '{printf "  make %-10s %s\n", $$1, $$2}'

env: $(STAMP)  ## install the hash-locked requirements into .venv

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

data: data.dvc | $(STAMP)  ## restore the shipped world and its models from infra/world
	@dvc pull --quiet data.dvc
	@touch $@

run: $(STAMP) data  ## run the pipeline of the active profile and print the results
	@pathfinder run

world: $(STAMP)  ## rebuild the shipped world from its seed (LEVEL=replica-small: the richer world); about 70 minutes, resumable
	@nice dvc repro infra/pretraining/dvc.yaml:corpus@$(LEVEL) infra/pretraining/dvc.yaml:measure@$(LEVEL)

results: $(STAMP)  ## print the results table of the last run
	@python -c 'from pathfinder.reporting.results import results_table; print(results_table(), end="")'

test: $(DEV_STAMP) data  ## run style checks, type checks and tests
	@$(MAKE) --no-print-directory check
	@OMP_NUM_THREADS=1 python -m pytest -n 3 --dist loadscope -m "not benchmarks"

check: $(DEV_STAMP)  ## run style and type checks only
	@ruff check .
	@ruff format --check .
	@mypy

lock: $(STAMP)  ## regenerate the lock files from infra/requirements*.in (UPGRADE=--upgrade: newer versions)
	@echo uv | uv pip compile --quiet --generate-hashes --no-header --no-annotate $(UPGRADE) - -o infra/uv.lock
	@$(COMPILE) $(UPGRADE) infra/requirements.in -o infra/locks/cuda.lock
	@$(COMPILE) $(UPGRADE) $(CPU_TORCH) -c <(grep -oE '^[a-z0-9._-]+==[^ ]+' infra/locks/cuda.lock | grep -v ^torch=) --no-emit-package torch \
	  infra/requirements.in -o infra/locks/cpu.lock
	@$(COMPILE) $(UPGRADE) $(CPU_TORCH) -c infra/locks/cpu.lock --no-emit-package torch \
	  infra/requirements-dev.in -o infra/requirements-dev.lock
	@$(COMPILE) $(UPGRADE) infra/requirements-vllm.in -o infra/requirements-vllm.lock

deploy: $(STAMP)  ## start the Prefect deployment (process pool; its nightly schedule is inactive)
	@python -m flows.deploy up

undeploy: $(STAMP)  ## stop the Prefect deployment
	@python -m flows.deploy down

bench: $(DEV_STAMP) data  ## run the benchmarks
	@OMP_NUM_THREADS=1 python -m pytest -m benchmarks -s

clean:  ## remove the pipeline's outputs (keeps .venv and the remote storage)
	@git clean -fdXq -- artifacts models metrics reports dvc_plots
