"""A device's energy divided by what ran: seconds of each kind of kernel, the powers of kinds, and their covariance.

A sum of rows is a sum of their seconds, and its energy is these times the powers. So sums are consistent, have the
uncertainty that errors of shared powers give them, and may be resolved where none of their rows is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jouletrace.run import tables
from jouletrace.run.estimate import Estimate
from jouletrace.run.lazily import compute as pc
from jouletrace.run.model import Run
from jouletrace.run.parts import Path, Step, path_of
from jouletrace.run.recording_names import IDLE_NAME

Array = NDArray[np.float64]

METHOD = "regression on the kernel timeline"

TRACING = "tracing"
"""A source of uncertainty."""

UNSEEN = 0.01
"""Share of a sum's time in kernels whose power isn't known, above which it has no energy."""

_OVERLAPPED = 0.05
"""Share of a sum's time in which other kernels ran too, above which its energy says so."""

_Z95 = NormalDist().inv_cdf(0.975)
_ROUNDED = 2.0**-13
"""To what shares of variances are stored: the readings' share of a variance is known worse by far."""

_ROOT, _GAINED = "root", "gained"
_MOST_MATRICES = 20
_OF_KINDS = ("watts", "own", "overlapped", "most_w", "prior_w", "tracing_w")


@dataclass(frozen=True)
class Powers:
    """Powers of k kinds of kernels, idle last, with their covariance.

    Attributes:
        watts: Power of each kind, W, shape (k,).
        own: Share of a kind's time that counts as its own, since n kernels at once share the power; shape (k,).
        overlapped: Share of a kind's time that is its own while others run; shape (k,).
        most_w: The largest power that is possible while a kind runs, W, shape (k,).
        prior_w: Standard deviation of each power before any reading, W, shape (k,).
        tracing_w: Standard uncertainty of each power by ``TRACING``, one error of all, W, shape (k,).
        readings: How many readings determine the powers.
        coverage: Standard uncertainties by the readings in a 95 % half-width.
        root: Lower triangle whose product with its transpose is the covariance by the readings, W, shape (k, k).
        causes: For each cause of errors, the share of the variance that is left if errors by later causes were none: a
            quadratic form in the product of seconds and ``root``, shape (k, k). That of the last cause is 1.
        gained: A quadratic form in seconds times ``prior_w``; not negative where the readings determine a sum, shape
            (k, k).
    """

    watts: Array
    own: Array
    overlapped: Array
    most_w: Array
    prior_w: Array
    tracing_w: Array
    readings: int
    coverage: float
    root: Array
    causes: Mapping[str, Array]
    gained: Array

    def scaled(self, factor: float, half: float) -> Powers:
        """The same with energies of kernels, but not of idle, times a factor of this 95 % half-width."""
        by = np.append(np.full(len(self.watts) - 1, factor), 1.0)
        tracing = np.append(self.watts[:-1] * half / _Z95, 0.0)
        root, most_w = self.root * by[:, None], self.most_w * by
        return replace(self, watts=self.watts * by, most_w=most_w, root=root, tracing_w=tracing)

    def energy(self, seconds: Array) -> Estimate:
        """Energy of seconds of each kind, shape (k,), whether or not the readings resolve it, J."""
        value, errors = float(seconds @ self.watts), seconds @ self.root
        u, tracing = float(np.linalg.norm(errors)), abs(float(seconds @ self.tracing_w))
        half = float(np.hypot(self.coverage * u, _Z95 * tracing))
        apart = seconds @ self.overlapped <= _OVERLAPPED * (seconds @ self.own)
        budget, before, direction = {}, 0.0, errors / u if u else errors
        for cause, share in self.causes.items():
            after = min(max(float(direction @ share @ direction), before), 1.0)
            budget[cause], before = u * float(np.sqrt(after - before)), after
        if seconds[:-1].any():
            budget[TRACING] = tracing
        flags = () if apart else ("overlapped",)
        return Estimate(value, value - half, value + half, self.readings, METHOD, flags=flags, budget=budget)

    def relative(self, seconds: Array) -> float:
        """Half-width of the energy by the readings over its value; infinite where that is 0."""
        value = abs(float(seconds @ self.watts))
        return self.coverage * float(np.linalg.norm(seconds @ self.root)) / value if value else float("inf")

    def resolves(self, seconds: Array) -> bool:
        """True if the readings determine the energy of these seconds: narrowly, and not by the prior alone.

        Idle power may be determined by its prior alone, which is a measurement. A power that no GPU draws is none.
        """
        before = seconds * self.prior_w
        measured = before @ self.gained @ before >= 0 or not seconds[:-1].any()
        possible = 0.0 <= seconds @ self.watts <= (seconds * self.own) @ self.most_w
        return bool(measured and possible and self.relative(seconds) <= 0.5)


