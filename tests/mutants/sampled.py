"""Mutants drawn at random from the packages of estimation: ``python tests/mutants/sampled.py --number 100``.

Each is one change of an operator, a comparison or a number. ``table.py`` has the formulas of uncertainties one by one;
this says what share of arbitrary mistakes the tests notice, and which ones they don't.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from run import FAILED, PASSED, ROOT, pytest

PACKAGES = {
    "stats": ["stats", "sensor", "attribution"],
    "sensor": ["sensor", "attribution", "analysis"],
    "attribution": ["attribution", "analysis"],
}
"""Tests that are run for a package, those of its own first."""

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that can be changed: none in annotations, docstrings, messages."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Raise, ast.JoinedStr)):
            continue
        if _changes(node):
            yield node
        for name, child in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            waiting.extend(one for one in (child if isinstance(child, list) else [child]) if isinstance(one, ast.AST))


def _changes(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and type(node.ops[0]) in _SWAPPED
    return isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in _SWAPPED


def changed(node: ast.AST) -> str:
    """Change a node; returns what it was and what it is."""
    before = ast.unparse(node)
    if isinstance(node, ast.Constant):
        node.value = {0: 1, 1: 2}.get(node.value, 2 * node.value)
    elif isinstance(node, ast.Compare):
        node.ops = [_SWAPPED[type(node.ops[0])]()]  # type: ignore[list-item]
    elif isinstance(node, (ast.BinOp, ast.BoolOp)):
        node.op = _SWAPPED[type(node.op)]()  # type: ignore[assignment]
    return f"{before}  ->  {ast.unparse(node)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sources = ROOT / "src" / "jouletrace"
    files = [path for package in PACKAGES for path in sorted((sources / package).rglob("*.py"))]
    all_places = [(path, k) for path in files for k in range(len(list(places(ast.parse(path.read_text())))))]
    chosen = random.Random(given.seed).sample(all_places, min(given.number, len(all_places)))
    survived = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        shutil.copytree(sources, Path(folder) / "jouletrace")
        for path, k in chosen:
            tree = ast.parse(path.read_text())
            node = list(places(tree))[k]
            line = getattr(node, "lineno", 0)
            what = f"{path.relative_to(sources)}:{line}  {changed(node)}"
            copy = Path(folder) / "jouletrace" / path.relative_to(sources)
            copy.write_text(ast.unparse(ast.fix_missing_locations(tree)))
            began, end = time.perf_counter(), "survived"
            for tests in _tests_of(path.relative_to(sources)):
                if pytest(Path(folder), tests).returncode != PASSED:
                    end = "killed"
                    break
            shutil.copyfile(path, copy)
            survived += [what] if end == "survived" else []
            print(f"{end:8}  {time.perf_counter() - began:5.1f} s  {what}", flush=True)
    print(
        f"{len(chosen) - len(survived)} of {len(chosen)} mutants killed; {len(all_places)} places", *survived, sep="\n"
    )
    return 0 if not survived else FAILED


def _tests_of(path: Path) -> list[list[str]]:
    """Tests for a file, the nearest first: those of its name, then those of each package."""
    mirrored = ROOT / "tests" / path.parent / f"test_{path.name}"
    near = [[str(mirrored.relative_to(ROOT / "tests"))]] if mirrored.exists() else []
    return [*near, *([package] for package in PACKAGES[path.parts[0]])]


if __name__ == "__main__":
    sys.exit(main())
