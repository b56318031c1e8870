"""From a timeline and a record to a fit: find the sampler's rate, follow its phase, fit, and look again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jouletrace.attribution.activity import Activity
from jouletrace.attribution.fit import Fit, fit
from jouletrace.sensor.acquire import Found, follow, search
from jouletrace.sensor.observer import Averaged, Means, Sampled
from jouletrace.sensor.readout import Readings
from jouletrace.sensor.sampler import Sensor, Track, read_out

LOOKS = 3
AVERAGES = (8, 12, 20, 24, 32)
DELAYS_S, NEAR_S = np.arange(-0.6e-3, 0.61e-3, 0.1e-3), np.arange(-60e-6, 61e-6, 20e-6)
"""Lengths of the recursive average, and delays beside the expected one, that are tried; the best is searched closer."""

WHERE = np.arange(-2, 2.01, 0.25)
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
    """
    if isinstance(sensor, Means):
        observer = Averaged.of(sensor, readings)
        delays = sensor.delay_s + sensor.delay_spread_s * WHERE
        places = [fit(activity, replace(observer, delay_s=float(d)), readings, free=False) for d in delays]
        best = min(places, key=lambda one: one.left_rms_w)
        return Lock(None, fit(activity, best.observer, readings), sensor)
    expected = sensor
    found = search(sensor, activity, readings)
    near = Track.straight(found.start_s, found.end_s, found.rate_hz, found.one_s)
    part = activity.between(found.start_s, found.end_s)
    best = fit(part, Sampled(sensor, near), readings)
    chosen: Fit | None = None
    for _ in range(LOOKS):
        first = best.power_w
        above = (first[:-1] - first[-1])[activity.kind] * (1 + best.speed * activity.slowness)
        track = follow(sensor, activity, readings, found.rate_hz, float(first[-1]), above)
        best = fit(activity, Sampled(sensor, track), readings)
        sensor = _tuned(best).sensor
        if chosen is not None and best.left_rms_w > 0.99 * chosen.left_rms_w:
            break
        chosen = best
    assert chosen is not None
    return Lock(found, fit(activity, _tuned(chosen), readings, shape=True), expected)


def _tuned(fitted: Fit) -> Sampled:
    """The sensor with the averaging and the delay of its readout that leave least."""
    observer = fitted.observer
    assert isinstance(observer, Sampled)
    sensor = observer.sensor
    candidates = [sensor, *(replace(sensor, averages=n) for n in AVERAGES)]
    at, above = observer.track.instants(), fitted.above_w()
    _, total, _ = fitted.activity.seen(at, observer.response, above, above)
    seen = fitted.power_w[-1] + total

    def left(candidate: Sensor) -> float:
        return float(np.std(fitted.watts - fitted.drift_w - read_out(candidate, seen, at, fitted.time_s)))

    delays = sensor.delay_s + DELAYS_S
    best = min((replace(one, delay_s=float(delay)) for one in candidates for delay in delays), key=left)
    near = best.delay_s + NEAR_S
    return replace(observer, sensor=min((replace(best, delay_s=float(delay)) for delay in near), key=left))
