"""``tune``: the setting of a workload that takes the least energy within a limit, with a tested promise.

Settings are visited in turns: each round is a new process, which measures several settings for some seconds each.
``race`` decides which setting is visited next and when that is enough; each visit is a Run in the folder, and a
campaign that was broken off goes on from these.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from jouletrace.analysis.conditions import NOT_TAKEN, not_taken, read_back
from jouletrace.analysis.latency import of_requests
from jouletrace.arrays import Floats
from jouletrace.campaign.cluster import Cluster, cluster, fill_one_on
from jouletrace.campaign.limits import OF_TOKENS, SHARES, Joint, Limit, counts, parse_limits, share_over
from jouletrace.campaign.loop import RESULT, Note, PointObserver, PointOutcome, carry_out, claimed, folder_of, keep
from jouletrace.campaign.race import Candidate, Race, ShareLimit, TimeLimit, Visit
from jouletrace.campaign.targets import (
    FIRST_S,
    MoreTargets,
    ProgramTarget,
    Target,
    VisitFigures,
    WorkloadTarget,
    parse_over,
    words_of,
)
from jouletrace.campaign.worker import last_line, reason_of
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.option import named
from jouletrace.profiler.gpu_settings import NAMES, GpuSettings
from jouletrace.profiler.progress import Progress, reported
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.tune import OBJECTIVES, Setting, SettingRow, Tuning, from_dict, render
from jouletrace.run import Estimate, Run, load
from jouletrace.run.files import RUN_JSON, is_empty, safe_name, shown
from jouletrace.stats.interval import percentile
from jouletrace.stats.quantiles import normal, student
from jouletrace.wing import modules
from jouletrace.workloads import resolve

CLAIM, VISITS = "tune.json", "visits"
CHOSEN, REFERENCE = "chosen", "reference"
"""Folders of the Runs that hold the visits of a setting in later processes."""

_OF_THE_MACHINE = ("lost_gpu", "disk_full")
"""Reasons of failures that are no setting's: they end the campaign."""

MOST_SETTINGS = 200
"""Settings beyond which the user is asked: a first visit of each would take a quarter of an hour and more."""


class PlannedVisit(NamedTuple):
    """A visit: in which process, as which of its visits, of which setting, for how long in seconds."""

    process: int
    order: int
    number: int
    words: str
    seconds: float

    def __str__(self) -> str:
        return self.words


