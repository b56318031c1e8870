"""The kernels of a recording: when each kind ran, and its power by the readings, if these can be trusted.

Times are those of an iteration in which nothing was repeated, or of a whole program. Powers have their covariance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from jouletrace.analysis.power import known_rate_hz, most_w, no_power_reason, power_record
from jouletrace.analysis.rules import doubt, says
from jouletrace.arrays import Floats, Ints, Mask
from jouletrace.attribution.activity import LONG_S, Activity, Kind, activity_of
from jouletrace.attribution.checks import (
    OF_PLACE,
    PRIOR_SHARE,
    check_averages,
    check_length,
    check_powers,
    check_rest,
    check_traced,
    of_each,
    trusted,
)
from jouletrace.attribution.fit import LEAD_S, Fit, enough, explained
from jouletrace.attribution.observer import Averaged, Sampled
from jouletrace.attribution.outcome import Outcome
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.program import ProgramEnergies, attribute_program
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, ChannelInfo, Estimate, Run, tables
from jouletrace.run.channels import POWER
from jouletrace.run.division import RESPONSE, Powers
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.readings import Readings
from jouletrace.run.recording_names import IDLE_NAME, recording_of
from jouletrace.run.spans import union_ns
from jouletrace.run.tables import UnitRow
from jouletrace.sensor import kinds
from jouletrace.sensor.models import Means, Sensor
from jouletrace.sensor.readout import on_grid
from jouletrace.sensor.shares import Response
from jouletrace.stats.interval import Z95
from jouletrace.stats.one_thread import one_thread

_SUMS = (("seconds", "sum"), ("count", "count"))
"""Columns of a division, and what each is of the seconds of launches."""

MOST_KINDS, OTHERS = 200, Kind("")
"""Kinds of kernels whose powers are solved for, those with the most time, and the one kind that the others make. In 30
programs with up to 570 kinds the others take less than 0.1 % of the time."""

READINGS = "noise of the readings"
"""Source of the uncertainty of a kernel's energy, beside ``RESPONSE``."""

_LEAST = 1e-12
"""Least eigenvalue of a correlation of powers, which kinds that always run at once would make 0."""

SMALL = 0.01
"""Largest share of busy time without figures."""

AROUND_NS = 1_000_000_000
"""Readings this long before and after a recording show where it begins and ends."""

BEYOND_S = 10.0
"""Kernels lie in the recording, but for what a tracer reports late."""

IDLE_W = 130.0, 30.0
"""Idle power of GPUs with samplers where none was measured, and its standard deviation: H100s and H200s with a context
draw 110 to 140 W."""

OTHERS_W = 400.0, 1000.0
"""Power of kernels above idle, and its standard deviation, on GPUs of other kinds, of which no rows were recorded."""

ALIKE = 0.3, 2.0
"""Relative spread of power among all kernels as one kind, and the factor by which it is uncertain."""

MOST_SCATTER = 1.5
"""Largest scatter about averages of kernels that count as one kind, over the most that passes: 1.24 in 1 s of training
that warms up; a timeline that is 0.1 s late has 2.2."""

REFUSED = "traced", "seen"
"""Checks without which all kernels together have no energy either."""

CODES = "not_attributed", "samples_unplaced", "kernels_alike", "powers_doubtful", "too_many_kinds"
"""Of warnings about powers."""

_NEAR = 0.1
"""Standard deviation of the delay of windows, over their length, once the readings have shown where they lie."""


@dataclass(frozen=True)
class KernelTimes:
    """The kernels of a recording.

    Attributes:
        about: How the recording was made.
        device: Whose kernels they are.
        top: Unit of all that ran: the model, or the device where a Run has several.
        units: Operators, kernels and sites, as stored, by id.
        start_ns, end_ns: Of each kernel, shape (n,).
        kind: Index into ``kinds`` of each kernel, shape (n,).
        parts: What an untouched iteration consists of, by site: rows of ``divided``, with these kinds.
    """

    about: RecordingFacts
    device: str
    top: int
    units: dict[int, UnitRow]
    start_ns: Ints
    end_ns: Ints
    kind: Ints
    kinds: tuple[Kind, ...]
    parts: pa.Table

    def activity(self, origin_ns: int) -> Activity:
        """The kernels as disjoint intervals, their seconds from ``origin_ns`` on."""
        return activity_of(self.start_ns, self.end_ns, self.kind, self.kinds, origin_ns)

    @cached_property
    def total_s(self) -> Floats:
        """Seconds of each kind in the whole recording, shape (kinds,)."""
        seconds = (self.end_ns - self.start_ns) / 1e9
        return np.asarray(np.bincount(self.kind, seconds, len(self.kinds)), np.float64)

    @cached_property
    def busy_s(self) -> float:
        """Seconds of an untouched iteration in which at least one kernel runs."""
        union = union_ns(self.start_ns, self.end_ns)
        own_s: float = sum(self.parts["seconds"].to_pylist())
        return own_s * union / max(float((self.end_ns - self.start_ns).sum()), 1.0)


