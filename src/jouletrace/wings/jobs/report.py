"""Words and tables of a bill of jobs."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

from jouletrace.report.cost import Tariff, kwh
from jouletrace.report.table import Column, Table
from jouletrace.report.text import Document
from jouletrace.wings.jobs.bill import AT_REST, NO_JOB, SEVERAL, JobsBill, Line
from jouletrace.words.scale import HOURS, KG, KWH, PERCENT, PrintedUnit, quantity


def document(bill: JobsBill, tariff: Tariff | None, zone: tzinfo, simulated: str = "") -> Document:
    """The bill: what jobs, users, hosts and days took, and what no job did."""
    shown = Document("energy of jobs", simulated)
    whole = bill.whole
    shown.verdict = [f"{_said(whole, tariff)} in all, {quantity(whole.seconds / 3600, 'h')} of GPUs"]
    for line in bill.sums["user"]:
        if line.what in (NO_JOB, SEVERAL) and line.seconds:
            share = (line.energy.value or 0.0) / (whole.energy.value or 1.0)
            shown.verdict.append(f"{_said(line, tariff)} of it, {100 * share:.1f} %, with {line.what}")
    shown.sections = [jobs_table(bill, tariff, zone), *(sums_table(bill, by, tariff) for by in bill.sums)]
    shown.warnings = [*bill.notes]
    if bill.holes_s:
        shown.warnings.append(f"{quantity(bill.holes_s / 3600, 'h')} of GPUs aren't recorded, and in no figure")
    return shown.printable()


def _said(line: Line, tariff: Tariff | None) -> str:
    cost = [] if tariff is None or tariff.price is None else [f"{tariff.cost(line.energy).value:.2f} {tariff.currency}"]
    cost += [f"{line.carbon.value / 1e3:.3g} kg CO2e"] if line.carbon.value is not None else []
    return ", ".join([f"≈ {kwh(line.energy.value)}", *cost])


def _columns(tariff: Tariff | None, *, carbon: bool) -> list[Column]:
    currency = _currency(tariff)
    return [
        Column("energy", unit=KWH, ends=True, key="energy_j"),
        *([Column("cost", unit=PrintedUnit(1.0, currency), ends=True, key="cost")] if currency else []),
        *([Column("CO2e", unit=KG, ends=True, key="co2e_g")] if carbon else []),
        Column("GPU time", unit=HOURS, key="gpu_s"),
        Column("at rest", unit=PERCENT, key="share_at_rest"),
    ]


def _currency(tariff: Tariff | None) -> str:
    """That of the price; "" without one."""
    return "" if tariff is None or tariff.price is None else tariff.currency


def _cells(line: Line, tariff: Tariff | None, *, carbon: bool) -> list[Any]:
    cost = [] if tariff is None or not _currency(tariff) else [tariff.cost(line.energy)]
    return [line.energy, *cost, *([line.carbon] if carbon else []), line.seconds or None, line.rest]


def jobs_table(bill: JobsBill, tariff: Tariff | None, zone: tzinfo) -> Table:
    """A row a job, by its start."""
    carbon = bill.whole.carbon.value is not None
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
            *_columns(tariff, carbon=carbon),
            Column("recorded", unit=PERCENT, key="share_recorded"),
        ],
    )
    for line in bill.jobs:
        job = line.job
        assert job is not None
        begin, end = (
            "" if at is None else datetime.fromtimestamp(at / 1e9, zone).strftime("%Y-%m-%d %H:%M:%S")
            for at in (job.start_ns, job.end_ns)
        )
        hosts, gpus = ", ".join(job.hosts), ", ".join(line.gpus)
        row = [line.what, job.id, job.user, hosts, gpus, begin, end, *_cells(line, tariff, carbon=carbon)]
        table.rows.append([*row, line.recorded if line.seconds else None])
        if line.note:
            table.notes.append(f"{line.what}{f' ({job.id})' if job.id else ''}: {line.note}")
    if any(line.rest is not None for line in bill.jobs):
        table.notes.append(f"at rest: below {AT_REST:.0%} of the way from the level without work to that at work")
    return table


def sums_table(bill: JobsBill, by: str, tariff: Tariff | None) -> Table:
    """A row a user, host or day; all add up to the whole."""
    carbon = bill.whole.carbon.value is not None
    table = Table(f"by {by}", [Column(by), *_columns(tariff, carbon=carbon)])
    table.rows = [[line.what, *_cells(line, tariff, carbon=carbon)] for line in (*bill.sums[by], bill.whole)]
    return table


def to_dict(bill: JobsBill, tariff: Tariff | None) -> dict[str, Any]:
    """The JSON object: SI units, shares as fractions, figures as ``E`` objects."""
    lines = {by: [_object(line, tariff) for line in some] for by, some in bill.sums.items()}
    return {
        "schema": 1,
        "jobs": [_object(line, tariff) for line in bill.jobs],
        **{f"by_{by}": some for by, some in lines.items()},
        "all": _object(bill.whole, tariff),
        "not_recorded_gpu_s": bill.holes_s,
        "notes": bill.notes,
    }


def _object(line: Line, tariff: Tariff | None) -> dict[str, Any]:
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
            "share_recorded": line.recorded,
            "note": line.note or None,
        }
    )
    currency = _currency(tariff)
    cost = None if tariff is None or not currency else tariff.cost(line.energy).to_dict()
    return {
        "name": line.what,
        **about,
        "energy_j": line.energy.to_dict(),
        "cost": cost,
        "currency": currency or None,
        "co2e_g": line.carbon.to_dict(),
        "gpu_s": line.seconds,
        "share_at_rest": line.rest,
    }
