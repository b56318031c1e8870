"""The import table of docs/architecture.md, compared with the code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import jouletrace
from places import REPOSITORY
from shipped import WINGS

PACKAGE = Path(jouletrace.__file__).parent
TABLE = REPOSITORY / "docs" / "architecture.md"


def allowed_imports() -> dict[str, set[str]]:
    """The table in the documentation: package -> packages that it may import."""
    allowed: dict[str, set[str]] = {}
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 3 or not cells[0].startswith("`"):
            continue
        may = set(re.findall(r"`(\w+)`", cells[2]))
        if cells[2] == "all above":
            may = set(allowed)
        elif cells[2].startswith("all above but"):
            may = set(allowed) - may
        for name in re.findall(r"`(\w+)`", cells[0]):
            allowed[name] = may | {"errors"}
    return allowed


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a module that name what it imports, or may."""
    named = ast.Import | ast.ImportFrom | ast.Call | ast.Constant
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, named)]


@cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """All of a module, at the top, inside functions or for types alone."""
    return [node for node in nodes_of(path) if isinstance(node, ast.Import | ast.ImportFrom)]


OPENERS = ("import_module", "__import__")


@cache
def named_in_texts(path: Path) -> set[str]:
    """Modules of ours whose names are texts of a module, by dotted name: "jouletrace.devices.rapl:VENDOR"."""
    texts = [node.value for node in nodes_of(path) if isinstance(node, ast.Constant)]
    found = (re.fullmatch(r"(jouletrace(?:\.\w+)+)(?::\w+)?", text) for text in texts if isinstance(text, str))
    return {match[1] for match in found if match}


@cache
def opened_by_name(path: Path) -> set[str]:
    """Modules of ours that a module imports by a function, with the name in the call."""
    calls = [node for node in nodes_of(path) if isinstance(node, ast.Call) and node.args]
    names = [
        call.args[0].value
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] in OPENERS and isinstance(call.args[0], ast.Constant)
    ]
    return {name for name in names if isinstance(name, str) and name.partition(".")[0] == "jouletrace"}


def imports_of(path: Path) -> set[str]:
    """First-level packages of ours that a module imports, at the top, inside functions or by a name in a text."""
    found = {name.split(".")[1] for name in named_in_texts(path)}
    for node in import_statements(path):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
        found |= {name.split(".")[1] for name in names if name.startswith("jouletrace.")}
    return found


@pytest.mark.thorough
def test_the_table_lists_every_package():
    packages = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}
    assert packages == set(allowed_imports()) - {"errors"}


@pytest.mark.thorough
def test_nothing_imports_upwards():
    allowed = allowed_imports()
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        home = path.relative_to(PACKAGE).parts[0]
        if home.endswith(".py"):
            continue
        for other in imports_of(path) - {home}:
            if other in allowed and other not in allowed[home]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert not wrong, "\n".join(wrong)


OF_ALL = "Every package may import "
"""Begins the sentence of the page that lists the modules beside the packages."""

ENTRIES = {"__init__", "__main__"}
"""Modules of the package's own, by which it is entered."""


def test_modules_beside_the_packages_are_those_of_the_page_and_name_no_package():
    """Modules that every package may import can't bring a package in; ``higher`` and ``wing`` name others by design."""
    sentence = TABLE.read_text().partition(OF_ALL)[2].partition(". ")[0]
    paths = {path.stem: path for path in PACKAGE.glob("*.py") if path.stem not in ENTRIES}
    assert set(re.findall(r"`(\w+)`", sentence)) == set(paths)
    named = {name: imports_of(path) - set(paths) for name, path in paths.items() if name != "higher"}
    assert {name: others for name, others in named.items() if others} == {"wing": {"wings"}}


MOST_LAYERS = 9


def test_the_core_has_few_layers():
    """A package is in the layer above the highest of those that it imports."""
    packages = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()} - {"wings"}
    below = {
        name: {other for path in (PACKAGE / name).rglob("*.py") for other in imports_of(path)} & packages - {name}
        for name in packages
    }
    layers: dict[str, int] = {}
    while len(layers) < len(packages):
        free = [name for name in packages - layers.keys() if below[name] <= layers.keys()]
        layers |= {name: 1 + max((layers[other] for other in below[name]), default=0) for name in free}
    assert max(layers.values()) <= MOST_LAYERS, sorted(layers.items(), key=lambda one: one[1])