class _Campaign:
    """Visits settings in processes, as the race plans them, until it has decided.

    Attributes:
        ended_by: What broke it off; None if nothing did.
    """

    def __init__(
        self, target: Target, gpu: GpuSettings, folder: Path, limit: Limit | None, objective: str, budget_s: float
    ) -> None:
        self._target, self._gpu, self._folder = target, gpu, folder
        self._limit, self._objective = limit, objective
        self._settings: list[Setting] = []
        self._read: dict[PlannedVisit, tuple[Run, VisitFigures]] = {}
        self._failed: dict[int, PointOutcome[PlannedVisit]] = {}
        self._reference = 0
        self._began_s, self._budget_s, self._stopped = time.monotonic(), budget_s, ""
        self._raced: Race | None = None
        self._differ: list[float | None] = []
        self._why_not = ""
        self.ended_by: BaseException | None = None

    @property
    def _spent_s(self) -> float:
        return time.monotonic() - self._began_s

    def race(self, reference: Setting, combined: list[Setting], watch: PointObserver[PlannedVisit]) -> None:
        """Visit the reference, then what the race plans.

        Raises:
            BadInputError, NotPossibleError: If the reference can't be measured.
        """
        first = self._visit_reference(reference, watch)
        if self.ended_by is not None:
            return
        run, figures = self._read.pop(first)
        self._settings, self._reference = joined(self._target.stated(reference, run), combined)
        first = first._replace(number=self._reference)
        self._read[first] = run, figures
        self._compare_outputs()
        self._raced = race = Race(_candidates(self._settings), self._reference, limit=_rule(self._limit))
        race.add(self._visited(first))
        for number in self._failed:
            race.fail(number)
        for process in itertools.count():
            plan = race.plan()
            if not plan or self._is_spent():
                return
            if process:
                self._target.end_process()
            starts = [self._target.start_of(self._settings[number]) for number, _ in plan]
            plan = [plan[i] for i in sorted(range(len(plan)), key=lambda i: starts.index(starts[i]))]
            visits = [
                PlannedVisit(process, order, number, words_of(self._settings[number]), seconds)
                for order, (number, seconds) in enumerate(plan, 1)
            ]
            self._visit(visits, watch)
            for visit in visits:
                if visit.number in self._failed:
                    race.fail(visit.number)
                elif visit in self._read:
                    race.add(self._visited(visit))
            failed = [self._failed.get(visit.number) for visit in visits if visit.number != self._reference]
            if not process and failed and all(one is not None and one.reason == "bad_input" for one in failed):
                raise BadInputError(
                    f"tune: no setting but the reference can be built: {failed[0].text if failed[0] else ''}"
                )
            if self.ended_by is not None:
                self._stopped = "interrupted" if isinstance(self.ended_by, KeyboardInterrupt) else str(self.ended_by)
                return

    def _is_spent(self) -> bool:
        """True once the budget is spent, which then is why the campaign stopped."""
        if self._spent_s > self._budget_s:
            self._stopped = f"the budget of {self._budget_s:.0f} s is spent"
        return bool(self._stopped)

    def _visit_reference(self, reference: Setting, watch: PointObserver[PlannedVisit]) -> PlannedVisit:
        """Visit the reference alone.

        Raises:
            BadInputError, NotPossibleError: If it can't be measured.
        """
        self._settings = [reference]
        first = PlannedVisit(0, 0, 0, words_of(reference), FIRST_S)
        try:
            self._visit([first], watch)
            if 0 in self._failed:  # its Run is there, but not as it was asked for
                raise NotPossibleError
        except (BadInputError, NotPossibleError) as error:
            text = self._failed[0].text if 0 in self._failed else str(error)
            raise type(error)(f"the reference, {first.words}: {text}; --against or --device names another") from None
        return first

    def _compare_outputs(self) -> None:
        """How far outputs differ from the reference's; a setting whose outputs aren't finite fails.

        A cheaper wrong answer is no choice.
        """
        reference = self._settings[self._reference]
        self._differ, self._why_not = self._target.outputs(reference, self._settings)
        for number, differs in enumerate(self._differ):
            if differs == math.inf:
                visit = PlannedVisit(0, 0, number, words_of(self._settings[number]), 0.0)
                text = "its outputs aren't finite where the reference's are"
                self._failed[number] = PointOutcome(visit, "not_finite", text)

    def _visit(self, visits: Sequence[PlannedVisit], watch: PointObserver[PlannedVisit]) -> None:
        """Measure those visits of a process whose Runs aren't there; one that fails is not visited again."""

        def is_there(visit: PlannedVisit) -> bool:
            return self._target.is_there(self._settings[visit.number], self._place(visit))

        def measure(group: Sequence[PlannedVisit], note: Note[PlannedVisit]) -> None:
            (visit,) = group
            if visit.order and self._is_spent():
                return
            if visit.number in self._failed:
                note(self._failed[visit.number])
                return
            place = self._place(visit)
            try:
                shutil.rmtree(place, ignore_errors=True)
                self._gpu.set(self._settings[visit.number])
                self._target.measure(self._settings[visit.number], visit.seconds, place, visit.process)
                self._gpu.record(place)
                self._take(visit)
                note(self._failed.get(visit.number, PointOutcome(visit)))
            except (JouletraceError, TimeoutError, RuntimeError) as error:  # the last carries a child's traceback
                shutil.rmtree(place, ignore_errors=True)  # what fails is tried again when the campaign is resumed
                if reason_of(error) in _OF_THE_MACHINE:
                    raise
                self._failed[visit.number] = PointOutcome(visit, reason_of(error), last_line(error))
                note(self._failed[visit.number])

        allowed = (BadInputError, NotPossibleError) if visits[0].order else ()
        outcomes: Mapping[PlannedVisit, PointOutcome[PlannedVisit]] = {}
        with suppress(*allowed):  # no visit of this process succeeded, which the race takes into account
            tally = carry_out([[visit] for visit in visits], is_there, measure, watch, "visits")
            outcomes, self.ended_by = tally.outcomes, tally.ended_by
        for visit, outcome in outcomes.items():
            if not outcome.reason and visit not in self._read and visit.number not in self._failed:  # it was there
                self._take(visit)

    def _take(self, visit: PlannedVisit) -> None:
        """Read the Run of a visit; a setting of the GPU that wasn't in force is no choice."""
        run = load(self._place(visit))
        self._read[visit] = run, self._target.figures(run)
        if why := not_taken(run):
            self._failed[visit.number] = PointOutcome(visit, NOT_TAKEN, why)

    def _place(self, visit: PlannedVisit) -> Path:
        return self._folder / VISITS / str(visit.process) / f"{visit.order:02d}-{safe_name(visit.words)}"

    def _visited(self, visit: PlannedVisit) -> Visit:
        """A visit as the race takes it."""
        figures = self._read[visit][1]
        energy, took = figures.energy, figures.time
        log_energy, log_time = math.log(energy.value or math.nan), math.log(took.value or math.nan)
        sd_energy, sd_time = sd_of(energy), sd_of(took)
        if self._objective == "edp":
            log_energy, sd_energy = log_energy + log_time, math.hypot(sd_energy, sd_time)
        limit, seconds = self._limit, figures.latencies_s
        timed_s = float(seconds.sum()) if figures.judged is None else 0.0  # requests of a server overlap
        return Visit(
            visit.number,
            visit.process,
            figures.seconds,
            log_energy,
            sd_energy,
            log_time,
            sd_time,
            counts(figures.limited, limit.bound) if limit is not None and limit.share is not None else (),
            figures.host_bound,
            timed_s,
        )

    def result(self) -> Tuning | None:
        """The verdict of the race, and the figures of each setting; None before the reference is measured."""
        race = self._raced
        if race is None:
            return None
        verdict = race.verdict()
        visits = {number: [v for v in self._read if v.number == number] for number in range(len(self._settings))}
        reference = self._read[visits[self._reference][0]][0]
        best = verdict.best
        command = ""
        for name in (CHOSEN, REFERENCE):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        if best is not None and best != self._reference:
            command = self._gpu.command(self._settings[best]) + self._target.command(self._settings[best])
            for number, name in ((best, CHOSEN), (self._reference, REFERENCE)):
                later = [visit for visit in visits[number] if visit.process]  # the first are short, and not all settled
                places = [self._place(visit) for visit in later or visits[number]]
                self._target.keep(places, self._folder / name)
        return Tuning(
            workload=self._target.name,
            per=self._target.per,
            device=reference.devices[0].name,
            objective=self._objective,
            limit=str(self._limit) if self._limit else "",
            rows=[self._row(number, race, own) for number, own in visits.items()],
            outcome=verdict.outcome,
            reference=self._reference,
            best=best,
            saving=verdict.saving,
            within=verdict.within if math.isfinite(verdict.within) else None,
            equal=verdict.equal,
            alike=verdict.indistinct,
            undecided=[(n, saves if math.isfinite(saves) else None) for n, saves in verdict.undecided],
            nearest=verdict.nearest[0] if verdict.nearest else None,
            seconds=self._spent_s,
            processes=verdict.processes,
            why_not=self._why_not,
            note=self._target.note,
            stopped=self._stopped,
            simulated=reference.simulated,
            command=command,
            folder=self._folder,
        )

    def _row(self, number: int, race: Race, visits: Sequence[PlannedVisit]) -> SettingRow:
        """The figures of a setting, over all its visits."""
        setting = self._settings[number]
        if number in self._failed:
            outcome = self._failed[number]
            return SettingRow(setting, outcome.reason, outcome.text, read=self._read_back(visits))
        if not visits:
            return SettingRow(setting)
        cost, took = (estimate_of(*figure) for figure in race.figures(number))
        each = [self._read[visit][1] for visit in visits]
        seconds = np.concatenate([one.latencies_s for one in each])
        beside = {name: np.concatenate([one.beside[name] for one in each]) for name in each[0].beside}
        row = SettingRow(
            setting,
            processes=len({visit.process for visit in visits}),
            cost=cost,
            time=took,
            p50=_percentile_of(seconds, 0.5),
            p99=_percentile_of(seconds, 0.99),
            differs=self._differ[number],
            p95={name: of_requests(values, 0.95) for name, values in beside.items()},
            places=tuple(self._place(visit) for visit in visits),
            read=self._read_back(visits),
        )
        limit = self._limit
        if limit is None or limit.share is None:
            return row
        records = [counts(one.limited, limit.bound) for one in each]
        far = share_over(*records, far=True).low
        return replace(row, over=share_over(*records), exceeds=far is not None and far > limit.share)

    def _read_back(self, visits: Sequence[PlannedVisit]) -> dict[str, float]:
        """See ``read_back``: means over visits."""
        found = [read_back(self._read[visit][0]) for visit in visits]
        return {name: sum(one[name] for one in found) / len(found) for name in (found[0] if found else {})}


