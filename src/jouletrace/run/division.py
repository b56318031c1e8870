"""A device's energy divided by what ran: seconds of each kind of kernel, the powers of kinds, and their covariance.

A sum of rows is a sum of their seconds, and its energy is these times the powers. So sums are consistent, have the
uncertainty that errors of shared powers give them, and may be resolved where none of their rows is.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from jouletrace.arrays import Floats
from jouletrace.run import tables
from jouletrace.run.estimate import Estimate
from jouletrace.run.lazily import compute as pc
from jouletrace.run.model import Run
from jouletrace.run.paths import Path, PathStep, path_of
from jouletrace.run.recording_names import IDLE_NAME

METHOD = "regression on the kernel timeline"

RESPONSE = "response of the sensor"
"""Source of the uncertainty of powers that GPUs of a kind share, unless their sensors were calibrated."""

VARIATION = "kernels of a kind differ"
"""Source of the uncertainty of the energy of some kernels of a kind, whose power is the mean over all of them."""

_Z95 = NormalDist().inv_cdf(0.975)
_ROUNDED = 2.0**-13
"""The unit in which shares of variances are stored: the readings' share of a variance is known worse by far."""

_APART = 3.0
"""Largest factor between the stored time of a unit and that of its rows."""

_GAINED, _MOST_MATRICES = "gained", 20
UNKNOWN = 0.01
"""Largest share of a time without known power in one whose energy is stated as a whole."""

_MOST = 1e9
"""Watts and shares beyond any, whose products can still be added."""

_LATER = ("varies_w", "scatter_w")
"""Columns that powers of older versions lack."""

_BY_KIND = ("watts", "own", "overlapped", "most_w", "prior_w", "tracing_w", *_LATER)
_COMMON = ("readings", "coverage")


