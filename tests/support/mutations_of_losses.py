"""Readings held or cut short, counters that fall, kernels that were lost, figures of other tools that mislead."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from random import Random

from mutable import BEGIN, Sample, Table, changed_database
from mutation import DOUBT, TRUE, Mutation, columns, devices, put

HELD_S = 10
"""Period of a meter whose readings a logger repeats, s."""


def held_readings(sample: Sample, draw: Random) -> Mutation | None:
    """Each reading is written several times before there is a new one: that makes the mean no better known."""
    table = sample.table
    if table is None or table.stamp is None or not {"power", "devices"} <= table.roles.keys():
        return None
    if "counter" in table.roles:
        table = columns(table, [n for n in range(len(table.header)) if n != table.roles["counter"]])
    count, times = len(set(devices(table))), draw.choice([2, 5, 10])

    def written(repeated: int) -> bytes:
        rows = []
        for first in range(0, len(table.rows), count):
            for k in range(repeated):
                at = BEGIN + timedelta(seconds=first // count * HELD_S + k * HELD_S // repeated)
                rows += [(table.stamp(at), *row[1:]) for row in table.rows[first : first + count]]
        return replace(table, rows=tuple(rows)).data()

    more = {"within": 0.01, "compared": ("power_w",), "narrowest": 1 / 1.5}
    return Mutation(written(times), TRUE, written(1), said=f"{times} times", **more)


def one_much_shorter(sample: Sample, draw: Random) -> Mutation | None:
    """The record of one device is a half or less of the other's: no joint figure covers the time of both."""
    table = sample.table
    if table is None or "power" not in table.roles or len(set(devices(table))) < 2:
        return None
    one, kept = draw.choice(devices(table)), draw.uniform(0.25, 0.5) * len(table.rows)
    whose = enumerate(zip(table.rows, devices(table), strict=True))
    rows = tuple(row for n, (row, device) in whose if n < kept or device != one)
    return Mutation(replace(table, rows=rows).data(), DOUBT, sample.whole)


def counter_falls(sample: Sample, draw: Random) -> Mutation | None:
    """The energy counter falls: twice, to more than 0, or in a pause of the log; with power beside it or alone."""
    table = sample.table
    if table is None or "counter" not in table.roles:
        return None
    how, alone, column = draw.choice(["twice", "above 0", "pause"]), draw.random() < 0.5, table.roles["counter"]
    many = len(table.rows)
    at = draw.randrange(many // 4, many // 2)
    falls = (at, draw.randrange(at + 4, many - 4)) if how == "twice" else (at,)
    scale, whose = (1000.0 if table.written == "scrapes" else 1.0), devices(table)
    rest = draw.uniform(10, 400) * scale if how == "above 0" else 0.0
    fallen: dict[tuple[str, ...], tuple[int, float]] = {}
    for n, device in enumerate(whose):
        was, stage = float(sample.table.rows[n][column]), sum(n >= fall for fall in falls)
        if stage and fallen.get(device, (0, 0.0))[0] != stage:
            fallen[device] = stage, was
        now = was - fallen[device][1] + rest if stage else was
        table = put(table, n, column, f"{now:.0f}" if table.written == "scrapes" else f"{now:.3f}")
    if how == "pause":
        length = draw.randrange(many // 8, many // 3)
        table = replace(table, rows=table.rows[: at - at % 2] + table.rows[at - at % 2 + length - length % 2 :])
    if alone:
        table = columns(table, [n for n in range(len(table.header)) if n != table.roles["power"]])
    more = {"within": 0.05, "compared": ("energy_total_j",), "said": f"{how}, {'alone' if alone else 'beside power'}"}
    return Mutation(table.data(), TRUE, sample.whole, **more)


def kernels_lost(sample: Sample, draw: Random) -> Mutation | None:
    """Of a fifth of the launches or more there is no kernel."""
    if sample.form == "nsys":
        many = draw.randrange(2, 5)
        change = f"DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE correlationId % {many} = {draw.randrange(many)}"
        return Mutation(changed_database(sample.whole, change), DOUBT, sample.whole)
    if sample.form != "kineto":
        return None
    trace = sample.parsed
    kernels = [n for n, one in enumerate(trace["traceEvents"]) if one.get("cat") == "kernel"]
    lost = set(draw.sample(kernels, draw.randrange(len(kernels) // 5 + 1, len(kernels) + 1)))
    trace["traceEvents"] = [one for n, one in enumerate(trace["traceEvents"]) if n not in lost]
    return Mutation(json.dumps(trace).encode(), DOUBT, sample.whole, said=f"{len(lost)} of {len(kernels)}")


def _stated(sample: Sample) -> Table | None:
    return sample.table if sample.form == "codecarbon" else None


def trackers_of_one_machine(sample: Sample, draw: Random) -> Mutation | None:
    """Several processes track all of one machine at the same time."""
    if (table := _stated(sample)) is None:
        return None
    id, times = table.header.index("run_id"), draw.randrange(2, 5)
    rows = [(*row[:id], f"{row[id]}-{k}", *row[id + 1 :]) for row in table.rows for k in range(times)]
    more = {"compared": ("whole_j",), "within": 0.01, "said": f"{times} trackers"}
    return Mutation(replace(table, rows=tuple(rows)).data(), TRUE, sample.whole, **more)


def gpu_of_nothing(sample: Sample, draw: Random) -> Mutation | None:
    """A GPU that is named took 0 J: it wasn't measured."""
    if (table := _stated(sample)) is None:
        return None
    for n in range(0, len(table.rows), draw.choice([1, 2])):
        table = put(table, n, table.header.index("gpu_energy"), draw.choice(["0", "0.0", "0.000"]))
    return Mutation(table.data(), DOUBT, sample.whole)


def power_usage_effectiveness(sample: Sample, draw: Random) -> Mutation | None:
    """All energies are multiplied by the PUE of the building, which isn't what the GPU took."""
    if (table := _stated(sample)) is None:
        return None
    pue = draw.choice([1.12, 1.5, 2.0])
    for n in range(len(table.rows)):
        for name in ("gpu_energy", "energy_consumed"):
            at = table.header.index(name)
            table = put(table, n, at, f"{float(table.rows[n][at]) * pue:.9f}")
        table = put(table, n, table.header.index("pue"), str(pue))
    more = {"compared": ("whole_j",), "within": 1e-3, "said": f"PUE {pue}"}
    return Mutation(table.data(), TRUE, sample.whole, **more)
