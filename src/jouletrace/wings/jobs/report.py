"""Words and tables of a bill of jobs."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

from jouletrace.analysis.budget import OFFSET_W
from jouletrace.report.cost import GpuBill
from jouletrace.report.table import Column, Table
from jouletrace.report.tariffs import Tariff
from jouletrace.report.text import Document
from jouletrace.run import Estimate
from jouletrace.wings.jobs.bill import AT_REST, NO_JOB, SEVERAL, JobsBill, Line
from jouletrace.words.scale import PERCENT, quantity


def document(bill: JobsBill, tariff: Tariff, zone: tzinfo, simulated: str = "") -> Document:
    """The bill: what jobs, users, hosts and days took, and what no job did."""
    shown = Document("energy of jobs", simulated)
    whole, lines = bill.whole, _lines_of(bill, tariff)
    shown.verdict = [f"{lines.words(whole.energy, whole.carbon)} in all, {quantity(whole.seconds / 3600, 'h')} of GPUs"]
    for line in bill.sums["user"]:
        if line.what in (NO_JOB, SEVERAL) and line.seconds:
            share = (line.energy.value or 0.0) / (whole.energy.value or 1.0)
            words = lines.words(line.energy, line.carbon)
            shown.verdict.append(f"{words} of it, {100 * share:.1f} %, with {line.what}")
    shown.sections = [jobs_table(bill, tariff, zone), *(sums_table(bill, by, tariff) for by in bill.sums)]
    gain = "unknown" if bill.gain_pct is None else f"± {bill.gain_pct:g} %"
    beyond = f"with gain of the sensors, {gain}, and offset, ± {OFFSET_W:g} W"
    beyond = beyond if bill.absolute else f"the gain of the sensors, {gain}, is apart"
    shown.sections[-1].notes.append(f"±: of readings and of edges of jobs; {beyond}")
    shown.warnings = [*bill.notes]
    if bill.holes_s:
        shown.warnings.append(f"{quantity(bill.holes_s / 3600, 'h')} of GPUs aren't recorded, and in no figure")
    return shown.printable()


def _lines_of(bill: JobsBill, tariff: Tariff) -> GpuBill:
    """What its lines state: CO2 equivalent where that of the whole is known."""
    return GpuBill(tariff, bill.whole.carbon.value is not None)


def _stated(line: Line) -> tuple[Estimate, Estimate, float, float | None]:
    return line.energy, line.carbon, line.seconds, line.rest


def jobs_table(bill: JobsBill, tariff: Tariff, zone: tzinfo) -> Table:
    """A row a job, by its start."""
    lines = _lines_of(bill, tariff)
    table = Table(
        "jobs",
        [
            Column("job", long="middle"),
            Column("id", wide=2),
            Column("user"),
            Column("host", wide=1),
            Column("GPUs", wide=1),
            Column("start", wide=1),
            Column("end", wide=1),
            *lines.columns(),
            Column("recorded", unit=PERCENT, key="share_recorded"),
        ],
    )
    of_note: dict[str, list[str]] = {}
    for line in bill.jobs:
        job = line.job
        assert job is not None
        begin, end = (
            "" if at is None else datetime.fromtimestamp(at / 1e9, zone).strftime("%Y-%m-%d %H:%M:%S")
            for at in (job.start_ns, job.end_ns)
        )
        hosts, gpus = ", ".join(job.hosts), ", ".join(line.gpus)
        row = [line.what, job.id, job.user, hosts, gpus, begin, end, *lines.cells(*_stated(line))]
        table.rows.append([*row, line.recorded if line.seconds else None])
        if line.note:
            of_note.setdefault(line.note, []).append(f"{line.what} ({job.id})" if job.id else line.what)
    for note, names in of_note.items():
        shown = [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]
        table.notes.append(f"{', '.join(shown)}: {note}")
    if any(line.rest is not None for line in bill.jobs):
        table.notes.append(f"at rest: below {AT_REST:.0%} of the way from the level without work to that at work")
    return table


def sums_table(bill: JobsBill, by: str, tariff: Tariff) -> Table:
    """A row a user, host or day; all add up to the whole."""
    lines = _lines_of(bill, tariff)
    table = Table(f"by {by}", [Column(by), *lines.columns()])
    table.rows = [[line.what or "(unknown)", *lines.cells(*_stated(line))] for line in (*bill.sums[by], bill.whole)]
    return table


def to_dict(bill: JobsBill, tariff: Tariff) -> dict[str, Any]:
    """The JSON object: SI units, shares as fractions, figures as ``E`` objects."""
    lines = {by: [_object(line, tariff) for line in some] for by, some in bill.sums.items()}
    return {
        "schema": 1,
        "jobs": [_object(line, tariff) for line in bill.jobs],
        **{f"by_{by}": some for by, some in lines.items()},
        "all": _object(bill.whole, tariff),
        "not_recorded_gpu_s": bill.holes_s,
        "absolute": bill.absolute,
        "notes": bill.notes,
    }


def _object(line: Line, tariff: Tariff) -> dict[str, Any]:
    job = line.job
    about = (
        {}
        if job is None
        else {
            "id": job.id or None,
            "user": job.user or None,
            "hosts": list(job.hosts),
            "gpus": list(line.gpus),
            "start_ns": job.start_ns,
            "end_ns": job.end_ns,
            "share_recorded": None if line.energy.reason == "jobs_overlap" else line.recorded,
            "note": line.note or None,
        }
    )
    return {"name": line.what, **about, **GpuBill(tariff, True).to_dict(*_stated(line))}
