"""The setup of a Run: every option, version and setting of its GPU that may change a figure, in words."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from jouletrace.analysis.conditions import conditions
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
    "autocast": "autocast",
    "mode": "mode",
    "backend": "backend",
    "weights": "weights",
    "attention": "attention",
    "optimizer": "optimizer",
    "threads": "torch threads",
}
"""Facts of the workload by name in ``Run.workload``, as resolved: an omitted option doesn't state them."""

_TOLD = {*_WORKLOAD, "max_new_tokens"} - {"threads"}
"""Options that ``_WORKLOAD`` covers."""

_NO_OPTIONS = {"device", "devices", "repeats", "pid", "ended", "margin", "per"}
"""Settings that are covered elsewhere, or don't concern a way to measure."""

_SETTINGS = {"l2": "L2 cache"}

_VERSIONS = (
    *("jouletrace", "torch", "cuda", "cudnn", "transformers", "triton"),
    *("python", "system", "machine"),
)
_EVERYWHERE = ("jouletrace", "torch", "cuda")
"""Versions that are reported as unknown where they aren't stated; others may just not be installed."""

_PLACES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TORCHELASTIC_")
"""Environment variables that state where a process ran, not how: GPUs are recognised by their ids."""


_BOARDS = {"driver": "driver", "power_limit_w": "power limit (W)", "vbios": "VBIOS", "ecc": "ECC"}

Setup = dict[str, str | None]
"""Values in words by their printed names; None for a value that isn't stated."""


def options(run: Run) -> Setup:
    """What was run and how."""
    found = {words: said(run.workload.get(key)) for key, words in _WORKLOAD.items()}
    found |= {f"torch's {key}": said(value) for key, value in run.workload.get("torch_flags", {}).items()}
    for key, value in run.settings.items():
        if key not in _TOLD | _NO_OPTIONS and not isinstance(value, list | dict):
            found[_SETTINGS.get(key) or _named(key)] = said(value) or "default"
    for device in run.devices[:1]:
        channel = run.channel(device.id, POWER)
        found["response of the power sensor"] = channel.origin if channel is not None else None
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


def boards(run: Run) -> Setup:
    """Settings of its GPUs."""
    stated = {words: [said(getattr(device, key)) for device in run.devices] for key, words in _BOARDS.items()}
    return {words: ", ".join(dict.fromkeys(filter(None, values))) or None for words, values in stated.items()}


def clock_mhz(run: Run, by: Literal["sm_reported", "sm_measured"]) -> float | None:
    """Mean SM clock of the first device while energy was measured.

    Args:
        run: The Run.
        by: "sm_reported" for the driver's clock, or "sm_measured" for that of the SMs' cycle counters.
    """
    found = conditions(run)["clocks_mhz"][by]
    return found["mean"] if found and np.isfinite(found["mean"]) else None


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