class DividedRow(NamedTuple):
    """What one site launches of one kernel, or idle: its path below the device, and its kind, -1 if unknown."""

    path: Path
    kind: int
    seconds: float


@dataclass(frozen=True)
class Division:
    """Rows of a device, per iteration or of a whole program.

    Attributes:
        device: Its id.
        powers: Of its kinds; None if the readings say nothing of them.
        reason: Why kinds of unknown power have no energy.
        rows: What ran, and idle.
    """

    device: str
    powers: Powers | None
    reason: str
    rows: Sequence[DividedRow] = ()

    def seconds(self, kinds: Iterable[tuple[int, float]]) -> Array:
        """Seconds of each kind, those of unknown power last, shape (k + 1,)."""
        found = np.zeros(1 if self.powers is None else len(self.powers.watts) + 1)
        for kind, seconds in kinds:
            found[kind] += seconds
        return found

    def grouped(self, to: Callable[[Path], Path]) -> dict[Path, Array]:
        """Seconds of each kind, as ``seconds`` returns them, by what ``to`` makes of the paths of rows."""
        groups: dict[Path, list[tuple[int, float]]] = {}
        for row in self.rows:
            groups.setdefault(to(row.path), []).append((row.kind, row.seconds))
        return {path: self.seconds(kinds) for path, kinds in groups.items()}

    def energy(self, seconds: Array, *, remainder: bool = False) -> Estimate:
        """Energy of the sum of some rows, J, with its budget; null with a reason where the readings don't resolve it.

        A ``remainder`` is what a resolved sum leaves to some rows: it has the energy that is left, however wide its
        interval.
        """
        if self.powers is None or seconds[-1] > UNSEEN * seconds.sum():
            return Estimate.null(self.reason, METHOD)
        found = self.powers.energy(seconds[:-1])
        if remainder or self.powers.resolves(seconds[:-1]):
            return found
        return replace(Estimate.null("not_resolved", METHOD), flags=found.flags)


def tables_of(division: Division, rows: Iterable[tuple[int, int, int, float]]) -> dict[str, pa.Table]:
    """The stored form of a division whose rows are of these units, sites, kinds and seconds: tables by name.

    Shares of variances are rounded: so they take half of the space.
    """
    unit, site, kind, seconds = zip(*rows, strict=True)
    known, of = np.array(kind) >= 0, division.device
    found: dict[str, dict[str, Any]] = {"powers": {}, "errors": {}}
    found["divided"] = {
        "unit": unit,
        "site": pa.array(site, pa.int64(), mask=np.array(site) < 0),
        "kind": pa.array(kind, pa.int64(), mask=~known),
        "seconds": seconds,
        "reason": [None if one else division.reason for one in known],
    }
    if division.powers is not None:
        powers = division.powers
        count, *before = len(powers.watts), *list(powers.causes)[:-1]
        own = {name: getattr(powers, name) for name in _OF_KINDS}
        common = {"readings": powers.readings, "coverage": powers.coverage, "last_cause": list(powers.causes)[-1]}
        found["powers"] = {"kind": range(count), **own, **{name: [one] * count for name, one in common.items()}}
        matrices = {_ROOT: powers.root, **{cause: powers.causes[cause] for cause in before}, _GAINED: powers.gained}
        triangles = {name: matrix[np.tril_indices(count)] for name, matrix in matrices.items()}
        rounded = [one if name == _ROOT else np.round(one / _ROUNDED) * _ROUNDED for name, one in triangles.items()]
        names = [name for name, one in triangles.items() for _ in one]
        found["errors"] = {"matrix": names, "value": np.concatenate(rounded).astype(np.float32)}
    made = {name: pa.table(columns) for name, columns in found.items() if columns}
    return {
        name: tables.conform(table.append_column("device", pa.array([of] * len(table))), name)
        for name, table in made.items()
    }


