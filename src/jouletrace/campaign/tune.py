"""``tune``: the setting of a workload that takes the least energy within a limit, with a tested promise.

Settings are visited in turns: each round is a new process, which profiles several settings for some seconds each.
``race`` decides which setting is visited next and when that is enough; each visit is a Run in the folder, and a
campaign that was broken off goes on from these.
"""

from __future__ import annotations

import itertools
import math
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from jouletrace.analysis.latency import latencies_s
from jouletrace.campaign.limits import Limit, counts, parse_limits, share_over
from jouletrace.campaign.loop import Note, Outcome, Watch, carry_out, claimed, folder_of
from jouletrace.campaign.race import Candidate, Race, ShareLimit, TimeLimit, Visit
from jouletrace.campaign.repeats import is_measured, merge, numbered
from jouletrace.campaign.worker import VANISHED, Worker, check_done, listen, reason_of
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.option import named, whole
from jouletrace.profiler.passes import LEAST_WINDOW_S
from jouletrace.profiler.profile import finish
from jouletrace.profiler.progress import Progress, reported
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.facts import SIMULATED
from jouletrace.report.headline import ENERGY
from jouletrace.report.reasons import reason
from jouletrace.report.tune import OBJECTIVES, Row, Setting, Tuning
from jouletrace.run import Estimate, Run, load
from jouletrace.run.files import RUN_JSON, safe_name
from jouletrace.run.parts import Parts
from jouletrace.stats.interval import percentile
from jouletrace.stats.quantiles import normal, student
from jouletrace.workloads import resolve

CLAIM, VISITS = "tune.json", "visits"
CHOSEN, REFERENCE = "chosen", "reference"
"""Folders of the Runs that hold all visits of a setting."""

_FIELDS: Final = {"batch": int, "threads": int, "streams": int, "mode": str, "dtype": str, "backend": str, "hint": str}
"""Dimensions that are options of a profile, and how their values are read; ``attention`` and others are of the
configuration."""

_ATTENTION, _ATTENTION_KEY = "attention", "attn_implementation"

_SAME_OUTPUTS = ("batch", "mode", "threads", "streams", "hint", "backend")
"""Dimensions that don't change what is computed, but for rounding."""

_OTHER_WORK = ("seq_len", "prompt_len", "max_new_tokens", "task")
"""Options whose values are other work: their energies per sample say nothing of each other."""

MOST_SETTINGS = 200
"""Settings beyond which the user is asked: a first visit of each would take a quarter of an hour and more."""

FIRST_S, WARM_S, LATENCY_S = 1.0, 2.0, 0.5
"""Lengths, s: of a first visit, four windows of a fast sensor; of its warm-up, at most; of timed iterations where no
limit is on a percentile."""


