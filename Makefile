# Every target sets up what it needs: a virtual environment with the locked dependencies first of all.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The demo needs few of the dependencies: a newcomer waits for those only.
DEMO_STAMP := $(VENV)/.installed-for-demo
MACHINE ?= examples/machines/hgx-h100.yaml
# Which Kubernetes the real cluster runs: 1.37 or 1.36.
KUBERNETES ?=
export LANEWISE_KUBERNETES := $(KUBERNETES)
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url

.PHONY: help test test-gpu lint gen gen-check lock demo cluster cluster-down e2e bench clean
help: ## what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(STAMP): requirements/dev.txt pyproject.toml
	@tools/venv "$(PYTHON)" "$(VENV)" requirements/dev.txt
	@touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): requirements/demo.txt
	@tools/venv "$(PYTHON)" "$(VENV)" requirements/demo.txt
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
	$(UV_COMPILE) pyproject.toml --extra node --extra controller --extra sandbox --group dev -o requirements/dev.txt
	$(UV_COMPILE) pyproject.toml --extra node -o requirements/node.txt
	$(UV_COMPILE) pyproject.toml --extra controller -o requirements/controller.txt
	$(UV_COMPILE) pyproject.toml --extra node --extra sandbox -o requirements/demo.txt

demo: $(DEMO_STAMP) ## the main job on a cluster in one process, told step by step: make demo MACHINE=examples/machines/dgx-a100.yaml
	@$(BIN)/python -m cli.main demo --machine $(MACHINE) $(DEMO_ARGS)

cluster: $(STAMP) ## a cluster to play with, Lanewise on a simulated machine: make cluster MACHINE=examples/machines/dgx-a100.yaml
	$(BIN)/python -m tests.cluster up --machine $(MACHINE)

cluster-down: $(STAMP) ## stop it and forget it
	$(BIN)/python -m tests.cluster down

e2e: $(STAMP) ## the suites that need the real cluster or upstream's code (root and Go needed); KUBERNETES=1.36 for the oldest version
	$(BIN)/python -m tests.cluster build
	$(BIN)/pytest -m cluster tests/e2e tests/contract tests/upstream $(PYTEST_ARGS)

bench: $(STAMP) ## what it costs, beside the floors of this machine (root and Go needed); writes docs/performance.md with BENCH_ARGS=--write-docs
	$(BIN)/python -m tests.cluster build
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