@dataclass(frozen=True)
class Powers:
    """Powers of k kinds of kernels, idle last, with their covariance.

    Attributes:
        watts: Energy a second of the time of each kind, W, shape (k,).
        own: Share of a kind's time that counts as its own, since n kernels at once share the power; shape (k,).
        overlapped: Share of a kind's time that is its own while others run; shape (k,).
        most_w: The largest power that is possible while a kind runs, W, shape (k,).
        prior_w: Standard deviation of each power before any reading, W, shape (k,).
        tracing_w: Standard uncertainty of each power by tracing, one error of all, W, shape (k,).
        varies_w: Standard deviation of the power of some kernels of a kind from that of its others, one error of all
            kinds, W, shape (k,).
        scatter_w: The same of a second of kernels that differ each by itself, W√s, shape (k,).
        readings: Number of readings that determine the powers.
        coverage: 95 % half-width over the standard uncertainty, of the errors of the readings.
        root: Lower triangle whose product with its transpose is the covariance by the readings, W, shape (k, k).
        causes: For each cause of errors, the share of the variance that is left if errors by later causes were none: a
            quadratic form in the product of seconds and ``root``, shape (k, k). That of the last cause is 1.
        gained: A quadratic form in seconds times ``prior_w``; not negative where the readings determine a sum, shape
            (k, k).
    """

    watts: Floats
    own: Floats
    overlapped: Floats
    most_w: Floats
    prior_w: Floats
    tracing_w: Floats
    varies_w: Floats
    scatter_w: Floats
    readings: int
    coverage: float
    root: Floats
    causes: Mapping[str, Floats]
    gained: Floats

    def scaled(self, factor: float, half: float) -> Powers:
        """The same with energies of kernels, but not of idle, times a factor of this 95 % half-width."""
        by = np.append(np.full(len(self.watts) - 1, factor), 1.0)
        tracing = np.append(self.watts[:-1] * half / _Z95, 0.0)
        scaled = {name: getattr(self, name) * by for name in ("watts", "most_w", *_LATER)}
        return replace(self, **scaled, root=self.root * by[:, None], tracing_w=tracing)

    def energy(self, seconds: Floats, others: Floats | float = 0.0) -> Estimate:
        """Energy of seconds of each kind, shape (k,), whether or not the readings resolve it, J.

        ``others`` is the share of each kind's time that isn't among these seconds: powers are means over all of it.
        """
        value, errors = float(seconds @ self.watts), seconds @ self.root
        u, tracing = float(np.linalg.norm(errors)), abs(float(seconds @ self.tracing_w))
        varies = (seconds * others) @ self.varies_w, np.sqrt((seconds * others) @ self.scatter_w**2)
        varies_j = float(np.hypot(*varies))
        half = float(np.linalg.norm([self.coverage * u, _Z95 * tracing, _Z95 * varies_j]))
        shared = seconds @ self.overlapped > 0.05 * (seconds @ self.own)  # by several kernels, equally
        budget, before, direction = {}, 0.0, errors / u if u else errors
        for cause, share in self.causes.items():
            after = min(max(float(direction @ share @ direction), before), 1.0)
            budget[cause], before = u * float(np.sqrt(after - before)), after
        # a later cause may take nothing away by rounding, and what tracing changes may be unknown: neither is 0
        more = {"tracing": tracing, VARIATION: varies_j}
        budget = {cause: sd_j for cause, sd_j in (budget | more).items() if sd_j > 0}
        energy = Estimate(value, value - half, value + half, self.readings, METHOD, budget=budget)
        return replace(energy, flags=("overlapped",)) if shared else energy

    def relative(self, seconds: Floats) -> float:
        """Half-width of the energy by the readings over its value; infinite where that is 0."""
        value = abs(float(seconds @ self.watts))
        return self.coverage * float(np.linalg.norm(seconds @ self.root)) / value if value else float("inf")

    def moved(self) -> Floats:
        """By how much powers change if those that no GPU draws are put to 0 and to ``most_w``, W, shape (k,).

        Each changes as its errors go with theirs: by the covariance, their mean given these.
        """
        change = np.clip(self.watts, 0.0, self.own * self.most_w) - self.watts
        beyond = np.flatnonzero(change)
        covariance = self.root @ self.root[beyond].T
        return np.asarray(covariance @ np.linalg.lstsq(covariance[beyond], change[beyond], rcond=None)[0])

    def resolves(self, seconds: Floats) -> bool:
        """True if the readings determine the energy of these seconds: narrowly, and not by the prior alone.

        Idle power may be determined by its prior alone, which is a measurement. A power that no GPU draws is none.
        """
        before = seconds * self.prior_w
        measured = before @ self.gained @ before >= 0 or not seconds[:-1].any()
        possible = 0.0 <= seconds @ self.watts <= (seconds * self.own) @ self.most_w
        return bool(measured and possible and self.relative(seconds) <= 0.5)


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Division:
    """Kernels and idle of a device in an iteration, or in all of a program.

    Attributes:
        device: Its id.
        powers: Of its kinds; None if the readings say nothing of them.
        reason: Code of the reason why kinds of unknown power have no energy.
        table: Its rows of the table ``divided``: kernels by the site that launches them, and idle.
        path: Paths of the rows below the device, in a Run as it is stored.
    """

    device: str
    powers: Powers | None
    reason: str
    table: pa.Table
    path: Sequence[Path] = ()

    def column(self, name: str) -> list[Any]:
        """A column; an unknown site and a kind of unknown power are None."""
        column: list[Any] = self.table[name].to_pylist()
        return column

    def grouped(self, keys: Iterable[Iterable[Key]]) -> dict[Key, Floats]:
        """Seconds of each kind, those of unknown power last, shape (k + 1,), by key; ``keys`` has those of each row."""
        kinds = 1 if self.powers is None else len(self.powers.watts) + 1
        groups: defaultdict[Key, Floats] = defaultdict(lambda: np.zeros(kinds))
        for kind, seconds, inside in zip(self.column("kind"), self.column("seconds"), keys, strict=True):
            for key in inside:
                groups[key][kinds - 1 if kind is None else kind] += seconds
        return groups

    def scaled(self, factor: float) -> Division:
        """The same with this factor on all energies: what kernels differ by goes with the root of their time."""
        powers = self.powers and replace(self.powers, scatter_w=self.powers.scatter_w * math.sqrt(factor))
        seconds = self.table["seconds"].to_numpy() * factor
        return replace(self, powers=powers, table=tables.changed(self.table, "seconds", seconds))

    @cached_property
    def _total_s(self) -> Floats:
        """Seconds of each kind in all rows, shape (k,)."""
        return self.grouped([[0]] * len(self.table))[0][:-1]

    def energy(self, seconds: Floats, *, remainder: bool = False) -> Estimate:
        """Energy of the sum of some rows, J, with its budget; null with a reason where the readings don't resolve it.

        So it is if over 1 % of the time is of unknown power. A ``remainder`` is what a resolved sum leaves to some
        rows: it has the energy of its kinds of known power, however wide the interval.
        """
        has_powers = remainder and seconds[:-1].any()
        if self.powers is None or (seconds[-1] > UNKNOWN * seconds.sum() and not has_powers):
            return Estimate.null(self.reason, METHOD)
        energy = self.powers.energy(seconds[:-1], 1 - seconds[:-1] / np.maximum(self._total_s, seconds[:-1] + 1e-30))
        if remainder or self.powers.resolves(seconds[:-1]):
            return energy
        return replace(Estimate.null("not_resolved", METHOD), flags=energy.flags)


