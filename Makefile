# Needs only Python >= 3.11 and make: every target makes its own virtual environment.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-core test-wings quick figures check wings words docs slow mutants dist try-wheel try-extras clean

demo: $(READY)
	$(BIN)/jouletrace demo --with-profile

# Four workers on two cores: many tests wait for processes of their own. Each worker imports all libraries, some 1 GB.
WORKERS := -n 4 --dist worksteal
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q $(WORKERS)

# Tests of wings, and those that walk over all that is there: pages, help, names. All others are the core's, which run in a copy
# without wings.
WITH_WINGS := tests/wings tests/frozen tests/test_imports.py tests/report/test_trust.py tests/studies/test_table.py tests/test_docs.py tests/test_docs_commands.py tests/test_extension.py tests/test_figures.py

# Both at once, since each begins with imports on one core; what a failed one prints follows the other's.
test: $(READY)
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going test-core test-wings

test-core: $(READY)
	$(BIN)/python tests/without_wings.py -- $(WORKERS) -m "not slow and not gpu" $(addprefix --ignore=,$(WITH_WINGS))

test-wings: WORKERS := -n 3 --dist worksteal
test-wings: $(READY)
	$(PYTEST) -m "not slow and not gpu" $(WITH_WINGS)

# Two minutes on two cores: all but what takes more than a tenth of a second of CPU.
quick: $(READY)
	$(PYTEST) -m "not slow and not gpu and not thorough"

# Then all tests that need no other wing, once for each wing without the others.
slow: $(READY)
	$(BIN)/python -m pytest -q -m "slow and not gpu" --timeout 3600
	$(BIN)/python tests/without_wings.py --each -- $(WORKERS) -m "not slow and not gpu"

# Every figure of README.md and of docs that has raw data here, computed from them again: half a minute. `make test` compares
# them too, but takes figures of recordings with kernels as their Runs state them.
figures: $(READY)
	$(BIN)/python benchmarks/stated.py

# Whether tests notice a wrong formula of an uncertainty, and arbitrary mistakes in the packages of estimation
# (tests/mutants/survivors.py lists those that go unnoticed, with the reason); three quarters of an hour on one core.
mutants: $(READY)
	$(BIN)/python tests/mutants/run.py
	$(BIN)/python tests/mutants/sampled.py

check: $(READY) wings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tests/check_words.py

# Each wing without the others: all modules are imported, and the help is printed.
wings: $(READY)
	$(BIN)/python tests/without_wings.py --each

# Words that the prose of pages and source avoids, with what to write instead (tests/words.toml).
words: $(READY)
	$(BIN)/python tests/check_words.py

# The pages as a site, build/site/index.html; a link to what isn't there fails it. Only mkdocs is installed, not jouletrace.
docs: build/docs/.ready
	NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict

build/docs/.ready: pyproject.toml
	$(PYTHON) -m venv build/docs
	build/docs/bin/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" > build/docs/requirements.txt
	build/docs/bin/python -m pip install --quiet --no-compile --requirement build/docs/requirements.txt
	touch $@

# What a release holds: the source, and the wheel that is built from it.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

# The wheel in an environment of its own, without torch.
try-wheel: dist
	$(PYTHON) -m zipfile --list dist/*.whl | grep jouletrace/tracer/native.so
	rm -rf build/clean
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --no-compile dist/*.whl
	cd build/clean && bin/jouletrace --version && bin/jouletrace --help > help.txt && bin/jouletrace doctor && bin/jouletrace demo
	cd build/clean && bin/jouletrace demo --json > demo.json
	build/clean/bin/python -c 'import json; assert all(run["model"]["energy_j"]["total"]["value"] > 0 for run in json.load(open("build/clean/demo.json")))'

# Each extra in an environment of its own: seven minutes.
try-extras: dist
	$(PYTHON) tests/try_extras.py dist/*.whl

# torch comes in through constraints.txt, so that one known version is installed. Bytecode is written for what is imported alone:
# all of it takes 45 s.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard src/jouletrace/tracer/native/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[torch,report,openvino,dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
