"""Differences in how the runs of two sides were run: every option, version and setting of a GPU that may matter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.analysis.conditions import ClockSpread, conditions
from jouletrace.comparing.pairs import PER_SAMPLE, PER_STEP, Note
from jouletrace.comparing.source import Side
from jouletrace.run import Run
from jouletrace.run.channels import POWER
from jouletrace.run.forms import WorkloadFacts

_WORKLOAD = (
    *("name", "task", "batch", "seq_len", "new_tokens", "cache", "dtype", "quantization", "autocast"),
    *("mode", "backend", "weights", "attention", "optimizer", "threads"),
)
"""Facts of the workload by name in ``Run.workload``, as resolved: an omitted option doesn't state them."""

_SIZES = ("parameters", "flops")
"""Facts of the model's size, by which two models of one name are distinguished, where both sides state them."""

_STATED = {*_WORKLOAD, "max_new_tokens"} - {"threads"}
"""Options that ``_WORKLOAD`` covers."""

_NO_OPTIONS = {"device", "devices", "repeats", "pid", "ended", "margin", "per"}
"""Settings that are covered elsewhere, or don't concern a way to measure."""

_VERSIONS = ("jouletrace", "torch", "cuda", "cudnn", "transformers", "triton", "python", "system", "machine")
_EVERYWHERE = ("jouletrace", "torch", "cuda")
"""Versions that are reported as unknown where they aren't stated; others may just not be installed."""

_PLACES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TORCHELASTIC_")
"""Environment variables that state where a process ran, not how: GPUs are recognised by their ids."""

_BOARDS = ("driver", "power_limit_w", "vbios", "ecc")

_UNNAMED = re.compile(r"|GPU|device \d+")
"""Names of devices of which a log or a page doesn't state any."""

SIMULATED = "SIMULATED "

_CLOCKS_APART = 0.01
"""Relative difference of mean clocks above which a note states it."""

Setup = dict[tuple[str, str], str | None]
"""Values by kind and name; None for a value that isn't stated."""

_SOFTWARE = ("version", "variable")
_NOT_STATED = "not stated"
_ABSENT = {"config": "default", "variable": "not set"}
"""By kind, the meaning of a value that a Run lacks. Names of other kinds that one side lacks are left out: they belong
to another version, or to a library that isn't installed."""


def differences(a: Side, b: Side) -> tuple[list[Note], tuple[float, float]]:
    """Notes on how the runs of the sides differ, and factors that make their figures refer to the same work.

    Where iterations hold different numbers of samples, time and energy are compared per sample; where programs call one
    module a different number of times, per step.
    """
    differing = _differing(a, b)
    of_board, of_software = (
        [note for note in differing if note.values[0] in kinds] for kinds in (("board",), _SOFTWARE)
    )
    scale, of_samples = _per_step(a, b) or scaled(a.run.workload, b.run.workload)
    notes = [*(note for note in differing if note not in (*of_board, *of_software)), *of_samples]
    first, second = tuple(a.boards), tuple(b.boards)
    if set(first) != set(second):
        notes.append(Note("gpus", (first, second)))
    return [*notes, *of_board, *_clocks(a, b), *of_software], scale


def _per_step(a: Side, b: Side) -> tuple[tuple[float, float], list[Note]] | None:
    """As ``scaled``, of programs of one module, each side of which states its number of steps; None of others."""
    sides = [[source.run.workload.get("steps") for source in side.sources] for side in (a, b)]
    first, second = (side[0] if all(pace == side[0] for pace in side) else None for side in sides)
    if not first or not second or first["module"] != second["module"] or first["calls"] == second["calls"]:
        return None
    counts = first["calls"], second["calls"]
    return (1 / counts[0], 1 / counts[1]), [Note(PER_STEP, (first["module"], *counts))]


def scaled(a: WorkloadFacts, b: WorkloadFacts) -> tuple[tuple[float, float], list[Note]]:
    """Factors that make figures of iterations refer to one sample, where sides have other numbers; a note says so.

    Where one side states no number, iterations are compared: a callable may take the same batch as a module.
    """
    first, second = map(_samples, (a, b))
    if first == second:
        return (1.0, 1.0), []
    if first is None or second is None:
        return (1.0, 1.0), [Note("no_batch", ("A" if first is None else "B",))]
    return (1 / first, 1 / second), [Note(PER_SAMPLE)]


def _samples(workload: WorkloadFacts) -> float | None:
    """Samples in an iteration, or calls of a kernel; None where it isn't stated: of a plain callable it counts as 1."""
    items = workload.get("items") or 1
    return items if items > 1 else workload.get("batch") or workload.get("iterations")


def other_things(a: Side, b: Side) -> Note | None:
    """A note on sides of other devices or workloads, by name, which is no difference of the code; None of equal ones.

    Another GPU of the same name is no other device, and another folder no other workload. What an import doesn't
    name may be equal.
    """
    for kind, name, of in (("board", "device", _devices), ("workload", "name", _names)):
        first, second = (
            tuple(sorted({thing for source in side.sources for thing in of(source.run)})) for side in (a, b)
        )
        if first and second and first != second:
            return Note("other_things", (Note("differs", (kind, name, first, second)),))
    return None


