"""Judge the classes of readings and loads whose intervals once failed, each by two simulators of other hands.

    python benchmarks/estimator/classes.py [CLASS...] [--n 200] [--seed 9001]
    python benchmarks/estimator/classes.py --record FOLDER

Of each: how many intervals hold, their median half-width, and 1.96 times the root mean square error, which would do.
Power is constant between edges. *exact* integrates it here; *grid* is the simulator of the tests, on a grid of 0.2 ms
with a fluctuation beside. Of a real record (dyn_poll.npy) each of 16 phases is a log.
"""

from __future__ import annotations

import itertools
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np
from judge import on_grid
from loads import Floats, drawn, log_uniform
from means import Power

import records
from jouletrace.analysis.host import work
from jouletrace.attribution.attribute import attribute
from jouletrace.attribution.spans import span_energies
from jouletrace.formats.importers.power_sensor import METER, polled_response
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.kinds import HOPPER_SENSOR, INSTANT, USAGE, calibrated, sensor_behind
from jouletrace.sensor.power_record import clean
from jouletrace.sensor.shares import Response
from jouletrace.simulator import sensors
from judging import Judged, options

from energy_signals import STEP, Load, behind  # isort: skip
from simulated_sensors import BlockMeans  # isort: skip

H100 = "NVIDIA H100 80GB HBM3"
ORIGIN_NS = 10**18
NOISE_W = 0.3


@dataclass(frozen=True)
class Exact:
    """Readings of a power that is constant between edges, without a grid."""

    power: Power

    def energy(self, begin_s: Floats, end_s: Floats) -> Floats:
        return self.power.energy(begin_s, end_s)

    def read(self, rng: np.random.Generator, at_s: Floats, window_s: float, rise_s: float) -> Floats:
        """Means over windows that end at ``at_s``, behind an exponential memory."""
        edges, watts = self.power.edges, self.power.watts
        place = np.clip(np.searchsorted(edges, at_s, side="right") - 1, 0, len(watts) - 1)
        if window_s:
            value = self.energy(at_s - window_s, at_s) / window_s
        elif rise_s:
            state, states = watts[0], [watts[0]]
            for keep, level in zip(np.exp(-np.diff(edges) / rise_s).tolist(), watts.tolist(), strict=True):
                state = level + (state - level) * keep
                states.append(state)
            value = watts[place] + (np.array(states)[place] - watts[place]) * np.exp(-(at_s - edges[place]) / rise_s)
        else:
            value = watts[place]
        return np.round(value + NOISE_W * rng.standard_normal(len(at_s)), 2)


@dataclass(frozen=True)
class Grid:
    """The same by the simulator of the tests: power that fluctuates, on a grid of 0.2 ms times ``slow``."""

    load: Load
    slow: float

    def energy(self, begin_s: Floats, end_s: Floats) -> Floats:
        return self.slow * np.asarray(self.load.energy(begin_s / self.slow, end_s / self.slow))

    def read(self, rng: np.random.Generator, at_s: Floats, window_s: float, rise_s: float) -> Floats:
        power, end_s = behind(rise_s / self.slow, self.load.power), at_s / self.slow
        width_s = max(window_s / self.slow, STEP)
        value = (self.load._running(power, end_s) - self.load._running(power, end_s - width_s)) / width_s
        return np.round(value + NOISE_W * rng.standard_normal(len(at_s)), 2)


def simulated(power: Power, simulator: str, rng: np.random.Generator) -> Exact | Grid:
    """A simulator of this power."""
    if simulator == "exact":
        return Exact(power)
    slow = max(1.0, power.edges[-1] / 60)
    edges, relative = power.edges / slow, rng.uniform(0.002, 0.02)
    return Grid(Load(rng, edges[-1], edges[1:-1], power.watts, relative=relative), slow)


def ns(seconds: Floats) -> Floats:
    return ORIGIN_NS + np.round(1e9 * np.asarray(seconds)).astype(np.int64)


Rows = Iterator[tuple[float, float, float, float]]
"""Mean, low and high end, and truth."""


def given(found: object, truth: Floats) -> Rows:
    yield from zip(found.energy_j, found.low_j, found.high_j, truth, strict=True)


# --- 1: a burst that a range marks, beside the driver's record or a meter of unknown kind -----------------------------


