"""Loading of a Run with its figures, whether it was cut off before its analysis or not."""

from __future__ import annotations

from pathlib import Path

from jouletrace.run import Run, loading


def load(path: Path | str) -> Run:
    """The Run of a folder, its ``run.json`` or a zip; figures are computed now if it was cut off before its analysis.

    Raises:
        BadInputError: If there is no Run, it has a newer major version, a file is damaged, or it would unpack to more
            than ``run.limits`` allows.
    """
    run = loading.load(path)
    if len(run.results):
        return run
    if run.kind == "ab":
        from jouletrace.comparing.paired import add_results, own_sides

        if (compared := own_sides(run)) is not None:
            add_results(run, compared)
    if run.kind == "program":
        from jouletrace.profiler.program.left import with_left

        return with_left(run, loading.source_of(path))
    if run.kind in ("profile", "monitor", "record", "bench"):
        from jouletrace.analysis import analyse

        return analyse(run)
    return run
