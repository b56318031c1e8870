"""The methods sentence: how the figures of a Run were obtained, ready to go into a paper."""

from __future__ import annotations

import pyarrow.compute as pc

from jouletrace.report import reasons
from jouletrace.report.facts import averaging, power_channels
from jouletrace.report.results import Results
from jouletrace.report.scale import NBSP, figure, quantity
from jouletrace.run import ChannelInfo, DeviceInfo, Run
from jouletrace.version import __version__

_INTERVALS = {"windows": "t-intervals over window means", "runs": "t-intervals over the means of the runs"}
"""By method: the kind of interval, as a paper names it."""

_MOST_FILES = 4
"""As many imported files are named."""


def methods(run: Run) -> str:
    """Some sentences, built from nothing but the facts that the Run holds."""
    results = Results(run)
    sentences = [_what(run)]
    if run.simulated:
        sentences.insert(0, "SIMULATED: the figures are of a simulated GPU; no hardware was measured.")
    for part in (_latency(results), _energy(run, results), _baselines(results), _gain(run), _random(run)):
        if part:
            sentences.append(part)
    return " ".join(sentences)


def _what(run: Run) -> str:
    version = run.versions.get("jouletrace", __version__)
    devices = "; ".join(dict.fromkeys(_device(device) for device in run.devices))
    where = f" on {devices}" if devices else ""
    files = run.settings.get("imported", ())
    if not files:
        return f"Measured with jouletrace {version}{where}."
    sources = {f"{one.get('format')}: {one.get('path')}" for one in files if one.get("format") != "jouletrace"}
    others = "; ".join(sorted(sources)) if len(sources) <= _MOST_FILES else f"{len(sources)} files of other tools"
    if run.kind == "import":
        return f"Recorded with other tools{where}, and imported with jouletrace {version} ({others})."
    also = f" Imported beside it ({others})." if sources else ""
    return f"Measured with jouletrace {version}{where}.{also}"


def _device(device: DeviceInfo) -> str:
    facts = []
    if device.driver:
        facts.append(f"driver {device.driver}")
    if device.power_limit_w is not None:
        facts.append(f"power limit {device.power_limit_w:g} W")
    return f"{device.name} ({', '.join(facts)})" if facts else device.name


def _latency(results: Results) -> str:
    latency = results.get("latency_s")
    if latency.value is None:
        return ""
    return (
        f"Latency is the median of {latency.n} iterations timed one by one, in a pass of its own, "
        f"with a 95{NBSP}% interval between order statistics."
    )


def _energy(run: Run, results: Results) -> str:
    energy = results.get("energy_total_j")
    if energy.value is None:
        if energy.reason == "not_measured":
            return ""
        return f"Energy was not measured: {reasons.reason(energy.reason)}."
    sensors = "; ".join(dict.fromkeys(_sensor(channel) for channel in power_channels(run)))
    source = f", integrated from {sensors}" if sensors else ""
    windows = run.windows.filter(pc.equal(run.windows["variant"], "untouched"))
    if not len(windows):
        return f"Energy is that of the GPU{source}."
    replays = pc.sum(windows["replays"]).as_py() or 0
    nanoseconds = pc.sum(pc.subtract(windows["end_ns"], windows["start_ns"])).as_py()
    kind = _INTERVALS.get(energy.method) or f"intervals ({reasons.method(energy.method)})"
    took = f" in {quantity(nanoseconds / 1e9, 's')}" if nanoseconds else ""
    over = f"{energy.n} runs in fresh processes, {len(windows)}" if energy.method == "runs" else str(energy.n)
    return (
        f"Energy per iteration is the mean over {over} windows ({replays} iterations{took}) run back to back "
        f"with nothing else attached{source}; intervals are 95{NBSP}% {kind}."
    )


def _sensor(channel: ChannelInfo) -> str:
    facts = []
    if channel.period_s is not None:
        facts.append(f"one reading every {quantity(channel.period_s, 's')}")
    if over := averaging(channel):
        facts.append(f"each a {over}" if channel.window_s else over)
    if channel.gapless:
        facts.append("gapless")
    response = {
        "calibrated": "response calibrated on this GPU",
        "nominal": "nominal response, not calibrated",
        "exact": "exact response",
    }
    facts.append(response.get(channel.origin, channel.origin))
    return f"{channel.source or channel.name} ({', '.join(facts)})"


def _baselines(results: Results) -> str:
    parts = []
    for name, words in (("context_idle", "an idle CUDA context"), ("deep_idle", "the GPU in deep idle")):
        found = results.figure(f"baseline_{name}_w")
        if found.estimate.value is not None:
            stored = ", stored from an earlier measurement" if "stored" in found.flags else ""
            parts.append(f"{figure(found.estimate, 'W')} ({words}{stored})")
    if not parts:
        return ""
    return (
        f"Active energy is the total less baseline power times the same time; baseline power was {' and '.join(parts)}."
    )


def _gain(run: Run) -> str:
    gains = sorted({channel.gain_pct for channel in power_channels(run) if channel.gain_pct is not None})
    if not gains:
        return ""
    values = " or ".join(f"±{gain:g}{NBSP}%" for gain in gains)
    return f"The GPU's own gain error, {values} proportionally, cannot be seen by software and is not in the intervals."


def _random(run: Run) -> str:
    origin = run.workload.get("weights") or ""
    return f"The model's weights were {origin}." if origin.startswith("random") else ""