def joined(reference: Setting, combined: list[Setting]) -> tuple[list[Setting], int]:
    """All settings and the index of the reference, which may be one of them."""
    for number, setting in enumerate(combined):
        if all(str(setting[name]) == str(reference[name]) for name in setting):
            return combined, number
    return [*combined, reference], len(combined)


def _percentile_of(seconds: Floats, p: float) -> Estimate:
    return percentile(seconds, p, "visits") if len(seconds) else Estimate.null("no_iterations")


def _candidates(settings: Sequence[Setting]) -> list[Candidate]:
    """Settings as the race sees them: the batch, or the first dimension of numbers, is the ordered one.

    The size of a default that no Run states is the middle of the others.
    """
    names = list(settings[0])
    numeric = [name for name in names if all(_size(one[name]) is not None for one in settings if one[name] is not None)]
    ordered = "batch" if "batch" in numeric else numeric[0] if numeric else None
    sizes = [_size(setting[ordered]) if ordered else 1.0 for setting in settings]
    middle = float(np.median([size for size in sizes if size is not None] or [1.0]))
    return [
        Candidate(
            middle if size is None else size,
            tuple(f"{name}={value}" for name, value in setting.items() if name != ordered),
        )
        for setting, size in zip(settings, sizes, strict=True)
    ]


