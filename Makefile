# make demo: from nothing to a trained small model and a sample of it.  make test: from nothing to a tested tree.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIBRARIES := $(VENV)/libraries
# their build scripts ask for a CUDA compiler unless told twice that there is none
NO_CUDA := MAMBA_SKIP_CUDA_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE \
  CAUSAL_CONV1D_SKIP_CUDA_BUILD=TRUE CAUSAL_CONV1D_FORCE_BUILD=TRUE \
  FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE FLASH_ATTENTION_FORCE_BUILD=TRUE
JOBS ?= auto

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint format bench smollm2 clean

help:
	@echo "make demo      compile specs/demo_hybrid.hyb, show its report, train it, print a sample"
	@echo "make test      run all tests"
	@echo "make test-all  run all tests with many more generated cases, and those that need a download (93 MB)"
	@echo "make lint      ruff, ruff format and mypy"
	@echo "make format    let ruff mend what it can"
	@echo "make bench     time the command line"
	@echo "make smollm2   a real model from its GGUF file: perplexity against transformers, and a sample"
	@echo "make clean     remove what these made; the environment goes too"

install: $(STAMP)

# Stale when the requirements or the metadata change; the package itself is installed in place.
$(STAMP): requirements/dev.txt requirements/libraries.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "hybridc needs Python 3.11 or newer, and $(PYTHON) is older or missing: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "cannot make a virtual environment: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	$(NO_CUDA) $(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target $(LIBRARIES) \
	  --no-deps --no-build-isolation -r requirements/libraries.txt
	@touch $@

demo: $(STAMP)
	$(BIN)/hybridc compile specs/demo_hybrid.hyb -o build/demo
	$(BIN)/hybridc report build/demo
	$(BIN)/python examples/demo_train.py build/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS)

test-all: $(STAMP)
	HYBRIDC_EXAMPLES=10000 $(BIN)/python -m pytest -m "" -n $(JOBS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python bench/startup.py

smollm2: $(STAMP)
	$(BIN)/python bench/smollm2.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
