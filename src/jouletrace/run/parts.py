"""The parts of a Run with their figures: rows of its ``units`` and ``results`` tables, read once."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from jouletrace import higher
from jouletrace.errors import MOST_NAMED, BadInputError, unknown
from jouletrace.run.division import divisions_of
from jouletrace.run.estimate import Estimate
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.metrics import PROGRAM_TIME
from jouletrace.run.model import MODEL_UNIT, Run
from jouletrace.run.names import short_name
from jouletrace.run.paths import Path, PathStep, path_of, steps_of
from jouletrace.run.recording_names import BEFORE, IDLE_NAME, OUTSIDE, of_equal_layers

CAUSES = {
    "host": "waiting for the host",
    "synchronisation": "after the host had waited for the GPU",
    "data loading": "waiting for the data loader",
    "between launches": "between launches",
}
"""Causes of the time between kernels, by their keys in a Run, as they are printed."""

STORED_SCATTER = "between_runs_stored"
"""Flag of a figure whose interval holds a scatter between runs that was stored from another measurement."""

SHARED_POWER = "shared_power"
"""Flag of the energy of a part whose kernels are of the same kinds as those of another: one power of each was measured,
for both."""

DOUBTFUL = "powers_doubtful"
"""Code of powers of kernels that no GPU draws, and flag of the energies that these put in doubt."""

OF_ROWS = (SHARED_POWER, DOUBTFUL)
"""Flags of rows, which a table below a verdict has, too."""

ABSENT = Estimate.null("not_measured")
"""The figure in place of one that isn't stated."""


RUN, WORKLOAD = "run", "workload"
"""Measurands of an interval: this run, or this workload on this GPU (docs/explanation/method.md)."""


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a Run with its figures: a row of ``units`` and those of ``results`` that are of it.

    Attributes:
        id: Its number, unique in the Run; 0 is the whole.
        parent: Number of the part that it lies in; None at the top.
        level: One of ``tables.UNIT_LEVELS``, "site", or "cause" (of the time between kernels).
        name: Its name as stored.
        op, shapes, module, phase: Its operator, the operator's inputs, its module and phase; None where it has none.
        call: For a site: index of the call of each module in its qualified name.
        count: How often it runs in an iteration; None where that isn't known.
        figures: By metric, in stored order.
        gpu: Name of the GPU ("rank-0") on which it ran, where the kernels of several were recorded; "" otherwise.
        holds: Of a pool, what it holds ("gelu and 3 more").
    """

    id: int
    parent: int | None
    level: str
    name: str
    op: str | None = None
    shapes: str | None = None
    module: str | None = None
    phase: str | None = None
    call: str | None = None
    count: int | None = None
    figures: dict[str, Estimate] = field(default_factory=dict)
    gpu: str = ""
    holds: str = ""

    @cached_property
    def path(self) -> Path:
        """Where it ran, from the device down; the last step says of what kind it is."""
        device = (PathStep("device", self.gpu),) if self.gpu else ()
        return (*device, *self._below_device())

    def _below_device(self) -> Path:
        name, kernel = self.name, self.name if self.level == "kernel" else None
        if self.op or self.level in ("kernel", "site"):
            return path_of(self.phase, self.module, self.op, self.shapes, kernel)
        if self.level == "layer":
            module = self.module or name
            call = name.removeprefix(module).strip(" ()")
            return (*path_of(module=module), *((PathStep("call", call),) if call else ()))
        if self.level == "range":
            return steps_of("range", name, "/") or (PathStep("range", name),)
        kind = "idle" if name in (IDLE_NAME, BEFORE) else "pool" if name.endswith(" together") else "op"
        ways: dict[str, Path] = {
            "model": (),
            "cause": (PathStep("idle", IDLE_NAME), PathStep("cause", name)),
            "op": (PathStep(kind, name),),
        }
        return ways.get(self.level, (PathStep(self.level, name),))

    def within(self, depth: int) -> str:
        """Its name below the part around it; of a layer at a depth of 0 the name from the top."""
        stored = self.name.startswith(self.module or self.name)  # else the name of several that are listed as one
        return self.name.rpartition(".")[2] if depth and stored and self.level == "layer" else self.name

    def get(self, metric: str) -> Estimate:
        """A figure; null with reason ``not_measured`` if it isn't there."""
        return self.figures.get(metric, ABSENT)


