# Palaver's front door. Needs make, and Python 3.11 or newer with venv; everything else is installed into .venv.
# Another Python: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?=
VENV ?= .venv
BENCH_VENV ?= .venv-bench
PEERS_VENV ?= .venv-peers
BENCH ?= codec stream store loop context transcripts swarm gateway
ARGS ?=
BASE ?= main

PYTHONS := $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3)
PY := $(VENV)/bin/python
BENCH_PY := $(BENCH_VENV)/bin/python
PEERS_PY := $(PEERS_VENV)/bin/python
NODE := $(shell command -v npm)
# Tests that talk to servers and processes wait as long as they compute: two processes a core.
PROCESSES := $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 4 ? 2 * cores : 4)))
# A worker takes tests that stand together, which share what their folder sets up, and then those of a slower one.
SPREAD := -n $(PROCESSES) --dist worksteal
PIP := -m pip --disable-pip-version-check -qq install

# What the user's shell may carry and would change what is installed or what is run.
# Without bytecode every process, of which the tests start hundreds, compiles all that it imports.
unexport PYTHONHOME PYTHONPATH PYTHONOPTIMIZE PYTHONWARNINGS PYTHONDONTWRITEBYTECODE VIRTUAL_ENV
unexport PIP_CONSTRAINT PIP_DRY_RUN PIP_NO_DEPS PIP_PREFIX PIP_PYTHON PIP_REQUIREMENT PIP_ROOT PIP_TARGET
export PIP_USER := 0

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test test-changed test-long test-peers test-clients check release-check changelog bench docs constraints clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: $(VENV)/.runtime ## show a rich conversation and convert it to every wire
	@$(PY) demo/demo.py $(ARGS)

test: $(VENV)/.dev ## run the tests (ARGS="tests/core -k usage" for some of them)
	@$(PY) -m pytest $(SPREAD) $(ARGS)

test-changed: $(VENV)/.dev ## run the tests that a change needs (BASE=REV for what differs from REV; main by default)
	@tests=$$($(PY) tools/changed_tests.py --base $(BASE)) && \
	if [ -n "$$tests" ]; then $(PY) -m pytest $(SPREAD) $(ARGS) $$tests; else echo "nothing changed since $(BASE)"; fi

test-long: export HYPOTHESIS_PROFILE := long
test-long: $(VENV)/.dev ## run the tests that take minutes: crashes by the hundred, every recording everywhere, more examples
	@$(PY) -m pytest $(SPREAD) -m "long or hypothesis" $(ARGS)

test-peers: $(PEERS_VENV)/.peers $(VENV)/.dev ## let the programs' own packages read what we write (ARGS="-k langchain" for one)
	@if [ -n "$(NODE)" ] && [ ! -d tests/transcripts/peers/node_modules ]; then \
	    echo "Installing the packages of Node that own formats"; \
	    npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/transcripts/peers || \
	        echo "npm could not install them: their tests are skipped, by name" >&2; \
	fi
	@$(PEERS_PY) -m pytest tests/transcripts/peers $(ARGS)
	@$(PY) -m pytest tests/serve/peers $(ARGS)

test-clients: $(VENV)/.dev ## let the official clients for Node, Claude Code, Codex, Gemini CLI, Qwen Code and opencode speak through the gateway
	@if [ -n "$(NODE)" ] && [ ! -d tests/gateway/node/node_modules ]; then \
	    echo "Installing the official clients for Node (120 MB)"; \
	    npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/gateway/node || \
	        echo "npm could not install them: their tests are skipped, by name" >&2; \
	fi
	@if [ -n "$(NODE)" ] && [ ! -d tests/gateway/clients/node_modules ]; then \
	    echo "Installing the programs (1.2 GB)"; \
	    npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/gateway/clients || \
	        echo "npm could not install them: their tests are skipped, by name" >&2; \
	fi
	@$(PY) -m pytest tests/gateway/node tests/gateway/clients $(ARGS)

check: $(VENV)/.dev ## format, lint, types, layers, API lock, changelog, docs (ARGS="lint types FILE" for some)
	@$(PY) tools/check.py $(ARGS)