def _size(value: object) -> float | None:
    """The size that a value states; None if it is no number above 0."""
    try:
        size = float(str(value))
    except ValueError:
        return None
    return size if 0 < size < math.inf else None


def _rule(limit: Limit | None) -> ShareLimit | TimeLimit | None:
    """The limit as the race tests it."""
    if limit is None:
        return None
    if isinstance(limit, Joint):
        return ShareLimit(math.inf, limit.share or 0.0)  # the time per token bounds no latency of a request
    if limit.share is not None:
        return ShareLimit(limit.bound, limit.share)
    return TimeLimit(1 + limit.bound)


def estimate_of(mean: float, sd: float) -> Estimate:
    """A figure of the race, whose logarithm is normal, with its 95 % interval."""
    half = normal(0.975) * sd
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half), method="visits")


def sd_of(estimate: Estimate) -> float:
    """Relative standard deviation of an estimate from its 95 % interval, which is Student's over its windows."""
    if estimate.low is None or estimate.high is None or not estimate.value:
        return math.nan
    if scatter := estimate.budget.get("scatter of windows"):
        return scatter / estimate.value  # without what processes differ by, which the race knows itself
    half = (estimate.high - estimate.low) / 2 / estimate.value
    return half / student(0.975, max((estimate.n or 8) - 1, 2))


