"""How the runs of two sides differ: every option, version and setting of a GPU that may change a figure, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jouletrace.analysis.conditions import Spread, conditions
from jouletrace.compare.sides import Source, boards, items
from jouletrace.report.comparison import PER_SAMPLE
from jouletrace.run import Run
from jouletrace.run.channels import POWER

_WORKLOAD = {
    "name": "workload",
    "task": "task",
    "batch": "batch",
    "seq_len": "sequence length",
    "new_tokens": "new tokens",
    "cache": "cache",
    "dtype": "dtype",
    "quantization": "quantization",
    "autocast": "autocast",
    "mode": "mode",
    "backend": "backend",
    "weights": "weights",
    "attention": "attention",
    "optimizer": "optimizer",
    "threads": "torch threads",
}
"""Facts of the workload by name in ``Run.workload``, as resolved: an omitted option doesn't state them."""

_STATED = {*_WORKLOAD, "max_new_tokens"} - {"threads"}
"""Options that ``_WORKLOAD`` covers."""

_NO_OPTIONS = {"device", "devices", "repeats", "pid", "ended", "margin", "per"}
"""Settings that are covered elsewhere, or don't concern a way to measure."""

_VERSIONS = ("jouletrace", "torch", "cuda", "cudnn", "transformers", "triton", "python", "system", "machine")
_EVERYWHERE = ("jouletrace", "torch", "cuda")
"""Versions that are reported as unknown where they aren't stated; others may just not be installed."""

_PLACES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TORCHELASTIC_")
"""Environment variables that state where a process ran, not how: GPUs are recognised by their ids."""


RESPONSE = "response of the power sensor"
"""Whether it is calibrated, among the options."""

_BOARDS = {"driver": "driver", "power_limit_w": "power limit (W)", "vbios": "VBIOS", "ecc": "ECC"}

_CLOCKS_APART = 0.01
"""Relative difference of mean clocks above which a note states it."""

Setup = dict[str, str | None]
"""Values in words by their printed names; None for a value that isn't stated."""


def differences(a: Sequence[Source], b: Sequence[Source]) -> tuple[list[str], tuple[float, float]]:
    """Notes on how the runs of the sides differ, and factors that make their figures refer to the same work.

    Where iterations hold different numbers of samples, time and energy are compared per sample.
    """
    notes = _differing(a, b, options) + _differing(a, b, config, "default")
    scale = (1.0, 1.0)
    if items(a) != items(b):
        scale = (1 / items(a), 1 / items(b))
        notes.append(PER_SAMPLE)
    first, second = boards(a), boards(b)
    if set(first) != set(second):
        notes.append(f"GPUs differ: {', '.join(first) or 'none'} in A, {', '.join(second) or 'none'} in B")
    notes += _differing(a, b, _board_settings) + _clocks(a, b)
    notes += _differing(a, b, versions) + _differing(a, b, environment, "not set")
    return notes, scale


def warnings(a: Sequence[Source], b: Sequence[Source]) -> list[str]:
    """Warnings of the runs themselves, each once, with its side, and with its Runs unless all have it."""
    found = []
    for name, side in (("A", a), ("B", b)):
        places: dict[str, list[str]] = {}
        for source in side:
            for message in dict.fromkeys(warning.message for warning in source.run.warnings):
                places.setdefault(message, []).append(source.place)
        for message, of in places.items():
            which = f" ({', '.join(of)})" if len(of) < len(side) else ""
            found.append(f"{name}{which}: {message}")
    return found


def _differing(
    a: Sequence[Source], b: Sequence[Source], of: Callable[[Run], Setup], absent: str | None = None
) -> list[str]:
    """A line for each name whose values differ between the sides.

    ``absent`` represents a value that a Run lacks. Without it, names that one side lacks are left out: they belong
    to another version, or to a library that isn't installed.
    """
    first, second = ([of(source.run) for source in side] for side in (a, b))
    notes = []
    for name in dict.fromkeys(name for found in (*first, *second) for name in found):
        if absent is None and not all(any(name in found for found in side) for side in (first, second)):
            continue
        values = [{found.get(name) or absent or "not stated" for found in side} for side in (first, second)]
        if values[0] != values[1]:
            a_said, b_said = (", ".join(sorted(side)) for side in values)
            notes.append(f"{name} differs: {a_said} in A, {b_said} in B")
    return notes


def _clocks(a: Sequence[Source], b: Sequence[Source]) -> list[str]:
    sides = [[conditions(source.run)["clocks_mhz"] for source in side] for side in (a, b)]
    # A reported clock is the requested one: it is compared only where some are not measured.
    both = all(_mean_mhz(clocks["sm_measured"]) for side in sides for clocks in side)
    all_ = [[_mean_mhz(clocks["sm_measured" if both else "sm_reported"]) for clocks in side] for side in sides]
    known = [[clock for clock in side if clock] for side in all_]
    if not all(known):
        return []
    means = [float(np.mean(side)) for side in known]
    if abs(means[1] / means[0] - 1) <= _CLOCKS_APART:
        return []
    how = "by the SMs' cycle counters" if both else "as the driver reports it"
    return [f"SM clock differs: {means[0]:.0f} MHz in A, {means[1]:.0f} MHz in B, on average, {how}"]


def _mean_mhz(clock: Spread | None) -> float:
    """Mean of a clock; 0 where it isn't known."""
    return clock["mean"] if clock and np.isfinite(clock["mean"]) else 0.0


def options(run: Run) -> Setup:
    """What was run and how."""
    found = {words: said(run.workload.get(key)) for key, words in _WORKLOAD.items()}
    found |= {f"torch's {key}": said(value) for key, value in run.workload.get("torch_flags", {}).items()}
    for key, value in run.settings.items():
        if key not in _STATED | _NO_OPTIONS and not isinstance(value, list | dict):
            found["L2 cache" if key == "l2" else _named(key)] = said(value) or "default"
    for device in run.devices[:1]:
        channel = run.channel(device.id, POWER)
        found[RESPONSE] = channel.origin if channel is not None else None
    return found


def config(run: Run) -> Setup:
    """Changes of the model's configuration."""
    return {f"--config {name}": said(value) for name, value in (run.settings.get("config") or {}).items()}


def versions(run: Run) -> Setup:
    """Versions of the software that ran, where it is installed."""
    own = {**run.workload.get("versions", {}), **run.versions}
    runtime = run.workload.get("backend")  # others may be installed, but took no part
    names = [*_VERSIONS, *([runtime] if runtime and runtime not in _VERSIONS else [])]
    return {name: said(own.get(name)) for name in names if name in own or name in _EVERYWHERE}


def environment(run: Run) -> Setup:
    """Environment variables that change how something runs."""
    return {f"${name}": value for name, value in run.environment.items() if not name.startswith(_PLACES)}


def _board_settings(run: Run) -> Setup:
    """Settings of its GPUs."""
    stated = {words: [said(getattr(device, key)) for device in run.devices] for key, words in _BOARDS.items()}
    return {words: ", ".join(dict.fromkeys(filter(None, values))) or None for words, values in stated.items()}


def _named(key: str) -> str:
    words = key.replace("_", " ")
    return f"{words.removesuffix(' s')} (s)" if words.endswith(" s") else words


def said(value: Any) -> str | None:
    """The printed form of a value; None for None."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
