"""From a timeline and a record to a fit: find the sampler's rate, follow its phase, fit, and look again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jouletrace.attribution.activity import Activity
from jouletrace.attribution.fit import LEAD_S, TAIL_S, Fit, enough, fit
from jouletrace.sensor.acquire import Found, follow, search
from jouletrace.sensor.observer import Averaged, Means, Sampled
from jouletrace.sensor.readout import Readings
from jouletrace.sensor.sampler import Sensor, Track, read_out

LOOKS = 3
AVERAGES, CLEARLY = (8, 12, 16, 20, 24, 32), 0.95
"""Lengths of the recursive average that are tried, and what another must leave at most of what the
expected one leaves."""

DELAYS_S, NEAR_S = np.arange(-0.6e-3, 0.61e-3, 0.1e-3), np.arange(-60e-6, 61e-6, 20e-6)
"""Delays that are tried beside the expected one, then beside the best."""

WHERE = np.arange(-2, 2.01, 0.5)
"""Delays of a sensor that averages that are tried, in their standard deviations."""


@dataclass(frozen=True)
class Lock:
    """A sensor's place in time that was found in a recording.

    Attributes:
        found: What the search came to; None of a sensor that averages, which has no rate to find.
        fit: With the place that leaves least.
        expected: What the sensor was taken for.
    """

    found: Found | None
    fit: Fit
    expected: Sensor | Means


def lock(activity: Activity, sensor: Sensor | Means, readings: Readings) -> Lock:
    """Find when a sensor looks and fit the powers; whether to believe it is for ``checks``.

    A sampler's track is followed by powers, and powers are fitted by a track: from the search's window both grow to the
    whole recording, and again until nothing is gained. Of a sensor that averages it is the delay that is looked for.

    Args:
        activity: What ran.
        sensor: What is known of the sensor, of one that samples or of one that averages.
        readings: The record.

    Raises:
        BadInputError: If the timeline has hardly any readings, or fewer than kinds.
    """
    enough(activity, int(readings.between(activity.begin_s + LEAD_S, activity.finish_s - TAIL_S).sum()))
    if isinstance(sensor, Means):
        observer = Averaged.of(sensor, readings)
        delays = sensor.delay_s + sensor.delay_spread_s * WHERE
        places = [fit(activity, replace(observer, delay_s=float(d)), readings, free=False) for d in delays]
        best = min(places, key=lambda one: one.left_rms_w)
        return Lock(None, fit(activity, best.observer, readings), sensor)
    found = search(sensor, activity, readings)
    near = Track.straight(found.start_s, found.end_s, found.rate_hz, found.one_s)
    part = activity.between(found.start_s, found.end_s)
    expected, *others = _averagings(part, Sampled(sensor, near), readings)
    chosen = _followed(activity, expected, readings, found.rate_hz)
    for other in others:
        tried = _followed(activity, other, readings, found.rate_hz)
        chosen = tried if tried.left_rms_w < CLEARLY * chosen.left_rms_w else chosen
    return Lock(found, fit(activity, _tuned(chosen), readings, shape=True), sensor)


def _averagings(part: Activity, observer: Sampled, readings: Readings) -> list[Fit]:
    """Fits to a part of a recording: with the expected length of the average, and with another if that leaves less."""
    fits = []
    for count in dict.fromkeys((observer.sensor.averages, *AVERAGES)):
        first = fit(part, replace(observer, sensor=replace(observer.sensor, averages=count)), readings)
        fits.append(fit(part, _tuned(first), readings))
    best = min(fits, key=lambda one: one.left_rms_w)
    return [fits[0]] if best is fits[0] else [fits[0], best]


def _followed(activity: Activity, best: Fit, readings: Readings, rate_hz: float) -> Fit:
    """From the fit of a part to that of a whole recording: powers give a track, which gives powers."""
    chosen: Fit | None = None
    for _ in range(LOOKS):
        sensor, power = _tuned(best).sensor, best.power_w
        above = (power[:-1] - power[-1])[activity.kind] * (1 + best.speed * activity.slowness)
        track = follow(sensor, activity, readings, rate_hz, float(power[-1]), above)
        best = fit(activity, Sampled(sensor, track), readings)
        if chosen is not None and best.left_rms_w > 0.99 * chosen.left_rms_w:
            break
        chosen = best
    assert chosen is not None
    return chosen


def _tuned(fitted: Fit) -> Sampled:
    """The sensor with the delay of its readout that leaves least."""
    observer = fitted.observer
    assert isinstance(observer, Sampled)
    sensor = observer.sensor
    at, above = observer.track.instants(), fitted.above_w()
    _, total, _ = fitted.activity.seen(at, observer.response, above, above)
    seen = fitted.power_w[-1] + total

    def left(delay: float) -> float:
        read = read_out(replace(sensor, delay_s=delay), seen, at, fitted.time_s)
        return float(np.std(fitted.watts - fitted.drift_w - read))

    near = min((sensor.delay_s + DELAYS_S).tolist(), key=left)
    return replace(observer, sensor=replace(sensor, delay_s=min((near + NEAR_S).tolist(), key=left)))