def test_every_wing_is_in_the_table():
    assert {path.name for path in (PACKAGE / "wings").iterdir() if (path / "__init__.py").exists()} <= set(WINGS)


def test_a_wing_imports_no_other_but_those_of_the_table():
    known = modules()
    for path in (PACKAGE / "wings").rglob("*.py"):
        own = path.relative_to(PACKAGE / "wings").parts[0]
        named = modules_imported_by(path, known) | {name.partition(".")[2] for name in named_in_texts(path)}
        others = {name.split(".")[1] for name in named if name.startswith("wings.")}
        assert others <= {own, *WINGS.get(own, ())}, path


OUTCOMES = {"Circumstances", "Failure", "Outcomes", "joined", "of", "outcomes", "CLOSED", "ENDINGS"}
LEVELS = {"CARE", "NO", "NONE", "YES", "rule"}
FACTS = {"ClockSpread", "Conditions", "Facts", "Untouched", "facts_of"}
DATA = {*OUTCOMES, *LEVELS, *FACTS, "Advice", "advice_of", "Budget", "absolute", "Waveform", "waveform_of"}


def test_reports_take_from_the_analysis_data_alone():
    """A report words what was determined: what computes is called once a print, by name in docs/architecture.md."""
    taken = {
        alias.name
        for path in (PACKAGE / "report").rglob("*.py")
        for node in import_statements(path)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("jouletrace.analysis")
        for alias in node.names
    }
    assert taken == DATA


NEVER = {
    "run": {"comparing", "report"},
    "comparing": {"report"},
    "recording": {"report"},
    "report": {"attribution", "devices", "sensor", "stats"},
    "formats": {"attribution"},
    "attribution": {"devices", "tracing"},
    "workloads": {"devices"},
}
"""Imports that no table of the documentation may allow: figures are computed before they are worded."""


@pytest.mark.thorough
def test_what_computes_knows_nothing_of_what_words_it():
    found = {(home, other) for home in NEVER for path in (PACKAGE / home).rglob("*.py") for other in imports_of(path)}
    assert not {(home, other) for home, others in NEVER.items() for other in others} & found


def test_simulated_gpus_take_no_model_of_a_sensor_from_what_they_test():
    """A driver states a simulated GPU's sensor in public; how it answers is drawn by the simulator."""
    public = {"RECORD", "USAGE", "INSTANT", "sensor_behind"}
    for path in (PACKAGE / "simulator").rglob("*.py"):
        for node in import_statements(path):
            names = {alias.name for alias in node.names}
            home = str(node.module) if isinstance(node, ast.ImportFrom) else " ".join(names)
            if "jouletrace.sensor" in home:
                assert home == "jouletrace.sensor.kinds", path
                assert names <= public, path


@pytest.mark.thorough
def test_workloads_run_on_simulated_gpus_through_their_backend_alone():
    """Others call ``profiler.prepare``, as for real GPUs."""
    steps = "jouletrace.execution.steps.simulated"
    callers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in import_statements(path)
        if isinstance(node, ast.ImportFrom) and node.module == steps
    }
    assert callers == {"execution/simulated.py", "profiler/backends/simulated.py"}


def modules() -> dict[str, Path]:
    """All modules of the package by dotted name, without the package's own."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def modules_imported_by(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of ours that a module imports, at the top, inside functions, for types alone or by name."""
    found = {name.partition(".")[2] for name in opened_by_name(path)}
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "jouletrace":
            home = str(node.module).partition(".")[2]
            names = {f"{home}.{alias.name}".lstrip(".") for alias in node.names}
            found |= {name if name in known else home for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("jouletrace")}
    return found


@pytest.mark.thorough
def test_no_modules_import_one_another_in_a_circle():
    known = modules()
    left = {name: modules_imported_by(path, known) - {name} for name, path in known.items()}
    while free := {name for name, others in left.items() if not others & set(left)}:
        left = {name: others for name, others in left.items() if name not in free}
    assert not left, f"in a circle, or above one: {sorted(left)}"


@pytest.mark.thorough
def test_the_name_of_a_class_is_defined_once():
    homes: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_only_nvml_imports_pynvml():
    users = [
        p.relative_to(PACKAGE).as_posix()
        for p in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(import|from) pynvml", p.read_text(), re.M)
    ]
    assert all(user.startswith("devices/nvml") for user in users), users