bench: $(BENCH_VENV)/.bench ## measure codecs, streams, stores, agents, context, dialects, swarms and the gateway against their peers (BENCH=stream for one of them)
	@if [ -n "$(NODE)" ] && [ -n "$(filter swarm,$(BENCH))" ] && [ ! -d bench/swarm_peers/node_modules ]; then \
	    echo "Installing the peer that runs under Node"; \
	    npm install --silent --no-audit --no-fund --no-package-lock --prefix bench/swarm_peers || \
	        echo "npm could not install it: its rows are skipped, by name" >&2; \
	fi
	@if [ -n "$(filter gateway,$(BENCH))" ] && [ ! -d .venv-litellm ]; then \
	    echo "Installing LiteLLM's proxy into .venv-litellm"; \
	    $(BENCH_PY) -m venv .venv-litellm && \
	        .venv-litellm/bin/python $(PIP) --requirement bench/gateway_peers/requirements.txt || \
	        echo "pip could not install it: its rows are skipped, by name" >&2; \
	fi
	@if [ -n "$(NODE)" ] && [ -n "$(filter gateway,$(BENCH))" ] && [ ! -d bench/gateway_peers/node_modules ]; then \
	    echo "Installing the gateway that runs under Node"; \
	    npm install --silent --no-audit --no-fund --no-package-lock --prefix bench/gateway_peers || \
	        echo "npm could not install it: its rows are skipped, by name" >&2; \
	fi
	@for each in $(BENCH); do $(BENCH_PY) bench/$$each.py $(ARGS) || exit; done

release-check: $(VENV)/.dev ## build the package, install it into an empty environment, and resolve its extras for every Python
	@$(PY) tools/package.py --install --extras

changelog: $(VENV)/.dev ## show the changelog of the next release
	@$(PY) -m towncrier build --draft

docs: $(VENV)/.dev ## build the documentation into docs/_build/html
	@$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

constraints: ## rewrite the constraints files with the newest versions
	@tools/constraints.sh

clean: ## remove everything that was built or installed here
	rm -rf $(VENV) .venv .venv-* tests/transcripts/peers/node_modules tests/gateway/*/node_modules bench/swarm_peers/node_modules bench/gateway_peers/node_modules build dist docs/_build htmlcov .coverage .coverage.*
	rm -rf .hypothesis .pytest_cache .ruff_cache .mypy_cache .import_linter_cache
	find src tests bench demo docs tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- environments: a stamp is newer than what it was installed from, so a second run does nothing ------------------

# Debian's python3 has no ensurepip until python3-venv is installed, so both are asked for.
define find_python
@set -eu; \
for python in $(PYTHONS); do \
    if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
        echo "Creating $(1) with $$($$python --version)"; \
        rm -rf $(1); \
        exec $$python -m venv $(1); \
    fi; \
done; \
echo "Palaver needs Python 3.11 or newer with venv (tried: $(PYTHONS)); on Debian: apt install python3-venv" >&2; \
exit 1
endef

$(PY):
	$(call find_python,$(VENV))

$(BENCH_PY):
	$(call find_python,$(BENCH_VENV))

$(PEERS_PY):
	$(call find_python,$(PEERS_VENV))

$(VENV)/.runtime: pyproject.toml constraints.txt | $(PY)
	@echo "Installing palaver into $(VENV)"
	@$(PY) $(PIP) --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(PY)
	@echo "Installing palaver and its development tools into $(VENV)"
	@$(PY) $(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $(VENV)/.runtime $@

$(BENCH_VENV)/.bench: pyproject.toml bench/peers.txt bench/constraints.txt | $(BENCH_PY)
	@echo "Installing palaver and its peers into $(BENCH_VENV)"
	@$(BENCH_PY) $(PIP) --constraint bench/constraints.txt --requirement bench/peers.txt --editable '.[gateway]'
	@touch $@

$(PEERS_VENV)/.peers: pyproject.toml tests/transcripts/peers/requirements.txt tests/transcripts/peers/constraints.txt | $(PEERS_PY)
	@echo "Installing palaver and the packages that own formats into $(PEERS_VENV)"
	@$(PEERS_PY) $(PIP) --constraint tests/transcripts/peers/constraints.txt \
	    --requirement tests/transcripts/peers/requirements.txt --editable .
	@touch $@
