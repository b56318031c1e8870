"""Fits of the responses of a calibration Run's power channels."""

from __future__ import annotations

import numpy as np

from jouletrace.analysis.power import most_w
from jouletrace.arrays import Ints
from jouletrace.errors import JouletraceError
from jouletrace.run import Run
from jouletrace.run.channels import POWER
from jouletrace.run.forms import Calibration, Facts
from jouletrace.run.spans import spans_of
from jouletrace.sensor.calibration.fit import fit_response
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.power_record import clean
from jouletrace.sensor.stamps import updates

MARGIN_NS = 1_000_000_000
"""Of the rest before and after the pulses so much is used."""

CHANNELS = (POWER, "power_instant_w", "power_average_w")


def pulse_edges(run: Run) -> Ints:
    """Times at which the load went on and off, in ns, shape (2 × pulses,)."""
    pulses = spans_of(run)
    return np.sort(np.concatenate(pulses.take(pulses.those("lane", ("load",))).edges_ns))


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
    return fit_response(record.time_ns[keep], record.value[keep], edges)


def calibration_of(run: Run, device: str) -> Calibration:
    """All fits of a device: "time_ns", "load", and "channels" by name."""
    channels: dict[str, Facts] = {}
    for name in CHANNELS:
        try:
            response = fit_channel(run, device, name)
        except JouletraceError as error:
            run.warn("not_calibrated", str(error), name)
            continue
        if response is None:
            continue
        channels[name] = {**response.to_dict(), "origin": "calibrated"}
        if name == POWER and not response.modelled:  # no energy is computed from others: their flags say enough
            text = f"the readings of {name} don't fit the model of the sensor; intervals may be too narrow"
            run.warn("unmodelled", text, name)
    return {"time_ns": run.created_ns, "load": run.workload.get("load") or "", "channels": channels}