def tables_of(division: Division) -> dict[str, pa.Table]:
    """The stored form of a division: tables by name.

    Shares of variances are rounded: so they take half of the space.
    """
    by_table: dict[str, dict[str, Any]] = {}
    if (powers := division.powers) is not None:
        count, last = len(powers.watts), list(powers.causes)[-1]
        by_table["powers"] = {name: np.broadcast_to(getattr(powers, name), count) for name in _BY_KIND + _COMMON}
        by_table["powers"]["kind"] = np.arange(count)
        matrices = {**powers.causes, last: powers.root, _GAINED: powers.gained}
        triangles = {name: matrix[np.tril_indices(count)] for name, matrix in matrices.items()}
        values = [
            triangle if name == last else np.round(triangle / _ROUNDED) * _ROUNDED
            for name, triangle in triangles.items()
        ]
        matrix = np.repeat(list(triangles), len(triangles[last]))
        by_table["errors"] = {"matrix": matrix, "value": np.concatenate(values).astype(np.float32)}
    made = {name: tables.conform(pa.table(columns), name) for name, columns in by_table.items()}
    made = {name: tables.changed(table, "device", [division.device] * len(table)) for name, table in made.items()}
    reason = [division.reason if kind is None else None for kind in division.column("kind")]
    return {"divided": tables.changed(division.table, "reason", reason), **made}


def divisions_of(run: Run) -> list[Division]:
    """The stored divisions of a Run, one for each device whose kernels were recorded; none in Runs of older versions.

    Raises:
        ValueError: If its tables contradict one another; one line names the table, and the first wrong row of one.
    """
    if not any(len(run.table(name)) for name in tables.SOLVED):
        return []
    units = {row["id"]: row for row in run.units.to_pylist()}
    for words in _contradictions(run, run.divided.to_pylist(), units):
        raise ValueError(words)
    divisions = []
    for device in run.divided["device"].unique().to_pylist():
        kinds, errors = (table.filter(pc.equal(table["device"], device)) for table in (run.powers, run.errors))
        try:
            powers = _powers(kinds, errors) if len(kinds) else None
        except ValueError as error:
            raise ValueError(
                f"the powers of {device[:80]} (powers.parquet, errors.parquet) are damaged: {error}"
            ) from None
        mine = run.divided.filter(pc.equal(run.divided["device"], device))
        reason = next((code for code in mine["reason"].to_pylist() if code), "not_resolved")
        path = [_path(units, row["unit"], row["site"]) for row in mine.to_pylist()]
        divisions.append(Division(device, powers, reason, mine, path))
    return divisions