def run_tune(
    target: Target,
    over: Mapping[str, Sequence[Any]],
    folder: Path,
    *,
    limits: Sequence[Limit] = (),
    against: Mapping[str, str] | None = None,
    objective: str = "energy",
    budget_s: float = math.inf,
    permitted: bool = False,
    progress: Progress | None = None,
    on: Cluster | None = None,
) -> tuple[Tuning | None, BaseException | None]:
    """The cheapest of all combinations of values of ``over`` that meets a limit, and what broke the campaign off.

    ``folder`` holds the settings in ``tune.json``, a Run per visit under ``visits/PROCESS/``, and the result, which is
    None if it was broken off before the reference was measured; a folder with this campaign is resumed. No visit
    begins after ``budget_s`` seconds. ``on`` a cluster all of it is on one GPU, and nothing is resumed.

    Raises:
        BadInputError: If a value or the limit is invalid, there are more than ``MOST_SETTINGS`` settings or the GPU
            would be changed without permission, or the folder holds something else.
        NotPossibleError: If the reference can't be measured, or the GPU's settings can't be changed.
    """
    if objective not in OBJECTIVES:
        raise BadInputError(f"--objective {objective}: must be one of {', '.join(OBJECTIVES)}")
    if on is not None:
        if budget_s < math.inf:
            raise BadInputError(
                "tune: after --budget the same command goes on, but --on resumes nothing: leave out one"
            )
        how = {"limits": limits, "against": against, "objective": objective, "permitted": permitted}
        return _tuned_on(on, target, over, folder, how), None
    limit = target.limit(limits)
    reference = target.reference(over, against or {})
    combined = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    of_gpu = {name: [one[name] for one in (reference, *combined) if one.get(name) is not None] for name in NAMES}
    if len(combined) > MOST_SETTINGS and not permitted:
        raise BadInputError(
            f"{len(combined)} settings take some {len(combined) * 4 / 60:.0f} minutes to see once: name fewer values, "
            f"or add --yes"
        )
    target.check([reference, *combined])
    folder = folder.absolute()
    texts = [f"{name}={','.join(map(str, values))}" for name, values in over.items()]
    said = {**target.claim(), "over": " ".join(texts), "against": words_of(reference)}
    said |= {"objective": objective, "limit": str(limit) if limit else ""}
    with GpuSettings(target.device, of_gpu) as gpu:
        gpu.check_permitted(permitted)
        campaign = _Campaign(target, gpu, folder, limit, objective, budget_s)
        with claimed(folder / CLAIM, "tune", said):
            with gpu.changing():
                try:
                    campaign.race(reference, combined, PointObserver(progress, "visit"))
                finally:
                    target.close()
                    if not any((folder / VISITS).rglob(RUN_JSON)):  # another command may have the folder
                        shutil.rmtree(folder / VISITS, ignore_errors=True)
                        (folder / CLAIM).unlink(missing_ok=True)
            if (found := campaign.result()) is not None:
                keep(folder / RESULT, render(found, "json"))
            return found, campaign.ended_by


def _tuned_on(
    there: Cluster, target: Target, over: Mapping[str, Sequence[Any]], folder: Path, how: Mapping[str, Any]
) -> Tuning:
    """The result of ``run_tune`` on one GPU of a cluster; ``how`` are its options.

    Raises:
        Exception: What broke it off; it begins again on another GPU, so no part of it comes back.
    """
    if not isinstance(target, WorkloadTarget | ProgramTarget):
        raise BadInputError("tune: --on is for workloads and programs: leave it out")
    if of_gpu := [name for name in over if name in NAMES]:
        raise BadInputError(f"tune: {of_gpu[0]} changes a GPU of this host: leave out --on")
    if folder.exists() and not is_empty(folder):
        raise BadInputError(f"{shown(folder)} isn't empty, and --on resumes nothing: give another -o")
    fill_one_on(there, partial(_tuned, target, dict(over), how), folder.absolute(), target.device)
    return from_dict(json.loads((folder / RESULT).read_bytes()), folder)


def _tuned(target: Target, over: Mapping[str, Sequence[Any]], how: Mapping[str, Any], folder: Path) -> None:
    found, ended_by = run_tune(target, over, folder, **how)
    if found is None or ended_by is not None:
        raise ended_by or NotPossibleError("tune: the reference was not measured")


def shares_of(words: Sequence[str], over: Mapping[str, Any], device: str) -> Mapping[str, float | None]:
    """Quantities that a limit of what words name may be on, as ``parse_limits`` takes them."""
    more = _more_targets(words, over, device)
    return SHARES if more is None else more.shares()


