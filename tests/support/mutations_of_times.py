"""Changes of the times of rows, of whose they are, and of the record of one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

from mutable import BEGIN, Sample, Table, plain_time, smi_time
from mutation import DOUBT, SAME, TRUE, Mutation, columns, devices, of_table, put


@of_table(TRUE, within=0.01)
def rows_twice(table: Table, draw: Random) -> Table | None:
    """Each row is there twice, next to each other or one log behind the other."""
    if not table.roles:
        return None
    rows = [row for row in table.rows for _ in range(2)] if draw.random() < 0.5 else [*table.rows, *table.rows]
    return replace(table, rows=tuple(rows))


@of_table(TRUE, within=0.06)
def far_stamp(table: Table, draw: Random) -> Table | None:
    """One row has a time that is far from all others."""
    if table.stamp is None:
        return None
    far = draw.choice([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)])
    far = draw.choice([far, BEGIN - timedelta(days=400), BEGIN + timedelta(hours=9)])
    return put(table, draw.choice([0, draw.randrange(len(table.rows)), len(table.rows) - 1]), 0, table.stamp(far))


def _restamped(table: Table, stamp: Callable[[datetime], str], begin: datetime, step: timedelta) -> bytes:
    """The same readings at other times."""
    count = len(set(devices(table)))
    rows = tuple((stamp(begin + step * (n // count)), *row[1:]) for n, row in enumerate(table.rows))
    return replace(table, rows=rows).data()


def hour_twice(sample: Sample, draw: Random) -> Mutation | None:
    """Local times of the night in which clocks go back, with their zone, as against those of UTC."""
    table = sample.table
    if table is None or table.stamp not in (plain_time, smi_time) or "counter" in table.roles:
        return None
    zone, at = draw.choice(
        [
            ("Europe/Berlin", datetime(2026, 10, 25, 0, 0, tzinfo=UTC)),
            ("America/New_York", datetime(2026, 11, 1, 5, 0, tzinfo=UTC)),
        ]
    )
    written, step = table.stamp, timedelta(minutes=draw.choice([2, 5, 10]))
    local = _restamped(table, lambda time: written(time.astimezone(ZoneInfo(zone))), at, step)
    plain = _restamped(table, written, at, step)
    return Mutation(local, SAME, plain, options=("--time-zone", zone), like_options=("--time-zone", "UTC"), said=zone)


def twelve_hours(sample: Sample, draw: Random) -> Mutation | None:
    """Times with AM and PM, as against those of 24 hours."""
    table = sample.table
    if table is None or table.stamp is not plain_time:
        return None
    hour, minute = draw.choice([(8, 30), (20, 30), (11, 59), (23, 59), (0, 10), (12, 10)])
    at, step = datetime(2026, 11, 25, hour, minute, 50, tzinfo=UTC), timedelta(seconds=1)
    form = draw.choice(["%m/%d/%Y %I:%M:%S %p", "%Y-%m-%d %I:%M:%S %p"])
    changed = _restamped(table, lambda time: time.strftime(form), at, step)
    return Mutation(changed, SAME, _restamped(table, plain_time, at, step), said=form)


@of_table(TRUE, within=0.01)
def no_device(table: Table, draw: Random) -> Table | None:
    """Two devices are in the log, and no column says which row is whose."""
    if len(set(devices(table))) < 2:
        return None
    changed = columns(table, [n for n in range(len(table.header)) if n not in table.roles["devices"]])
    if draw.random() < 0.5:
        changed = replace(changed, rows=(*changed.rows[::2], *changed.rows[1::2]))
    return changed


@of_table(TRUE, within=0.02, compared=("power_w",))
def one_shorter(table: Table, draw: Random) -> Table | None:
    """The record of one device ends early or begins late."""
    whose = devices(table)
    if len(set(whose)) < 2:
        return None
    one, many = draw.choice(whose), len(table.rows)
    kept = draw.uniform(0.2, 0.9)
    inside = (
        [n / many < kept for n in range(many)] if draw.random() < 0.5 else [n / many > 1 - kept for n in range(many)]
    )
    rows = tuple(row for row, device, keep in zip(table.rows, whose, inside, strict=True) if keep or device != one)
    return replace(table, rows=rows)


def counter(sample: Sample, draw: Random) -> Mutation | None:
    """The energy counter of a device stands still or counts half; it falls to 0; it is there alone."""
    table = sample.table
    if table is None or "counter" not in table.roles:
        return None
    how, column = draw.choice(["stuck", "half", "reset", "alone"]), table.roles["counter"]
    if how == "alone":
        changed = columns(table, [n for n in range(len(table.header)) if n != table.roles["power"]])
        return Mutation(changed.data(), TRUE, sample.whole, within=0.03, compared=("energy_total_j",), said=how)
    one = draw.choice(devices(table))
    fallen = draw.randrange(len(table.rows) // 4, len(table.rows) * 3 // 4)
    first = next(float(row[column]) for row, device in zip(table.rows, devices(table), strict=True) if device == one)
    for n, device in enumerate(devices(table)):
        was = float(table.rows[n][column])
        now = {"stuck": first, "half": first + (was - first) / 2, "reset": was - first if n >= fallen else was}[how]
        table = put(table, n, column, f"{now:.3f}") if device == one else table
    return Mutation(table.data(), TRUE if how == "reset" else DOUBT, sample.whole, within=0.03, said=how)


@of_table(TRUE, within=0.01, compared=("power_w",))
def sessions(table: Table, draw: Random) -> Table | None:
    """Sessions of one length, with equal pauses between."""
    return _later(table, draw.choice([2, 5, 8, 10, 20]), draw.choice([30.0, 300.0, 3600.0]))


@of_table(TRUE, within=0.01, compared=("power_w",))
def irregular(table: Table, draw: Random) -> Table | None:
    """Pauses of every length between the rows."""
    return _later(table, 1, 10 ** draw.uniform(-2, 1), draw)


def _later(table: Table, rows: int, pause_s: float, draw: Random | None = None) -> Table | None:
    """Times of whose rows each so many come later by a pause, or by up to as much."""
    if table.stamp is None or "counter" in table.roles or table.written == "scrapes":
        return None
    count, late_s, cells = len(set(devices(table))), 0.0, []
    for n, row in enumerate(table.rows):
        k = n // count
        late_s += 0.0 if n % count or k % rows or not k else pause_s * (draw.random() ** 4 if draw else 1)
        cells.append((table.stamp(BEGIN + timedelta(seconds=k + late_s)), *row[1:]))
    return replace(table, rows=tuple(cells))


def order_of_date(sample: Sample, draw: Random) -> Mutation | None:
    """Numbers alone for day and month, in a night in which one order would leave a hole."""
    table = sample.table
    if table is None or table.stamp is not plain_time:
        return None
    at, step = datetime(2026, 3, 11, 23, 59, 50, tzinfo=UTC), timedelta(seconds=1)
    form = draw.choice(["%m-%d-%Y", "%d-%m-%Y", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y"]) + " %H:%M:%S"
    changed = _restamped(table, lambda time: time.strftime(form), at, step)
    return Mutation(changed, SAME, _restamped(table, plain_time, at, step), said=form)