def parse_over(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Values by dimension, of ``NAME=A,B,...``; ``NAME=1..256`` are the powers of two from 1 to 256, and the ends.

    Raises:
        BadInputError: If a text has another form, or a dimension occurs twice.
    """
    over: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not (name and equals and values.strip()):
            raise BadInputError(f"--over {text!r}: write NAME=A,B,... or NAME=1..256")
        if name in _OTHER_WORK:
            raise BadInputError(f"--over {text!r}: another {name} is other work, whose energy can't be compared")
        if name in over:
            raise BadInputError(f"--over names {name} twice")
        over[name] = tuple(_values(name, values, text))
    if not over:
        raise BadInputError("tune: name what may vary, such as --over batch=1..256 --over mode=eager,graph")
    return over


def _values(name: str, values: str, text: str) -> Iterator[Any]:
    read = _FIELDS.get(name, str)
    low, dots, high = values.partition("..")
    try:
        if dots:
            first, last = whole(low), whole(high)
            if not 1 <= first <= last:
                raise BadInputError(f"--over {text!r}: write the smaller number first, at least 1")
            powers = [2**n for n in range(last.bit_length()) if first < 2**n < last]
            yield from dict.fromkeys([first, *powers, last])
            return
        parts = [part.strip() for part in values.split(",")]
        if "" in parts:
            raise BadInputError(f"--over {text!r}: a value is missing between commas")
        yield from dict.fromkeys(whole(part) if read is int else part for part in parts)
    except ValueError:
        raise BadInputError(f"--over {text!r}: write whole numbers, such as {name}=1,8,64 or {name}=1..64") from None


def applied(setting: Setting, settings: ProfileSettings) -> ProfileSettings:
    """The options of a profile with those of a setting; None leaves what is there.

    Raises:
        BadInputError: If a value is invalid.
    """
    given = {name: value for name, value in setting.items() if value is not None}
    options: dict[str, Any] = {name: given.pop(name) for name in list(given) if name in _FIELDS}
    config = {_ATTENTION_KEY if name == _ATTENTION else name: str(value) for name, value in given.items()}
    return replace(settings, **options, config={**settings.config, **config})


def setting_of(settings: ProfileSettings, over: Mapping[str, Sequence[Any]], against: Mapping[str, str]) -> Setting:
    """The reference: what the options are without ``--over``, but for what ``--against`` states; None for a default.

    Raises:
        BadInputError: If ``--against`` names no dimension, or a value is no number where one is needed.
    """
    if unknown := [name for name in against if name not in over]:
        raise BadInputError(f"--against {unknown[0]}: names no dimension of --over ({', '.join(over)})")
    reference: Setting = {}
    for name in over:
        if name in against:
            (reference[name],) = _values(name, against[name], f"{name}={against[name]}")
        elif name in _FIELDS:
            reference[name] = getattr(settings, name)
        else:
            reference[name] = settings.config.get(_ATTENTION_KEY if name == _ATTENTION else name)
    return reference


class Planned(NamedTuple):
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
        self,
        workload: str,
        settings: ProfileSettings,
        folder: Path,
        limit: Limit | None,
        objective: str,
        limit_s: float,
        start: Callable[[str], Worker],
    ) -> None:
        self._workload, self._base, self._folder = workload, settings, folder
        self._limit, self._objective, self._limit_s = limit, objective, limit_s
        self._start = start
        self._worker: Worker | None = None
        self._settings: list[Setting] = []
        self._runs: dict[int, list[tuple[int, Path]]] = {}
        self._failed: dict[int, Outcome[Planned]] = {}
        self._reference = self._processes = 0
        self._began_s, self._stopped = time.monotonic(), ""
        self._raced: Race | None = None
        self._differ: dict[int, float | None] = {}
        self._why_not = ""
        self.ended_by: BaseException | None = None

    @property
    def _spent_s(self) -> float:
        return time.monotonic() - self._began_s

    def race(self, reference: Setting, combined: list[Setting], budget_s: float, watch: Watch[Planned]) -> None:
        """Visit the reference, then what the race plans.

        Raises:
            BadInputError, NotPossibleError: If the reference can't be measured.
        """
        self._settings = [reference]
        first = Planned(0, 0, 0, words_of(reference), FIRST_S)
        self._visit([first], watch)
        if self.ended_by is not None:
            raise self.ended_by
        run = load(self._place(first))
        self._settings, self._reference = joined(reference, combined, run)
        self._runs = {self._reference: self._runs.pop(0)}
        self._compare_outputs()
        self._raced = race = Race(
            [_candidate(setting) for setting in self._settings], self._reference, limit=_rule(self._limit)
        )
        race.add(self._read(run, first._replace(number=self._reference)))
        for number in self._failed:
            race.fail(number)
        for process in itertools.count():
            plan = race.plan()
            self._processes = process + bool(plan)
            if not plan:
                return
            if self._spent_s > budget_s:
                self._stopped = f"the budget of {budget_s:.0f} s is spent"
                return
            if process:
                self.end_process()
            visits = [
                Planned(process, order, number, words_of(self._settings[number]), seconds)
                for order, (number, seconds) in enumerate(plan, 1)
            ]
            self._visit(visits, watch)
            for visit in visits:
                if visit.number in self._failed:
                    race.fail(visit.number)
                elif (self._place(visit) / RUN_JSON).exists():
                    race.add(self._read(load(self._place(visit)), visit))
            if self.ended_by is not None:
                self._stopped = "interrupted" if isinstance(self.ended_by, KeyboardInterrupt) else str(self.ended_by)
                return

    def _compare_outputs(self) -> None:
        """How far outputs differ from the reference's, of each combination of what may change them.

        A setting whose outputs aren't numbers where the reference's are fails: a cheaper wrong answer is no choice.
        """
        reference = self._settings[self._reference]
        changing = [name for name in reference if name not in _SAME_OUTPUTS]
        variants = {tuple(setting[name] for name in changing): setting for setting in self._settings}
        if len(variants) < 2:
            return
        own = tuple(reference[name] for name in changing)
        keys = [own, *(key for key in variants if key != own)]
        settings = [asdict(applied({**reference, **dict(zip(changing, key, strict=True))}, self._base)) for key in keys]
        try:
            said = self._order({"do": "outputs", "workload": self._workload, "settings": settings}, self._folder)
        except (JouletraceError, TimeoutError, RuntimeError) as error:
            self._why_not = (str(error).strip().splitlines() or ["it failed without a message"])[-1]
            return
        self._why_not = said["why"]
        differ = dict(zip(keys, said["differ"] or [None] * len(keys), strict=True))
        for number, setting in enumerate(self._settings):
            found = self._differ[number] = differ[tuple(setting[name] for name in changing)]
            if found == math.inf:
                visit = Planned(0, 0, number, words_of(setting), 0.0)
                text = "its outputs aren't finite where the reference's are"
                self._failed[number] = Outcome(visit, "not_finite", text)

    def _visit(self, visits: Sequence[Planned], watch: Watch[Planned]) -> None:
        """Measure those visits of a process whose Runs aren't there; one that fails is not visited again."""

        def is_there(visit: Planned) -> bool:
            setting = self._settings[visit.number]
            return is_measured(self._place(visit), self._workload, applied(setting, self._base))

        def measure(group: Sequence[Planned], note: Note[Planned]) -> None:
            (visit,) = group
            if visit.number in self._failed:
                note(self._failed[visit.number])
                return
            try:
                shutil.rmtree(self._place(visit), ignore_errors=True)
                self._profile(visit)
                self._read(load(self._place(visit)), visit)
                note(Outcome(visit))
            except (JouletraceError, TimeoutError, RuntimeError) as error:  # the last carries a child's traceback
                text = (str(error).strip().splitlines() or ["it failed without a message"])[-1]
                self._failed[visit.number] = Outcome(visit, reason_of(error), text)
                note(self._failed[visit.number])

        allowed = (BadInputError, NotPossibleError) if visits[0].order else ()
        with suppress(*allowed):  # no visit of this process succeeded, which the race takes into account
            self.ended_by = carry_out([[visit] for visit in visits], is_there, measure, watch, "visits").ended_by
        for visit in visits:
            if visit.number not in self._failed and (self._place(visit) / RUN_JSON).exists():
                self._runs.setdefault(visit.number, []).append((visit.process, self._place(visit)))

    def _place(self, visit: Planned) -> Path:
        return self._folder / VISITS / str(visit.process) / f"{visit.order:02d}-{safe_name(visit.words)}"

    def _profile(self, visit: Planned) -> None:
        """Profile a setting in the worker of this process.

        Raises:
            JouletraceError, TimeoutError, RuntimeError: As ``worker.check_done``.
        """
        settings = asdict(numbered(self._brief(visit), visit.process + 1))
        place = self._place(visit)
        self._order({"do": "profile", "workload": self._workload, "settings": settings, "folder": str(place)}, place)

    def _order(self, order: dict[str, Any], place: Path) -> dict[str, Any]:
        """What the worker of this process answers to an order.

        Raises:
            JouletraceError, TimeoutError, RuntimeError: As ``worker.check_done``.
        """
        if self._worker is None:
            self._worker = self._start(self._workload)
        try:
            self._worker.begin(order)
            listen([self._worker], limit_s=self._limit_s)
            check_done(self._worker, self._workload, place)
        except BaseException as error:
            if not isinstance(error, JouletraceError) or reason_of(error) == VANISHED:
                self.end_process()
            raise
        return self._worker.said

    def _brief(self, visit: Planned) -> ProfileSettings:
        """The options of a visit: windows for its time, and iterations for a limit on a percentile."""
        settings = applied(self._settings[visit.number], self._base)
        return replace(
            settings,
            detail="model",
            first_stage=max(4, math.ceil(visit.seconds / LEAST_WINDOW_S)),
            target_ci=0.5,  # one stage: the race decides what needs more
            warmup_s=min(settings.warmup_s, WARM_S),
            latency_s=visit.seconds if _percentile(self._limit) else LATENCY_S,
        )

    def end_process(self) -> None:
        """End the worker, if there is one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _read(self, run: Run, visit: Planned) -> Visit:
        """The figures of a visit.

        Raises:
            NotPossibleError: If its energy or time isn't known.
        """
        parts, items = Parts(run), run.workload.get("items") or 1
        energy, took = parts.get(ENERGY), parts.get("iteration_time_s")
        if energy.value is None or took.value is None:
            raise NotPossibleError(f"no energy per sample: {reason(energy.reason or took.reason or '')}")
        log_energy, log_time = math.log(energy.value / items), math.log(took.value / items)
        sd_energy, sd_time = _sd(energy), _sd(took)
        if self._objective == "edp":
            log_energy, sd_energy = log_energy + log_time, math.hypot(sd_energy, sd_time)
        limit = _percentile(self._limit)
        blocks = counts(latencies_s(run), limit.bound) if limit is not None else ()
        return Visit(
            visit.number,
            visit.process,
            visit.seconds,
            log_energy,
            sd_energy,
            log_time,
            sd_time,
            counts=blocks,
            host_bound=parts.get("energy_work_j").value is not None,
        )

    def result(self) -> Tuning:
        """The verdict of the race, and the figures of each setting."""
        race = self._raced
        if race is None:
            raise NotPossibleError("tune was broken off before the reference was measured")
        verdict = race.verdict()
        reference = load(self._runs[self._reference][0][1])
        best = verdict.best
        command = ""
        for name in (CHOSEN, REFERENCE):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        if best is not None and best != self._reference:
            command = command_of(self._workload, self._settings[best], self._base)
            self._keep(best, CHOSEN)
            self._keep(self._reference, REFERENCE)
        return Tuning(
            workload=reference.workload.get("name", self._workload),
            device=reference.devices[0].name,
            objective=self._objective,
            limit=str(self._limit) if self._limit else "",
            most_over=self._limit.share if self._limit else None,
            rows=[self._row(number, race) for number in range(len(self._settings))],
            outcome=verdict.outcome,
            reference=self._reference,
            best=best,
            saving=verdict.saving,
            within=verdict.within if math.isfinite(verdict.within) else None,
            equal=verdict.equal,
            alike=verdict.indistinct,
            undecided=verdict.undecided,
            nearest=verdict.nearest[0] if verdict.nearest else None,
            seconds=self._spent_s,
            processes=self._processes,
            why_not=self._why_not,
            stopped=self._stopped,
            simulated=SIMULATED if reference.simulated else "",
            command=command,
            folder=self._folder,
        )

    def _keep(self, number: int, name: str) -> None:
        """Save all visits of a setting as one Run, for ``compare`` and as a gate."""
        run = merge([load(visit) for _, visit in self._runs[number]])
        run.settings["repeats"] = len(self._runs[number])
        finish(run, self._folder / name)

    def _row(self, number: int, race: Race) -> Row:
        """The figures of a setting, over all its visits."""
        setting = self._settings[number]
        if number in self._failed:
            outcome = self._failed[number]
            return Row(setting, outcome.reason, outcome.text)
        visits = self._runs.get(number, [])
        if not visits:
            return Row(setting)
        cost, took = (estimate_of(*figure) for figure in race.figures(number))
        blocks = [latencies_s(load(place)) for _, place in visits]
        limit = _percentile(self._limit)
        return Row(
            setting,
            processes=len({process for process, _ in visits}),
            cost=cost,
            time=took,
            p50=percentile(np.concatenate(blocks), 0.5, "p50"),
            p99=percentile(np.concatenate(blocks), 0.99, "p99"),
            over=share_over([block for one in blocks for block in counts(one, limit.bound)])
            if limit is not None
            else Estimate.null("no_limit"),
            differs=self._differ.get(number),
            places=tuple(place for _, place in visits),
        )


def words_of(setting: Setting) -> str:
    """A setting in words, which is also the name of its visits' folders."""
    return Row(setting).words


def joined(reference: Setting, combined: list[Setting], run: Run) -> tuple[list[Setting], int]:
    """All settings and the index of the reference, which is one of them if its Run states the same values."""
    facts = run.workload
    stated = {name: facts.get(name) if value is None else value for name, value in reference.items()}
    for number, setting in enumerate(combined):
        if all(str(setting[name]) == str(stated[name]) for name in setting):
            return combined, number
    return [*combined, stated], len(combined)


def command_of(workload: str, setting: Setting, settings: ProfileSettings) -> str:
    """The command that measures a setting again."""
    words = ["jouletrace", "profile", workload]
    for name, value in setting.items():
        if value is None:
            continue
        if name in _FIELDS:
            words += [f"--{name}", str(value)]
        else:
            words += ["--config", f"{_ATTENTION_KEY if name == _ATTENTION else name}={value}"]
    return shlex.join(words)


def _candidate(setting: Setting) -> Candidate:
    """A setting as the race sees it: its batch, or the first other number, is the ordered dimension."""
    numbers = [name for name, value in setting.items() if isinstance(value, int)]
    ordered = "batch" if "batch" in numbers else numbers[0] if numbers else None
    size = float(setting[ordered]) if ordered else 1.0
    return Candidate(size, tuple(f"{name}={value}" for name, value in setting.items() if name != ordered))


def _percentile(limit: Limit | None) -> Limit | None:
    """The limit if it is on a percentile of latency."""
    return limit if limit is not None and limit.share is not None else None


def _rule(limit: Limit | None) -> ShareLimit | TimeLimit | None:
    """The limit as the race tests it."""
    if limit is None:
        return None
    if limit.share is not None:
        return ShareLimit(limit.bound, limit.share)
    return TimeLimit(1 + limit.bound)


def estimate_of(mean: float, sd: float) -> Estimate:
    """A figure of the race, whose logarithm is normal, with its 95 % interval."""
    half = normal(0.975) * sd
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half), method="visits")


