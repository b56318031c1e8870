"""Words and tables of a fleet's energy."""

from __future__ import annotations

from typing import Any

from jouletrace.report.cost import Tariff, kwh
from jouletrace.report.table import Column, Table
from jouletrace.report.text import Document
from jouletrace.run.channels import GAIN_PCT
from jouletrace.wings.fleet.energy import AT_REST, GAP, FleetEnergy, FleetLine
from jouletrace.words.scale import HOURS, KG, KWH, PERCENT, PrintedUnit, quantity


def document(measured: FleetEnergy, tariff: Tariff, top: int | None) -> Document:
    """The energy of the fleet, and tables of the ``top`` lines of each sum; all for None."""
    shown, whole = Document("energy of a fleet"), measured.whole
    figures = [f"≈ {kwh(whole.energy.value)}"]
    figures += [f"{tariff.cost(whole.energy).value:,.2f} {tariff.currency}"] if tariff.price is not None else []
    figures += (
        [f"{(tariff.emitted(whole.energy).value or 0.0) / 1e3:,.0f} kg CO2e"] if tariff.carbon_g is not None else []
    )
    shown.verdict = [
        f"{', '.join(figures)} by {whole.gpus:,} GPUs in {quantity(whole.seconds / 3600, 'h')} of GPUs, "
        f"{100 * whole.rest:.1f} % of it at rest"
    ]
    for by, lines in measured.sums.items():
        table = Table(f"by {by}", [Column(by, long="middle"), *_columns(tariff)])
        table.rows = [_row(line, tariff) for line in (*lines[:top], whole)]
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


def _columns(tariff: Tariff) -> list[Column]:
    return [
        Column("energy", unit=KWH, ends=True, key="energy_j"),
        *([Column("cost", unit=PrintedUnit(1.0, tariff.currency), key="cost")] if tariff.price is not None else []),
        *([Column("CO2e", unit=KG, key="co2e_g")] if tariff.carbon_g is not None else []),
        Column("GPU time", unit=HOURS, key="gpu_s"),
        Column("at rest", unit=PERCENT, key="share_at_rest"),
        Column("GPUs", key="gpus"),
    ]


def _row(line: FleetLine, tariff: Tariff) -> list[Any]:
    cost = [tariff.cost(line.energy)] if tariff.price is not None else []
    carbon = [tariff.emitted(line.energy)] if tariff.carbon_g is not None else []
    return [line.what, line.energy, *cost, *carbon, line.seconds, line.rest, line.gpus]


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
    return {
        "name": line.what,
        "energy_j": line.energy.to_dict(),
        "cost": tariff.cost(line.energy).to_dict() if tariff.price is not None else None,
        "currency": tariff.currency or None,
        "co2e_g": tariff.emitted(line.energy).to_dict() if tariff.carbon_g is not None else None,
        "gpu_s": line.seconds,
        "share_at_rest": line.rest,
        "gpus": line.gpus,
    }