def times_of(run: Run, about: RecordingFacts | None = None) -> KernelTimes:
    """The kernels of a Run's recording; of that of one device, where there are several.

    Raises:
        KeyError: If the Run lacks some of it.
    """
    about, activity = recording_of(run) if about is None else about, run.activity
    device = str(about.get("device") or (run.devices[0].id if run.devices else ""))
    if len(run.workload.get("recordings", ())) > 1:
        activity = activity.filter(pc.equal(activity["device"], device))
    recorded = recorded_units(run)
    devices = (row["id"] for row in run.units.to_pylist() if row["level"] == "device" and row["module"] == device)
    top = next((id for id in devices if id in recorded), MODEL_UNIT)
    units = recorded.get(top, {})
    start, end = activity["start_ns"].to_numpy(), activity["end_ns"].to_numpy()
    unit, plain = activity["unit"].to_numpy(), untouched(activity)
    names: dict[Kind, int] = {}
    number = dict[int, int]()
    for row in units.values():
        if row["level"] == "kernel":
            number[row["id"]] = names.setdefault(kind_of(row), len(names))
    ids, where = tables.distinct(unit)
    kind, kinds = np.array([number[int(id)] for id in ids], np.int64)[where], tuple(names)
    length = (end - start) / 1e9
    if len(kinds) > MOST_KINDS:
        largest = np.argsort(-np.bincount(kind, length, len(kinds)), kind="stable")[:MOST_KINDS]
        rank = np.full(len(kinds), MOST_KINDS)
        rank[largest] = np.arange(MOST_KINDS)
        kind, kinds = rank[kind], (*(kinds[index] for index in largest), OTHERS)
        number = {id: int(rank[index]) for id, index in number.items()}
    if about.get("variants"):  # an import has none: what isn't its own there ran outside of iterations
        kind, kinds = _part_repeats(kind, kinds, ~plain, length)
    if "seconds" in about:  # of a whole program, of which a part is analysed
        rows: list[dict[str, object]] = [
            {
                "unit": int(unit),
                "site": int(site) if site >= 0 else None,
                "seconds": s,
                "count": often[0] if often else None,
            }
            for unit, site, s, *often in about["seconds"]
        ]
        parts = tables.from_rows(rows, "divided")
    else:
        timed = activity.select(["unit", "site"]).append_column("seconds", [length]).filter(pa.array(plain))
        sums = timed.group_by(["unit", "site"], use_threads=False).aggregate([("seconds", "sum"), ("seconds", "count")])
        each = {name: pc.divide(sums[f"seconds_{of}"], float(about["iterations"])) for name, of in _SUMS}
        parts = tables.conform(pa.table({"unit": sums["unit"], "site": sums["site"], **each}), "divided")
    parts = parts.sort_by([("site", "ascending"), ("unit", "ascending")])
    parts = tables.changed(parts, "kind", [number[id] for id in parts["unit"].to_pylist()])
    parts = tables.changed(parts, "device", [device] * len(parts))
    return KernelTimes(about, device, top, units, start, end, kind, kinds, parts)


def kind_of(unit: UnitRow) -> Kind:
    """The kind of a kernel's unit, or of an operator's, which has its own name."""
    return Kind(unit["name"], f"{unit['op']} {unit['shapes'] or ''}".strip() if unit["op"] else "")


def by_operator(kind: Kind) -> str:
    """Groups kernels by operator, or by name where the operator is unknown."""
    return kind.operator or kind.name


def untouched(activity: pa.Table) -> Mask:
    """Which kernels of the table ran in iterations as they are, shape (n,).

    Of all others only the power counts, which the column ``copy`` says: in a profile they are repeats in place, in an
    import they ran outside of iterations.
    """
    return np.asarray(~pc.fill_null(activity["copy"], False).to_numpy(zero_copy_only=False))


