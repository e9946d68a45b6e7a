# `make demo` and `make test` need only Python (3.11 or later), make and git: the rest is set up here, on demand.
PYTHON ?= python3
VENV ?= .venv
DIST ?= dist
ARGS ?=

BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip -qq
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export MPLBACKEND = Agg

.DEFAULT_GOAL = help
.PHONY: help demo demo-map test test-processes test-experiments test-spark lint types doctest check bench bench-quick audit mutants docs site wheel clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 13

# One environment, filled in steps: each stamp says that a set of dependencies is installed.
$(VENV)/.core: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.test $(VENV)/.lint $(VENV)/.bench $(VENV)/.serve $(VENV)/.site $(VENV)/.spark: $(VENV)/.%: $(VENV)/.core
	@echo "adding what $* needs to $(VENV)"
	@$(PIP) install --editable '.[$*]'
	@touch $@

demo: $(VENV)/.core  ## publish the sample, answer queries, draw the map
	$(BIN)/deltahist demo --out build/demo

demo-map: demo $(VENV)/.serve  ## publish the sample, and show its map in the browser
	@(for try in $$(seq 300); do $(BIN)/python -c 'import urllib.request as r; r.urlopen("http://127.0.0.1:8000/healthz")' 2>/dev/null && break; sleep 0.2; done; \
	  $(BIN)/python -m webbrowser -t http://127.0.0.1:8000/ >/dev/null) &
	$(BIN)/deltahist serve build/demo/city.parquet

# Every core has a process of its own, so linear algebra gets one thread in each.
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest
WORKERS = -n auto --maxprocesses 8

# Tests are handed out the longest first, so that no worker ends alone.
test: $(VENV)/.test  ## run the quick tests (ARGS="-k grids" to choose)
	$(PYTEST) $(WORKERS) --dist worksteal -m "not slow and not audit and not experiment and not process" --ignore=tests/spark $(ARGS)

test-processes: $(VENV)/.test  ## run the tests that start processes: services, browsers, limits, kills
	$(PYTEST) $(WORKERS) --dist loadfile -m "process and not slow" --ignore=tests/spark --ignore=tests/browser/test_site.py $(ARGS)

test-experiments: $(VENV)/.test  ## run every script of experiments/, small (ARGS="-m 'experiment and not slow'" for the quick ones)
	$(PYTEST) -m experiment $(ARGS)

test-spark: $(VENV)/.test $(VENV)/.spark  ## run the tests on a Spark of this machine, which needs Java 17
	$(PYTEST) tests/spark $(ARGS)

mutants: $(VENV)/.test $(VENV)/.spark  ## plant bugs in a copy and see that the quick tests catch each (ARGS="flow" to choose)
	$(BIN)/python -m tests.mutants $(ARGS)

audit: $(VENV)/.test  ## run every privacy audit, slow ones included (ARGS="-m 'audit and not slow'" for one of each)
	$(PYTEST) $(WORKERS) -m audit $(ARGS)

doctest: $(VENV)/.test  ## run the examples in the docstrings
	$(PYTEST) --doctest-modules deltahist $(ARGS)

check: lint types test  ## lint, types and the quick tests

lint: $(VENV)/.lint  ## check the style, and that imports run downwards
	$(BIN)/ruff check
	$(BIN)/codespell --dictionary - --dictionary tools/words.txt deltahist docs *.md
	$(BIN)/proselint check *.md docs $$(find deltahist -name '*.py')
	$(BIN)/lint-imports --no-logo --no-cache

types: $(VENV)/.lint  ## check the types
	$(BIN)/mypy

docs: $(VENV)/.test  ## check the documentation's links and its site, and run its examples
	$(BIN)/md-dead-link-check --config pyproject.toml
	$(PYTEST) -q README.md CONTRIBUTING.md docs tests/browser/test_site.py

site: $(VENV)/.site  ## build the documentation's site in build/site
	$(BIN)/python -m tools.site build
	@echo "to read it: $(BIN)/python -m http.server --directory build/site"

bench: $(VENV)/.bench  ## write the table of what the defaults take (ARGS=noise, ARGS=all for other benchmarks)
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(VENV)/.core  ## see that the defaults are not three times as slow as benchmarks/results.md says
	$(BIN)/python -m benchmarks --quick

wheel: $(VENV)/.core  ## build the wheel
	$(PIP) wheel --no-deps --wheel-dir $(DIST) .

clean:  ## remove everything made here
	rm -rf .venv build dist deltahist-demo experiments/out .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
