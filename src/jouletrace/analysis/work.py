"""Energy per unit of real work: of a recording beside which a counter was read; and what energy costs.

Energy and count are taken between readings of the counter. The recording is cut at readings into
blocks of like length, and the figure is Σ energy / Σ work over them, with the interval of a ratio
of sums (Cochran, Sampling Techniques, 3rd ed., section 6.3) from how blocks differ, correlated as
neighbours may be. It speaks of that load: a server costs more for each token when it idles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.power import energies, no_power_reason
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.channels import MOST_WORK, WORK, WORK_READ, WORK_RESETS
from jouletrace.stats.interval import Z95, mean_estimate, total

METHOD = "counted work"

MOST_BLOCKS = 20
_SHORTEST_S = 1.0
_J_PER_KWH = 3.6e6

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Blocks:
    """Segments between successive readings of the counter; all of shape (k,)."""

    # Edges
    start_ns: Ints
    end_ns: Ints
    done: Floats  # units of work
    # Standard uncertainty of its length, in seconds: a read takes time, and the count is of some moment within it
    edge_s: Floats
    reset: NDArray[np.bool_]  # whether the counter started again within it

    def __len__(self) -> int:
        return len(self.done)


def add_work(run: Run, figures: Figures) -> None:
    """Add work, energy per unit of it (whole, and over time), and cost and CO2 where factors are known."""
    if run.devices and run.channel(run.devices[0].id, WORK) is not None:
        _add_counted(run, figures)
    _add_costs(run, figures)


def _add_counted(run: Run, figures: Figures) -> None:
    blocks = _blocks(run)
    if isinstance(blocks, str):
        for metric in ("work_done", "work_per_s", "energy_per_work_j"):
            figures.add(MODEL_UNIT, metric, Estimate.null(blocks, METHOD))
        return
    energy, sd, sd_model, reasons = _energies(run, blocks)
    origin = int(blocks.start_ns[0])
    for i in range(len(blocks)):
        edges = [(int(at[i]) - origin) / 1e9 for at in (blocks.start_ns, blocks.end_ns)]
        unit = figures.units.add("range", f"{edges[0]:.1f} to {edges[1]:.1f} s")
        flags = ["work_reset"] if blocks.reset[i] else []
        seconds, half = edges[1] - edges[0], Z95 * float(blocks.edge_s[i])
        figures.add(unit, "time_s", Estimate(seconds, seconds - half, seconds + half, 1, METHOD))
        figures.add(unit, "work_done", _exact(float(blocks.done[i])), flags)
        reason = reasons[i]
        if reason is not None:
            figures.add(unit, "energy_total_j", Estimate.null(reason, METHOD))
            figures.add(unit, "energy_per_work_j", Estimate.null(reason, METHOD), flags)
            continue
        value, half = float(energy[i]), Z95 * float(sd[i])
        drawn = figures.add(unit, "energy_total_j", Estimate(value, value - half, value + half, 1, METHOD))
        each = drawn.scaled(1 / blocks.done[i]) if blocks.done[i] > 0 else Estimate.null("no_work_counted", METHOD)
        figures.add(unit, "energy_per_work_j", each, flags)
    _add_whole(figures, blocks, energy, np.hypot(sd_model, _ends(blocks, energy)), reasons)


def _add_whole(figures: Figures, blocks: _Blocks, energy: Floats, shared_sd: Floats, reasons: list[str | None]) -> None:
    """The figures of the whole, from those blocks that have an energy."""
    flags = ["work_reset"] if blocks.reset.any() else []
    work, seconds = float(blocks.done.sum()), float(blocks.end_ns[-1] - blocks.start_ns[0]) / 1e9
    figures.add(MODEL_UNIT, "work_done", _exact(work), flags)
    figures.add(MODEL_UNIT, "work_per_s", Estimate(work / seconds, n=len(blocks), method=METHOD), flags)
    kept = np.array([reason is None for reason in reasons])
    if not kept.any():
        figures.add(MODEL_UNIT, "energy_per_work_j", Estimate.null(str(reasons[0]), METHOD), flags)
        return
    if not kept.all():
        flags = [*flags, "windows_left_out"]
    per = ratio_of_sums(energy[kept], blocks.done[kept], float(np.sum(shared_sd[kept])))
    few = ["few_windows"] if per.value is not None and per.low is None else []
    figures.add(MODEL_UNIT, "energy_per_work_j", per, [*flags, *few])


def ratio_of_sums(energy_j: Floats, done: Floats, shared_sd_j: float = 0.0) -> Estimate:
    """Σ energy / Σ work over blocks with its interval.

    Args:
        energy_j: Of each block, shape (k,).
        done: Units of work of each, shape (k,).
        shared_sd_j: Standard uncertainty of the sum that doesn't show in how blocks differ.

    Returns:
        Joules a unit; without an interval for one block, null ("no_work_counted") without work.
    """
    work, k = float(done.sum()), len(done)
    if work <= 0:
        return Estimate.null("no_work_counted", METHOD)
    value = float(energy_j.sum()) / work
    if k < 2:
        return Estimate(value, n=k, method=METHOD)
    spread = mean_estimate(energy_j - value * done, correlated=True, common_sd=shared_sd_j / k)
    half = (spread.half_width or 0.0) * k / work
    return Estimate(value, value - half, value + half, k, METHOD)


def _blocks(run: Run) -> _Blocks | str:
    """The recording cut at readings of the counter; the reason where it can't be."""
    device = run.devices[0].id
    time, done = run.series(device, WORK)
    columns = {name: run.series(device, name) for name in (WORK_RESETS, WORK_READ)}
    order = np.argsort(time, kind="stable")
    time, done = time[order].astype(np.int64), done[order]
    # A sum never falls: a reading above a later one was a jump of the counter that came back.
    sound = (done <= MOST_WORK) & (done <= np.minimum.accumulate(done[::-1])[::-1])
    if not sound.all():
        message = f"{int((~sound).sum())} readings of the counter of work can't be, and were left out"
        run.warn("work_implausible", message)
    time, done = time[sound], done[sound]
    if len(time) == 0:
        return "work_never_read"
    at = _edges(time)
    if len(at) < 2:
        return "work_read_once"
    # Rows that a crash cut off lack what came last; a reading's rows have one stamp.
    resets = _at(time[at], *columns[WORK_RESETS])
    took = _at(time[at], *columns[WORK_READ])
    edge = np.hypot(took[:-1], took[1:]) / math.sqrt(12)
    return _Blocks(time[at[:-1]], time[at[1:]], np.diff(done[at]), edge, np.diff(resets) > 0)


