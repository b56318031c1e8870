"""The table of what the studies do: each test that it names is there, and each test here is named; so are commands."""

import ast
import re

import pytest

from commands import command
from places import REPOSITORY
from shipped import is_absent, is_known

PAGE = REPOSITORY / "docs" / "reference" / "studies.md"
HERE = "tests/studies/"


def defined(path):
    """Names of the tests of a file."""
    tree = ast.parse((REPOSITORY / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def rows():
    """File of the study, command and tests of each row, a pair for each."""
    home = ""
    for line in PAGE.read_text().splitlines():
        if heading := re.fullmatch(r"`(tests/[\w/]+/)?(test_\w+\.py)`", line):
            home = (heading[1] or HERE) + heading[2]
        elif line.startswith("| ") and not line.startswith("| it |") and not is_absent(home):
            yield home, *(cell.strip() for cell in line.strip("|").split(" | ")[1:3])


def named():
    """File and name of each test in the tables."""
    for home, _, tests in rows():
        found = re.findall(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`", tests)
        assert found, tests
        yield from ((path or home, name) for path, name in found if not is_absent(path))


@pytest.mark.thorough
def test_every_test_that_a_table_names_is_there():
    missing = [f"{path}::{name}" for path, name in named() if name not in defined(path)]
    assert not missing


@pytest.mark.parametrize("path", sorted({home for home, _, _ in rows()}))
def test_every_test_of_a_study_is_named(path):
    assert defined(path) == {name for home, name in named() if home == path}


def test_every_command_and_option_of_a_table_is_one(capsys):
    helps = {}
    for _, cell, _ in rows():
        for text in re.findall(r"`(?:\w+=\w+ )?jouletrace ([^`]+)`", cell):
            own = text.split(" -- ")[0].split()
            if not is_known(own):
                continue
            words = tuple(own[:2]) if own[0] in ("mig", "fleet") else (own[0],)
            if words not in helps:
                said = command(capsys, *words, "--help")
                assert said.code == 0, words
                helps[words] = said.out
            for option in re.findall(r"--[a-z0-9-]+", " ".join(own)):
                assert option in helps[words], text