def _more_targets(words: Sequence[str], over: Mapping[str, Any], device: str) -> MoreTargets | None:
    """The module of the wing that measures what words name; None if none does."""
    return next((module for module in modules("targets").values() if module.takes(words, over, device)), None)


def target_of(
    words: Sequence[str],
    settings: ProfileSettings,
    limits: Sequence[Limit],
    limit_s: float,
    over: Mapping[str, Any] | None = None,
    requests: Mapping[str, Any] = MappingProxyType({}),
) -> Target:
    """The workload that words name, the program with its arguments, or a target of a wing.

    Of the latter two ``settings`` say the device alone; ``requests`` are what visits of a wing's target send.

    Raises:
        BadInputError: If words name none of these.
    """
    if (more := _more_targets(words, over or {}, settings.device)) is not None:
        names = {option.name for option in fields(more.RequestOptions)}
        own_requests = {name: value for name, value in requests.items() if name in names}
        return more.target_of(words, settings, limits, limit_s, own_requests)
    if len(words) > 1:
        return ProgramTarget(words, settings.device, limit_s)
    try:
        resolve(words[0])
    except BadInputError:
        if shutil.which(words[0]) is None:
            raise
        return ProgramTarget(words, settings.device, limit_s)
    long, first_token = (
        any(limit.share is not None for limit in limits),
        any(limit.quantity in OF_TOKENS for limit in limits),
    )
    return WorkloadTarget(words[0], settings, limit_s, long=long, first_token=first_token)


def tune(
    workload: str,
    over: Mapping[str, Any],
    *,
    limit: str | None = None,
    objective: str = "energy",
    against: Mapping[str, Any] | None = None,
    budget: float = math.inf,
    folder: str | Path | None = None,
    point_limit: float = 600.0,
    yes: bool = False,
    on: str | None = None,
    progress: bool | Progress = True,
    **options: Any,
) -> Tuning:
    """Find the setting of a workload that takes the least energy within a limit, as ``jouletrace tune`` does.

    Args:
        workload: Name of a built-in workload, "file.py:make" of your own, or the address of a server.
        over: What may vary: values by dimension, such as ``{"batch": "1..256", "mode": ["eager", "graph"]}``.
        limit: What the choice has to meet: "p99<20ms", "time<+3%"; None for no limit.
        objective: "energy" per sample, or "edp", its product with time per sample.
        against: Values of the reference; those that aren't named are the options', or the defaults.
        budget: Seconds after which no process begins.
        folder: Where the Runs are saved; a folder with this campaign is resumed. None makes one under ``runs/``.
        point_limit: Seconds after which a visit is ended as timed out.
        yes: Permit more than 200 settings, and changing the GPU's power limit and clock; they are restored.
        on: An engine on one GPU of whose cluster all is measured: "ray".
        progress: Whether lines on stderr report each visit; ``JOULETRACE_PROGRESS=0`` prints none.
        **options: Further options of ``jouletrace profile``, the same for all settings, as of ``jt.profile``.

    Returns:
        The choice, what it saves, and all settings; print it, or read ``rows``, ``saving`` or ``to_pandas()``.

    Raises:
        BadInputError: If a value, the limit or an option is invalid, or the folder holds something else.
        NotPossibleError: If the reference can't be measured.
    """
    several = {
        name: one if isinstance(one, Iterable) and not isinstance(one, str) else [one] for name, one in over.items()
    }
    texts = [f"{name}={','.join(map(str, values))}" for name, values in several.items()]
    settings = ProfileSettings(**named(ProfileSettings, options, "tune"))
    dimensions = parse_over(texts)
    limits = parse_limits(limit, "limit", shares_of([workload], dimensions, settings.device))
    target = target_of([workload], settings, limits, point_limit, dimensions)
    with folder_of(Path(folder) if folder is not None else None, "tune") as place, reported(progress) as receiver:
        found, ended_by = run_tune(
            target,
            dimensions,
            place,
            limits=limits,
            objective=objective,
            against={name: str(value) for name, value in (against or {}).items()},
            budget_s=budget,
            permitted=yes,
            progress=receiver,
            on=cluster(on, settings.device),
        )
    if found is None or ended_by is not None:
        raise ended_by or NotPossibleError("tune: the reference was not measured")
    return found