def _sd(estimate: Estimate) -> float:
    """Relative standard deviation of an estimate from its 95 % interval, which is Student's over its windows."""
    if estimate.low is None or estimate.high is None or not estimate.value:
        return 0.02
    half = (estimate.high - estimate.low) / 2 / estimate.value
    return half / student(0.975, max((estimate.n or 8) - 1, 2))


def run_tune(
    workload: str,
    settings: ProfileSettings,
    over: Mapping[str, Sequence[Any]],
    folder: Path,
    *,
    limits: Sequence[Limit] = (),
    against: Mapping[str, str] | None = None,
    objective: str = "energy",
    budget_s: float = math.inf,
    limit_s: float = 600.0,
    permitted: bool = False,
    progress: Progress | None = None,
    start: Callable[[str], Worker] = Worker,
) -> tuple[Tuning, BaseException | None]:
    """The cheapest of all combinations of values of ``over`` that meets a limit, and what broke the campaign off.

    ``folder`` holds the settings in ``tune.json`` and a Run per visit under ``visits/PROCESS/``; a folder with this
    campaign is resumed. No process begins after ``budget_s`` seconds. ``start`` starts a process.

    Raises:
        BadInputError: If a value or the limit is invalid, there are more than ``MOST_SETTINGS`` settings without
            permission, or the folder holds something else.
        NotPossibleError: If the reference can't be measured.
    """
    if len(limits) > 1 or any(limit.quantity in ("ttft", "tpot") for limit in limits):
        raise BadInputError(
            f"--limit {','.join(map(str, limits))}: a workload has one limit, on p50, p90, p95 or p99 (latency of an "
            f"iteration) or on time"
        )
    limit = limits[0] if limits else None
    if limit is not None and limit.share is None and not limit.relative:
        raise BadInputError(f"--limit {limit}: a mean time is limited relative to the reference: time<+3%, or p50<…")
    if objective not in OBJECTIVES:
        raise BadInputError(f"--objective {objective}: must be one of {', '.join(OBJECTIVES)}")
    reference = setting_of(settings, over, against or {})
    combined = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    if len(combined) > MOST_SETTINGS and not permitted:
        raise BadInputError(
            f"{len(combined)} settings take some {len(combined) * 4 / 60:.0f} minutes to see once: name fewer values, "
            f"or add --yes"
        )
    for setting in (reference, *combined):
        applied(setting, settings)
    resolve(workload)
    open_device(settings.device).close()
    folder = folder.absolute()
    said = {**settings.to_dict(), "over": {name: list(values) for name, values in over.items()}, "against": reference}
    said |= {"workload": workload, "objective": objective, "limit": str(limit) if limit else ""}
    with claimed(folder / CLAIM, "tune", said):
        campaign = _Campaign(workload, settings, folder, limit, objective, limit_s, start)
        try:
            campaign.race(reference, combined, budget_s, Watch(progress, "visit"))
        finally:
            campaign.end_process()
        return campaign.result(), campaign.ended_by


