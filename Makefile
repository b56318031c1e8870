# Needs only Python >= 3.11 and make: every target makes its own virtual environment.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test quick check slow mutants wheel clean

demo: $(READY)
	$(BIN)/jouletrace demo --with-profile

# Four workers on two cores: many tests wait for processes of their own.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 4 --dist worksteal

test: $(READY)
	$(PYTEST) -m "not slow and not gpu"

# Two minutes on two cores: all but what takes more than half a second.
quick: $(READY)
	$(PYTEST) -m "not slow and not gpu and not thorough"

slow: $(READY)
	$(BIN)/python -m pytest -q -m "slow and not gpu" --timeout 3600

# Whether tests notice a wrong formula of an uncertainty; some ten minutes.
mutants: $(READY)
	$(BIN)/python tests/mutants/run.py

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

wheel: $(READY)
	$(BIN)/python -m build --wheel --outdir dist .

# torch comes in through constraints.txt, so that one known version is installed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,report,openvino,fleet,dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