def recorded_units(run: Run) -> dict[int, dict[int, UnitRow]]:
    """Operators, kernels and sites by id, for the model and each device below which there are some.

    Pools are left out: what these hold is right below the model, or the device, again.
    """
    rows: dict[int | None, UnitRow] = {row["id"]: row for row in run.units.to_pylist()}
    by_top: dict[int, dict[int, UnitRow]] = {}
    for row in rows.values():
        level, named = row["level"], row["op"] or row["name"] == IDLE_NAME
        if level in ("kernel", "site") or (level == "op" and named):
            top = _top(row, rows)
            if level == "op" or (level == "kernel" and not row["op"]):
                row["parent"] = top
            by_top.setdefault(top, {})[row["id"]] = row
    return by_top


def _top(row: UnitRow | None, rows: Mapping[int | None, UnitRow]) -> int:
    """The unit of the device below which a row is; the model if there is none."""
    while row is not None and row["level"] != "device":
        row = rows.get(row["parent"])
    return MODEL_UNIT if row is None else row["id"]


def _part_repeats(kind: Ints, kinds: tuple[Kind, ...], repeat: Mask, length: Floats) -> tuple[Ints, tuple[Kind, ...]]:
    """Repeats of short kernels are kinds of their own: they take most of the time in which these run."""
    mean = np.bincount(kind, length) / np.maximum(np.bincount(kind), 1)
    repeated = repeat & (mean <= LONG_S)[kind]
    some, repeat_of = tables.distinct(kind[repeated])
    kind[repeated] = len(kinds) + repeat_of
    return kind, kinds + tuple(replace(kinds[number], repeat=True) for number in some)


@dataclass(frozen=True)
class RecordedKernels:
    """Kernels that ran and the readings beside them, with the sensor's place in time."""

    activity: Activity  # the kernels, with their times
    readings: Readings  # those where kernels run
    response: Response  # of the sensor
    idle_w: tuple[float, float]  # what the GPU draws with nothing running, and the standard deviation
    fit: Fit | None  # at the place of the sensor; None where that isn't known
    sampler: Sensor | None = None  # where its place isn't known; None of a sensor that averages
    failed: Outcome | None = None  # the check without which readings count as averages of all time
    alike: bool = False  # whether readings don't show one kernel's power apart from another's

    @one_thread
    def rows(self, spans_ns: ArrayLike = ()) -> ProgramEnergies:
        """Energies of all that was recorded, of these spans, shape (s, 2), and of kinds of kernels."""
        activity, observer = self.activity, None if self.fit is None else self.fit.observer
        every = np.vstack([[[activity.begin_s, activity.finish_s]], self.readings.seconds(spans_ns).reshape(-1, 2)])
        prior = Prior(known_idle_w=self.idle_w)
        sampled = observer if isinstance(observer, Sampled) else None
        prior = prior if sampled or self.sampler else replace(prior, power_w=OTHERS_W)
        prior = replace(prior, spread=ALIKE) if self.alike else prior
        rows = attribute_program(
            self.readings.time_s,
            self.readings.value,
            every,
            activity.as_one() if self.alike else activity,
            response=self.response,
            sampled=sampled,
            prior=prior,
        )
        return of_each(rows, activity.seconds[:-1] @ activity.shares, prior.power_w[1]) if self.alike else rows


def recorded(run: Run, times: KernelTimes, rest: Estimate) -> RecordedKernels:
    """A recording whose rows can be trusted, or whose readings may count as averages, or don't distinguish kernels.

    ``rest`` is what the GPU drew before and after, with a context and nothing running, W.

    Raises:
        BadInputError: If readings or timeline can't be used: kernels are missing, or in time with the sensor's samples.
    """
    channel, power, about = run.channel(times.device, POWER), power_record(run, times.device), times.about
    assert channel is not None
    assert power is not None
    readings = _readings(power[0], channel, about["start_ns"] - AROUND_NS, about["end_ns"] + AROUND_NS)
    idle_w = IDLE_W if kinds.samples(channel) else readings.rest_w
    if rest.value is not None and rest.half_width is not None:
        idle_w = rest.value, rest.half_width / Z95
        # Between kernels H200s draw -3 to +9 W more than in context idle (16 recordings of three), most on hot
        # dies: a standard deviation of 6 W.
        readings = replace(readings, rest_w=(rest.value, float(np.hypot(idle_w[1], 6.0))))
    activity, dropped = times.activity(readings.origin_ns), about.get("dropped") or 0
    since, until = ((about[edge] - readings.origin_ns) / 1e9 for edge in ("start_ns", "end_ns"))
    if activity.begin_s < since - BEYOND_S or activity.finish_s > until + BEYOND_S:
        raise BadInputError(
            f"kernels run from {activity.begin_s - since:.4g} to {activity.finish_s - since:.4g} s of a recording of "
            f"{until - since:.4g} s: a time of one is damaged"
        )
    nominal, sampler = kinds.readings_of(channel), kinds.kind_of(channel).sampler
    kernels, used = len(times.start_ns), readings.take(explained(activity, readings))
    enough(activity, len(used), columns=False)
    early = check_traced(kernels, dropped), check_length(activity, used.time_s, LEAD_S)
    failed = next((check for check in early if not check.passed), None)
    if failed is None:
        locked, asked = trusted(activity, models(run, channel), readings, kernels, dropped)
        fit, failed = locked.fit, next((check for check in asked if not check.passed), None)
        if failed is None:
            used = readings.take(np.searchsorted(readings.time_s, fit.time_s))
            return RecordedKernels(fit.activity, used, placed(fit, nominal), idle_w, fit)
    if failed.code in REFUSED or not nominal.width_s:
        raise BadInputError(doubt([failed]))
    alike = sampler is None or failed.code not in OF_PLACE
    return RecordedKernels(activity, used, nominal, idle_w, None, sampler, failed, alike)


