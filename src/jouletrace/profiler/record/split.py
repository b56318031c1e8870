"""Where the energy of a recorded loop went: what its processes ran, as a Run of kind "program" beside the recording.

Kernels are traced in the process that records, where it records a real GPU. The Run lies in the folder ``kernels`` of
the recording, or in ``NAME.kernels`` beside ``NAME.zip``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from jouletrace.analysis.checks import endings
from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.profiler.program.recorded import analyse_program
from jouletrace.profiler.program.timeline import gpus_of, recorded, within
from jouletrace.run import Run, tables
from jouletrace.run.measured import mend
from jouletrace.run.model import derived
from jouletrace.run.names import short_names
from jouletrace.run.parts import Parts
from jouletrace.run.places import kernels_of
from jouletrace.run.spans import spans_of
from jouletrace.run.store import save
from jouletrace.tracer.process_trace import ProcessTrace
from jouletrace.words.reasons import printed
from jouletrace.words.scale import NBSP, figure, quantity
from jouletrace.words.text import printable

SPAN = "program"
"""Phase of a recording in which its kernels were traced."""

TRACED = "traced.npz"
"""The file with what a rank ran, in its part; "traced-1.npz" and so on are of processes that it started."""


def has_kernels(devices: Sequence[Device]) -> bool:
    """True if kernels of this process run on one of the devices."""
    return any(device.info.kind != "cpu" and not device.info.simulated for device in devices)


def split_of(run: Run, traces: Sequence[ProcessTrace], of_recording: Path | None) -> Run | None:
    """The analysed split of a recording, saved unless there is no place; None without kernels.

    A fault of it is a warning of the recording, which must not end the program that is recorded.

    Args:
        run: The recording, with a phase ``SPAN`` of each rank.
        traces: What the processes ran.
        of_recording: Of the recording.
    """
    traces = [traced for traced in traces if len(traced.work)]
    last = {device: (start, end) for start, end, device in sorted(_traced(run))}
    if not traces or not last:
        return None
    folder = kernels_of(of_recording) if of_recording is not None else None
    try:
        starts, ends = zip(*last.values(), strict=True)
        return _split(run, traces, max(starts), min(ends), folder)
    except Exception as error:
        text = str(error) if isinstance(error, JouletraceError) else f"{type(error).__name__}: {error}"
        run.warn("not_attributed", f"the energy of kernels can't be computed: {text}")
        return None


def _traced(run: Run) -> list[tuple[int, int, str]]:
    """Start, end and device of each interval in which a rank was traced; of several starts there are several."""
    phases = spans_of(run, "phase").named(SPAN)
    edges = zip(phases.start_ns.tolist(), phases.end_ns.tolist(), strict=True)
    return [(start, end, phases.text("device", row) or "") for row, (start, end) in enumerate(edges)]


def _split(run: Run, traces: Sequence[ProcessTrace], begin_ns: int, end_ns: int, folder: Path | None) -> Run:
    span: dict[str, object] = {"id": 0, "kind": "phase", "name": SPAN, "lane": "record", "device": run.devices[0].id}
    span |= {"start_ns": begin_ns, "end_ns": end_ns}
    if end_ns <= begin_ns:
        raise BadInputError("the ranks were not recorded at the same time")
    whole = derived(
        run,
        id=uuid4().hex,
        kind="program",
        workload=run.workload.copy(),
        settings=run.settings.copy(),
        stored=run.stored.copy(),
        recorder={},
        warnings=endings(run),
        spans=tables.from_rows([span], "spans"),
    )
    gpus, waits = gpus_of(traces, [device.id for device in run.devices])
    gpus = [gpu for gpu in (within(gpu, begin_ns, end_ns) for gpu in gpus) if gpu.parts]
    if not gpus:
        raise BadInputError("no kernel ran while power was recorded")
    units, activity = recorded(whole, gpus, waits)
    whole.units, whole.activity = units.table(), activity
    analyse_program(whole)
    for code, text in dict.fromkeys(note for traced in traces for note in traced.notes):
        whole.warn(code, text)
    if folder is not None:
        save(mend(whole), folder)
    return whole


def leave(traces: Sequence[ProcessTrace], part: Path) -> None:
    """Leave what a rank ran in its part, where the first rank merges it."""
    for number, traced in enumerate(sorted(traces, key=lambda process: process.pid != os.getpid())):
        with suppress(OSError):  # a full disk shows when the Run is saved
            traced.save(part / (f"traced-{number}.npz" if number else TRACED))


def split_of_ranks(run: Run, parts: Sequence[Path], of_recording: Path) -> Run | None:
    """The split of all ranks together; see ``split_of``."""
    traces = []
    for part in parts:
        for path in sorted(part.glob("traced*.npz")):
            try:
                traces.append(ProcessTrace.load(path))
            except BadInputError as error:
                run.warn("child_lost", f"what {part.name} ran can't be read ({error}): its kernels are missing")
    return split_of(run, traces, of_recording)


ROWS, WIDTH = 6, 40
"""Most rows, and characters of their names."""


def totals(run: Run, split: Run | None) -> dict[str, float]:
    """The totals for a trainer's log: energy, mean power, and the energy of each top-level range, idle or phase."""
    by_name = {"energy_j": run.result("energy_total_j").value, "power_w": run.result("power_w").value}
    if split is not None:
        for unit in Parts(split).main():
            name = f"energy_{unit.name.replace(' ', '_')}_j"
            if (joules := unit.get("energy_total_j").value) is not None:
                by_name[name] = (by_name.get(name) or 0.0) + joules
    return {name: value for name, value in by_name.items() if value is not None}


def prefixed(figures: Mapping[str, float | None], simulated: bool) -> dict[str, float]:
    """Those that are known, with names that say whether they are simulated."""
    prefix = "simulated_" if simulated else ""
    return {prefix + name: value for name, value in figures.items() if value is not None}


def largest(split: Run) -> list[str]:
    """The kernels, or operators whose kernels share a row, with the most energy; phases of several GPUs."""
    results = Parts(split)
    units = results.main() if results.gpus and results.units("phase") else results.units("kernel")
    rows = [(unit.get("energy_total_j"), unit) for unit in units]
    rows = sorted((row for row in rows if row[0].value), key=lambda row: -(row[0].value or 0.0))[:ROWS]
    short = short_names((unit.name or "?" for _, unit in rows), WIDTH)
    lines = []
    for energy, unit in rows:
        share, time = unit.get("share").value, unit.get("time_s").value
        name = short[unit.name or "?"]
        if unit.gpu:
            name = f"{unit.gpu}: {printed(name)}"
        lines.append(f"  {name:{WIDTH}} {100 * (share or 0):4.0f} %  {figure(energy, 'J')}, {quantity(time, 's')}")
    return [printable(line.replace(NBSP, " ")) for line in lines]
