"""Workload, devices, sensor and conditions of a Run in words; and the methods sentence of a paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from jouletrace.analysis.conditions import ClockSpread, Conditions
from jouletrace.analysis.facts import Facts, Untouched
from jouletrace.run import ChannelInfo, DeviceInfo, Run, RunWarning
from jouletrace.run.channels import ENERGY_COUNTER, POWER
from jouletrace.run.info import short_labels
from jouletrace.run.parts import STORED_SCATTER, Parts
from jouletrace.version import __version__
from jouletrace.words import reasons
from jouletrace.words.scale import NBSP, NONE, cell, decimals, figure, fixed, quantity, unit_for

SEPARATOR = " · "
_EARLIEST_NS = 631_152_000 * 10**9
"""1990-01-01: times before it count from the start of a program or a machine."""

SIMULATED = "SIMULATED: a simulated GPU, no hardware was measured"

_ACTIVITY = {
    "graphics": "graphics engine",
    "sm": "SMs",
    "occupancy": "occupancy",
    "tensor": "tensor pipes",
    "memory": "memory",
}

_INTERVALS = {"windows": "t-intervals over window means", "runs": "t-intervals over the means of the runs"}
"""By method: the kind of interval, as a paper names it."""

_RESPONSES = {
    "calibrated": "response calibrated on this GPU",
    "nominal": "nominal response, not calibrated",
    "exact": "exact response",
}

_MOST_FILES = 4
"""As many imported files are named."""


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
        ("quantization", "weights {}"),
        ("mode", "{}"),
    ):
        if facts.get(key) is not None:
            parts.append(words.format(facts[key]))
    if run.settings.get("l2") == "cold":
        parts.append("cold L2")
    return SEPARATOR.join(parts)


def headline(run: Run) -> str:
    """The workload and the devices it ran on, in one line, which says if they were simulated."""
    devices = counted([device.name.removeprefix("SIMULATED ") for device in run.devices])
    return ("SIMULATED: " if run.simulated else "") + SEPARATOR.join([title(run), *devices])


def counted(names: Sequence[str]) -> list[str]:
    """Each name once, with how often it is there: "2 × NVIDIA H200"."""
    return [f"{n} × {name}" if n > 1 else name for name, n in Counter(names).items()]


def counted_devices(results: Parts) -> str:
    """The number of devices that have an energy, and of all where some have none: "1 of 2 devices"."""
    counted, every = covered(results)
    return f"{counted} of {every} devices" if counted < every else f"{every} devices"


def covered(results: Parts) -> tuple[int, int]:
    """The number of devices that have an energy, and of all."""
    devices = results.units("device")
    return sum(unit.get("energy_total_j").value is not None for unit in devices), len(devices)


def device_line(device: DeviceInfo) -> str:
    """A device in one line: name, id, host, driver, power limit."""
    limit = "" if device.power_limit_w is None else f"limit {device.power_limit_w:g} W"
    host, driver = (f"{word} {text}" if text else "" for word, text in (("on", device.host), ("driver", device.driver)))
    return SEPARATOR.join([device.name, device.id, *filter(None, [host, driver, limit])])


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
    channels = [run.channel(device.id, POWER) or run.channel(device.id, ENERGY_COUNTER) for device in run.devices]
    return [channel for channel in channels if channel is not None]


def printed(results: Parts, run_facts: Facts) -> tuple[Parts, Facts]:
    """Parts and facts as they are printed."""
    changed = results if results.change is None else results.changed(results.change)
    return changed, run_facts.printed or run_facts


def sensor_line(channel: ChannelInfo, run_facts: Facts | None = None) -> str:
    """A sensor in one line: its source, how it behaves in time, what it can't say."""
    parts = [channel.source or channel.name]
    if channel.period_s is not None:
        parts.append(f"every {quantity(channel.period_s, 's')}")
    if channel.window_s is not None:
        parts.append(averaging(channel) or "instantaneous")
    if channel.gapless is not None:
        parts.append("gapless" if channel.gapless else "not gapless")
    parts += [channel.origin, *_corrected(channel)]
    if channel.gain_pct is not None:
        parts.append(f"gain error ±{channel.gain_pct:g}{NBSP}%{_not_in(run_facts)} in the intervals")
    return SEPARATOR.join(parts)


def _not_in(run_facts: Facts | None) -> str:
    return " not" if run_facts is None or run_facts.sensor is None else ""


def _corrected(channel: ChannelInfo) -> list[str]:
    """How figures follow from readings, by a calibration against a meter; empty without one."""
    if channel.gain == 1.0 and channel.offset_w == 0.0:
        return []
    return [f"corrected by a meter, {channel.gain:.4f} read {channel.offset_w:+.2f}{NBSP}W"]


def averaging(channel: ChannelInfo) -> str:
    """Over what a reading is taken: a window, the exponential that smooths it, or both; "" for neither."""
    rise_s = channel.response.get("rise_s") or 0.0
    window = f"mean over {quantity(channel.window_s, 's')}" if channel.window_s else ""
    # Without its time constant a sensor that mostly smooths would seem to look at a sliver of each period.
    rise = f"time constant {quantity(rise_s, 's')}" if rise_s else ""
    return ", ".join(words for words in (window, rise) if words)