def _trust(checks: Sequence[Outcome]) -> None:
    """Raise BadInputError, in words, unless these have passed."""
    if why := doubt(checks):
        raise BadInputError(why)


def placed(fit: Fit, nominal: Response) -> Response:
    """A sensor's response at its place in time."""
    observer = fit.observer
    if isinstance(observer, Sampled):
        return Response.sampled(observer.sensor, nominal.period_s, observer.track.rate_hz)
    assert isinstance(observer, Averaged)
    late_s = observer.delay_s + observer.sensor.window_s * (1 + observer.stretch) / 2
    nominal = nominal.widened(1 + observer.stretch)
    return replace(
        nominal, delay_s=late_s - nominal.middle_s, delay_sd_s=min(nominal.delay_sd_s, _NEAR * nominal.width_s)
    )


def _readings(record: Readings, channel: ChannelInfo, begin_ns: int, finish_ns: int) -> Readings:
    """The power record of a time."""
    near = (record.time_ns > begin_ns) & (record.time_ns < finish_ns)
    time, watts = record.time_ns[near], record.value[near]
    if kinds.samples(channel):  # on the grid of the readout; a calibrated period is that of the sensor's response
        return on_grid(time, watts, kinds.kind_of(channel).response.period_s)
    if not len(time):
        raise BadInputError("the power record has no readings while kernels were recorded")
    return Readings(time, watts, origin_ns=int(time[0]))  # polled: a stamp is when a new value was seen


def models(run: Run, channel: ChannelInfo) -> Sequence[Sensor | Means]:
    """Models of the sensor to try in turn, with the sample rate of an earlier recording of the GPU, if there is one."""
    return kinds.models(channel, known_rate_hz(run, channel.device))


@dataclass(frozen=True)
class KernelPowers:
    """Powers of kinds of kernels, but repeats.

    Attributes:
        recorded: The recording.
        of_kinds: Powers of the kinds, idle last, over the time that their kernels take.
        number: Of each kind of the recording in them; those of unknown power are in none.
        rests: Whether the GPU rested in the recording, without which the power of idle isn't known.
        pools: Names of operators whose energies are known together alone.
        possible: The check that the GPU can draw the powers.
    """

    recorded: RecordedKernels
    of_kinds: Powers
    number: Mapping[int, int]
    rests: bool
    pools: Sequence[tuple[str, ...]]
    possible: Outcome

    @classmethod
    def from_recorded(cls, recording: RecordedKernels, times: KernelTimes, most_w: float) -> KernelPowers:
        """The powers of a recording, none of which is above ``most_w``.

        Raises:
            BadInputError: If more is drawn between kernels than a GPU draws that rests, or readings scatter less about
                averages than samples do, or far more.
        """
        activity, sampler = recording.activity, recording.sampler
        rows, rest_s = recording.rows(), float(activity.seconds[-1])
        if recording.failed and sampler is not None and not recording.alike:
            used, idle_w = recording.readings, recording.idle_w[0]
            averages = check_averages(rows, activity, used, idle_w, recording.response, sampler)
            if not averages.beside["least"] <= averages.estimate[0] <= MOST_SCATTER * averages.beside["most"]:
                _trust([averages])
            if not averages.passed:
                recording = replace(recording, failed=averages, alike=True)
                rows = recording.rows()
        _trust([check_rest(rows, rest_s)])
        of_kinds, numbers = powers_of_kinds(recording, rows, times.total_s, most_w)
        groups: dict[str, Floats] = {}
        for kind, where in numbers.items():
            group = groups.setdefault(by_operator(times.kinds[kind]), np.zeros(len(of_kinds.watts)))
            group[where] = times.total_s[kind]
        operators = {kind.operator for kind in times.kinds}
        pooled = pools(of_kinds, groups, lambda name: name.split(" ", maxsplit=1)[0] if name in operators else "")
        several = [names for names in pooled if len(names) > 1]
        return cls(recording, of_kinds, numbers, rest_s > 0, several, check_powers(rows, most_w))

    def numbers(self, kinds: Sequence[int]) -> list[int | None]:
        """Places of kinds in ``of_kinds``, then that of idle; None where the power isn't known."""
        return [*map(self.number.get, kinds), len(self.of_kinds.watts) - 1 if self.rests else None]

    def seconds(self, edges_s: Floats) -> Floats:
        """Seconds of kinds as ``of_kinds`` has them, idle last, between each two edges, shape (edges - 1, kinds)."""
        activity = self.recorded.activity
        columns = activity.timeline.seconds(edges_s)
        rest = np.diff(edges_s) - columns.sum(axis=1)
        each = columns @ activity.shares[:, list(self.number)]
        return np.column_stack([each, rest]) / self.of_kinds.own


