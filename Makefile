# Everything a developer does here. `make help` lists it; `make test` works as the very first command.

VENV := .venv
BIN := $(VENV)/bin
# PYTHON=/path/to/python3.12 chooses the interpreter; else the first of these that runs and is new enough
PYTHON ?=
CANDIDATES := python3.13 python3.12 python3.11 python3
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

# twice as many workers as cores: the tests that start daemons spend half their time waiting for them
SPREAD := -n $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2))) --dist worksteal

# what of the requirements is installed: nothing is installed twice
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install test slow mutants soak check lint types layers format demo docs dist lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Create .venv and install mailboxd and its tools into it

test: $(INSTALLED) ## Run the tests (ARGS="-k inbox" passes arguments to pytest)
	$(BIN)/pytest $(SPREAD) -m "not slow" $(ARGS)

slow: $(INSTALLED) ## Run the long ones: demo, tutorial, 10,000 nodes, planted faults
	$(BIN)/pytest $(SPREAD) -m slow $(ARGS)

mutants: $(INSTALLED) ## Show that the tests find planted faults of the core
	$(BIN)/python -m tests.properties.mutants

soak: $(INSTALLED) ## Play more simulated histories (SEEDS=2000)
	SEEDS=$(or $(SEEDS),2000) $(BIN)/pytest -n auto tests/simulation

check: lint types layers test slow ## Everything CI checks: style, types, layers, all tests

lint: $(INSTALLED) ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED) ## Check types
	$(BIN)/mypy

layers: $(INSTALLED) ## Check who imports whom
	$(BIN)/lint-imports

format: $(INSTALLED) ## Mend style and format where that is mechanical
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(INSTALLED) ## Run the example workspace, live
	PATH="$(CURDIR)/$(BIN):$$PATH" bash workspace-example/demo.sh

docs: $(INSTALLED) ## Write the generated reference pages again
	$(BIN)/python docs/generate.py

dist: $(INSTALLED) ## Build the wheel and the source archive into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

lock: ## Pin all requirements again, with hashes (needs uv)
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-annotate \
		--quiet --custom-compile-command 'make lock' --output-file requirements-dev.txt

clean: ## Remove what was built and cached (.venv stays)
	rm -rf build dist .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(INSTALLED): $(LOCKED) pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# a version manager's shim may exist without an interpreter behind it, so each candidate is asked to run
$(LOCKED): requirements-dev.txt
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
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements-dev.txt
	@touch $@