def latency_lines(run_facts: Facts) -> list[tuple[str, str]]:
    """The distribution of latency, and the same in blocks, each with its name; empty without iterations."""
    single, blocks = run_facts.latency, run_facts.blocks
    if not single["median"]:
        return []
    unit = unit_for([single["median"] / 1e3], "s")
    places = decimals(single["median"] / 1e3 / unit.factor)

    def say(figures: Mapping[str, float | None], keys: str) -> str:
        values = [(key, figures[key]) for key in keys.split()]
        said = [f"{key} {NONE if v is None else fixed(v / 1e3 / unit.factor, places)}" for key, v in values]
        return SEPARATOR.join([*said, f"n {figures['n']}"])

    each = [(name, run_facts.percentiles[name]) for name in ("p25", "p75", "p90", "p95", "p99")]
    cells = [f"{name} {'not known' if quantile.value is None else cell(quantile, unit)}" for name, quantile in each]
    lines = [say(single, "mean std min max"), SEPARATOR.join(cells)]
    if blocks["n"]:
        lines.append(f"means of {blocks['block']}: {say(blocks, 'median iqr')}")
    return [(f"Latency ({unit.name})", line) for line in lines]


def setting_lines(run: Run) -> list[str]:
    """The configuration as given and as chosen, TF32, and environment variables that can change a result."""
    about: Mapping[str, object] = run.workload
    config, tried, flags = (about.get(name) for name in ("config", "size_tried", "torch_flags"))
    config = {**(run.settings.get("config") or {}), **(config if isinstance(config, Mapping) else {})}
    said = [f"{key}={value}" for key, value in config.items() if not (tried and key == "size")]
    if isinstance(tried, Mapping) and tried:
        said.append(f"size={about.get('size')}, the fastest of {', '.join(map(str, tried))}")
    if isinstance(flags, Mapping) and (on := [name for name in ("matmul_tf32", "cudnn_tf32") if flags.get(name)]):
        said.append(f"TF32 in {' and '.join(name.removesuffix('_tf32') for name in on)}")
    said += [f"{name}={value}" for name, value in sorted(run.environment.items())]
    return [SEPARATOR.join(said)] if said else []


def condition_lines(run: Run, each: Mapping[str, Conditions]) -> list[tuple[str, str]]:
    """Conditions in words, each with its name; of several GPUs, equal ones once, with their labels."""
    if len(each) == 1:
        return [line for conditions in each.values() for line in _condition_lines(conditions)]
    labels, by_label = short_labels(run.devices), dict[str, dict[str, list[str]]]()
    for device, conditions in each.items():
        for name, text in _condition_lines(conditions):
            by_label.setdefault(name, {}).setdefault(text, []).append(labels[device])
    return [
        (name, text if len(of) == len(each) else f"{', '.join(of)}: {text}")
        for name, texts in by_label.items()
        for text, of in texts.items()
    ]


def _condition_lines(conditions: Conditions) -> list[tuple[str, str]]:
    """Clocks, temperature and throttling while energy was measured, each with its name."""
    lines: list[tuple[str, str]] = []
    clocks = conditions["clocks_mhz"]
    reported, measured, memory = (clocks[name] for name in ("sm_reported", "sm_measured", "memory"))
    said = [f"{_range(reported)}{' reported' if measured else ''}"] if reported else []
    said += [f"{_range(measured)} measured"] if measured else []
    named = [f"SM {', '.join(said)}"] if said else []
    named += [f"memory {_range(memory)}"] if memory else []
    if named:
        lines.append(("Clocks", SEPARATOR.join(named)))
    if "activity" in conditions:
        shares = [f"{_ACTIVITY[name]} {100 * share:.0f}{NBSP}%" for name, share in conditions["activity"].items()]
        lines.append(("Activity", SEPARATOR.join(shares)))
    heat = conditions["temperature_c"]
    if heat:
        start, end, most = (f"{celsius:.0f}" for celsius in (heat["start"], heat["end"], heat["max"]))
        text = f"{start}{NBSP}°C" if start == end else f"{start} to {end}{NBSP}°C"
        lines.append(("Temperature", text if most in (start, end) else f"{text}, at most {most}{NBSP}°C"))
    held = conditions["throttle_reasons"]
    if held is not None:
        words = [f"{reasons.throttle(name)} {100 * share:.0f}{NBSP}% of the time" for name, share in held.items()]
        lines.append(("Throttling", SEPARATOR.join(words) or "none"))
    return lines


def _range(spread: ClockSpread) -> str:
    mean = f"{spread['mean']:.0f}{NBSP}MHz"
    if spread["max"] - spread["min"] < 1:
        return mean
    return f"{mean} ({spread['min']:.0f}–{spread['max']:.0f})"


