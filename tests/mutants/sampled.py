"""Mutants drawn at random: ``make mutants``, after those of ``table.py``.

Each is one change of an operator, a comparison or a number. ``table.py`` has the formulas of uncertainties one by one;
this states what share of arbitrary mistakes the tests notice, and which ones they don't:

- of the packages of estimation. ``survivors.py`` lists those that survive for a reason, which are not tried again;
- ``--judged``, of all packages by their lines of source. ``judged.csv`` has those drawn, and whether a user would
  notice each, judged before any test ran. Only such are tried. ``--list 300`` draws, and keeps judgements there are.

A hash of the seed and of the changed line decides which are drawn: a change elsewhere in the source leaves them as they
are. The exit code is 1 if one survives that is not listed, or if tests see fewer than nine in ten of those that a user
would notice.
"""

from __future__ import annotations

import argparse
import ast
import csv
import functools
import hashlib
import re
import shutil
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from run import PASSED, ROOT, exit_code
from scipy.stats import beta
from survivors import SURVIVORS

SOURCES = ROOT / "src" / "jouletrace"
MADE = ("-m", "not slow and not gpu")
"""Only tests that ``make test`` runs."""

QUICK = ("-m", "not slow and not gpu and not thorough")
"""Only tests that ``make quick`` runs: those that note which functions they enter."""

NONE_CHOSEN, WRONG_NAME = 5, 4
"""Exit codes of pytest if all tests of a file are slow ones, and if a mutant renames parameters of a test."""

PACKAGES = ("stats", "sensor", "attribution")

FOLDERS = ("stats", "sensor", "attribution", "analysis")
"""Where the tests are that mutants of the packages of estimation are tried by."""

ELSEWHERE = ("browser", "mutants", "support", "data")
"""Folders of ``tests`` that have no tests, or such as need a browser."""

JUDGED = ROOT / "tests" / "mutants" / "judged.csv"
COLUMNS = ("path", "old", "new", "noticed", "why", "seen")

