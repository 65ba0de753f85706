# Development commands; `make help` lists them. `make test` works as the very first command.

SHELL := bash
VENV := .venv
BIN := $(VENV)/bin
# PYTHON=/path/to/python3.12 chooses the interpreter; otherwise the first of these that runs and is new enough
PYTHON ?=
CANDIDATES := python3.13 python3.12 python3.11 python3
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

CORES := $(shell getconf _NPROCESSORS_ONLN)
# more workers than cores: a test that starts a process waits for it
SPREAD := -n $(shell echo $$(($(CORES) + 1))) --dist worksteal
# and tests that start daemons wait for a good part of their time
SPREAD_WIDER := -n $(shell echo $$(($(CORES) * 3))) --dist worksteal

# stamps: nothing is installed twice. What a user gets is enough to run mailboxd; the tools come on top of it
USABLE := $(VENV)/.usable
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# pytest keeps what it makes of the tests: making it takes each worker longer than importing everything
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install test slow net portable live browser screenshots recording mutants soak fuzz bench bench-cost walk check lint bandit types layers format demo docs site man dist lock audit-deps clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Create .venv and install mailboxd and its tools into it

test: $(INSTALLED) ## Run the tests (ARGS="-k inbox" passes arguments to pytest)
	$(BIN)/pytest $(SPREAD) -m "not slow and not soak" $(ARGS)

slow: $(INSTALLED) ## Run the slow tests: demo, tutorial, 10,000 nodes, mutants
	$(BIN)/pytest $(SPREAD_WIDER) -m "slow and not soak" --durations=30 $(ARGS)

# who replaces a part of the engine, the store or the effects runs it after each step; it knows none of them from inside
NET := e2e simulation core cli mcp rebuild audit properties ledger/test_views.py ledger/test_conformance.py
net: $(INSTALLED) ## Run the tests that any engine and any store must pass: e2e, simulation, views, conformance
	$(BIN)/pytest $(SPREAD) -m "not slow and not soak" $(NET:%=tests/%) $(ARGS)

# the functions of host/portable.py in place of Linux's, in whole daemons
portable: $(INSTALLED) ## Run whole daemons with what macOS and other systems get
	MAILBOXD_PORTABLE=1 $(BIN)/pytest $(SPREAD) -m "not slow and not soak" tests/e2e/test_daemon.py tests/agents/test_gateway.py tests/daemon/test_wakeup.py $(ARGS)

# two workers at most: each has a gateway of its own, and every call is a Node process of 200 MB
live: $(INSTALLED) ## Run the tests with a real OpenClaw, installed into ~/.cache/mailboxd-live
	$(BIN)/python -m tests.live.install
	$(BIN)/pytest -n 2 --dist worksteal -m "not soak" --durations=40 tests/live $(ARGS)

# one worker: all tests share one running company
browser: $(INSTALLED) ## Test the page in Chromium, which must be installed (CHROMIUM=/path)
	$(BIN)/pytest -n 0 tests/browser $(ARGS)

screenshots: $(INSTALLED) ## Regenerate the screenshots in docs/images (needs Chromium)
	$(BIN)/python -m tests.browser.screenshots docs/images

recording: $(INSTALLED) ## Film docs/images/mailboxd.gif again, from the real program (needs Chromium)
	$(BIN)/python -m tests.browser.recording docs/images/mailboxd.gif

mutants: $(INSTALLED) ## Check that the tests kill every mutant of the core
	$(BIN)/python -m tests.properties.mutants

soak: $(INSTALLED) ## Test for hours: more histories (SEEDS=2000), a kill at every point, all live tests
	SEEDS=$(or $(SEEDS),2000) EXPLORE=1 $(BIN)/pytest -n auto tests/simulation tests/properties
	$(BIN)/pytest $(SPREAD_WIDER) -m soak
	$(BIN)/python -m tests.live.install
	$(BIN)/pytest -n 2 --dist worksteal -m soak tests/live

# each parser of untrusted text in turn; the corpus in .fuzz/ is kept for the next run
FUZZED ?= message signature taskfile plan checks actions answer outcome openclaw config
fuzz: $(INSTALLED) ## Fuzz every parser of untrusted text for SECONDS (60) each (SECONDS=600 FUZZED="plan config")
	@for target in $(FUZZED); do $(BIN)/python -m tests.fuzz.run $$target $(or $(SECONDS),60) || exit 1; done

# the peers have their own environment, created once
BENCH := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mailboxd-bench/$(shell sha256sum bench/requirements.txt | cut -c1-12)
bench: $(INSTALLED) $(BENCH)/.made ## Measure against floors and peers (QUICK=1: minutes; ONLY=chain,status: parts; BASE=/mnt)
	exec $(BIN)/python -m bench --peers $(BENCH)/bin/python $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)") $(if $(BASE),--base $(BASE))