def divisions_of(run: Run) -> list[Division]:
    """The stored divisions of a Run, one for each device whose kernels were recorded; none in Runs of older versions.

    Raises:
        ValueError: If its tables contradict one another; one line says how.
    """
    units = {row["id"]: row for row in run.units.to_pylist()} if len(run.divided) else {}
    divisions, known = [], {device.id for device in run.devices}
    for device in run.divided["device"].unique().to_pylist():
        if known and device not in known:
            raise ValueError(f"divided has a device {device[:80]!r}, which is not there")
        rows = _of(run.divided, device).to_pylist()
        powers = _powers(_of(run.powers, device), _of(run.errors, device))
        count = 0 if powers is None else len(powers.watts)
        for row in rows:
            if row["unit"] not in units:
                raise ValueError(f"divided has a unit {row['unit']}, which is not there")
            if (row["kind"] or 0) >= max(count, 1) or (row["kind"] is not None and not count):
                raise ValueError(f"divided has a kind {row['kind']}, whose power is not there")
        reason = next((row["reason"] for row in rows if row["kind"] is None and row["reason"]), "not_resolved")
        found = [
            DividedRow(_path(units, row), -1 if row["kind"] is None else row["kind"], row["seconds"]) for row in rows
        ]
        divisions.append(Division(device, powers, reason, found))
    return divisions


def _of(table: pa.Table, device: str) -> pa.Table:
    return table.filter(pc.equal(table["device"], device))


def _powers(kinds: pa.Table, errors: pa.Table) -> Powers | None:
    """The powers of a device from its rows; None if it has none."""
    count = len(kinds)
    if not count:
        return None
    if kinds["kind"].to_pylist() != list(range(count)):
        raise ValueError("powers are not of kinds 0, 1, 2 and so on")
    code, names = tables.decoded(errors["matrix"])
    there = Counter(names[i] for i in code.tolist())
    if len(there) > _MOST_MATRICES:
        raise ValueError(f"errors are of {len(there)} matrices")
    for name, values in there.items():
        if values != count * (count + 1) // 2:
            raise ValueError(f"errors have {values} values of {name[:80]!r}, not those of {count} kinds")
    values, matrices = errors["value"].to_numpy().astype(np.float64), {}
    for name in there:
        matrices[name] = np.zeros((count, count))
        matrices[name][np.tril_indices(count)] = values[code == names.index(name)]
    if not {_ROOT, _GAINED} <= matrices.keys():
        raise ValueError("errors lack a matrix of a device that has powers")
    root = matrices.pop(_ROOT)
    whole = {name: one + np.tril(one, -1).T for name, one in matrices.items()}
    gained, last = whole.pop(_GAINED), kinds["last_cause"][0].as_py()
    readings, coverage = (kinds[name][0].as_py() for name in ("readings", "coverage"))
    own = {name: kinds[name].to_numpy() for name in _OF_KINDS}
    causes = {**whole, last: np.eye(count)}
    return Powers(**own, readings=readings, coverage=coverage, root=root, causes=causes, gained=gained)


def _path(units: Mapping[int, Mapping[str, Any]], row: Mapping[str, Any]) -> Path:
    """Phase, modules, operator, shapes and kernel of what one site launches, as far as they are known; or idle."""
    unit = units[row["unit"]]
    if unit["level"] == "op" and unit["name"] == IDLE_NAME:
        return (Step("idle", IDLE_NAME),)
    site = units.get(row["site"], unit)
    phase, module = unit["phase"] or site["phase"], site["module"] or unit["module"]
    return path_of(phase, module, unit["op"], unit["shapes"], unit["name"])
