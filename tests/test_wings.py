"""Wings: what is loaded, what is left out, and that a stranger's adds a command and a format."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import jouletrace
from documented import blocks
from places import REPOSITORY
from shipped import ABSENT

WING = """
from jouletrace.wing import Wing

WING = Wing(
    commands={"greet": "greeting"},
    formats={"greeting": "greeting"},
    names={"greet": "greeting", "ab": "greeting"},
    libraries={"wave": "greetings (pip install wave)"},
    tools={"waver": "greetings from afar"},
)
"""

GREETING = '''
from jouletrace.cli.command import Command


def greet(name: str = "you") -> None:
    """Greet."""
    print("hello", name)


COMMAND = Command("Strangers", "Greet somebody.", ("jouletrace greet --name me",), greet)


def sniff(head):
    return head.startswith(b"hello ")


def read(path, options):
    from jouletrace.errors import BadInputError

    raise BadInputError(f"{path}: a greeting has no power")
'''


@pytest.fixture
def package(tmp_path):
    """A stranger's package, installed in a folder of its own; ``write`` gives it an entry point."""
    (tmp_path / "mine.py").write_text(WING)
    (tmp_path / "greeting.py").write_text(GREETING)

    def write(point="mine:WING"):
        info = tmp_path / "mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[jouletrace.wings]\nmine = {point}\n")

        def run(*arguments):
            path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
            return subprocess.run(
                [sys.executable, "-m", "jouletrace", *arguments],
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                cwd=tmp_path,
                check=False,
            )

        return run

    return write


@pytest.mark.thorough
def test_a_package_adds_a_command_and_a_format(package, tmp_path):
    run = package()
    assert "\nStrangers:\n  greet      Greet somebody.\n" in run("--help").stdout
    assert run("greet", "--name", "Ada").stdout == "hello Ada\n"
    assert "Example:\n  jouletrace greet --name me\n" in run("greet", "--help").stdout
    (tmp_path / "log").write_text("hello 1\n")
    assert run("import", "log").stderr == "jouletrace: log: a greeting has no power\n"


@pytest.mark.thorough
def test_a_package_adds_a_tool_by_a_row_of_data(package, tmp_path):
    run = package("pdu:WING")
    (tmp_path / "pdu").mkdir()
    text = "from jouletrace.wing import Wing\n\nWING = Wing(tables={'pdu': 'pdu'})\n"
    (tmp_path / "pdu" / "__init__.py").write_text(text)
    (data,) = blocks(REPOSITORY / "docs" / "reference" / "tools.md", "toml")
    (tmp_path / "pdu" / "tools.toml").write_text(data)
    rows = [f"2026-03-03 10:00:{k};{gpu};{200_000 + gpu}" for k in range(10, 20) for gpu in range(2)]
    (tmp_path / "log").write_text("\n".join(["When;Outlet;Leistung [?]", *rows]) + "\n")
    assert "400.00 ±" in run("import", "log", "-o", "made").stdout


@pytest.mark.thorough
def test_a_package_adds_a_name_and_replaces_none(package, tmp_path):
    package()
    code = (
        "import jouletrace as jt\nfrom jouletrace import *\nprint(greet is jt.greet, 'greet' in dir(jt), ab.__module__)"
    )
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True True jouletrace.profiler.ab\n"


@pytest.mark.thorough
def test_doctor_looks_for_what_a_package_needs(package):
    extras = json.loads(package()("doctor", "--device", "sim:h100", "--json").stdout)["extras"]
    assert extras["wave"]["available"]
    assert extras["waver"] == {"available": False, "note": "not on the PATH; for greetings from afar"}