def powers_of(run: Run, times: KernelTimes, rest: Estimate) -> KernelPowers | str:
    """Powers of a Run's kernels, or the code of the reason why there are none, of which the Run warns.

    ``rest`` is what the GPU draws with a context and nothing running, W.
    """
    if run.channel(times.device, POWER) is None:
        return no_power_reason(run, times.device)
    run.warnings = [
        warning for warning in run.warnings if warning.code not in CODES or warning.where not in ("", times.device)
    ]
    name = times.about.get("name") if times.top != MODEL_UNIT else None
    whose = f" of {name}" if name else ""
    try:
        powers = KernelPowers.from_recorded(recorded(run, times, rest), times, most_w(run, times.device))
    except BadInputError as error:
        where = times.device if times.top != MODEL_UNIT else ""
        run.warn("not_attributed", f"no energies of kernels{whose}: {error}", where)
        return "not_attributed"
    _warn(run, powers, times, whose)
    return powers


def _warn(run: Run, powers: KernelPowers, times: KernelTimes, whose: str) -> None:
    """Say what rows of kernels can't state."""
    if (failed := powers.recorded.failed) is not None and powers.recorded.alike:
        text = f"one kernel's power can't be read apart from another's ({says(failed)})"
        run.warn("kernels_alike", f"{text}: rows{whose} divide what all kernels draw together", times.device)
    elif failed is not None:
        text = f"the times of the sensor's samples aren't known ({says(failed)})"
        run.warn("samples_unplaced", f"{text}: rows{whose} are by readings as averages, and wider", times.device)
    others = times.total_s[times.kinds.index(OTHERS)] / times.total_s.sum() if OTHERS in times.kinds else 0.0
    if others > SMALL and not powers.recorded.alike:
        solved = sum(not kind.repeat and kind != OTHERS for kind in times.kinds)
        text = f"the {solved} kinds of kernels with the most time have energies{whose}"
        run.warn("too_many_kinds", f"{text}; the others take {others:.0%}", times.device)
    if not powers.possible.passed:
        marked = f"rows{whose} that would leave their ± at these limits are marked"
        run.warn("powers_doubtful", f"{says(powers.possible)}: {marked}", times.device)