def _devices(run: Run) -> list[str]:
    """Names of the GPUs of a Run, or else of its processors, without those that state none."""
    devices = [info for info in run.devices if info.kind != "cpu"] or run.devices
    named = [info for info in devices if not _UNNAMED.fullmatch(info.name)]
    return [f"{SIMULATED if info.simulated else ''}{info.name.removeprefix(SIMULATED)}" for info in named]


def _names(run: Run) -> list[str]:
    """The name of a Run's workload without its folder, or its file's, whose variants count; none of an imported one."""
    if run.kind == "import" or not run.workload.get("name"):
        return []
    return [Path(str(run.workload["name"])).name.partition(":")[0]]


def warnings(a: Side, b: Side) -> list[Note]:
    """Warnings of the runs themselves, each once, with its side, and with its Runs unless all have it."""
    warned = []
    for side in (a, b):
        places: dict[str, list[str]] = {}
        for source in side.sources:
            for message in dict.fromkeys(warning.message for warning in source.run.warnings):
                places.setdefault(message, []).append(source.place)
        for message, of in places.items():
            warned.append(Note("warned", (side.name, tuple(of) if len(of) < side.count else (), message)))
    return warned


def _differing(a: Side, b: Side) -> list[Note]:
    """A note for each name whose values differ between the sides."""
    sides = [[_setup(source.run) for source in side.sources] for side in (a, b)]
    notes = []
    for key in dict.fromkeys(key for side in sides for facts in side for key in facts):
        if key[0] not in _ABSENT and not all(any(key in facts for facts in side) for side in sides):
            continue
        absent = _ABSENT.get(key[0], _NOT_STATED)
        first, second = (tuple(sorted({facts.get(key) or absent for facts in side})) for side in sides)
        if first != second:
            notes.append(Note("differs", (*key, first, second)))
    return notes


def _clocks(a: Side, b: Side) -> list[Note]:
    sides = [[conditions(source.run)["clocks_mhz"] for source in side.sources] for side in (a, b)]
    # A reported clock is the requested one: it is compared only where some are not measured.
    both = all(_mean_mhz(clocks["sm_measured"]) for side in sides for clocks in side)
    if not both and a.run.kind == "program":  # their mean is of the time that they set up, too
        return []
    all_ = [[_mean_mhz(clocks["sm_measured" if both else "sm_reported"]) for clocks in side] for side in sides]
    stated = [[clock for clock in side if clock] for side in all_]
    means = tuple(float(np.mean(side)) for side in stated if side)
    if len(means) < 2 or abs(means[1] / means[0] - 1) <= _CLOCKS_APART:
        return []
    return [Note("clocks_measured" if both else "clocks_reported", means)]


def _mean_mhz(clock: ClockSpread | None) -> float:
    """Mean of a clock; 0 where it isn't known."""
    return clock["mean"] if clock and np.isfinite(clock["mean"]) else 0.0


def response(run: Run) -> str | None:
    """The origin of what is known of the power sensor, and its correction by a meter; None without a sensor."""
    channel = next((run.channel(device.id, POWER) for device in run.devices[:1]), None)
    if channel is None or (channel.gain == 1.0 and channel.offset_w == 0.0):
        return None if channel is None else channel.origin
    return f"{channel.origin}, drawn = {channel.gain:.4f} read {channel.offset_w:+.2f} W"


def _setup(run: Run) -> Setup:
    """The workload, how it ran, and on what."""
    facts = {("workload", key): _text(run.workload.get(key)) for key in _WORKLOAD}
    sizes = {**run.workload.get("counted", {}), **run.workload}
    facts |= {("workload", key): _text(sizes[key]) for key in _SIZES if sizes.get(key)}
    facts |= {("flag", key): _text(value) for key, value in run.workload.get("torch_flags", {}).items()}
    for key, value in run.settings.items():
        if key not in _STATED | _NO_OPTIONS and not isinstance(value, list | dict):
            facts["setting", key] = _text(value) or "default"
    if run.devices:
        facts["sensor", "response"] = response(run)
    facts |= {("config", name): _text(value) for name, value in (run.settings.get("config") or {}).items()}
    for key in _BOARDS:
        stated = dict.fromkeys(_text(getattr(device, key)) for device in run.devices)
        facts["board", key] = ", ".join(filter(None, stated)) or None
    versions = {**run.workload.get("versions", {}), **run.versions}
    runtime = run.workload.get("backend")  # others may be installed, but took no part
    names = dict.fromkeys((*_VERSIONS, *([runtime] if runtime else [])))
    facts |= {("version", name): _text(versions.get(name)) for name in names if name in versions or name in _EVERYWHERE}
    return facts | {("variable", name): v for name, v in run.environment.items() if not name.startswith(_PLACES)}


def _text(value: Any) -> str | None:
    """The value as a text, by which values are compared; None for None."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