def _contradictions(run: Run, divided: Sequence[Mapping[str, Any]], units: Collection[int]) -> Iterator[str]:
    """A line for each row that contradicts others."""
    devices, kinds = {device.id for device in run.devices}, Counter(run.powers["device"].to_pylist())
    spent, first = defaultdict[int, float](float), dict[int, int]()
    for at, row in enumerate(divided):
        device, site = row["device"], row["site"]
        wrong = {
            "device": devices and device not in devices,
            "unit": row["unit"] not in units,
            "site": site is not None and site not in units,
            "kind": (row["kind"] or 0) >= kinds[device] > 0,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            yield f"divided.parquet is damaged: row {at}: it has a {name} {str(row[name])[:80]}, which is not there"
        if row["kind"] is not None and not kinds[device]:
            yield f"powers.parquet is missing, or has no row of {device[:80]}: divided.parquet has kinds of it"
        spent[row["unit"]] += row["seconds"]
        first.setdefault(row["unit"], at)
    for row in run.results.filter(pc.equal(run.results["metric"], "time_s")).to_pylist():
        spent_s, stated = spent.get(row["unit"]), row["value"]
        if spent_s is None or stated is None or not math.isfinite(stated):
            continue
        if not stated / _APART <= spent_s <= stated * _APART:
            yield (
                f"divided.parquet is damaged: row {first[row['unit']]}: with others of unit {row['unit']} it takes "
                f"{spent_s:.3g} s, which in results.parquet takes {stated:.3g} s"
            )
    recorded = {row["device"] for row in divided}
    for recording in run.workload.get("recordings", ()):
        if "start_ns" in recording and (device := recording.get("device", "")) and device not in recorded:
            yield f"divided.parquet is damaged: it has no row of {device[:80]}, whose kernels were recorded"
    for table in ("powers", "errors"):
        for at, device in enumerate(run.table(table)["device"].to_pylist()):
            if device not in recorded:
                yield f"{table}.parquet is damaged: row {at}: divided.parquet has no row of its device {device[:80]}"


def _powers(kinds: pa.Table, errors: pa.Table) -> Powers:
    """The powers of a device from its rows."""
    count = len(kinds)
    if kinds["kind"].to_pylist() != list(range(count)):
        raise ValueError("its powers are not of kinds 0, 1, 2 and so on")
    for name in _COMMON:
        if len(values := kinds[name].unique()) > 1:
            raise ValueError(f"one kind has a {name} of {values[0]}, another of {values[1]}: it is one of all")
    code, names = tables.decoded(errors["matrix"])
    _, first, stored = np.unique(code, return_index=True, return_counts=True)
    there = {names[code[i]]: int(rows) for i, rows in sorted(zip(first, stored, strict=True))}  # as they were written
    if _GAINED not in there or not 2 <= len(there) <= _MOST_MATRICES:
        raise ValueError(f"its errors are of {len(there)} matrices, not of causes and one of what is gained")
    for name, rows in there.items():
        if rows != count * (count + 1) // 2:  # before that many are laid out
            raise ValueError(f"its errors have {rows} values of {name[:80]!r}, not those of {count} kinds")
    value, lower = errors["value"].to_numpy(), np.tril_indices(count)
    triangles = {name: np.zeros((count, count)) for name in there}
    for name, triangle in triangles.items():
        triangle[lower] = value[code == names.index(name)]
    columns = {name: tables.filled(kinds[name], 0.0 if name in _LATER else math.nan).to_numpy() for name in _BY_KIND}
    if not all(
        (np.abs(values) < _MOST).all() for values in (value, *columns.values())
    ):  # nor is it of one that is no number
        raise ValueError("a power or an error is no number, or beyond any of a GPU")
    root = triangles.pop(last := [name for name in there if name != _GAINED][-1])
    whole = {name: triangle + np.tril(triangle, -1).T for name, triangle in triangles.items()}
    columns |= {name: kinds[name][0].as_py() for name in _COMMON}
    return Powers(**columns, root=root, gained=whole.pop(_GAINED), causes={**whole, last: np.eye(count)})


def _path(units: Mapping[int | None, Mapping[str, Any]], id: int, at: int | None) -> Path:
    """Phase, modules, operator, shapes and kernel of what one site launches, as far as they are known; or idle."""
    unit = units[id]
    if unit["level"] == "op" and unit["name"] == IDLE_NAME:
        return (PathStep("idle", IDLE_NAME),)
    site = units.get(at, unit)
    phase, module = unit["phase"] or site["phase"], site["module"] or unit["module"]
    return path_of(phase, module, unit["op"], unit["shapes"], unit["name"])
