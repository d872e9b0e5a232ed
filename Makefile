# Every target sets up what it needs: a virtual environment with the locked dependencies first of all.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MACHINE ?= examples/machines/hgx-h100.yaml
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url

.PHONY: help test test-gpu lint gen gen-check lock demo cluster cluster-down e2e clean
help: ## what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(STAMP): requirements/dev.txt pyproject.toml
	@tools/venv "$(PYTHON)" "$(VENV)"
	@touch $@

test: $(STAMP) ## the unit suite: no root, no cluster, no GPU
	$(BIN)/pytest -m "not cluster and not gpu" -n 2 --dist loadscope $(PYTEST_ARGS)

test-gpu: $(STAMP) ## the checks that need an NVIDIA GPU with its driver on this machine
	$(BIN)/pytest -m gpu tests/gpu $(PYTEST_ARGS)

lint: $(STAMP) ## style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

gen: $(STAMP) ## rewrite the generated modules
	$(BIN)/python tools/gen.py

gen-check: $(STAMP) ## fail when the generated modules are stale
	$(BIN)/python tools/gen.py --check

lock: $(STAMP) ## rewrite the locked dependencies from pyproject.toml
	$(UV_COMPILE) pyproject.toml --extra node --extra controller --group dev -o requirements/dev.txt
	$(UV_COMPILE) pyproject.toml --extra node -o requirements/node.txt
	$(UV_COMPILE) pyproject.toml --extra controller -o requirements/controller.txt

demo: $(STAMP) ## the main job on a real Kubernetes on this machine (root and Go needed)
	$(BIN)/python -m tests.cluster demo --machine $(MACHINE)

cluster: $(STAMP) ## a cluster to play with, Lanewise on a simulated machine: make cluster MACHINE=examples/machines/dgx-a100.yaml
	$(BIN)/python -m tests.cluster up --machine $(MACHINE)

cluster-down: $(STAMP) ## stop it and forget it
	$(BIN)/python -m tests.cluster down

e2e: $(STAMP) ## the suite that needs the real cluster (root and Go needed)
	$(BIN)/python -m tests.cluster build
	$(BIN)/pytest -m cluster tests/e2e tests/contract $(PYTEST_ARGS)

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