@dataclass(frozen=True)
class Row:
    """A row of a division: its path, its figures by metric, how often it runs in an iteration, and its device's id.

    ``count`` of several paths that are listed as one is their number.
    """

    path: Path
    figures: Mapping[str, Estimate]
    count: int | None = None
    device: str | None = None

    def get(self, metric: str) -> Estimate:
        """A figure; null with reason ``not_measured`` if it isn't there."""
        return self.figures.get(metric, ABSENT)


class Parts:
    """The parts of a Run by level.

    Attributes:
        whole: The model, or all that was recorded; without figures where only its parts have some.
        gpus: Devices by name ("rank-0"), where the kernels of several were recorded.
        time: Of the whole: that of an iteration, or of all of a program.
        change: With --absolute, adds gain and offset of the sensor to intervals; None without, and of two sides on one
            GPU, where they cancel. What is computed from several parts isn't computed from changed ones.
    """

    def __init__(self, run: Run) -> None:
        self._of = WORKLOAD if (run.settings.get("repeats") or 1) > 1 else RUN
        absolute = run.settings.get("absolute") and run.kind not in ("ab", "calibrate")
        self.change: Callable[[Part], Part] | None = partial(higher.with_sensor, run) if absolute else None
        figures: dict[int, dict[str, Estimate]] = {}
        for row in run.results.to_pylist():
            if row["unit"] is not None and row["metric"] is not None:
                figures.setdefault(row["unit"], {}).setdefault(row["metric"], Estimate.from_dict(row))
        _share_one_thing(figures)
        rows, recordings = run.units.to_pylist(), run.workload.get("recordings", [])
        if run.kind == "ab":  # what was recorded of both sides is part of neither (``comparing.paired``)
            rows = [row for row in rows if row["level"] in ("model", "range")]
        for row in rows:
            row["count"] = (row["count"] or None) if row["level"] == "op" else row["count"]  # older Runs: 0 if unknown
        names = {recording["device"]: recording["name"] for recording in recordings if "name" in recording}
        devices = {row["id"]: names.get(row["module"], "") for row in rows if row["level"] == "device"}
        above = {row["id"]: row["parent"] for row in rows}
        below: dict[int | None, str] = {None: "", **devices}

        def gpu(parent: int | None) -> str:
            climbed = []
            while parent not in below:
                climbed.append(parent)
                parent = above.get(parent)
            below.update(dict.fromkeys(climbed, below[parent]))
            return below[parent]

        titles = _titles(rows, figures)
        self._all = [
            Part(
                **{name: row[name] for name in _COLUMNS},
                figures=figures.get(row["id"], {}),
                gpu=gpu(row["parent"]),
                holds=titles.get(row["id"], ""),
            )
            for row in rows
        ]
        self.gpus = {devices[part.id]: part for part in self._all if devices.get(part.id)}
        self._tops = {MODEL_UNIT, *devices}
        named = next((part for part in self._all if part.id == MODEL_UNIT), None)
        self.whole = named or Part(MODEL_UNIT, None, "model", "", figures=figures.get(MODEL_UNIT, {}))
        self.time = self.whole.get(PROGRAM_TIME)
        self._causes: list[Part] = []
        for about in recordings:
            self._causes += self._causes_of_idle(about)
        self._by_id = {part.id: part for part in self.all()}
        launched = self._launched(run, names)
        for flag, parts in ((SHARED_POWER, self._sharing(launched)), (DOUBTFUL, self._doubtful(run, names, launched))):
            for part in parts:
                energy = part.figures["energy_total_j"]
                part.figures["energy_total_j"] = replace(energy, flags=(*energy.flags, flag))

    def _launched(self, run: Run, gpus: Mapping[str, str]) -> dict[int, Counter[int]]:
        """Seconds of each kind of kernels in each kernel, operator and module that has an energy, by its number."""
        layers = {(part.gpu, part.name): part.id for part in self._all if part.level == "layer"}
        kinds_s = {part.id: Counter[int]() for part in self._all if _is_row(part)}
        for row in run.divided.to_pylist():
            unit, site = (self._by_id.get(row[name]) for name in ("unit", "site"))
            if unit is None or row["kind"] is None:
                continue
            above = self._by_id.get(unit.parent or MODEL_UNIT)
            words = (site.module or OUTSIDE).split(".") if site else []
            around = [(gpus.get(row["device"], ""), ".".join(words[:depth])) for depth in range(1, len(words) + 1)]
            for id in kinds_s.keys() & {unit.id, unit.parent, above and above.parent, *map(layers.get, around)}:
                kinds_s[id][row["kind"]] += row["seconds"]
        return kinds_s

    def _sharing(self, launched: Mapping[int, Counter[int]]) -> list[Part]:
        """Parts of the same kinds of kernels as others that aren't equal: modules as others in the one around them."""
        groups = defaultdict[Any, list[Part]](list)
        for part in (self._by_id[id] for id, seconds in launched.items() if seconds):
            within = part.parent if part.level == "layer" else part.gpu
            groups[part.level, within, frozenset(launched[part.id])].append(part)
        names = {part.id: of_equal_layers(part.name) if part.level == "layer" else part.id for part in self._all}
        several = [group for group in groups.values() if len({names[part.id] for part in group}) > 1]
        return [part for group in several for part in group]

    def _doubtful(self, run: Run, gpus: Mapping[str, str], launched: Mapping[int, Counter[int]]) -> list[Part]:
        """Parts that would leave their intervals if powers that no GPU draws were at their limits."""
        where = {warning.where for warning in run.warnings if warning.code == DOUBTFUL}
        doubtful: list[Part] = []
        for division in divisions_of(run) if where else ():
            if division.powers is None or where.isdisjoint(("", division.device)):
                continue
            moved_w = division.powers.moved()
            launching = (self._by_id[id] for id in launched)
            for part in (candidate for candidate in launching if candidate.gpu == gpus.get(division.device, "")):
                moved_j = sum(seconds * float(moved_w[kind]) for kind, seconds in launched[part.id].items())
                if abs(moved_j) > (part.get("energy_total_j").half_width or math.inf):
                    doubtful.append(part)
        return doubtful

    def changed(self, change: Callable[[Part], Part]) -> Parts:
        """The same parts, each as ``change`` makes it."""
        parts = copy(self)
        parts._all, parts._causes = list(map(change, self._all)), list(map(change, self._causes))
        parts._by_id = {part.id: part for part in parts.all()}
        parts.whole = parts._by_id.get(MODEL_UNIT) or change(self.whole)
        parts.gpus = {name: parts._by_id[part.id] for name, part in self.gpus.items()}
        return parts

    def is_top(self, part: Part) -> bool:
        """True if a part lies right below the whole, or below one of its devices."""
        return part.parent in self._tops

    def _causes_of_idle(self, about: RecordingFacts) -> list[Part]:
        """A part of level "cause" in idle for each cause: its share of the time, at the power of all of it."""
        idles = (part for part in self._all if part.level == "op" and part.name == IDLE_NAME)
        idle = next((part for part in idles if part.gpu == about.get("name", "")), None)
        if idle is None:
            return []
        causes = []
        for id, (name, share) in enumerate(idle_by(about).items(), 1 + max(part.id for part in self.all())):
            figures = {
                metric: figure if metric == "power_w" else replace(figure.scaled(share), method=how)
                for metric, figure in idle.figures.items()
                for how in ("trace" if metric == "share" and figure.method == "trace" else "share",)
            }
            causes.append(
                replace(idle, id=id, parent=idle.id, level="cause", name=name, holds="", count=None, figures=figures)
            )
        return causes

    def __getitem__(self, id: int) -> Part:
        """The part of a number.

        Raises:
            KeyError: If there is none.
        """
        return self.whole if id == MODEL_UNIT else self._by_id[id]

    def causes(self, least: float = 0.0, of: Part | None = None) -> list[Part]:
        """Causes of idle, the largest first: those with a share of ``least`` of the whole, of one idle if given."""
        causes = (part for part in self.ranked("cause") if of is None or part.parent == of.id)
        return [part for part in causes if (part.get("share").value or 0.0) >= least]

    def order(self, gpu: str) -> int:
        """The place of a GPU among several, by which rows are ordered."""
        return [*self.gpus, ""].index(gpu)

    def get(self, metric: str) -> Estimate:
        """A figure of the whole."""
        return self.whole.get(metric)

    def measurand(self, figure: Estimate = ABSENT) -> str:
        """The measurand of a figure's interval, ``RUN`` or ``WORKLOAD``; without a figure, that of most others.

        Intervals contain the scatter between runs if it was measured by repeats, or taken as stored.
        """
        return WORKLOAD if STORED_SCATTER in figure.flags else self._of

    def rows(self) -> list[Part]:
        """The whole and all that is stored below it."""
        return [self.whole, *(part for part in self._all if part.id != MODEL_UNIT)]

    def all(self) -> list[Part]:
        """All parts, with the causes of idle."""
        return self._all + self._causes

    @property
    def stated(self) -> Part:
        """The part whose figures stand for all: the whole, or the one device where it alone has some."""
        devices = self.units("device")
        return devices[0] if len(devices) == 1 and not self.whole.figures else self.whole

    def units(self, level: str) -> list[Part]:
        """Parts of a level, in stored order.

        Those of level "kernel" are all that parts come down to, each joule once: the kernels under
        operators, operators whose kernels aren't known, pools of small operators as a whole, idle.
        """
        if level == "cause":
            return self._causes
        if level != "kernel":
            return [part for part in self._all if part.level == level]
        ops = {part.id: part for part in self._all if part.level == "op"}
        pools = {part.parent for part in self._all if part.parent in ops and not ops[part.parent].op}
        pooled = pools | {id for id, part in ops.items() if part.parent in pools}
        kernels = [part for part in self._all if part.level == "kernel" and part.parent not in pooled]
        if self.apart(kernels):
            idle = [part for part in ops.values() if part.name in (IDLE_NAME, BEFORE)]
            return [*kernels, *(part for id, part in sorted(ops.items()) if id in pools), *idle]
        operators = {part.parent for part in kernels}
        return kernels + [part for id, part in ops.items() if id in pools or id not in pooled | operators]

    def apart(self, kernels: Sequence[Part] | None = None) -> bool:
        """True if kernels have their own figures and belong to no operator: both would describe the same time."""
        if kernels is None:
            kernels = [part for part in self._all if part.level == "kernel"]
        loose = [part for part in kernels if not part.op and self.is_top(part)]
        values = (part.get(metric).value for part in loose for metric in ("time_s", "energy_total_j"))
        return len(loose) == len(kernels) and any(value is not None for value in values)

    def outside(self) -> list[Part]:
        """Parts that no operator accounts for: idle time."""
        pools = {part.parent for part in self._all}
        return [part for part in self.units("op") if not part.op and not part.module and part.id not in pools]

    def main(self) -> list[Part]:
        """Parts that the energy went to: phases of several GPUs, else outermost ranges or modules; and idle."""
        if phases := self.units("phase") if self.gpus else []:
            return phases + self.outside()
        tops = [part for part in self.units("layer") if self.is_top(part)]
        return tops + [part for part in self.units("op") if part.name == IDLE_NAME]

    def ranked(self, level: str) -> list[Part]:
        """Parts of a level, those that took the most energy first (time, where energy is unknown)."""
        parts = self.units(level)
        return [parts[n] for n in costliest([part.figures for part in parts])]


