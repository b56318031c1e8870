# Needs only Python >= 3.11 and make: every target makes its own virtual environment.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test check slow wheel clean

demo: $(READY)
	$(BIN)/jouletrace demo --with-profile

test: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 4 --dist worksteal -m "not slow and not gpu"

slow: $(READY)
	$(BIN)/python -m pytest -q -m "slow and not gpu" --timeout 1200

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
