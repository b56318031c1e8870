"""Mutants drawn at random from the packages of estimation: ``make mutants``, after those of ``table.py``.

Each is one change of an operator, a comparison or a number. ``table.py`` has the formulas of uncertainties one by one;
this states what share of arbitrary mistakes the tests notice, and which ones they don't. ``survivors.py`` lists those
that survive for a reason, which are not tried again.

A hash of the seed and of the changed line decides which are drawn: a change elsewhere in the source leaves them as they
are. The exit code is 1 if one survives that is not listed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import shutil
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from run import PASSED, ROOT, exit_code
from survivors import SURVIVORS

SOURCES = ROOT / "src" / "jouletrace"
MADE = ("-m", "not slow and not gpu")
"""Only tests that ``make test`` runs."""

NONE_CHOSEN = 5
"""Exit code of pytest if all tests of a file are slow ones."""

PACKAGES = ("stats", "sensor", "attribution")


FOLDERS = ("stats", "sensor", "attribution", "analysis")
"""Where the tests are that mutants are tried by: those files of them that enter the function which is changed."""

_SIGNS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
"""Texts of an operator in the source, and what each is changed into."""


@dataclass(frozen=True)
class Change:
    """One change of a file.

    Attributes:
        path: Of the file, below ``src/jouletrace``.
        line: Number of the first line that differs.
        function: First line of the innermost function that it is in, with decorators; 0 if in none.
        old: The lines that differ, as they are, without indentation.
        new: The same, as they become.
        begin: Offset of the first byte that is replaced.
        end: Offset behind the last one.
        what: What is put there.
    """

    path: str
    line: int
    function: int
    old: str
    new: str
    begin: int
    end: int
    what: bytes

    def rank(self, seed: int) -> str:
        """Its place in the order in which a seed draws."""
        return hashlib.sha256(f"{seed} {self.path} {self.old} {self.new}".encode()).hexdigest()

    def applied(self) -> bytes:
        """The whole file with the change."""
        source = (SOURCES / self.path).read_bytes()
        return source[: self.begin] + self.what + source[self.end :]


def changes(path: Path) -> list[Change]:
    """All changes of a file: none in annotations, docstrings, messages."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, tree = [], ast.parse(source)
    inside = dict.fromkeys(range(len(starts) + 1), 0)
    for node in ast.walk(tree):  # outer functions first
        if isinstance(node, ast.FunctionDef):
            begins = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            inside.update(dict.fromkeys(range(begins, (node.end_lineno or 0) + 1), begins))
    for node in _places(tree):
        for begin, end, what in _edits(node, source, starts):
            first, last = bisect_right(starts, begin) - 1, bisect_left(starts, end)
            lines = source[starts[first] : starts[last]].decode().splitlines()
            changed = (source[starts[first] : begin] + what + source[end : starts[last]]).decode().splitlines()
            differ = [k for k, (old, new) in enumerate(zip(lines, changed, strict=True)) if old != new]
            old, new = (" ".join(some[k].strip() for k in differ) for some in (lines, changed))
            name = path.relative_to(SOURCES).as_posix()
            line = first + differ[0] + 1
            found.append(Change(name, line, inside[line], old, new, begin, end, what))
    return found


def _places(tree: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Raise, ast.JoinedStr)):
            continue
        yield node
        for name, child in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            waiting.extend(one for one in (child if isinstance(child, list) else [child]) if isinstance(one, ast.AST))