$(BENCH)/.made:
	$(BIN)/python -m venv --clear $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --requirement bench/requirements.txt
	@touch $@

bench-cost: $(INSTALLED) ## Count what coordination costs on a real OpenClaw: sub-agents, the skill, mailboxd (ARGS="--only native,text")
	$(BIN)/python -m tests.live.install
	exec $(BIN)/python -m bench.coordination $(ARGS)

walk: $(INSTALLED) ## Print the path of a task through the code, from the dropped file to the spawned turn
	$(BIN)/python -m bench.walk

check: lint bandit types layers site test slow ## Everything CI checks: style, types, layers, all tests

lint: $(INSTALLED) ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint --ignore DL3008 container/Containerfile

bandit: $(INSTALLED) ## Scan for insecure code
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive mailboxd

types: $(INSTALLED) ## Check types
	$(BIN)/mypy

layers: $(INSTALLED) ## Check the layer contracts between packages
	$(BIN)/lint-imports

format: $(INSTALLED) ## Fix style and format automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(USABLE) ## Run the example company, live (KILL=1: with kills; DIALECT=any: as many models answer)
	@exec $(BIN)/mailboxd demo .demo $(if $(KILL),--kill) $(if $(DIALECT),--dialect "$(DIALECT)" --seed $(or $(SEED),1)) $(ARGS)

docs: $(INSTALLED) ## Regenerate the pages that are derived from the code
	$(BIN)/python docs/generate.py

# the variable silences an announcement of the theme
site: $(INSTALLED) ## Build the documentation site into .site/; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# an installed wheel has the pages where `man mailboxd` finds them
man: $(INSTALLED) ## Show a man page (MAN=mailboxd-send)
	$(BIN)/python -c 'import runpy; print(runpy.run_path("docs/manpages.py")["pages"]()["$(or $(MAN),mailboxd).1"])' | man -l -

dist: $(INSTALLED) ## Build the wheel, the source archive, the skill and the plugin into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	mkdir dist/clawhub && cp -R templates/openclaw-skill dist/clawhub/mailboxd
	grep -rl @AGENT@ dist/clawhub | xargs sed -i.orig 's/@AGENT@/<your agent id>/g'
	find dist/clawhub -name '*.orig' -delete
	@if command -v npm >/dev/null; then npm pack ./templates/openclaw-plugin --pack-destination dist --silent; \
		else echo "no npm: the plugin's package is not built"; fi

PIN := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-annotate --quiet --custom-compile-command 'make lock'
lock: ## Pin all requirements with hashes (needs uv)
	$(PIN) --extra all --group dev --output-file requirements-dev.txt
	$(PIN) --extra all --group build --constraint requirements-dev.txt --output-file requirements.txt

# not part of `check`, since advisories change without the code and need the network; pip-audit has its own environment
audit-deps: ## Check the pinned packages for known vulnerabilities
	$(BIN)/python -m venv .audit
	.audit/bin/pip install --quiet pip-audit==2.10.1
	.audit/bin/pip-audit --requirement requirements-dev.txt --disable-pip --require-hashes --strict --progress-spinner off

clean: ## Remove build results and caches, except .venv
	rm -rf build dist .site .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(INSTALLED): $(LOCKED) pyproject.toml
	@echo "installing mailboxd"
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q mailboxd tests  # otherwise each of a thousand test processes would, with PYTHONDONTWRITEBYTECODE
	@touch $@

# makes the environment, and does it again if it was left half made. A version manager's shim may exist without an interpreter,
# so each candidate is run
define environment
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		for python in $(or $(PYTHON),$(CANDIDATES)); do \
			if "$$python" -c '$(SUITABLE)' >/dev/null 2>&1; then found="$$python"; break; fi; \
		done; \
		if [ -z "$$found" ]; then \
			echo "make: no Python 3.11 or newer with venv (tried: $(or $(PYTHON),$(CANDIDATES)));" \
				"install one, or name it: make test PYTHON=/path/to/python3" >&2; \
			exit 1; \
		fi; \
		echo "creating $(VENV) with $$found"; \
		"$$found" -m venv --clear $(VENV); \
	fi
endef

# installs the packages that a file pins, and says how far it is
define pinned
	@total=$$(grep -c == $(1)); echo "installing $$total pinned packages into $(VENV), once:"; set -o pipefail; \
	PYTHONUNBUFFERED=1 $(BIN)/python -m pip install --progress-bar off --require-hashes --requirement $(1) | \
		awk -v total="$$total" '/^Collecting/ {printf "  %d of %d: %s\n", ++count, total, $$2; fflush()} /^Installing/ {print "  unpacking"; fflush()}'
endef

$(USABLE): requirements.txt pyproject.toml
	$(environment)
	$(call pinned,requirements.txt)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(LOCKED): requirements-dev.txt
	$(environment)
	$(call pinned,requirements-dev.txt)
	@touch $@