def tune(
    workload: str,
    over: Mapping[str, Any],
    *,
    limit: str = "",
    objective: str = "energy",
    against: Mapping[str, Any] | None = None,
    budget: float = math.inf,
    folder: str | Path | None = None,
    point_limit: float = 600.0,
    yes: bool = False,
    progress: bool | Progress = True,
    **options: Any,
) -> Tuning:
    """Find the setting of a workload that takes the least energy within a limit, as ``jouletrace tune`` does.

    Args:
        workload: Name of a built-in workload, or "file.py:make" of your own.
        over: What may vary: values by dimension, such as ``{"batch": "1..256", "mode": ["eager", "graph"]}``.
        limit: What the choice has to meet: "p99<20ms", "time<+3%"; "" for no limit.
        objective: "energy" per sample, or "edp", its product with time per sample.
        against: Values of the reference; those that aren't named are the options', or the defaults.
        budget: Seconds after which no process begins.
        folder: Where the Runs are saved; a folder with this campaign is resumed. None makes one under ``runs/``.
        point_limit: Seconds after which a visit is ended as timed out.
        yes: Permit more than 200 settings.
        progress: Whether lines on stderr report each visit; ``JOULETRACE_PROGRESS=0`` prints none.
        **options: Further options of ``jouletrace profile``, the same for all settings, as of ``jt.profile``.

    Returns:
        The choice, what it saves, and all settings; print it, or read ``rows``, ``saving`` or ``to_pandas()``.

    Raises:
        BadInputError: If a value, the limit or an option is invalid, or the folder holds something else.
        NotPossibleError: If the reference can't be measured.
    """
    texts = [
        f"{name}={values if isinstance(values, str) else ','.join(map(str, values))}" for name, values in over.items()
    ]
    settings = ProfileSettings(**named(ProfileSettings, options, "tune"))
    with folder_of(Path(folder) if folder is not None else None, "tune") as place, reported(progress) as receiver:
        found, ended_by = run_tune(
            workload,
            settings,
            parse_over(texts),
            place,
            limits=parse_limits(limit, "limit") if limit else (),
            objective=objective,
            against={name: str(value) for name, value in (against or {}).items()},
            budget_s=budget,
            limit_s=point_limit,
            permitted=yes,
            progress=receiver,
        )
    if ended_by is not None:
        raise ended_by
    return found
