"""Completes a Run that was cut off, by the files that the tracer left in its folder."""

from __future__ import annotations

from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.profiler.program.program import ROWS
from jouletrace.profiler.program.recorded import analyse_program, warn_of_losses
from jouletrace.profiler.program.timeline import gpus_of, recorded, within
from jouletrace.recording.collector import TAIL_S
from jouletrace.run import Run, tables
from jouletrace.run.channels import POWER
from jouletrace.run.limits import MOST_FILE_BYTES, stated_bytes
from jouletrace.tracer.reader import read


def with_left(run: Run, folder: Path) -> Run:
    """The analysed Run of a recording that was cut off, from the start of its program until the recorder noticed it.

    Raises:
        BadInputError: If the files are larger than any recording.
    """
    for rows_folder in sorted(folder.glob(f"{ROWS}*"))[:1]:
        if sum(file.stat().st_size for file in rows_folder.glob("*/*")) > max(MOST_FILE_BYTES, stated_bytes()):
            raise BadInputError(f"{rows_folder} is larger than any recording: refused")
        stamps = [run.series(device.id, POWER)[0] for device in run.devices]
        ends = [int(time_ns.max()) for time_ns in stamps if len(time_ns)]
        begin, end = rows_folder.name.removeprefix(ROWS).partition("-")[0], min(ends, default=0) - int(TAIL_S * 1e9)
        if not begin.isdecimal() or int(begin) >= end:
            continue
        span: dict[str, object] = {"id": 0, "kind": "phase", "name": "program", "lane": "program"}
        span |= {"device": run.devices[0].id, "start_ns": int(begin), "end_ns": end}
        run.spans = tables.from_rows([span], "spans")
        traces = read(rows_folder)
        warn_of_losses(run, traces)
        traces = [traced for traced in traces if len(traced.work)]
        gpus, waits = gpus_of(traces, [device.id for device in run.devices if device.kind != "cpu"] or ["cpu"])
        gpus = [gpu for gpu in (within(gpu, int(begin), end) for gpu in gpus) if gpu.parts]
        if gpus:
            units, run.activity = recorded(run, gpus, waits)
            run.units = units.table()
    analyse_program(run)
    return run