def record(length_s: float) -> Callable[[np.random.Generator, str], Rows]:
    def rows(rng: np.random.Generator, simulator: str) -> Rows:
        shape = str(rng.choice(["constant", "alternating", "pulses", "one pulse", "ramp", "cap"]))
        one = (records.sampled if simulator == "exact" else records.continuous)(drawn(shape, length_s, rng), rng)
        times_s, sd_s = on_grid(one.stamps_s)
        found = attribute(
            times_s, one.watts, [one.span_s], response=Response.sampled(HOPPER_SENSOR, 0.02), times_sd_s=sd_s
        )
        yield (*(float(end[0]) for end in found.interval()), one.energy_j)

    return rows


def meter(kind: str, spacing_s: float, readings: float) -> Callable[[np.random.Generator, str], Rows]:
    def rows(rng: np.random.Generator, simulator: str) -> Rows:
        count, rest_s = 4, 25 * spacing_s
        length_s, idle = readings * spacing_s * rng.uniform(0.95, 1.05, count), rng.uniform(80, 130)
        edges, watts, spans, now = [0.0], [], [], 0.0
        for one in length_s.tolist():
            begin = now + rest_s * rng.uniform(1, 1.3)
            watts.append(idle)
            edges.append(begin)
            pieces = 1 if rng.random() < 0.5 else int(rng.integers(2, 6))
            watts += rng.uniform(200, 700, pieces).tolist()
            edges += (begin + one * np.cumsum(rng.dirichlet(np.full(pieces, 3.0)))).tolist()
            now = begin + one
            edges[-1] = now
            spans.append((begin, now))
        power = Power(np.append(edges, now + rest_s), np.append(watts, idle))
        window_s = {"box": rng.uniform(0.1, 1.0), "memory": 0.0, "instant": 0.0}[kind] * spacing_s
        rise_s = {"memory": rng.uniform(0.1, 0.5)}.get(kind, 0.0) * spacing_s
        lag_s = rng.uniform(0, 1) * spacing_s
        at_s = np.arange(window_s + spacing_s * (1 + rng.random()), power.edges[-1], spacing_s)
        seen = simulated(power, simulator, rng)
        value = seen.read(rng, at_s, window_s, rise_s)
        response = polled_response(METER, spacing_s, 1e-6, 0.01, float(value.mean()))
        reading = clean(ns(at_s + lag_s), value, response.period_s)
        edge = np.array(spans)
        found = span_energies(reading, calibrated(response), *ns(edge).T)
        yield from given(found, seen.energy(*edge.T))

    return rows


# --- 2: jobs and ranges that a log marks -----------------------------------------------------------------------------


def jobs(field: str, spacing_s: float) -> Callable[[np.random.Generator, str], Rows]:
    def rows(rng: np.random.Generator, simulator: str) -> Rows:
        edges, watts, spans, now, idle = [0.0], [], [], 0.0, rng.uniform(70, 130)
        for _ in range(5):
            now += rng.uniform(4, 12) * max(spacing_s, 1.0)
            begin, end = now, now + max(spacing_s, 1.0) * log_uniform(rng, 15, 120)
            watts.append(idle)
            edges.append(begin)
            low, high = np.sort(rng.uniform(180, 680, 2))
            mean_s, shape, two = log_uniform(rng, 0.2, 20), float(rng.choice([1, 4, 14])), rng.random() < 0.5
            while now < end:
                now = min(now + rng.gamma(shape, mean_s / shape), end)
                watts.append(rng.uniform(low, high) if not two else (low, high)[len(watts) % 2])
                edges.append(now)
            spans.append((begin, end))
        power = Power(np.append(edges, now + 8 * max(spacing_s, 1.0)), np.append(watts, idle))
        _, sensor = sensor_behind(field, H100)
        window_s, rise_s = (1.0, 0.0) if field == USAGE else (0.0, 0.0125)
        at_s = np.arange(1.0 + spacing_s * rng.random(), power.edges[-1], spacing_s) + rng.uniform(0, 0.02)
        seen = simulated(power, simulator, rng)
        stamps_s = at_s + rng.uniform(0, sensor.period_s or 0.1, len(at_s))
        value = seen.read(rng, at_s, window_s, rise_s)
        response = polled_response(sensor, spacing_s, 1e-3, 0.01, float(value.mean()))
        edge = np.array(spans)
        found = span_energies(clean(ns(stamps_s), value, response.period_s), calibrated(response), *ns(edge).T)
        yield from given(found, seen.energy(*edge.T))

    return rows