ALONE_S, FILES_S = 5.0, 20.0
"""Most time of the quick tests that a mutant is tried by: single ones first, then whole files with all their tests."""

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
        functions: First lines of the innermost function that it is in; outside of functions, those that read the name
            that it defines, or all of the file.
        old: The lines that differ, as they are, without indentation.
        new: The same, as they become.
        begin: Offset of the first byte that is replaced.
        end: Offset behind the last one.
        what: What is put there.
    """

    path: str
    line: int
    functions: tuple[int, ...]
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
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]  # outer ones first
    inside = {line: node.lineno for node in functions for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    for node in _places(tree):
        for begin, end, what in _edits(node, source, starts):
            first, last = bisect_right(starts, begin) - 1, bisect_left(starts, end)
            lines = source[starts[first] : starts[last]].decode().splitlines()
            changed = (source[starts[first] : begin] + what + source[end : starts[last]]).decode().splitlines()
            differ = [k for k, (old, new) in enumerate(zip(lines, changed, strict=True)) if old != new]
            old, new = (" ".join(some[k].strip() for k in differ) for some in (lines, changed))
            name = path.relative_to(SOURCES).as_posix()
            line = first + differ[0] + 1
            readers = (inside[line],) if line in inside else _readers(tree, functions, line)
            found.append(Change(name, line, readers, old, new, begin, end, what))
    return found


def _readers(tree: ast.Module, functions: list[ast.FunctionDef], line: int) -> tuple[int, ...]:
    """Functions that read what a line outside of functions defines; all, if it defines nothing that they name."""
    defined = [
        target
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno <= line <= (node.end_lineno or 0)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    names = {node.id for target in defined for node in ast.walk(target) if isinstance(node, ast.Name)}
    read = {
        function.lineno
        for function in functions
        for node in ast.walk(function)
        if (isinstance(node, ast.Name) and node.id in names) or (isinstance(node, ast.Attribute) and node.attr in names)
    }
    return tuple(sorted(read or {function.lineno for function in functions}))


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


def package_of(path: Path) -> str:
    """The package of a file, "wings/mig" of a wing, "." of modules at the top."""
    names = path.relative_to(SOURCES).parts[:-1]
    return "/".join(names[: 2 if names[:1] == ("wings",) else 1]) or "."


def stratified(number: int, seed: int) -> list[Change]:
    """Changes of all packages, from each by its share of lines; those of each spread evenly over the list."""
    files: dict[str, list[Path]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        files.setdefault(package_of(path), []).append(path)
    lines = {package: sum(len(path.read_bytes().splitlines()) for path in some) for package, some in files.items()}
    quota = {package: number * count / sum(lines.values()) for package, count in lines.items()}
    counts = {package: int(share) for package, share in quota.items()}
    for package in sorted(quota, key=lambda name: counts[name] - quota[name])[: number - sum(counts.values())]:
        counts[package] += 1
    drawn = []
    for package, some in files.items():
        every = sorted((one for path in some for one in changes(path)), key=lambda one: one.rank(seed))
        drawn += [((k + 0.5) / counts[package], one) for k, one in enumerate(every[: counts[package]])]
    return [one for _, one in sorted(drawn, key=lambda pair: pair[0])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=60, help="of mutants of each package of estimation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", type=int, metavar="N", help="print N of all packages, as judged.csv has them")
    parser.add_argument("--judged", action="store_true", help="try those of judged.csv that a user would notice")
    given = parser.parse_args()
    if given.list:
        listed(stratified(given.list, given.seed))
        return 0
    return judged() if given.judged else of_estimation(given.number, given.seed)


def judgements() -> dict[tuple[str, str, str], list[tuple[str, ...]]]:
    """Of each judged change "yes" or "no", why, and if tests saw it; several, in order, of lines that occur again.

    They saw it "before" tests were written for those that they didn't see, "after", or "no"; "" where it wasn't tried.
    """
    known: dict[tuple[str, str, str], list[tuple[str, ...]]] = {}
    with JUDGED.open(newline="") as file:
        for row in csv.DictReader(file):
            known.setdefault((row["path"], row["old"], row["new"]), []).append(tuple(row[name] for name in COLUMNS[3:]))
    return known


def listed(drawn: list[Change]) -> None:
    """Print changes in the form of ``judged.csv``, with their judgements so far."""
    known = judgements() if JUDGED.exists() else {}
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in drawn:
        key = (one.path, one.old, one.new)
        writer.writerow([*key, *(known[key].pop(0) if known.get(key) else ("",) * len(COLUMNS[3:]))])


def noticed() -> list[Change]:
    """The judged changes that a user would notice, in the order of ``judged.csv``, but for those no longer there."""
    there: dict[tuple[str, str, str], list[Change]] = {}
    known = judgements()
    for name in sorted({path for path, _, _ in known if (SOURCES / path).exists()}):
        for one in changes(SOURCES / name):
            there.setdefault((one.path, one.old, one.new), []).append(one)
    pairs = [
        (one, how)
        for key, some in known.items()
        for one, how in zip(there.get(key, []), (first for first, *_ in some), strict=False)
    ]
    wanted = sum(how == "yes" for some in known.values() for how, *_ in some)
    drawn = [one for one, how in pairs if how == "yes"]
    print(f"{wanted - len(drawn)} of {wanted} are no longer in the source")
    return drawn


def judged() -> int:
    """Try the changes that a user would notice, in the order of ``judged.csv``, whose beginning is a sample too."""
    drawn = noticed()
    folders = sorted(path for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name not in ELSEWHERE)
    tests = [path.name for path in (*folders, *sorted((ROOT / "tests").glob("test_*.py")))]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder)
        entering = Entering.of(drawn, source, tests)
        ends = [_end_of(one, source, entering, {}) == "killed" for one in drawn]
    for package in sorted({package_of(SOURCES / one.path) for one in drawn}):
        some = [end for one, end in zip(drawn, ends, strict=True) if package_of(SOURCES / one.path) == package]
        print(f"{package}: {sum(some)} of {len(some)} seen")
    seen, of = sum(ends), len(ends)
    low, high = beta.ppf(0.025, seen, of - seen + 1), beta.ppf(0.975, seen + 1, of - seen)
    print(f"{seen} of {of} seen: {seen / of:.1%} (95 % interval {low:.1%} to {high:.1%})")
    return 0 if seen >= 0.9 * of else 1


def of_estimation(number: int, seed: int) -> int:
    """Try mutants of the packages of estimation, a number of each."""
    every = {
        package: [one for path in sorted((SOURCES / package).rglob("*.py")) for one in changes(path)]
        for package in PACKAGES
    }
    there = {(one.path, one.old, one.new) for some in every.values() for one in some}
    reasons = {(one.path, one.old, one.new): one.why for one in SURVIVORS}
    if stale := [place for place in reasons if place not in there]:
        print("Listed in survivors.py, but not in the source:", *stale, sep="\n")
        return 1
    drawn = {package: sorted(some, key=lambda one: one.rank(seed))[:number] for package, some in every.items()}
    survived: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder)
        entering = Entering.of([one for some in drawn.values() for one in some], source, list(FOLDERS))
        for package, some in drawn.items():
            ends = [_end_of(one, source, entering, reasons) for one in some]
            killed, listed = ends.count("killed"), ends.count("listed")
            print(f"{package}: {killed} of {len(ends)} killed, {listed} listed; {len(every[package])} places")
            survived += [f"{one.path}:{one.line}" for one, end in zip(some, ends, strict=True) if end == "SURVIVED"]
    print(f"{len(survived)} survived that are not listed", *survived, sep="\n")
    return 1 if survived else 0


@dataclass(frozen=True)
class Entering:
    """Which tests enter which functions, also in processes that they start.

    Attributes:
        took_s: Time of each test that passes without any mutant.
        of_place: Tests that enter a function, by path and first line.
    """

    took_s: dict[str, float]
    of_place: dict[str, set[str]]

    @classmethod
    def of(cls, drawn: list[Change], source: Path, tests: list[str]) -> Entering:
        """Copy the source into a folder, and run tests on it; functions with changes note there who enters them."""
        shutil.copytree(SOURCES, source / "jouletrace", dirs_exist_ok=True)
        notes = Notes(source)
        for path in {one.path for one in drawn}:
            lines = {line for one in drawn if one.path == path for line in one.functions}
            (source / "jouletrace" / path).write_bytes(_noting(SOURCES / path, path, lines))
        exit_code(source, tests, *QUICK, "--maxfail=0", patience_s=7200, plugins=[notes])
        for path in {one.path for one in drawn}:
            shutil.copy2(SOURCES / path, source / "jouletrace" / path)
        return cls(*notes.read())

    def kill(self, one: Change, source: Path) -> bool:
        """True if a test fails that enters the changed function, or a file that has such: those near it first."""
        entering: set[str] = set().union(*(self.of_place.get(f"{one.path}:{line}", ()) for line in one.functions))
        package, name = package_of(SOURCES / one.path), Path(one.path).stem
        near = ROOT / "tests" / package
        took_s = {test: took for test, took in self.took_s.items() if test in entering}
        files = {test.partition("::")[0] for test in entering}
        files |= {path.relative_to(ROOT).as_posix() for path in near.rglob(f"test_*{name}*.py")}
        if not files:  # only longer tests can enter it
            files = {path.relative_to(ROOT).as_posix() for path in near.rglob("test_*.py")}
        of_files_s = dict.fromkeys(files, 0.0)
        for test, took in self.took_s.items():
            if (file := test.partition("::")[0]) in files:
                of_files_s[file] += took
        for some, most_s, options, patience_s in ((took_s, ALONE_S, QUICK, 300), (of_files_s, FILES_S, MADE, 600)):
            chosen, sum_s = [], 0.0
            for test in sorted(
                some,
                key=lambda test: (not test.startswith(f"tests/{package}/"), f"test_{name}" not in test, some[test]),
            ):
                if sum_s + some[test] <= most_s or not chosen:
                    chosen.append(test.removeprefix("tests/"))
                    sum_s += some[test]
            code = exit_code(source, chosen, *options, patience_s=patience_s + 5 * sum_s) if chosen else PASSED
            if code not in (PASSED, NONE_CHOSEN, WRONG_NAME):
                return True
        return False


class Notes:
    """Notes of tests while they run: times, failures, functions that they enter; a plug-in of pytest."""

    def __init__(self, source: Path) -> None:
        self._times, self._entries = source / "times", source / "entries"
        (source / "noted.py").write_text(_NOTED.format(str(self._entries)))
        self._file = ""
        self._reports: list[str] = []
        self._counts: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep two cases of each test: others enter the same functions."""
        self._counts.update(_test_of(item.nodeid) for item in items)
        seen: Counter[str] = Counter()
        kept = []
        for item in items:
            seen[_test_of(item.nodeid)] += 1
            if seen[_test_of(item.nodeid)] <= _CASES:
                kept.append(item)
        items[:] = kept

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Empty the caches before each file of tests, since what one caches another would not enter."""
        before, self._file = self._file, nodeid.partition("::")[0]
        if before != self._file:
            for module in list(sys.modules.values()):
                for one in list(vars(module).values()) if module else ():
                    if isinstance(one, functools._lru_cache_wrapper):
                        one.cache_clear()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """One line for each part of a test."""
        test = _test_of(report.nodeid)
        took = report.duration * max(self._counts[test] / _CASES, 1)
        self._reports.append(f"{test}\t{report.outcome}\t{took}\n")

    def pytest_sessionfinish(self) -> None:
        """Write at the end: some tests limit the size of files."""
        self._times.write_text("".join(self._reports))

    def read(self) -> tuple[dict[str, float], dict[str, set[str]]]:
        """Times of tests that passed, and by function those that enter it."""
        took_s: dict[str, float] = {}
        failed: set[str] = set()
        for line in self._times.read_text().splitlines():
            test, outcome, took = line.split("\t")
            took_s[test] = took_s.get(test, 0.0) + float(took)
            if outcome != "passed":
                failed.add(test)
        of_place: dict[str, set[str]] = {}
        for line in self._entries.read_text().splitlines():
            place, _, test = line.partition("\t")
            test = _test_of(test)
            if test in took_s and test not in failed:
                of_place.setdefault(place, set()).add(test)
        return {test: took for test, took in took_s.items() if test not in failed}, of_place


def _test_of(node: str) -> str:
    """The test that a case is of."""
    return node.partition("[")[0]


_CASES = 2

_NOTED = """
import os
_known = set()
def enter(place):
    note = place + "\\t" + os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if note not in _known:
        _known.add(note)
        try:
            with open({!r}, "a") as file:
                file.write(note + "\\n")
        except OSError:  # tests of full disks
            pass
"""
"""A module beside the copy of the source, which its functions call."""


def _noting(path: Path, name: str, lines: set[int]) -> bytes:
    """A file whose functions that begin in given lines note that they are entered."""
    source = path.read_bytes().splitlines(keepends=True)
    bodies = {
        node.lineno: node.body for node in ast.walk(ast.parse(b"".join(source))) if isinstance(node, ast.FunctionDef)
    }
    for line in sorted(lines, reverse=True):
        body = bodies[line]
        first = (
            body[1]
            if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
            else body[0]
        )
        begins = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", ()))])
        text = source[begins - 1]
        space = re.match(rb"\s*", text)[0]  # type: ignore[index]
        call = f"__import__('noted').enter('{name}:{line}')".encode()
        if len(space) == first.col_offset:
            source.insert(begins - 1, space + call + b"\n")
        else:  # behind "def ...:" in its line
            source[begins - 1] = text[: first.col_offset] + call + b"; " + text[first.col_offset :]
    return b"".join(source)


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
