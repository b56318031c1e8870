"""One call from raw tables to figures, whatever made the Run."""

from __future__ import annotations

import numpy as np

from jouletrace.analysis.between_runs import add_between_runs
from jouletrace.analysis.figures import Figures
from jouletrace.analysis.generation import add_generation
from jouletrace.analysis.imported import add_imported
from jouletrace.analysis.model import add_model
from jouletrace.analysis.monitor import add_devices
from jouletrace.analysis.nodes import add_nodes, has_nodes
from jouletrace.analysis.power import power_record
from jouletrace.analysis.program import add_program
from jouletrace.analysis.ranges import add_ranges, add_ranks
from jouletrace.analysis.recording_names import has_recording
from jouletrace.analysis.serving.levels import add_serving
from jouletrace.analysis.spans import of_kind
from jouletrace.analysis.work import add_work
from jouletrace.errors import BrokenOffError, JouletraceError
from jouletrace.run import Run, tables
from jouletrace.stats.one_thread import one_thread

_RECORD_WARNINGS = {
    "nan": "{n} readings were not numbers and were left out",
    "negative": "{n} readings were negative and were left out",
    "implausible": "{n} readings of power were beyond what the GPU can draw and were left out",
    "clock_stepped_back": "the clock stepped back {n} times while recording; the time lived twice was left out",
    "conflicting_stamps": "{n} stamps occur twice with different readings; the later reading was kept",
}

_HARMLESS = {"out_of_order", "duplicate", "skipped", "hole", "no_samples", "one_sample"}
"""Harmless repairs, and problems that are reported elsewhere; every other repair is counted in a warning."""


def analyse(run: Run) -> Run:
    """Compute ``results``, ``units`` and ``waveform`` of a Run again from its raw tables; returns the same Run."""
    figures = figures_of(run)
    run.results = figures.results()
    run.units = figures.units()
    return run


@one_thread
def figures_of(run: Run) -> Figures:
    """The figures of a Run from its raw tables; ``waveform`` and warnings of the Run are made again."""
    figures = Figures()
    run.waveform = tables.empty("waveform")
    _warn_of_record(run)
    _warn_of_clock(run)
    if run.kind in ("monitor", "record"):
        add_devices(run, figures)
        if run.kind == "record":
            units = add_ranges(run, figures)
            add_ranks(run, figures, units)
        add_work(run, figures)
    elif run.kind == "program":
        add_program(run, figures)
    elif run.kind == "bench":
        add_serving(run, figures)
    elif run.kind == "import":
        add_imported(run, figures)
        if "serving" in run.workload:
            add_serving(run, figures)
    else:
        energies = add_model(run, figures)
        add_generation(run, figures, energies)
        if has_recording(run):
            from jouletrace.analysis.parts import parts_of  # scipy takes a second to come in

            parts_of(run, figures).add(scaled=True)
        elif has_nodes(run):
            add_nodes(run, figures)
        add_between_runs(run, figures)  # last: parts are compared with the whole of this run
    return figures


def analyse_recorded(run: Run) -> Run:
    """The same of a Run that has just been recorded: if it can't be analysed, the recording must be kept.

    Raises:
        BrokenOffError: If the analysis is refused.
    """
    try:
        return analyse(run)
    except BrokenOffError:
        raise
    except JouletraceError as error:
        raise BrokenOffError(f"it was recorded, but its figures can't be computed: {error}") from error


def _warn_of_record(run: Run) -> None:
    """Say what is wrong with the readings themselves."""
    phases = of_kind(run, "phase")
    start, end = (phases[edge].to_numpy().astype(np.int64) for edge in ("start_ns", "end_ns"))
    for device in run.devices:
        found = power_record(run, device.id)
        if found is None:
            continue
        record = found[0]
        # Between phases nothing is measured: a hole there harms no figure.
        seen = sum(bool(np.any((start < until) & (end > since))) for since, until in record.holes)
        if seen:
            run.warn("record_hole", f"the power record has holes ({seen}) where figures may need it", device.id)
        for code, count in record.issues.items():
            if code not in _HARMLESS:
                words = _RECORD_WARNINGS.get(code, "{n} readings were left out ({code})")
                run.warn(f"record_{code}", words.format(n=count, code=code.replace("_", " ")), device.id)


def _warn_of_clock(run: Run) -> None:
    """Say so if the clock of the stamps was set while recording: it must keep pace with one that never steps."""
    for first, last in zip(run.clock_pairs[::2], run.clock_pairs[1::2], strict=False):
        steady = last["monotonic_ns"] - first["monotonic_ns"]
        gained_s = (last["time_ns"] - first["time_ns"] - steady) / 1e9
        # a time daemon slews by half as much as is allowed here
        if abs(gained_s) > 0.05 + 1e-3 * steady / 1e9:
            run.warn("clock_stepped", f"the host's clock was set by {gained_s:+.2f} s while recording")
