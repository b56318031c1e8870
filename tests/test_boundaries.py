"""Tests know packages by their public names: a module can be moved or joined with others, and no test is edited."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import jouletrace
from places import REPOSITORY

PACKAGE = Path(jouletrace.__file__).parent

MOST = 0.35
"""Share of test functions that may use a module of a package by its name: it is lowered, never raised."""

PUBLIC_MODULES = {"jouletrace.errors", "jouletrace.version", "jouletrace.wing"}
"""Modules that users name: errors to catch, what a wing is made of."""


@cache
def listed(package):
    """Names that a package lists with ``jouletrace.public.public_names``, by name: the module of each."""
    tree = ast.parse((PACKAGE.parent / package.replace(".", "/") / "__init__.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "public_names"]
    return {
        name: module
        for call in calls
        for module, text in ast.literal_eval(call.args[1]).items()
        for name in text.split()
    }


@cache
def public(package):
    """All public names of a package: those that it lists, imports or defines, but modules."""
    tree = ast.parse((PACKAGE.parent / package.replace(".", "/") / "__init__.py").read_text())
    found = set(listed(package))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            found |= {
                text.value
                for text in ast.walk(node)
                if isinstance(text, ast.Constant) and "__all__" in ast.unparse(node)
            }
            found |= {
                name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
    return {name for name in found if not name.startswith("_")}


def is_package(name):
    return (PACKAGE.parent / name.replace(".", "/") / "__init__.py").exists()


def modules_named(node):
    """Names that an import binds to a module of a package, or to something in it that isn't public there."""
    if isinstance(node, ast.Import):
        ours = [alias for alias in node.names if alias.name.startswith("jouletrace.")]
        return {
            alias.asname or "jouletrace"
            for alias in ours
            if not is_package(alias.name) and alias.name not in PUBLIC_MODULES
        }
    if not isinstance(node, ast.ImportFrom) or str(node.module).partition(".")[0] != "jouletrace":
        return set()
    home = str(node.module)
    if home in PUBLIC_MODULES:
        return set()
    known = public(home) if is_package(home) else set()
    given = [alias for alias in node.names if alias.name not in known and not is_package(f"{home}.{alias.name}")]
    return {
        alias.asname or alias.name for alias in given if home != "jouletrace" or (PACKAGE / f"{alias.name}.py").exists()
    }


def functions(path):
    """Test functions of a file: True if it uses such a name, by itself or by fixtures and helpers of the file."""
    tree = ast.parse(path.read_text())
    bound = set().union(*map(modules_named, tree.body))
    homes = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            homes[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            homes |= {
                name.id: node
                for name in ast.walk(node)
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }

    def used_by(name, seen):
        seen.add(name)
        for node in ast.walk(homes[name]):
            used = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else None
            deep = isinstance(node, ast.Import | ast.ImportFrom) and modules_named(node)
            if deep or used in bound or (used in homes and used not in seen and used_by(used, seen)):
                return True
        return False

    return {
        name: used_by(name, set())
        for name, node in homes.items()
        if isinstance(node, ast.FunctionDef) and name.startswith("test")
    }


@pytest.mark.thorough
def test_most_functions_know_packages_by_their_public_names():
    found = [deep for path in (REPOSITORY / "tests").rglob("test_*.py") for deep in functions(path).values()]
    assert sum(found) <= MOST * len(found), f"{sum(found)} of {len(found)} name modules"


@pytest.mark.thorough
def test_each_name_that_a_package_lists_is_there_and_no_module_of_it():
    packages = [str(path.parent.relative_to(PACKAGE.parent)).replace("/", ".") for path in PACKAGE.rglob("__init__.py")]
    for package in packages:
        for name, module in listed(package).items():
            assert getattr(import_module(package), name) is getattr(import_module(f"{package}.{module}"), name)
            assert not (PACKAGE.parent / package.replace(".", "/") / f"{name}.py").exists(), (
                f"{package}.{name} is a module"
            )