def remarks(warnings: Sequence[RunWarning]) -> list[str]:
    """Warnings, each text once in one line, with where it arose first and how often, unless it says so itself."""
    places: dict[str, list[str]] = {}
    for warning in warnings:
        places.setdefault(reasons.stated(warning.message), []).extend(
            [warning.where] if warning.where and warning.where not in warning.message else []
        )
    more = {text: f" and {len(labels) - 1} more" if len(labels) > 1 else "" for text, labels in places.items()}
    return [f"{text} ({labels[0]}{more[text]})" if labels else text for text, labels in places.items()]


def methods(run: Run, results: Parts, run_facts: Facts) -> str:
    """Some sentences, built from nothing but the facts that the Run holds."""
    sentences = [_what(run)]
    if run.simulated:
        sentences.insert(0, "SIMULATED: the figures are of a simulated GPU; no hardware was measured.")
    sentences += [_of_latency(results), _energy(run, results, run_facts.untouched), _baselines(results)]
    gains = sorted({channel.gain_pct for channel in power_channels(run) if channel.gain_pct is not None})
    if gains:
        values = " or ".join(f"±{gain:g}{NBSP}%" for gain in gains)
        error = f"The GPU's own gain error, {values} proportionally,"
        sentences.append(f"{error} cannot be seen by software and is{_not_in(run_facts)} in the intervals.")
    if (origin := run.workload.get("weights") or "").startswith("random"):
        sentences.append(f"The model's weights were {origin}.")
    return " ".join(filter(None, sentences))


def _what(run: Run) -> str:
    version = run.versions.get("jouletrace", __version__)
    devices = "; ".join(counted([_of_device(device) for device in run.devices]))
    where = f" on {devices}" if devices else ""
    files = run.settings.get("imported", ())
    if not files:
        return f"Measured with jouletrace {version}{where}."
    sources = {f"{file.get('format')}: {file.get('path')}" for file in files if file.get("format") != "jouletrace"}
    others = "; ".join(sorted(sources)) if len(sources) <= _MOST_FILES else f"{len(sources)} files of other tools"
    if run.kind == "import":
        return f"Recorded with other tools{where}, and imported with jouletrace {version} ({others})."
    also = f" Imported beside it ({others})." if sources else ""
    return f"Measured with jouletrace {version}{where}.{also}"


def _of_device(device: DeviceInfo) -> str:
    facts = [f"driver {device.driver}"] if device.driver else []
    facts += [] if device.power_limit_w is None else [f"power limit {device.power_limit_w:g} W"]
    return f"{device.name} ({', '.join(facts)})" if facts else device.name


def _of_latency(results: Parts) -> str:
    latency = results.get("latency_s")
    if latency.value is None:
        return ""
    return (
        f"Latency is the median of {latency.n} iterations timed one by one, in a pass of its own, "
        f"with a 95{NBSP}% interval between order statistics."
    )


def _energy(run: Run, results: Parts, measured: Untouched) -> str:
    energy = results.get("energy_total_j")
    if energy.value is None:
        if energy.reason == "not_measured":
            return ""
        return f"Energy was not measured: {reasons.reason(energy.reason)}."
    sensors = "; ".join(dict.fromkeys(_of_sensor(channel) for channel in power_channels(run)))
    source = f", integrated from {sensors}" if sensors else ""
    if not measured.windows:
        return f"Energy is that of the GPU{'s' if len(power_channels(run)) > 1 else ''}{source}."
    kind = _INTERVALS.get(energy.method) or f"intervals ({reasons.method(energy.method)})"
    took = f" in {quantity(measured.seconds, 's')}" if measured.seconds else ""
    over = f"{energy.n} runs in fresh processes, {measured.windows}" if energy.method == "runs" else str(energy.n)
    return (
        f"Energy per iteration is the mean over {over} windows ({measured.iterations} iterations{took}) run back to "
        f"back with nothing else attached{source}; intervals are 95{NBSP}% {kind}{_between_runs(run, results)}."
    )


def _between_runs(run: Run, results: Parts) -> str:
    """The errors that the interval of the energy holds beyond this run."""
    stored = run.stored.get("between_runs")
    if stored is None or STORED_SCATTER not in results.get("energy_total_j").flags:
        return ""
    return f", widened by the scatter between runs as stored ({stored['runs']} runs of {stored['source']})"


def _of_sensor(channel: ChannelInfo) -> str:
    facts = []
    if channel.period_s is not None:
        facts.append(f"one reading every {quantity(channel.period_s, 's')}")
    if over := averaging(channel):
        facts.append(f"each a {over}" if channel.window_s else over)
    if channel.gapless:
        facts.append("gapless")
    facts += [_RESPONSES.get(channel.origin, channel.origin), *_corrected(channel)]
    return f"{channel.source or channel.name} ({', '.join(facts)})"


def _baselines(results: Parts) -> str:
    parts = []
    for name, words in (("context_idle", "context idle"), ("deep_idle", "deep idle")):
        baseline = results.get(f"baseline_{name}_w")
        if baseline.value is not None:
            stored = ", stored from an earlier measurement" if "stored" in baseline.flags else ""
            parts.append(f"{figure(baseline, 'W')} ({words}{stored})")
    if not parts:
        return ""
    return (
        f"Active energy is the total less baseline power times the same time; baseline power was {' and '.join(parts)}."
    )
