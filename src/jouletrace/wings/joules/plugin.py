"""``joules``: a fixture that measures energy beside time, a table at the end, verdicts against stored Runs.

    def test_decode(joules):
        run = joules(model, inputs)  # repeats it until its energy is known, as jt.profile
        assert run.result("energy_total_j").high < 0.1

    def test_load(joules):
        with joules.block():  # once, as jt.record
            load()

Each measurement is a Run, whose workload is named like its test. ``--joules-save FOLDER`` adds it to those of earlier
sessions, and ``--joules-compare FOLDER`` compares by ``jt.compare``: sessions are the repeats, since what differs
between processes can't be seen within one. False alarms of all tests of a session together stay below 5 %.

Every pytest loads this module, so it loads none of our libraries until a test measures or a folder is named.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import jouletrace as jt
from jouletrace.errors import BadInputError, JouletraceError, TakenError

if TYPE_CHECKING:
    from jouletrace.comparing.pairs import Comparison
    from jouletrace.profiler.record.recording import Recording
    from jouletrace.report.table import Table

_LONGEST = 100
"""Characters of a test's name in that of a file, which may have 255 with the number and what a file system adds."""


class Suite:
    """What the tests of a session have measured: Runs by name, and at its end their table and verdict."""

    def __init__(self, config: pytest.Config) -> None:
        self.device: str = config.getoption("joules_device")
        self.checks: list[str] = config.getoption("joules_fail")
        self._save, compare, self._summary = (
            Path(given).absolute() if (given := config.getoption(f"joules_{name}")) else None
            for name in ("save", "compare", "summary")
        )
        try:
            self._before, self.sessions = _runs_in(compare), _runs_in(self._save)
            if self.checks:
                from jouletrace.comparing import parse

                list(map(parse, self.checks))
            for folder in filter(None, (self._save, self._summary and self._summary.parent)):
                folder.mkdir(parents=True, exist_ok=True)
            if self._summary:
                self._summary.open("a").close()
        except (BadInputError, OSError) as error:  # before tests run for hours
            raise pytest.UsageError(str(error).replace("--fail-if", "--joules-fail")) from None
        if compare and not self._before:
            raise pytest.UsageError(f"--joules-compare {compare}: no Runs there; --joules-save FOLDER writes them")
        if self.checks and compare is None:
            raise pytest.UsageError("--joules-fail: name the Runs to compare with: --joules-compare FOLDER")
        self.runs: dict[str, jt.Run] = {}
        self.block = ""  # the name of the one that is being measured
        self.table: Table | None = None
        self.failed = False

    def keep(self, name: str, run: jt.Run) -> None:
        """Add a Run, and write it where ``--joules-save`` says."""
        words, path = re.sub(r"[^\w.=-]+", "-", name).strip("-")[-_LONGEST:], name
        if self._save:
            for number in count(1):
                with suppress(TakenError):  # by this session or another
                    path = run.save(str(self._save / f"{words}-{number}.zip"))
                    break
        self.runs[name] = run
        self.sessions[name].append((run, path))

    def conclude(self) -> None:
        """Compare what was measured with earlier Runs and set the table."""
        from jouletrace.comparing.pairs import INCONCLUSIVE, PASSED

        sides = {name: (self._before[name], self.sessions[name]) for name in self.runs if name in self._before}
        compared = {name: self._compare(*both, 0.05 / len(sides)) for name, both in sides.items()}
        self.table = _table(self.runs, compared)
        judged = [result.checks for result in compared.values() if not isinstance(result, str)]
        refused = bool(self.checks) and len(judged) < len(compared)
        self.failed = refused or not {check.outcome for checks in judged for check in checks} <= {PASSED, INCONCLUSIVE}
        if self._summary:
            with self._summary.open("a", encoding="utf-8") as file:
                file.write(f"{self.table.markdown()}\n")

    def _compare(self, a: Any, b: Any, alpha: float) -> Comparison | str:
        """The comparison, or why there is none."""
        from jouletrace.comparing.setup import other_things
        from jouletrace.report.comparison_words import note

        try:
            compared = jt.compare(a, b, fail_if=self.checks, alpha=alpha)
        except JouletraceError as error:
            return str(error)
        other = other_things(compared.a, compared.b)
        return note(other) if other else compared