def _edges(time: Ints) -> NDArray[np.intp]:
    """Which readings are edges of blocks: as equally apart in time as readings allow."""
    seconds = float(time[-1] - time[0]) / 1e9
    k = int(max(min(MOST_BLOCKS, len(time) - 1, seconds / _SHORTEST_S), 1))
    wanted = time[0] + np.round(np.arange(k + 1) / k * float(time[-1] - time[0])).astype(np.int64)
    after = np.clip(np.searchsorted(time, wanted), 1, max(len(time) - 1, 1)) if len(time) > 1 else np.zeros(1, int)
    if len(time) == 1:
        return np.zeros(1, np.intp)
    nearest = np.where(wanted - time[after - 1] < time[after] - wanted, after - 1, after)
    return np.unique(nearest).astype(np.intp)


def _at(wanted: Ints, time: Ints, values: Floats) -> Floats:
    """The value of each stamp; 0 where there is none."""
    if len(time) == 0:
        return np.zeros(len(wanted))
    order = np.argsort(time, kind="stable")
    found = np.clip(np.searchsorted(time[order], wanted), 0, len(time) - 1)
    return np.asarray(np.where(time[order][found] == wanted, values[order][found], 0.0), np.float64)


def _energies(run: Run, blocks: _Blocks) -> tuple[Floats, Floats, Floats, list[str | None]]:
    """Of each block, over all devices: joules, its standard uncertainty, the part that blocks share, reasons."""
    k = len(blocks)
    energy, variance, model = np.zeros(k), np.zeros(k), np.zeros(k)
    reasons: list[str | None] = [None] * k
    for device in run.devices:
        found = energies(run, device.id, blocks.start_ns, blocks.end_ns)
        if found is None:
            return energy, variance, model, [no_power_reason(run, device.id)] * k
        energy = energy + found.energy_j
        variance = variance + ((found.high_j - found.low_j) / (2 * Z95)) ** 2
        # Of the sum a block has its share by energy
        whole = found.sums(found.known)
        model = np.hypot(model, (whole[2] - whole[1]) / (2 * Z95 * whole[0]) * found.energy_j)
        reasons = [mine or theirs for mine, theirs in zip(reasons, found.reason, strict=True)]
    power = energy / np.maximum((blocks.end_ns - blocks.start_ns) / 1e9, 1e-9)
    return energy, np.sqrt(variance + (power * blocks.edge_s) ** 2), model, reasons


def _ends(blocks: _Blocks, energy: Floats) -> Floats:
    """What the length of the first and last block leaves open, in joules: inner edges cancel in the sum."""
    power = energy / np.maximum((blocks.end_ns - blocks.start_ns) / 1e9, 1e-9)
    outer = np.zeros(len(blocks))
    outer[[0, -1]] = (power * blocks.edge_s)[[0, -1]]
    return outer


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value, 1, METHOD)


def _add_costs(run: Run, figures: Figures) -> None:
    """Cost and CO2 of all devices' energy, by the factors in the settings: factors are taken as exact."""
    asked = run.settings
    for factor, metric in ((asked.get("price_per_kwh"), "cost"), (asked.get("carbon_g_per_kwh"), "co2_g")):
        if factor is None:
            continue
        parts = [figures.get(unit, "energy_total_j") for unit in range(1, len(run.devices) + 1)]
        drawn = parts[0] if len(parts) == 1 else total(parts)
        flags = [flag for unit in range(1, len(run.devices) + 1) for flag in figures.get(unit, "energy_total_j").flags]
        figures.add(MODEL_UNIT, metric, drawn.scaled(factor / _J_PER_KWH), flags)
