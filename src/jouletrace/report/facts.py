"""What was run, on what, with which sensor, under which conditions: one line of words each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from jouletrace.analysis.conditions import Spread, conditions
from jouletrace.analysis.latency import block_means, distribution
from jouletrace.report.reasons import throttle
from jouletrace.report.scale import NBSP, NONE, decimals, fixed, quantity, unit_for
from jouletrace.run import ChannelInfo, DeviceInfo, Run, RunWarning
from jouletrace.run.channels import POWER

SEPARATOR = " · "
_EARLIEST_NS = 631_152_000 * 10**9
"""1990-01-01: times before it count from the start of a program or a machine."""

SIMULATED = "SIMULATED: a simulated GPU, no hardware was measured"


def title(run: Run) -> str:
    """The workload in one line: name, task, batch, sequence length, number format, mode."""
    facts: Mapping[str, object] = run.workload
    name = run.workload.get("name") or run.command or run.kind
    parts = [name] if run.kind == "profile" or run.kind in name else [run.kind, name]
    for key, words in (
        ("task", "{}"),
        ("optimizer", "{}"),
        ("batch", "batch {}"),
        ("seq_len", "{} tokens"),
        ("new_tokens", "{} new"),
        ("cache", "{} cache"),
        ("dtype", "{}"),
        ("mode", "{}"),
    ):
        if facts.get(key) is not None:
            parts.append(words.format(facts[key]))
    if run.settings.get("l2") == "cold":
        parts.append("cold L2")
    return SEPARATOR.join(parts)


def device_line(device: DeviceInfo) -> str:
    """A device in one line: name, id, host, driver, power limit."""
    parts = [device.name, device.id]
    if device.host:
        parts.append(f"on {device.host}")
    if device.driver:
        parts.append(f"driver {device.driver}")
    if device.power_limit_w is not None:
        parts.append(f"limit {device.power_limit_w:g} W")
    return SEPARATOR.join(parts)


def weights(run: Run) -> str | None:
    """That weights were random, where they were, and where a model of a hub came from; None of others."""
    origin = run.workload.get("weights") or ""
    said = [f"model from {source}"] if (source := run.workload.get("source")) else []
    if origin.startswith("random"):
        said.append(f"weights {origin}: figures of a trained model can differ")
    return SEPARATOR.join(said) or None


def when(run: Run) -> str | None:
    """When it was measured, in UTC; None if that isn't known, as of times that count from zero."""
    if run.created_ns < _EARLIEST_NS:
        return None
    try:
        moment = datetime.fromtimestamp(run.created_ns / 1e9, UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def power_channels(run: Run) -> list[ChannelInfo]:
    """The channels that energy was computed from, at most one a device."""
    found = [run.channel(device.id, POWER) for device in run.devices]
    return [channel for channel in found if channel is not None]


def sensor_line(channel: ChannelInfo) -> str:
    """A sensor in one line: its source, how it behaves in time, what it can't say."""
    parts = [channel.source or channel.name]
    if channel.period_s is not None:
        parts.append(f"every {quantity(channel.period_s, 's')}")
    if channel.window_s is not None:
        parts.append(averaging(channel) or "instantaneous")
    if channel.gapless is not None:
        parts.append("gapless" if channel.gapless else "not gapless")
    parts.append(channel.origin)
    if channel.gain_pct is not None:
        parts.append(f"gain error ±{channel.gain_pct:g}{NBSP}% not in the intervals")
    return SEPARATOR.join(parts)


def averaging(channel: ChannelInfo) -> str:
    """Over what a reading is taken: a window, the exponential that smooths it, or both; "" for neither."""
    rise_s = channel.response.get("rise_s") or 0.0
    window = f"mean over {quantity(channel.window_s, 's')}" if channel.window_s else ""
    # Without its time constant a sensor that mostly smooths would seem to look at a sliver of each period.
    rise = f"time constant {quantity(rise_s, 's')}" if rise_s else ""
    return ", ".join(words for words in (window, rise) if words)


def latency_lines(run: Run) -> list[tuple[str, str]]:
    """The distribution of latency, and the same in blocks, each with its name; empty without iterations."""
    single, blocks = distribution(run), block_means(run, run.settings.get("block") or 100)
    if not single["median"]:
        return []
    unit = unit_for([single["median"] / 1e3], "s")
    places = decimals(single["median"] / 1e3 / unit.factor)

    def say(figures: dict[str, float | None], keys: str) -> str:
        values = [(key, figures[key]) for key in keys.split()]
        said = [f"{key} {NONE if v is None else fixed(v / 1e3 / unit.factor, places)}" for key, v in values]
        return SEPARATOR.join([*said, f"n {figures['n']}"])

    name = f"Latency ({unit.name})"
    lines = [
        (name, say(single, "mean std min max")),
        (name, say(single, "p25 p75 p90 p95 p99").rsplit(SEPARATOR, 1)[0]),
    ]
    if blocks["n"]:
        lines.append((name, f"means of {blocks['block']}: {say(blocks, 'median iqr')}"))
    return lines


_ACTIVITY = {
    "graphics": "graphics engine",
    "sm": "SMs",
    "occupancy": "occupancy",
    "tensor": "tensor pipes",
    "memory": "memory",
}


def condition_lines(run: Run) -> list[tuple[str, str]]:
    """Clocks, temperature and throttling while energy was measured, each with its name."""
    found = conditions(run)
    lines: list[tuple[str, str]] = []
    clocks = found["clocks_mhz"]
    named = {
        "SM": _sm(clocks["sm_reported"], clocks["sm_measured"]),
        "memory": clocks["memory"] and _range(clocks["memory"]),
    }
    if any(named.values()):
        lines.append(("Clocks", SEPARATOR.join(f"{name} {said}" for name, said in named.items() if said)))
    if "activity" in found:
        shares = [f"{_ACTIVITY[name]} {100 * share:.0f}{NBSP}%" for name, share in found["activity"].items()]
        lines.append(("Activity", SEPARATOR.join(shares)))
    heat = found["temperature_c"]
    if heat:
        start, end, most = (f"{celsius:.0f}" for celsius in (heat["start"], heat["end"], heat["max"]))
        text = f"{start}{NBSP}°C" if start == end else f"{start} to {end}{NBSP}°C"
        lines.append(("Temperature", text if most in (start, end) else f"{text}, at most {most}{NBSP}°C"))
    held = found["throttle_reasons"]
    if held is not None:
        words = [f"{throttle(name)} {100 * share:.0f}{NBSP}% of the time" for name, share in held.items()]
        lines.append(("Throttling", SEPARATOR.join(words) or "none"))
    return lines


def _sm(reported: Spread | None, measured: Spread | None) -> str:
    """The SM clock as the driver reports it, and as measured by cycle counters; "" if neither is known."""
    if measured is None:
        return _range(reported) if reported else ""
    return ", ".join([*([f"{_range(reported)} reported"] if reported else []), f"{_range(measured)} measured"])


def _range(spread: Spread) -> str:
    mean = f"{spread['mean']:.0f}{NBSP}MHz"
    if spread["max"] - spread["min"] < 1:
        return mean
    return f"{mean} ({spread['min']:.0f}–{spread['max']:.0f})"


_ENDINGS = ("interrupted", "failed", "incomplete")
"""Codes of warnings that say so."""

_UNSAID = "the run did not end by itself: the figures rest on what was recorded until then"


def endings(run: Run) -> list[RunWarning]:
    """What says that a Run ended early, at least one of each that did; empty of a whole one."""
    if run.complete:
        return []
    return [warning for warning in run.warnings if warning.code in _ENDINGS] or [RunWarning("incomplete", _UNSAID)]


def others(run: Run) -> list[RunWarning]:
    """All other warnings of a Run."""
    return [warning for warning in run.warnings if run.complete or warning.code not in _ENDINGS]


def said(warning: RunWarning) -> str:
    """A warning in one line, with where it arose unless it says so itself."""
    placed = warning.where and warning.where not in warning.message
    return f"{warning.message} ({warning.where})" if placed else warning.message
