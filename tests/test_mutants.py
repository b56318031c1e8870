"""The tables of ``make mutants`` are of the source as it is: a mutant whose text is gone tests nothing."""

import importlib.util
import sys

import pytest

from places import REPOSITORY
from shipped import is_absent

FOLDER = REPOSITORY / "tests" / "mutants"
SOURCES = REPOSITORY / "src" / "jouletrace"


def table(name):
    spec = importlib.util.spec_from_file_location(f"mutants_{name}", FOLDER / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_each_mutant_changes_one_place_and_is_tried_by_tests_that_are_there():
    mutants = [one for one in table("table").MUTANTS if not any(map(is_absent, (one.path, *one.tests)))]
    wrong = [one.what for one in mutants if (SOURCES / one.path).read_text().count(one.old) != 1]
    names = {test.partition("::")[0] for one in mutants for test in one.tests}
    assert len(mutants) > 100
    assert wrong == []
    assert [name for name in names if not (REPOSITORY / "tests" / name).exists()] == []


def test_the_lines_of_survivors_are_there():
    """Lines are joined as ``sampled.py`` does: stripped, and those between what differs left out."""
    survivors = table("survivors").SURVIVORS
    lines = {one.path: " ".join((SOURCES / one.path).read_text().split()) for one in survivors}
    assert [one.old for one in survivors if " ".join(one.old.split()) not in lines[one.path]] == []