def pools(
    powers: Powers, groups: Mapping[str, Floats], near: Callable[[str], str] = lambda name: ""
) -> list[tuple[str, ...]]:
    """Names of groups whose energy the readings resolve, each alone or pooled with others; largest energy first.

    ``groups`` has the seconds of each kind in the recording, shape (kinds,). Unresolved groups of the same ``near``
    (operator, module; "" for none) become one row. What is still unresolved becomes one row too. If it takes more than
    ``SMALL`` of the time, it joins the shortest row with which it is resolved, or else that with which their sum is
    known best: short kernels in fixed order end in one row, whose energy is well known though theirs isn't. A rest
    below ``SMALL`` is in no row.
    """

    def sum_of(pool: list[str]) -> Floats:
        return np.asarray(sum((groups[name] for name in pool), np.zeros(len(powers.watts))))

    def resolved(pool: list[str]) -> bool:
        return powers.resolves(sum_of(pool))

    def own_s(pool: list[str]) -> float:
        return float(sum_of(pool) @ powers.own)

    def relative(pool: list[str]) -> float:
        return powers.relative(sum_of([*pool, *rest]))

    alone = [[name] for name in groups if own_s([name]) > 0]
    good = [pool for pool in alone if resolved(pool)]
    families: dict[str, list[str]] = {}
    for (name,) in (pool for pool in alone if pool not in good):
        families.setdefault(near(name) or name, []).append(name)
    good += [family for family in families.values() if resolved(family)]
    rest = [name for family in families.values() if not resolved(family) for name in family]
    while rest and good and not resolved(rest) and own_s(rest) > SMALL * own_s(list(groups)):
        mine = {near(name) for name in rest} - {""}
        beside = [pool for pool in good if mine & {near(name) for name in pool}]
        near_or_any = beside or good
        enough = [pool for pool in near_or_any if resolved([*pool, *rest])]
        partner = min(enough, key=own_s) if enough else min(near_or_any, key=relative)
        good.remove(partner)
        rest = [*partner, *rest]
    if rest and resolved(rest):
        good.append(rest)
    good.sort(key=lambda pool: -float(sum_of(pool) @ powers.watts))
    return [tuple(name for name in groups if name in pool) for pool in good]


def powers_of_kinds(
    recording: RecordedKernels, rows: ProgramEnergies, total_s: Floats, most_w: float
) -> tuple[Powers, dict[int, int]]:
    """Powers of kinds of kernels but repeats, idle last, and the place of each kind in them.

    A kernel's energy is the power of its kind times its time; kernels that run at once share the power equally. What
    all of the recording has beyond its kernels is idle. So rows of any grouping add up to the whole, less repeats.

    Args:
        recording: The recording.
        rows: Its energies, of which the first is that of all of it.
        total_s: Time that the kernels of each kind took, shape (kinds,); energies are of times in proportion to it.
        most_w: None of them draws more.
    """
    activity = recording.activity
    ran = (rows.seconds > 0) & (total_s > 0)
    solved = [not kind.repeat and (recording.alike or kind != OTHERS) for kind in activity.kinds]
    kinds = np.flatnonzero(ran & solved).tolist()
    each, rest_s = np.eye(len(rows.seconds)), max(float(activity.seconds[-1]), 1e-9)
    weights = rows.together(np.vstack([each[kinds] / total_s[kinds, None], -np.ones(len(each)) / rest_s]))
    weights[-1, 0] = 1 / rest_s
    watts, covariance = rows.energies.moments(weights)
    scale = np.append(total_s[kinds], 1.0)
    prior, left, sensor = (
        np.pad(part[np.ix_(kinds, kinds)], (0, 1)) / np.outer(scale, scale)
        for part in (rows.before, rows.after, rows.by_sensor)
    )
    prior[-1, -1], left[-1, -1] = recording.idle_w[1] ** 2 + Prior().rest_w ** 2, covariance[-1, -1]
    prior_w, root = np.sqrt(np.diag(prior)), _root(covariance)
    white = np.linalg.inv(_root(left))
    powers = Powers(
        watts=watts,
        own=np.append(rows.seconds[kinds] / total_s[kinds], 1.0),
        overlapped=np.append(activity.beside_s[kinds] / total_s[kinds], 0.0),
        most_w=np.full(len(watts), most_w),
        prior_w=prior_w,
        tracing_w=np.zeros(len(watts)),
        varies_w=np.append(rows.varies * np.maximum(watts[:-1], 0.0), 0.0),
        scatter_w=np.sqrt(np.append(np.broadcast_to(rows.scatter, len(each))[kinds], 0.0)),
        readings=len(recording.readings),
        coverage=Z95,
        root=root,
        causes={READINGS: white @ (left - sensor) @ white.T, RESPONSE: np.eye(len(watts))},
        gained=(PRIOR_SHARE**2 * prior - left) / np.outer(prior_w, prior_w),
    )
    return powers, {kind: number for number, kind in enumerate(kinds)}


def _root(covariance: Floats) -> Floats:
    """A lower triangle whose product with its transpose is this covariance."""
    scale = np.sqrt(np.diag(covariance))
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    triangle = np.asarray(np.linalg.qr((vectors * np.sqrt(np.maximum(values, _LEAST))).T, mode="r"))
    return np.asarray(scale[:, None] * triangle.T)
