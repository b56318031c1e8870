"""Gain and offset of a GPU's power sensor, against a meter of its supply: drawn = offset + gain x read.

While the load holds several mean powers, both are read. The mean of each level has an error on both sides, by the
estimators that serve all spans and logs, and the line through the levels takes both (York's effective variance).
Scatter beyond them, as of a sensor that isn't linear, is a third error, by the residuals (Paule and Mandel 1982).
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from jouletrace.analysis.budget import OFFSET_W
from jouletrace.analysis.imported_recording import moment
from jouletrace.analysis.power import energies, power_record
from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError
from jouletrace.option import number
from jouletrace.run import Run
from jouletrace.run.channels import GAIN_PCT, POWER
from jouletrace.run.forms import AgainstMeter
from jouletrace.run.spans import spans_of
from jouletrace.sensor.power_record import cumulative_energy
from jouletrace.stats.interval import Z95, expanded
from jouletrace.stats.quantiles import student

LEVEL = "level"
"""How the phases begin in which the load has one mean power."""

GUARD_S = 1.5
"""Left out at both edges of a level: what the clocks may still differ by once they are aligned (a bin and a spacing of
the meter), and the time over which meters average, up to a second."""

SPACING_S = 1.0
"""Most seconds between readings of a meter: a level then has some of its own."""

_LEAST_LEVELS = 4
"""A line through fewer leaves its scatter to chance: Student's t of one degree of freedom is 12.7."""

_BIN_S, _SHIFT_S = 0.1, 10.0
"""Bins in which the clocks are aligned, and the most that clocks of machines differ by that are set at all."""

_ALIKE = 0.5
"""Correlation of meter and sensor below which nothing says that they show one load."""

GAINS, MOST_W = (0.8, 1.25), 10 * OFFSET_W
"""Gains and offsets beyond those of any GPU's sensor: hosts at rest draw more than 30 W."""


class Accuracy(NamedTuple):
    """Limits of a meter's own error: % of its reading, and W."""

    pct: float
    watts: float = 0.0


def accuracy_of(text: str) -> Accuracy:
    """The accuracy of a meter as its data sheet states it: "0.5%", or "0.1%+0.2W".

    Raises:
        BadInputError: If it isn't written so, or isn't below 100 %.
    """
    matched = re.fullmatch(r"\s*([0-9.]+)\s*%\s*(?:\+\s*([0-9.]+)\s*W\s*)?", text)
    try:
        pct, watts = (number(part or "0") for part in (matched.groups() if matched else ("x", "x")))
    except ValueError:
        pct = math.inf
    if not pct < 100:
        raise BadInputError(
            f"--meter-accuracy {text}: write % of the reading, and W if it states them: 0.5% or 0.1%+0.2W"
        )
    return Accuracy(pct, watts)


def against_meter(run: Run, meter: Run, name: str, accuracy: Accuracy, shift_s: float | None = None) -> AgainstMeter:
    """Gain and offset of the sensor of a Run's first device.

    Args:
        run: A recording with levels of load, by ``profiler.calibrate``.
        meter: What the meter logged meanwhile, as imported.
        name: Of its file.
        accuracy: Of the meter.
        shift_s: Seconds to add to its stamps; None to determine them, to 10 s, or any of a log without a clock.

    Raises:
        BadInputError: If the two can't be compared; one line says why, and what to do.
    """
    device, of_meter = run.devices[0].id, _channel(meter, name)
    spans = spans_of(run, "phase")
    rows = [row for row in range(len(spans)) if (spans.text("name", row) or "").startswith(LEVEL)]
    levels = np.stack(spans.edges_ns, axis=1)[rows]
    if len(levels) < _LEAST_LEVELS:
        raise BadInputError("the Run has no levels of load, which `calibrate --meter` records")
    shift_ns = round(1e9 * (_shift_s(run, meter, of_meter, levels, name) if shift_s is None else shift_s))
    inside = levels + np.array([1, -1]) * round(1e9 * GUARD_S)
    read_w, read_u = _means(run, device, inside, "the GPU's sensor")
    meter_w, meter_u = _means(meter, of_meter, inside - shift_ns, name)
    gain, offset_w, covariance, scatter_w = line(read_w, meter_w, read_u, meter_u)
    design = np.stack([np.ones_like(read_w), read_w], axis=1)
    half_w = Z95 * np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design) + scatter_w**2)
    drawn_w = design @ [offset_w, gain]
    halves = [expanded(h, [accuracy.pct / 100 * w, accuracy.watts]) for h, w in zip(half_w, drawn_w, strict=True)]
    loaded = drawn_w >= drawn_w.max() / 2  # at rest the offset weighs most
    gain_pct = math.ceil(1e4 * max((np.array(halves) / drawn_w)[loaded])) / 100
    if gain_pct >= GAIN_PCT:
        raise BadInputError(
            f"{name} leaves ± {gain_pct:.2g} %, no less than without it: a meter helps that averages, read each 0.1 s"
        )
    return {
        "time_ns": run.created_ns,
        "gain": gain,
        "gain_half": Z95 * math.sqrt(covariance[1, 1]),
        "offset_w": offset_w,
        "offset_half_w": Z95 * math.sqrt(covariance[0, 0]),
        "covariance": covariance.tolist(),
        "scatter_w": scatter_w,
        "accuracy_pct": accuracy.pct,
        "accuracy_w": accuracy.watts,
        "gain_pct": gain_pct,
        "shift_s": round(shift_ns / 1e9, 3) + 0.0,
        "levels": np.stack([read_w, read_u, meter_w, meter_u], axis=1).tolist(),
        "meter": name,
    }


