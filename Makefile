# Every target is one line of shell that also works by hand; `make help` lists them.
.DEFAULT_GOAL := help
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 --editable ".[dev]"

.PHONY: help install demo demo-short verify-short test lint docs check bench clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/.installed: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL)
	@touch $@

install: $(BIN)/.installed  ## make .venv and install sparsemod with the development tools

demo: install  ## search for digit classifiers on the 8x8 digits (4 minutes)
	cd examples/digits && $(abspath $(BIN))/python main.py

demo-short: install  ## the same search with a handful of arms (20 seconds)
	cd examples/digits && $(abspath $(BIN))/python main.py short.cfg

test: install  ## run the tests
	$(BIN)/python -m pytest -n auto

lint: install  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

verify-short: demo-short  ## compare the short search's networks with the real runtimes
	cd examples/digits && $(abspath $(BIN))/sparsemod verify results-short --front

docs: install  ## build the documentation into site/ (with its search: mkdocs serve)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: lint docs test verify-short  ## everything that has to be green before a change lands

bench: install  ## the measurements that the README quotes (10 minutes)
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

clean:  ## remove .venv and caches
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