def _is_row(part: Part) -> bool:
    """True for a kernel, an operator and a module with an energy."""
    return part.level in ("kernel", "op", "layer") and part.get("energy_total_j").value is not None


def number_of(run: Run, name: str) -> int:
    """The number of the part of a name or path ("rank-0/epoch/forward", or its last step).

    Raises:
        BadInputError: If there is none, or several; near ones are named.
    """

    def named(_: pa.Table) -> dict[str, dict[int, str]]:
        paths: dict[str, dict[int, str]] = {}
        for part in Parts(run).rows():
            path = "/".join(step.name for step in part.path) or part.name
            for text in (part.name, path, path.rpartition("/")[2]):
                paths.setdefault(text, {})[part.id] = path
        return paths

    by_text = run.remember("units", "named", named)
    matches = by_text.get(name, {})
    if not matches:
        raise unknown("unit", name, by_text)
    meant = [id for id, path in matches.items() if path == name] or list(matches)
    if len(meant) > 1:
        some = ", ".join(f"{id} ({matches[id]})" for id in meant[:MOST_NAMED])
        raise BadInputError(f"{len(meant)} units are called {name!r}; name one by its path or number: {some}")
    return meant[0]


def costliest(figures: Sequence[Mapping[str, Estimate]]) -> list[int]:
    """Places of rows by their figures, those that took the most energy first (time, where energy is unknown)."""
    for metric in ("energy_total_j", "energy_active_j", "time_s"):
        values = [row.get(metric, ABSENT).value for row in figures]
        if any(value is not None for value in values):
            return sorted(range(len(values)), key=lambda n: math.inf if (v := values[n]) is None else -v)
    return list(range(len(figures)))