def is_of_more(found: AgainstMeter) -> bool:
    """True if no sensor of a GPU errs so: the meter measures more than this GPU, or another."""
    return not (GAINS[0] <= found["gain"] <= GAINS[1] and abs(found["offset_w"]) <= MOST_W)


def line(x: Floats, y: Floats, ux: Floats, uy: Floats) -> tuple[float, float, Floats, float]:
    """The line y = offset + gain x through points with standard uncertainties on both axes, each of shape (n,).

    Returns:
        Gain, offset, their covariance of shape (2, 2), offset first, and the standard deviation of points about the
        line beyond their uncertainties. As few points determine that, Student's t over 1.96 widens the covariance.
    """
    design, df = np.stack([np.ones_like(x), x], axis=1), len(x) - 2

    def fitted(scatter_w: float) -> tuple[Floats, Floats, float]:
        beta = np.array([0.0, 1.0])
        for _ in range(5):  # the weights hang on the gain, which is near 1
            weight = 1 / (uy**2 + (beta[1] * ux) ** 2 + scatter_w**2)
            covariance = np.linalg.inv((design.T * weight) @ design)
            beta = covariance @ (design.T * weight) @ y
        return beta, covariance, float(weight @ (y - design @ beta) ** 2)

    low, high = 0.0, float(np.ptp(y))
    for _ in range(60 if fitted(0.0)[2] > df else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if fitted(middle)[2] > df else (low, middle)
    scatter_w = low
    beta, covariance, _ = fitted(scatter_w)
    return float(beta[1]), float(beta[0]), covariance * (student(0.975, df) / Z95) ** 2, scatter_w


def _channel(meter: Run, name: str) -> str:
    """The device of the one channel of power that a meter logged."""
    there = [channel.device for channel in meter.channels if channel.name == POWER]
    if len(there) != 1:
        channels = f"{len(there)} channels of power ({', '.join(there)})" if there else "no power"
        raise BadInputError(f"{name} has {channels}: name that of this GPU, --map power_w=COLUMN")
    return there[0]


def _means(run: Run, device: str, spans_ns: Ints, name: str) -> tuple[Floats, Floats]:
    """Mean power in spans, shape (s, 2), in W, with its standard uncertainty, each of shape (s,)."""
    each, seconds = energies(run, device, *spans_ns.T), np.diff(spans_ns)[:, 0] / 1e9
    if missing := next(filter(None, each.reason), None):
        raise BadInputError(f"{name} has no mean power of a level ({missing}): log it each second or more often")
    return each.energy_j / seconds, (each.high_j - each.low_j) / (2 * Z95 * seconds)


def _shift_s(run: Run, meter: Run, of_meter: str, levels: Ints, name: str) -> float:
    """Seconds to add to a meter's stamps, so that its readings follow the sensor's; known to a bin and a spacing."""
    read, logged = power_record(run, run.devices[0].id), power_record(meter, of_meter)
    if logged is None or len(logged[0]) < 2 or read is None:
        raise BadInputError(f"{name} has fewer than 2 readings of power: log it while calibrate runs")
    log = logged[0]
    if (spacing_s := float(np.median(np.diff(log.time_ns))) / 1e9) > SPACING_S:
        raise BadInputError(f"{name} has a reading each {spacing_s:.3g} s: log it each second or more often")
    bin_ns = round(1e9 * _BIN_S)
    first, last = log.time_ns[[0, -1]]
    begin, end = levels.min(), levels.max()

    def binned(record_ns: Ints, value: Floats, start_ns: int, end_ns: int) -> Floats:
        edges = np.arange(start_ns, end_ns + 1, bin_ns)
        return np.diff(np.interp(edges - start_ns, record_ns - start_ns, cumulative_energy(record_ns, value)))

    shape = binned(read[0].time_ns, read[0].value, begin, end)
    long = binned(log.time_ns, log.value, first, last)
    starts = first + bin_ns * np.arange(max(len(long) - len(shape) + 1, 0))
    shifts = (begin - starts) / 1e9
    clock = meter.settings["imported"][0]["clock"]
    near = np.abs(shifts) <= (_SHIFT_S if clock == "unix" else math.inf)
    if not near.any():
        ends = " to ".join
        hour_s = 900 * round((begin - first) / 9e11)  # time zones lie quarters of an hour apart
        zone = f"; if its clock is of another time zone: --shift {hour_s}" if hour_s and len(starts) else ""
        raise BadInputError(
            f"{name} covers {ends(map(moment, (int(first), int(last))))}, and the levels lasted from "
            f"{ends(map(moment, (int(begin), int(end))))}: log it from before calibrate to after it{zone}"
        )
    shape = shape - shape.mean()
    sums = [np.append(0.0, np.cumsum(long**power)) for power in (1, 2)]
    mean, square = ((each[len(shape) :] - each[: -len(shape)]) / len(shape) for each in sums)
    spread = np.sqrt(np.maximum(square - mean**2, 1e-12) * (shape @ shape) * len(shape))
    alike = np.where(near, np.correlate(long, shape, "valid") / spread, -1.0)
    best = int(np.argmax(alike))
    if alike[best] < _ALIKE:
        raise BadInputError(
            f"{name} doesn't follow the levels (correlation {alike[best]:.2f}), so that its clock can't be aligned: "
            "is it of this GPU? If so, state --shift"
        )
    return float(shifts[best])
