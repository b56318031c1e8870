"""Make what a kill leaves of a recorder of a week out of a recording of hours, to open it and measure its memory.

    python benchmarks/endurance.py -o /tmp/six --gpus 8 --days 0.25
    python benchmarks/repeated.py /tmp/six /tmp/week 28
    /usr/bin/time -v python -c 'import jouletrace as jt; jt.load("/tmp/week").save("/tmp/week.run")'
    /usr/bin/time -v jouletrace show /tmp/week.run

Means and extremes are repeated, each time later by the length of the recording; its last hour is that of the last time.
Of a recording of an hour at most all readings are repeated, as ``jouletrace run`` keeps them. Energy counters go on. To
record a week of eight GPUs takes 70 min of CPU.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import jouletrace as jt
from jouletrace.run import SPOOL, SpoolWriter, save_header
from jouletrace.run.channels import ENERGY_COUNTER

NS, MINUTE_NS, MINUTES = 10**9, 60 * 10**9, 60


def minutes(table, start_ns):
    """The rows of each minute, channel by channel, which is their order in the whole: as the recorder writes them."""
    if not len(table):
        return
    minute = (table["time_ns"].to_numpy() - 1 - start_ns) // MINUTE_NS
    order = np.argsort(minute, kind="stable")
    table, edges = table.take(order), np.flatnonzero(np.diff(minute[order], prepend=-1))
    for begin, end in zip(edges, [*edges[1:], len(table)], strict=True):
        yield table.slice(begin, end - begin).combine_chunks()


def columns(table, later_ns, later_j):
    """The columns of rows that are later."""
    rows = {name: column.combine_chunks() for name, column in zip(table.column_names, table.columns, strict=True)}
    rows = {name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column.to_numpy()
            for name, column in rows.items()}  # fmt: skip
    if "value" in rows:
        rows["value"] = rows["value"] + later_j * np.asarray(pc.equal(rows["channel"], ENERGY_COUNTER))
    return rows | {"time_ns": rows["time_ns"] + later_ns}


def main():
    """Write the spool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("times", type=int)
    asked = parser.parse_args()
    run = jt.load(asked.run)
    newest = run.recent if len(run.recent) else run.samples  # of at most an hour, none of which is thinned
    hour_ns = (
        -(-int(np.min(run.recent["time_ns"].to_numpy())) // NS) * NS if len(run.recent) else np.iinfo(np.int64).max
    )
    length_ns = -(-(int(np.max(newest["time_ns"].to_numpy())) - run.created_ns) // NS) * NS
    _, joules = run.series(run.devices[0].id, ENERGY_COUNTER)
    kept = {name: getattr(run, name) for name in ("kind", "created_ns", "workload", "settings", "devices", "channels")}
    save_header(jt.Run(**kept, clock_pairs=run.clock_pairs[:1], complete=False), asked.output, first=True)

    def write(name, rows, time, part):
        with SpoolWriter(asked.output / SPOOL, name, f"{part:06d}") as writer:
            for each in rows:
                writer.append(columns(each, time * length_ns, time * float(joules[-1] - joules[0])))

    last, part = asked.times - 1, 0
    for name in ("samples", "extremes"):
        table = run.table(name)
        rows = list(minutes(table, run.created_ns))
        before = list(minutes(table.filter(pc.less_equal(table["time_ns"], hour_ns)), run.created_ns))
        for time in range(asked.times):
            some = before if time == last else rows
            for first in range(0, len(some), MINUTES):
                part += 1
                write(name, some[first : first + MINUTES], time, part)
    for number, each in enumerate(minutes(run.recent, run.created_ns)):
        write("recent", [each], last, number + 1)


if __name__ == "__main__":
    main()