# --- 3: means over 1 s: benchmarks/estimator/means.py; and a real record, thinned ------------------------------------


_SPANS_S = (22.0, 33.0), (20.5, 34.5), (7.0, 34.0), (20.17, 33.69)
"""Windows of the real record, s after it begins: in the load, beyond its ends, with idle time, from edge to edge."""


def real(folder: Path, column: int, spacing_s: float, span_s: tuple[float, float]) -> Rows:
    """Logs of 16 phases of a real record, each against the energy counter between two of its changes, ``span_s``."""
    polls = np.load(folder / "dyn_poll.npy")
    time_s, watts, counter = (polls[:, 0] + polls[:, 2]) / 2e9, polls[:, column] / 1e3, polls[:, 5] / 1e3
    turned = np.flatnonzero(np.diff(counter)) + 1
    first, last = (turned[np.argmin(np.abs(time_s[turned] - time_s[0] - one))] for one in span_s)
    span = time_s[[first, last]]
    _, field = sensor_behind(USAGE if column == 4 else INSTANT, H100)
    for phase in range(16):
        at = np.arange(time_s[0] + spacing_s * phase / 16, time_s[-1], spacing_s)
        some = np.unique(np.searchsorted(time_s, at))
        some = some[some < len(time_s)]
        response = polled_response(field, spacing_s, 1e-3, 1e-3, float(watts.mean()))
        log = clean(ns(time_s[some]), watts[some], response.period_s)
        found = span_energies(log, calibrated(response), *ns(span)[:, None], bursts_ns=[])
        yield from given(found, [counter[last] - counter[first]])


# --- 4: idle power at work above that at rest -------------------------------------------------------------------------


def idle(excess: Callable[[np.random.Generator], float]) -> Callable[[np.random.Generator, str], Rows]:
    def rows(rng: np.random.Generator, simulator: str) -> Rows:
        """Iterations of 200 W for a tenth to a fifth of 5 ms, after which the host is late."""
        windows, each, by, at_rest = 12, 60, excess(rng), rng.uniform(110, 135)
        host_s = 0.005 * np.exp(rng.uniform(0.02, 0.2) * rng.standard_normal(windows))
        busy_s, watts = 0.005 * rng.uniform(0.1, 0.2), rng.uniform(150, 450)
        seconds = np.stack([np.full(windows * each, busy_s), np.repeat(host_s, each) - busy_s], axis=1).ravel()
        edges = np.concatenate([[0.0, 1.5], 1.5 + np.cumsum(seconds)])
        edges = np.append(edges, edges[-1] + 1.5)
        levels = np.concatenate([[at_rest], np.tile([at_rest + by + watts, at_rest + by], windows * each), [at_rest]])
        power = Power(edges, levels)
        window = edges[1 : -1 : 2 * each]
        spans = np.vstack([[[0.1, 1.45], [window[-1] + 0.15, edges[-1] - 0.1]], np.stack([window[:-1], window[1:]], 1)])
        counts = np.append([0.0, 0.0], np.full(windows, float(each)))
        scene = sensors.Power(ORIGIN_NS, np.round(1e9 * edges).astype(np.int64), levels)
        if simulator == "exact":
            rate = rng.uniform(1215, 1254)
            states = sampled_states(power, rate, rng)
            read_s = np.arange(0.03, edges[-1], 0.02)
            value = states[1][np.searchsorted(states[0], read_s, side="right") - 1]
            times_s, value = read_s + 0.0034, value + NOISE_W * rng.standard_normal(len(read_s))
        else:
            sensor = replace(sensors.SamplingSensor.draw(rng, edges[-1]), slipped=0.0, fifth_late=0.0, lost=0.0)
            got, rate = sensor.record(rng, scene), sensor.rate_hz
            times_s, value = (got[:, 0] * 1000 - ORIGIN_NS) / 1e9, got[:, 1] / 1e3
        known = Response.sampled(HOPPER_SENSOR, 0.02, rate_hz=rate)
        some = np.diff(times_s, prepend=-1) > 0
        found = attribute(times_s[some], value[some], spans, response=known, bursts=spans[2:])
        result = work(found, spans, counts)
        if result.reason is not None:
            yield np.nan, np.nan, np.nan, watts * busy_s
            return
        yield (*(float(end[2]) for end in result.unknowns.interval()), watts * busy_s)

    return rows


