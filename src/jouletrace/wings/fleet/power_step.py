"""The response of a GPU's power to the begin of a fleet's load."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from jouletrace.run import Run
from jouletrace.run.channels import POWER

_REST = "context idle before"
"""The phase that ends with the step: the full load follows."""

_REST_S, _EARLY_S, _WHOLE_S = 0.5, 0.4, 1.0
_SLOWEST_S = 0.05
"""Longest update period of a record that resolves a step."""

_LEAST_READINGS = 5
_RISEN = 0.9


def power_step(run: Run) -> dict[str, float | None]:
    """The response of a GPU's power to the begin of a profile's load; all None where it can't be resolved.

    Under a power cap the load starts at once and the governor responds about 100 ms later: until then the GPU draws
    more than its limit. All values are measured through the sensor, so rise and return include its lag.

    ``step_rest_w`` and ``step_settled_w`` are medians before, and from 0.4 s on; ``step_peak_w`` is the maximum in
    between, None if it may be noise; ``step_rise_s`` ends at 90 % of the rise, ``step_return_s`` where the power is
    back at the settled level after a peak; both count from the begin of the load.
    """
    names = ("step_rest_w", "step_settled_w", "step_peak_w", "step_rise_s", "step_return_s")
    nothing: dict[str, float | None] = dict.fromkeys(names)
    phases = run.spans.filter(pc.equal(run.spans["kind"], "phase")).to_pylist()
    rest_ns = min((one["end_ns"] for one in phases if one["name"] == _REST), default=None)
    device = run.devices[0].id
    channel = run.channel(device, POWER)
    if rest_ns is None or channel is None or (channel.period_s or 1.0) > _SLOWEST_S:
        return nothing
    loads = [(one["start_ns"], one["end_ns"]) for one in phases if one["start_ns"] >= rest_ns]
    start, end = min(loads, default=(rest_ns, rest_ns))
    stamps, watts = run.series(device, POWER)
    order = np.argsort(stamps, kind="stable")
    at, power = (stamps[order] - start) / 1e9, channel.drawn_w(watts[order])
    length_s = min((end - start) / 1e9, _WHOLE_S)
    rest = power[(at > -_REST_S) & (at <= 0)]
    settled = power[(at >= _EARLY_S) & (at <= length_s)]
    if len(rest) < _LEAST_READINGS or len(settled) < _LEAST_READINGS:
        return nothing
    low, high = float(np.median(rest)), float(np.median(settled))
    early = (at > 0) & (at < _EARLY_S)
    if not early.any() or high <= low:
        return nothing
    then, drawn = at[early], power[early]
    risen = drawn >= low + _RISEN * (high - low)
    found = nothing | {"step_rest_w": low, "step_settled_w": high}
    found["step_rise_s"] = float(then[risen][0]) if risen.any() else None
    top = int(drawn.argmax())
    # with so many readings, the maximum of noise lies within three and a half standard deviations
    if drawn[top] > high + 3.5 * float(np.std(settled)):
        found["step_peak_w"] = float(drawn[top])
        back = drawn[top:] <= high
        found["step_return_s"] = float(then[top:][back][0]) if back.any() else None
    return found


def in_words(step: Mapping[str, float | None], load: str) -> str:
    """A step that was resolved, as ``doctor`` shows it."""
    text = f"power step at the start of a load ({load}): {step['step_rest_w']:.0f} to {step['step_settled_w']:.0f} W"
    if (rise_s := step["step_rise_s"]) is not None:
        text += f", 90 % after {rise_s * 1e3:.3g} ms"
    if (peak_w := step["step_peak_w"]) is not None:
        text += f", peak {peak_w:.0f} W"
    if (return_s := step["step_return_s"]) is not None:
        text += f", back after {return_s * 1e3:.3g} ms"
    return text
