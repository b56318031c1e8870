"""Words and tables of a fleet's energy."""

from __future__ import annotations

from typing import Any

from jouletrace.report.cost import GpuBill
from jouletrace.report.table import Column, Table
from jouletrace.report.tariffs import Tariff
from jouletrace.report.text import Document
from jouletrace.run import Estimate
from jouletrace.run.channels import GAIN_PCT
from jouletrace.wings.fleet.energy import AT_REST, GAP, FleetEnergy, FleetLine
from jouletrace.words.scale import quantity


def document(measured: FleetEnergy, tariff: Tariff, top: int | None) -> Document:
    """The energy of the fleet, and tables of the ``top`` lines of each sum; all for None."""
    shown, whole, bill = Document("energy of a fleet"), measured.whole, _bill(tariff)
    shown.verdict = [
        f"{bill.words(whole.energy, tariff.emitted(whole.energy))} by {whole.gpus:,} GPUs in "
        f"{quantity(whole.seconds / 3600, 'h')} of GPUs, {100 * whole.rest:.1f} % of it at rest"
    ]
    for by, lines in measured.sums.items():
        table = Table(f"by {by}", [Column(by, long="middle"), *bill.columns(), Column("GPUs", key="gpus")])
        table.rows = [[line.what, *bill.cells(*_stated(line, tariff)), line.gpus] for line in (*lines[:top], whole)]
        if top is not None and len(lines) > top:
            table.notes.append(f"the first {top} of {len(lines)}: --top {len(lines)}, --json and -f csv have all")
        shown.sections.append(table)
    shown.sections[-1].notes += [
        f"±: of readings every {measured.period_s:.3g} s; the gain of the sensors, ± {GAIN_PCT:g} %, is apart",
        f"at rest: below {measured.rest_w:.0f} W, {AT_REST:.0%} of the way from the least power to the most, or --rest",
        "days are of UTC",
    ]
    if measured.hole_s:
        holes = quantity(measured.hole_s / 3600, "h")
        shown.warnings.append(f"{holes} of GPUs lie in holes of more than {GAP:g} readings, and in no figure")
    if measured.dropped:
        shown.warnings.append(
            f"{measured.dropped:,} of {measured.rows:,} rows have no time or no power, and were left out"
        )
    return shown.printable()


def _bill(tariff: Tariff) -> GpuBill:
    return GpuBill(tariff, tariff.carbon_g is not None)


def _stated(line: FleetLine, tariff: Tariff) -> tuple[Estimate, Estimate, float, float]:
    """What a ``GpuBill`` states of a line."""
    return line.energy, tariff.emitted(line.energy), line.seconds, line.rest


def to_dict(measured: FleetEnergy, tariff: Tariff) -> dict[str, Any]:
    """The JSON object: SI units, shares as fractions, figures as ``E`` objects."""
    return {
        "schema": 1,
        "all": _object(measured.whole, tariff),
        **{f"by_{by}": [_object(line, tariff) for line in lines] for by, lines in measured.sums.items()},
        "period_s": measured.period_s,
        "rest_w": measured.rest_w,
        "not_recorded_gpu_s": measured.hole_s,
        "rows": measured.rows,
        "rows_left_out": measured.dropped,
    }


def _object(line: FleetLine, tariff: Tariff) -> dict[str, Any]:
    return {"name": line.what, **_bill(tariff).to_dict(*_stated(line, tariff)), "gpus": line.gpus}