def sampled_states(power: Power, rate: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Times of momentary samples, and the recursive average after each."""
    at = (np.arange(int(power.edges[-1] * rate)) + rng.random()) / rate
    seen = power.watts[np.clip(np.searchsorted(power.edges, at, side="right") - 1, 0, len(power.watts) - 1)]
    return at, sensors.recursion(seen, 1 / 16, float(seen[0]))


# --- 5: sensors that sample within a window ---------------------------------------------------------------------------


def samplers(rate_hz: float, count: int, readings: float) -> Callable[[np.random.Generator, str], Rows]:
    def rows(rng: np.random.Generator, simulator: str) -> Rows:
        rate = rate_hz * rng.uniform(0.97, 1.03)
        window_s, length_s = count / rate, readings * count / rate
        shape = str(rng.choice(["constant", "alternating", "pulses", "ramp"]))
        burst, idle_w, before_s = drawn(shape, length_s, rng), rng.uniform(80, 130), 25 * window_s
        edges = before_s + np.append(0.0, np.cumsum(burst.seconds))
        edges = np.concatenate([[0.0], edges, [edges[-1] + before_s]])
        levels = np.concatenate([[idle_w], burst.watts, [idle_w]])
        power, first = Power(edges, levels), rng.random()
        at = (np.arange(int(edges[-1] * rate)) + first) / rate
        if simulator == "exact":
            seen = levels[np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(levels) - 1)]
            value = seen[: len(seen) // count * count].reshape(-1, count).mean(axis=1)
        else:
            scene = sensors.Power(ORIGIN_NS, np.round(1e9 * edges).astype(np.int64), levels)
            states = BlockMeans(count).apply(sensors.SimulatedResponse.draw(rng).see(scene, 1e9 * at))
            value = states[count - 1 :: count][: len(at) // count]
        stamps_s = at[count - 1 :: count][: len(value)] + 0.5 / rate
        value = np.round(value + NOISE_W * rng.standard_normal(len(value)), 2)
        covariance = ((2e-8, 0.0, 0.0), (0.0, 1e-8, 0.0), (0.0, 0.0, 0.0))
        known = StepResponse(window_s, window_s, noise_w=NOISE_W, covariance=covariance, origin="calibrated")
        span = edges[[1, -2]]
        found = span_energies(clean(ns(stamps_s), value, window_s), calibrated(known), *ns(span)[:, None])
        yield from given(found, power.energy(*span[:, None]))

    return rows


# --- 6: momentary polls that alias with a periodic load ---------------------------------------------------------------


def polls(load: Callable[[np.random.Generator, float], tuple[Floats, Floats]], levels: int) -> Callable[..., Rows]:
    """Of a load by its edges and watts; a row is without an energy where it is flagged. Loads of which polls see fewer
    than so many levels are left out."""

    def rows(rng: np.random.Generator, simulator: str) -> Rows:
        end_s = 40.0
        edges, watts = load(rng, end_s)
        power = Power(edges, watts)
        at_s = 0.5 + 0.1 * rng.random() + 0.1 * np.arange(int((end_s - 2) / 0.1)) + rng.uniform(0, 0.004, 380)
        if len(np.unique(watts[np.searchsorted(edges, at_s) - 1])) < levels:
            return
        seen = simulated(power, simulator, rng)
        value = seen.read(rng, at_s, 0.0, 0.0)
        _, field = sensor_behind(INSTANT, H100)
        response = polled_response(field, 0.1, 1e-3, 0.01, float(value.mean()))
        span = np.array([1.5, end_s - 3])
        log = clean(ns(at_s), value, response.period_s)
        found = span_energies(log, calibrated(response), *ns(span)[:, None], bursts_ns=[])
        flagged = "equal_readings" in found.flags[0]
        rows = given(found, seen.energy(*span[:, None]))
        yield from ((np.nan,) * 3 + (row[3],) if flagged else row for row in rows)

    return rows


def square(rng: np.random.Generator, end_s: float) -> tuple[Floats, Floats]:
    period_s, duty = log_uniform(rng, 0.02, 0.2), rng.uniform(0.2, 0.8)
    if rng.random() < 0.5:
        period_s = round(period_s / 0.02) * 0.02
    count = int(end_s / period_s) + 2
    edges = np.append(0.0, np.cumsum(np.tile(period_s * np.array([duty, 1 - duty]), count)))
    low, high = rng.uniform(80, 150), rng.uniform(300, 600)
    return edges, np.tile([high, low], count)


def steady(rng: np.random.Generator, end_s: float) -> tuple[Floats, Floats]:
    return np.array([0.0, end_s / 2, end_s]), np.full(2, rng.uniform(80, 600))


def at_random(rng: np.random.Generator, end_s: float) -> tuple[Floats, Floats]:
    mean_s, shape = log_uniform(rng, 0.02, 5), float(rng.choice([1, 4, 14]))
    edges = np.append(0.0, np.cumsum(rng.gamma(shape, mean_s / shape, int(4 * end_s / mean_s) + 100)))
    return edges, np.resize([rng.uniform(300, 600), rng.uniform(80, 150)], len(edges) - 1)


CLASSES: dict[str, tuple[Callable[[np.random.Generator, str], Rows], int]] = {
    "record 62 ms": (record(0.062), 1),
    "record 0.2 s": (record(0.2), 1),
    **{
        f"meter {kind} {1e3 * spacing:g} ms, {readings:g} readings": (meter(kind, spacing, readings), 4)
        for kind in ("box", "memory", "instant")
        for spacing, readings in ((0.02, 3.1), (0.02, 10.0), (0.1, 4.0))
    },
    "jobs instant 1 s": (jobs(INSTANT, 1.0), 5),
    "jobs instant 5 s": (jobs(INSTANT, 5.0), 5),
    "jobs mean 1 s": (jobs(USAGE, 1.0), 5),
    "jobs mean 5 s": (jobs(USAGE, 5.0), 5),
    "idle +0 W": (idle(lambda rng: 0.0), 1),
    "idle +3 W": (idle(lambda rng: 3.0), 1),
    "idle 0 to 5 W": (idle(lambda rng: rng.uniform(0, 5)), 1),
    **{
        f"samplers {count} at {rate:g} Hz, {readings:g} readings": (samplers(rate, count, readings), 1)
        for rate, count in ((100, 4), (100, 10), (400, 10))
        for readings in (5.0, 25.0)
    },
    "squares": (polls(square, 1), 1),
    "squares at two levels": (polls(square, 2), 1),
    "steady": (polls(steady, 1), 1),
    "random": (polls(at_random, 1), 1),
}
"""Of each class the rows of one case, and how many these are at most."""


def line(name: str, simulator: str, rows: list[tuple[float, ...]]) -> str:
    """A row of the printed table."""
    found = np.array(rows, float)
    some = Judged(*found[np.isfinite(found[:, 0])].T)
    null = f", null {1 - some.n / len(found):.0%}" if some.n < len(found) else ""
    if not some.n:
        return f"| {name} | {simulator} | {len(found)} | {null} |"
    half, would = 100 * np.median(some.half), 196 * some.rms
    return (
        f"| {name} | {simulator} | {len(found)} | {100 * some.held.mean():.1f} | {half:.3g} | {would:.3g} | "
        f"{half / would:.2g}{null} | {100 * some.error.mean():+.2g} |"
    )


def main() -> None:
    """Print a row for each class and simulator."""
    parser = options(__doc__, n=200, seed=9001, record="")
    parser.add_argument("classes", nargs="*", help="all that begin so; without one all")
    asked = parser.parse_args()
    print("| class | simulator | n | hold % | ± % | would do % | over it | bias % |\n|---|---|---|---|---|---|---|---|")
    if asked.record:
        logs = ((4, 0.1), (4, 0.5), (4, 1.0), (3, 0.5), (3, 1.0))
        for span_s, (column, spacing_s) in itertools.product(_SPANS_S, logs):
            name = f"dyn {span_s[0]:g} to {span_s[1]:g} s, {'mean' if column == 4 else 'instant'} {spacing_s:g} s"
            print(line(name, "real", list(real(Path(asked.record), column, spacing_s, span_s))), flush=True)
    for name, (case, each) in CLASSES.items() if asked.classes or not asked.record else ():
        if not name.startswith(tuple(asked.classes or [""])):
            continue
        for simulator in ("exact", "grid"):
            keys = [asked.seed, zlib.crc32(f"{name} {simulator}".encode())]
            rows = [
                row for i in range(-(-asked.n // each)) for row in case(np.random.default_rng([*keys, i]), simulator)
            ]
            print(line(name, simulator, rows), flush=True)


if __name__ == "__main__":
    main()