class Joules:
    """The fixture: measures functions and blocks of a test."""

    def __init__(self, suite: Suite, test: str) -> None:
        self._suite, self._test = suite, test

    def __call__(self, function: Any, inputs: Any = (), *, name: str = "", **options: Any) -> jt.Run:
        """Measure a model or any callable by repeating it until its energy is known: see ``jt.profile``.

        Args:
            function: A module, or any callable.
            inputs: Its inputs, as in ``jt.profile``.
            name: What is measured, where a test measures several things.
            **options: Those of ``jt.profile``: ``max_time``, ``mode``, ``warmup``, ...

        Returns:
            The Run; energy and time are those of a call.
        """
        of, device = self._begin(name)
        run = jt.profile(function, inputs, **{"device": device, "name": of, **options})
        self._suite.keep(of, run)
        return run

    @contextmanager
    def block(self, name: str = "", **options: Any) -> Iterator[Recording]:
        """Measure a block of code as it runs: see ``jt.record``.

        Args:
            name: What is measured, where a test measures several things.
            **options: Those of ``jt.record``.
        """
        of, device = self._begin(name)
        given = {"device": None if device == "auto" else device, "kernels": False}
        self._suite.block = of
        try:
            with jt.record(of, **{**given, **options}) as recording:
                yield recording
        finally:
            self._suite.block = ""
        if recording.run is None:
            raise BadInputError(f"joules: {of} is within another recording: measure one block at a time")
        self._suite.keep(of, recording.run)

    def _begin(self, name: str) -> tuple[str, str]:
        """The name of a measurement, and its device; a simulated GPU is another in each, as real ones vary."""
        from jouletrace.campaign.repeats import numbered
        from jouletrace.profiler.settings import ProfileSettings

        of = f"{self._test} {name}".rstrip()
        if os.environ.get("PYTEST_XDIST_WORKER"):
            raise BadInputError("joules: tests that run beside one another take each other's energy: run without -n")
        if self._suite.block:
            raise BadInputError(f"joules: {of} is within the block {self._suite.block}: measure one thing at a time")
        if of in self._suite.runs:
            raise BadInputError(f"joules: {of} is measured already: name=... names what else a test measures")
        settings = ProfileSettings(device=self._suite.device)
        return of, numbered(settings, sum(map(len, self._suite.sessions.values())) + 1).device


_KEY = pytest.StashKey[Suite]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("joules", "energy beside time (jouletrace)")
    group.addoption("--joules-device", default="auto", metavar="DEVICE", help="As jouletrace profile --device.")
    group.addoption("--joules-save", metavar="FOLDER", help="Add the Run of each measurement to a folder.")
    group.addoption("--joules-compare", metavar="FOLDER", help="Compare with the Runs of earlier sessions.")
    group.addoption(
        "--joules-fail",
        action="append",
        default=[],
        metavar="CHECK",
        help="Fail the session where a change is shown, as jouletrace compare --fail-if: 'energy>3%%'; repeatable.",
    )
    group.addoption("--joules-summary", metavar="FILE", help="Append the table to a file, as Markdown.")


def pytest_configure(config: pytest.Config) -> None:
    """Read the options."""
    config.stash[_KEY] = Suite(config)


@pytest.fixture
def joules(request: pytest.FixtureRequest) -> Joules:
    """Measure energy beside time: ``joules(function)``, or ``with joules.block():``."""
    return Joules(request.config.stash[_KEY], request.node.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Compare, and fail the session where a check fails."""
    suite = session.config.stash[_KEY]
    if suite.runs:
        suite.conclude()
        if suite.failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table."""
    table = config.stash[_KEY].table
    if table is not None:
        from jouletrace.report.terminal import text

        terminalreporter.section("joules")
        terminalreporter.write_line(text(table))


def _runs_in(folder: Path | None) -> defaultdict[str, list[tuple[jt.Run, str]]]:
    """The Runs in a folder with their paths, by the names of their workloads."""
    runs = defaultdict(list)
    for path in sorted(folder.glob("*.zip")) if folder else ():
        from jouletrace.run import load

        run = load(path)
        runs[str(run.workload.get("name"))].append((run, str(path)))
    return runs


def _table(runs: dict[str, jt.Run], compared: dict[str, Comparison | str]) -> Table:
    """A row a measurement; of one that is compared with the changes and the verdict on its energy, else its time."""
    from jouletrace.analysis.checks import outcomes
    from jouletrace.comparing.pairs import PASSED
    from jouletrace.report.comparison_words import says, signed
    from jouletrace.report.table import Column, Table
    from jouletrace.report.trust import lines
    from jouletrace.run.parts import Parts
    from jouletrace.words.reasons import reason
    from jouletrace.words.scale import NONE, figure

    heads = ["test", "time", "energy", *(["time changed", "energy changed", "verdict"] if compared else []), "trust"]
    columns = [Column(head, numeric=head not in ("test", "verdict", "trust")) for head in heads]
    table = Table("SIMULATED" * any(run.simulated for run in runs.values()), columns, apart=True)
    notes = []
    for name, run in runs.items():
        latency, energy = run.result("latency_s"), run.result("energy_total_j")
        time = run.result("time_s") if latency.value is None else latency
        changes, verdict, result = [NONE, NONE], "no Run of it", compared.get(name)
        if isinstance(result, str):
            verdict = result
        elif result:
            rows = {metric: row for metric, row in result.whole.items() if row.measured}
            both = rows.get("latency_s", rows.get("time_s")), rows.get("energy_total_j")
            changes = [signed(row.change) if row else NONE for row in both]
            judged = both[1] or both[0]
            verdict = judged.verdict if judged else NONE
            notes += [f"{verdict}: {reason(judged.reason)}"] if judged and judged.reason else []
            open_ = [check for check in result.checks if check.outcome != PASSED]
            notes += [f"{name}: --joules-fail '{check.text}' {check.outcome}: {says(check)}" for check in open_]
        checks = outcomes(run, Parts(run))
        notes += [f"{name}: {line.strip()}" for line in lines(checks)[1:]]
        stated = [*changes, verdict] if compared else []
        table.rows.append([name, figure(time, "s"), figure(energy, "J"), *stated, checks.level])
    table.notes = list(dict.fromkeys(notes))
    return table
