"""What a calibration Run says about each power channel: the fits, the counter, the idle's slope."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.power import most_w
from jouletrace.errors import JouletraceError
from jouletrace.run import Run
from jouletrace.run.channels import ENERGY_COUNTER, POWER
from jouletrace.run.forms import Calibration, Facts
from jouletrace.sensor.baseline import temperature_slope
from jouletrace.sensor.calibration.fit import fit_response
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.counter import FLOOR, find_steps, record_over_counter
from jouletrace.sensor.power_record import clean
from jouletrace.sensor.stamps import updates

MARGIN_NS = 1_000_000_000
"""Of the rest before and after the pulses so much is used."""

CHANNELS = (POWER, "power_instant_w", "power_average_w")


def pulse_edges(run: Run) -> NDArray[np.int64]:
    """Times at which the load went on and off, in ns, shape (2 × pulses,)."""
    rows = run.spans.filter(pc.equal(run.spans["lane"], "load"))
    return np.sort(np.concatenate([rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()])).astype(np.int64)


def fit_channel(run: Run, device: str, channel: str) -> StepResponse | None:
    """Fit one channel's response to the pulses; None if the Run doesn't have it.

    Raises:
        JouletraceError: If its readings can't be fitted; the text says why.
    """
    info = run.channel(device, channel)
    if info is None:
        return None
    stamps, watts = run.series(device, channel)
    if channel != POWER or not info.gapless:
        stamps, watts = updates(stamps, watts)
    record = clean(stamps, watts, most_w=most_w(run, device))
    edges = pulse_edges(run)
    # Outside of the pulses the GPU has other loads than the edges describe: the warm-up, and the ring's older contents.
    keep = (record.time_ns > edges[0] - MARGIN_NS) & (record.time_ns < edges[-1] + MARGIN_NS)
    response = fit_response(record.time_ns[keep], record.value[keep], edges)
    counter_stamps, joules = run.series(device, ENERGY_COUNTER)
    if channel == POWER and len(counter_stamps) > 1:
        ratio = record_over_counter(record, response, find_steps(counter_stamps, joules, most_w=most_w(run, device)))
        known = ratio.half_width is not None and ratio.half_width < 2 * FLOOR  # a counter seldom read says nothing
        response = replace(response, counter_ratio=ratio.value if known else None)
    return response


def calibration_of(run: Run, device: str) -> Calibration:
    """All fits of a device: "time_ns", "load", "channels" by name, and the idle's temperature slope."""
    channels: dict[str, Facts] = {}
    for name in CHANNELS:
        try:
            response = fit_channel(run, device, name)
        except JouletraceError as error:
            run.warn("not_calibrated", str(error), name)
            continue
        if response is not None:
            channels[name] = {**response.to_dict(), "origin": "calibrated"}
            # No energy is computed from the other channels: their flags say enough.
            if name == POWER and not response.modelled:
                run.warn(
                    "unmodelled",
                    f"the readings of {name} don't fit the model of the sensor; intervals may be too narrow",
                    name,
                )
    return {
        "time_ns": run.created_ns,
        "load": run.workload.get("load") or "",
        "channels": channels,
        "idle_slope_w_per_c": idle_slope(run, device),
    }


def idle_slope(run: Run, device: str) -> Facts | None:
    """Watts of context idle per degree, from the pauses between pulses; None without a thermometer."""
    stamps, watts = run.series(device, POWER)
    at, celsius = run.series(device, "temperature_c")
    edges = pulse_edges(run)
    if len(at) < 2 or len(stamps) == 0 or len(edges) == 0:
        return None
    since_off = stamps - edges[np.clip(np.searchsorted(edges, stamps) - 1, 0, None)]
    resting = (np.searchsorted(edges, stamps) % 2 == 0) & (stamps > edges[0]) & (since_off > 250_000_000)
    if resting.sum() < 20:
        return None
    found = temperature_slope(np.interp(stamps[resting], at, celsius), watts[resting])
    return found.to_dict()
