"""Walks of the calls that a print makes: stays in packages, and what carries rows from ``Parts`` to printed text."""

import pytest

import jouletrace as jt
from make_runs import profile_run
from places import REPOSITORY
from walk import FORMS, entered, printed

RUNS = [
    REPOSITORY / "src" / "jouletrace" / "bundled" / "deit-b-64-layers-h200.zip",
    REPOSITORY / "tests" / "frozen" / "programs" / "compiled_train.zip",
]
"""A profile with layers, a program: each the longest way of its kind."""

MOST_STAYS, MOST_OF_TOUR = 7, 33


@pytest.mark.thorough
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_print_enters_few_packages(path, name):
    """Stays: how often control enters a package coming from another one, by a call or by a return.

    Calls into ``run`` and ``stats`` belong to whoever makes them: types that all packages share, and functions of
    numbers. A tour counts the first call of each function alone, these included, as a reader follows them; but
    for words, which belong to whoever says them.
    """
    FORMS[name](jt.load(path))  # modules are imported
    run = jt.load(path)
    stays, tour = entered(lambda: FORMS[name](run))
    assert stays <= MOST_STAYS
    assert tour <= MOST_OF_TOUR


@pytest.mark.thorough
def test_few_kinds_of_object_carry_a_kernel_from_its_figures_to_the_text():
    """From the stored Run: its parts, their sums with the covariance of powers, tables of cells, and the document."""
    assert printed(profile_run(kernels=8)) == {
        "run.model.Run",
        "run.parts.Parts",
        "run.parts.Part",
        "run.paths.PathStep",
        "run.division.Division",
        "run.sums.Sums",
        "report.table.Cell",
        "report.table.Table",
        "report.text.Document",
    }
