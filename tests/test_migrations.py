"""Old ways that have a new one coming: who still calls them, by ``migrations.toml``. The list only falls.

A commit that switches a caller takes it off the list, and the old way goes with its last caller.
"""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

import jouletrace
from places import REPOSITORY

PACKAGE = Path(jouletrace.__file__).parent
LIST = tomllib.loads((REPOSITORY / "tests" / "migrations.toml").read_text())


@cache
def modules():
    """The modules of the package, and what each imports of it."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        own = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("jouletrace"):
                own |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                own |= {alias.name for alias in node.names}
        found[name] = {one.removeprefix("jouletrace.") for one in own}
    return found


def within(name, olds):
    """True if a module is one of the old ways, or inside one."""
    return any(name == old or name.startswith(f"{old}.") for old in olds)


def callers_of(olds):
    """Modules outside of the old ways that import one."""
    return sorted(
        name for name, own in modules().items() if not within(name, olds) and any(within(i, olds) for i in own)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("old", LIST["migration"], ids=lambda one: one["name"])
def test_the_callers_of_an_old_way_are_those_that_are_listed(old):
    assert all(any(within(name, [one]) for name in modules()) for one in old["old"]), "it has gone: take it off"
    assert callers_of(old["old"]) == sorted(old["callers"])


def test_the_list_only_falls():
    """Lower ``most`` with each caller that has switched; never raise it."""
    assert sum(len(old["callers"]) for old in LIST["migration"]) == LIST["most"]