def _edits(node: ast.AST, source: bytes, starts: list[int]) -> Iterator[tuple[int, int, bytes]]:
    """Replacements of bytes, by their place; an operator is between its operands."""

    def begin(one: ast.expr) -> int:
        return starts[one.lineno - 1] + one.col_offset

    def end(one: ast.expr) -> int:
        return starts[(one.end_lineno or 0) - 1] + (one.end_col_offset or 0)

    def swapped(left: ast.expr, op: ast.AST, right: ast.expr) -> bytes:
        was, becomes = _SIGNS[type(op)]
        return source[end(left) : begin(right)].replace(was.encode(), becomes.encode(), 1)

    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield begin(node), end(node), repr({0: 1, 1: 2}.get(node.value, 2 * node.value)).encode()
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SIGNS:
        right = node.comparators[0]
        yield end(node.left), begin(right), swapped(node.left, node.ops[0], right)
    elif isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        yield end(node.left), begin(node.right), swapped(node.left, node.op, node.right)
    elif isinstance(node, ast.BoolOp):
        text = source[begin(node) : end(node.values[0])]
        for left, right in pairwise(node.values):
            text += swapped(left, node.op, right) + source[begin(right) : end(right)]
        yield begin(node), end(node), b"(" + text + source[end(node.values[-1]) : end(node)] + b")"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=60, help="of mutants of each package")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    every = {
        package: [one for path in sorted((SOURCES / package).rglob("*.py")) for one in changes(path)]
        for package in PACKAGES
    }
    there = {(one.path, one.old, one.new) for some in every.values() for one in some}
    reasons = {(one.path, one.old, one.new): one.why for one in SURVIVORS}
    if stale := [place for place in reasons if place not in there]:
        print("Listed in survivors.py, but not in the source:", *stale, sep="\n")
        return 1
    survived: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder)
        shutil.copytree(SOURCES, source / "jouletrace")
        entering = Entering.of(source)
        for package, some in every.items():
            drawn = sorted(some, key=lambda one: one.rank(given.seed))[: given.number]
            ends = [_end_of(one, source, entering, reasons) for one in drawn]
            killed, listed = ends.count("killed"), ends.count("listed")
            print(f"{package}: {killed} of {len(ends)} killed, {listed} listed; {len(some)} places")
            survived += [f"{one.path}:{one.line}" for one, end in zip(drawn, ends, strict=True) if end == "SURVIVED"]
    print(f"{len(survived)} survived that are not listed", *survived, sep="\n")
    return 1 if survived else 0


@dataclass(frozen=True)
class Entering:
    """Which files of tests enter which functions.

    Attributes:
        took_s: Time of each file of tests, without any mutant.
        of_place: Files of tests that enter a function, by path and first line.
    """

    took_s: dict[str, float]
    of_place: dict[str, list[str]]

    @classmethod
    def of(cls, source: Path) -> Entering:
        """Run every file of tests, each in a process of its own: what one caches another has to compute."""
        took_s: dict[str, float] = {}
        of_place: dict[str, list[str]] = {}
        places = source / "entered"
        for path in sorted(path for name in FOLDERS for path in (ROOT / "tests" / name).rglob("test_*.py")):
            test, began = path.relative_to(ROOT / "tests").as_posix(), time.perf_counter()
            if exit_code(source, [test], *MADE, entered=places) not in (PASSED, NONE_CHOSEN):
                raise SystemExit(f"{(source / 'output').read_text()[-3000:]}\n{test} fails without any mutant.")
            took_s[test] = time.perf_counter() - began
            for place in places.read_text().splitlines():
                of_place.setdefault(place, []).append(test)
        return cls(took_s, of_place)

    def kill(self, one: Change, source: Path) -> bool:
        """True if a test fails that enters the changed function, the fastest files first."""
        tests = sorted(self.of_place.get(f"{one.path}:{one.function}", []), key=lambda name: self.took_s[name])
        for some in (tests[:2], tests[2:8], tests[8:]):  # most are killed by the first, and pytest takes time to begin
            patience_s = 30 + 5 * sum(self.took_s[test] for test in some)
            if some and exit_code(source, some, *MADE, patience_s=patience_s) not in (PASSED, NONE_CHOSEN):
                return True
        return False


def _end_of(one: Change, source: Path, entering: Entering, reasons: dict[tuple[str, str, str], str]) -> str:
    """The fate of a mutant: "killed", "SURVIVED", or "listed" if it is known to survive."""
    began, why = time.perf_counter(), reasons.get((one.path, one.old, one.new), "")
    if why:
        end = "listed"
    else:
        copy = source / "jouletrace" / one.path
        copy.write_bytes(one.applied())
        try:
            end = "killed" if entering.kill(one, source) else "SURVIVED"
        finally:
            shutil.copy2(SOURCES / one.path, copy)
    print(f"{end:8}  {time.perf_counter() - began:5.1f} s  {one.path}:{one.line}", flush=True)
    if end != "killed":
        print(f"    - {one.old}\n    + {one.new}", *([f"    {why}"] if why else []), sep="\n", flush=True)
    return end


if __name__ == "__main__":
    sys.exit(main())