def test_names_that_type_checkers_see_are_those_that_are_there():
    tree = ast.parse(Path(jouletrace.__file__).read_text())
    lists = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    (seen,) = map(ast.literal_eval, lists)
    assert ABSENT or seen == jouletrace.__all__
    assert set(jouletrace.__all__) <= set(seen)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("point", "why"), [("absent:WING", "No module named 'absent'"), ("greeting:sniff", "function")]
)
def test_a_wing_that_cannot_be_used_is_one_line(package, point, why):
    done = package(point)("--help")
    assert done.returncode == 0
    assert "doctor" in done.stdout
    assert done.stderr.startswith("jouletrace: the wing mine can't be used and is left out: ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_module_of_a_wing_that_is_broken_is_a_line_of_the_help(package, tmp_path):
    (tmp_path / "greeting.py").write_text("import nowhere\n")
    done = package()("--help")
    assert done.returncode == 0
    assert done.stderr == (
        "jouletrace: greeting of a wing can't be used and is left out: ModuleNotFoundError: No module named 'nowhere'\n"
    )
    assert "  show " in done.stdout


def test_what_needs_a_wing_that_is_not_here_says_so_in_one_line(package, tmp_path):
    (tmp_path / "greeting.py").write_text(
        GREETING.replace('print("hello", name)', "import jouletrace.wings.nowhere.far")
    )
    done = package()("greet")
    assert (done.returncode, done.stderr) == (3, "jouletrace: this needs the wing nowhere, which isn't here\n")


TARGETS = """
from dataclasses import dataclass

from jouletrace.option import option


@dataclass(frozen=True)
class RequestOptions:
    toys: int = option(3, "Toys of a visit.")
    duration_s: float = option(1.0, "As of another wing.")


def shares():
    return {}


def takes(words, over, device):
    return words[0].startswith("toy:")


def target_of(words, settings, limits, limit_s, requests):
    from jouletrace.errors import BadInputError

    raise BadInputError(f"{words[0]} with {requests['toys']} toys")
"""


def test_a_wing_adds_a_target_of_tune_beside_those_that_are_there(package, tmp_path):
    wing = 'from jouletrace.wing import Wing\n\nWING = Wing(targets={"toy": "toys"})\n'
    (tmp_path / "mine.py").write_text(wing)
    (tmp_path / "toys.py").write_text(TARGETS)
    run = package()
    assert "--toys <int>" in run("tune", "--help").stdout
    said = run("tune", "toy:1", "--over", "size=1,2", "--toys", "5")
    assert (said.returncode, said.stderr) == (2, "jouletrace: toy:1 with 5 toys\n")


PAGE = REPOSITORY / "docs" / "how-to" / "write-a-wing.md"


@pytest.fixture(scope="module")
def hwmon(tmp_path_factory):
    """The package of the page, installed in a folder of its own, and sensors of 50 and 300 W."""
    folder = tmp_path_factory.mktemp("hwmon")
    for text in blocks(PAGE, "python"):
        place = folder / text.splitlines()[0].removeprefix("# ")
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    (project,) = (tomllib.loads(text)["project"] for text in blocks(PAGE, "toml"))
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = (f"[{group}]\n{name} = {at}" for group, own in project["entry-points"].items() for name, at in own.items())
    (info / "entry_points.txt").write_text("\n".join(points) + "\n")
    for number, watts in enumerate((50, 300)):
        sensor = folder / "class" / f"hwmon{number}"
        sensor.mkdir(parents=True)
        (sensor / "name").write_text("chip\n")
        (sensor / "power1_average").write_text(f"{watts}000000\n")
    return folder


@pytest.fixture
def wired(hwmon, monkeypatch, workspace):
    """Runs jouletrace beside that package; what it prints must be of a success."""
    monkeypatch.setenv("PYTHONPATH", str(hwmon), prepend=os.pathsep)
    monkeypatch.setenv("HWMON", str(hwmon / "class"))

    def run(*words):
        line = [sys.executable, "-m", "jouletrace", *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.thorough
def test_the_wing_of_the_page_measures_with_a_device(wired):
    assert "  hwmon      Log a sensor of hwmon.\n" in wired("--help")
    devices = [one["info"]["id"] for one in json.loads(wired("doctor", "--json"))["devices"]]
    assert {"hwmon:0", "hwmon:1"} <= set(devices)
    advised = wired("doctor", "--device", "hwmon:1")
    assert "models: no, a meter runs none\nnext: jouletrace monitor --device hwmon:1\n" in advised
    monitored = json.loads(wired("monitor", "--device", "hwmon:1", "--duration", "2", "--json"))
    (figures,) = (row for row in monitored["parts"]["whole"] if row["path"])
    assert figures["power_w"]["value"] == pytest.approx(300)


@pytest.mark.thorough
def test_the_wing_of_the_page_writes_a_log_and_reads_it(wired, workspace):
    (workspace / "log").write_text(wired("hwmon", "--number", "1", "--seconds", "0.5", "--every", "0.05") + "torn\n")
    imported = json.loads(wired("import", "log", "--json"))
    assert imported["files"][0]["format"] == "hwmon"
    shown = json.loads(wired("show", imported["run"], "--json"))
    assert "unread_lines" in {one["code"] for one in shown["warnings"]}
    (figures,) = (row for row in shown["parts"]["whole"] if row["path"])
    assert figures["power_w"]["value"] == pytest.approx(300)