def of_time(figures: Mapping[str, Estimate]) -> bool:
    """True if the share of a part is one of time, as where the energies of kernels aren't known."""
    share = figures.get("share", ABSENT)
    return share.value is not None and share.method in ("trace", "spans")


def _share_one_thing(figures: Mapping[int, dict[str, Estimate]]) -> None:
    """Make all shares of a Run those of time, where some are: what has an energy has a time as well."""
    whole_s = figures.get(MODEL_UNIT, {}).get(PROGRAM_TIME, ABSENT).value
    if whole_s and any(map(of_time, figures.values())):
        for of_part in figures.values():
            if "share" in of_part and "time_s" in of_part:
                of_part["share"] = replace(of_part["time_s"], method="trace").scaled(1 / whole_s)


def _titles(rows: Sequence[Mapping[str, Any]], figures: Mapping[int, Mapping[str, Estimate]]) -> dict[int, str]:
    """Names of pools by what they hold, that with the most time first; by id."""
    pools = {row["id"]: list[tuple[float, str]]() for row in rows if str(row["name"]).endswith(" together")}
    for row in rows:
        if row["parent"] in pools:
            seconds = figures.get(row["id"], {}).get("time_s", ABSENT).value or 0.0
            name = (row["op"] or "").removeprefix("aten.") or row["name"] or "?"
            pools[row["parent"]].append((seconds, name))
    return {
        id: f"{short_name(max(inside)[1], _SHORT)} and {len(inside) - 1} more"
        for id, inside in pools.items()
        if len(inside) > 1
    }


_SHORT = 16
"""Characters of a kernel's name in that of a pool."""

_COLUMNS = ("id", "parent", "level", "name", "op", "shapes", "module", "phase", "call", "count")


def idle_by(about: RecordingFacts) -> dict[str, float]:
    """Shares of the time between kernels of a recording by its cause, as printed; empty where causes aren't known."""
    stored = about.get("idle_by", {})
    return {words: share for key, words in CAUSES.items() if (share := stored.get(key, 0.0)) > 0}
