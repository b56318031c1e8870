"""Wings: what is loaded, what is left out, and that a stranger's adds a command and a format."""

import os
import subprocess
import sys

import pytest

WING = """
from jouletrace.wing import Wing

WING = Wing(commands={"greet": "greeting"}, formats={"greeting": "greeting"})
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


def test_a_package_adds_a_command_and_a_format(package, tmp_path):
    run = package()
    assert "\nStrangers:\n  greet      Greet somebody.\n" in run("--help").stdout
    assert run("greet", "--name", "Ada").stdout == "hello Ada\n"
    assert "Example:\n  jouletrace greet --name me\n" in run("greet", "--help").stdout
    (tmp_path / "log").write_text("hello 1\n")
    assert run("import", "log").stderr == "jouletrace: log: a greeting has no power\n"


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
