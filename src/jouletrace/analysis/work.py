"""Energy per unit of real work: of a recording beside which a counter was read.

Energy and count are taken between readings of the counter. The recording is cut at readings into
blocks of like length, and the figure is Σ energy / Σ work over them, with the interval of a ratio
of sums (Cochran, Sampling Techniques, 3rd ed., section 6.3) from how blocks differ, correlated as
neighbours may be. It speaks of that load: a server costs more for each token when it idles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jouletrace.analysis.power import energies
from jouletrace.arrays import Floats, Indices, Ints, Mask
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.channels import MOST_WORK, WORK, WORK_READ, WORK_RESETS
from jouletrace.run.estimate import widened
from jouletrace.run.figures import Figures
from jouletrace.stats.interval import Z95, mean_estimate, total

METHOD = "counted work"

MOST_BLOCKS = 20
_SHORTEST_S = 1.0
_BESIDE = (WORK_RESETS, WORK_READ)


@dataclass(frozen=True)
class _Blocks:
    """Segments between successive readings of the counter; all of shape (k,)."""

    # Edges
    start_ns: Ints
    end_ns: Ints
    done: Floats  # units of work
    # Standard uncertainty of its length, in seconds: a read takes time, and the count is of some moment within it
    edge_s: Floats
    reset: Mask  # whether the counter started again within it

    @property
    def seconds(self) -> Floats:
        """Lengths."""
        return np.asarray((self.end_ns - self.start_ns) / 1e9, np.float64)


def add_work(run: Run, figures: Figures) -> None:
    """Add work, energy per unit of it (whole, and over time)."""
    if run.devices and run.channel(run.devices[0].id, WORK) is not None:
        _add_counted(run, figures)


def _add_counted(run: Run, figures: Figures) -> None:
    blocks = _blocks(run)
    if isinstance(blocks, str):
        for metric in ("work_done", "work_per_s", "energy_per_work_j"):
            figures.add(MODEL_UNIT, metric, Estimate.null(blocks, METHOD))
        return
    drawn, shared_sd = _energies(run, blocks)
    from_s, to_s = ((edge - blocks.start_ns[0]) / 1e9 for edge in (blocks.start_ns, blocks.end_ns))
    rows = zip(from_s, to_s, blocks.edge_s, blocks.done, blocks.reset, drawn, strict=True)
    for start, end, edge, done, reset, energy in rows:
        unit = figures.units.add("range", f"{start:.1f} to {end:.1f} s")
        flags, seconds, half = ["work_reset"] if reset else [], float(end - start), Z95 * float(edge)
        figures.add(unit, "time_s", Estimate(seconds, seconds - half, seconds + half, 1, METHOD))
        figures.add(unit, "work_done", _exact(float(done)), flags)
        figures.add(unit, "energy_total_j", energy)
        none = Estimate.null(energy.reason or "no_work_counted", METHOD)
        each = energy.scaled(1 / float(done)) if energy.value is not None and done > 0 else none
        figures.add(unit, "energy_per_work_j", each, flags)
    _add_whole(figures, blocks, drawn, shared_sd)


def _add_whole(figures: Figures, blocks: _Blocks, drawn: Sequence[Estimate], shared_sd: Floats) -> None:
    """The figures of the whole, from those blocks that have an energy."""
    flags = ["work_reset"] if blocks.reset.any() else []
    work, seconds = float(blocks.done.sum()), float(blocks.end_ns[-1] - blocks.start_ns[0]) / 1e9
    figures.add(MODEL_UNIT, "work_done", _exact(work), flags)
    figures.add(MODEL_UNIT, "work_per_s", Estimate(work / seconds, n=len(drawn), method=METHOD), flags)
    kept = np.array([energy.value is not None for energy in drawn])
    per = Estimate.null(drawn[0].reason or "no_value", METHOD)
    if kept.any():
        energy = np.array([figure.value for figure in drawn if figure.value is not None])
        per = ratio_of_sums(energy, blocks.done[kept], float(np.sum(shared_sd[kept])))
        flags += [] if kept.all() else ["windows_left_out"]
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
    beside = (dict(zip(*(part.tolist() for part in run.series(device, name)), strict=True)) for name in _BESIDE)
    resets, took = (np.array([values.get(stamp, 0.0) for stamp in time[at].tolist()]) for values in beside)
    edge = np.hypot(took[:-1], took[1:]) / math.sqrt(12)
    return _Blocks(time[at[:-1]], time[at[1:]], np.diff(done[at]), edge, np.diff(resets) > 0)


def _edges(time: Ints) -> Indices:
    """Which readings are edges of blocks: as equally apart in time as readings allow."""
    since = time - time[0]
    k = int(max(min(MOST_BLOCKS, len(time) - 1, since[-1] / 1e9 / _SHORTEST_S), 1))
    return np.unique(np.searchsorted((since[1:] + since[:-1]) / 2, np.linspace(0, since[-1], k + 1), side="right"))


def _energies(run: Run, blocks: _Blocks) -> tuple[list[Estimate], Floats]:
    """Energies of blocks over all devices, J; and the standard uncertainties of what they share, shape (k,).

    Inner edges cancel in a sum of blocks: of their lengths the ends alone are left open.
    """
    k = len(blocks.done)
    spans = [energies(run, device.id, blocks.start_ns, blocks.end_ns) for device in run.devices]
    each = [total([span.estimate(np.arange(k) == i) for span in spans], method=METHOD) for i in range(k)]
    edge_j = np.array([figure.value or 0.0 for figure in each]) / np.maximum(blocks.seconds, 1e-9) * blocks.edge_s
    shared = [edge_j * np.isin(np.arange(k), [0, k - 1])]
    for span in spans:
        whole = span.estimate(span.has_energy)  # of which a block has its share by energy
        if whole.value:
            shared.append((whole.half_width or 0.0) / Z95 / whole.value * span.energy_j)
    bare = (replace(figure, flags=(), budget={}) for figure in each)
    return [widened(figure, Z95 * float(u)) for figure, u in zip(bare, edge_j, strict=True)], np.linalg.norm(
        shared, axis=0
    )


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value, 1, METHOD)
