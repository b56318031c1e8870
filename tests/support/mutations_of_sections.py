"""Changes of the structure of tables within the file: headings in the middle, lines of times, stray marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from mutable import Sample, Table
from mutation import SAME, TRUE, Mutation, columns, devices, of_table, put


def _headings(table: Table) -> list[tuple[str, ...]]:
    """The lines of headings as rows: two of dmon, one of another table."""
    if table.written != "dmon":
        return [table.header]
    return [*zip(*(heading.partition("|")[::2] for heading in table.header), strict=True)]


def _csv(table: Table) -> bool:
    return bool(table.roles) and table.written == "csv"


@of_table(SAME)
def headings_again(table: Table, draw: Random) -> Table | None:
    """The headings stand again in front of some rows, as a tool that is started again writes them."""
    if not table.roles or table.written == "scrapes":
        return None
    rows = list(table.rows)
    for place in sorted(draw.sample(range(1, len(rows)), draw.choice([1, 3, 10])), reverse=True):
        rows[place:place] = _headings(table)
    return replace(table, rows=tuple(rows))


@of_table(SAME)
def sections(table: Table, draw: Random) -> Table | None:
    """From some rows on the columns stand in another order, below headings in that order."""
    if not _csv(table):
        return None
    cut = sorted(draw.sample(range(1, len(table.rows)), draw.choice([1, 2])))
    rows = list(table.rows[: cut[0]])
    for begin, end in zip(cut, [*cut[1:], len(table.rows)], strict=True):
        places = draw.sample(range(len(table.header)), len(table.header))
        part = columns(table, places)
        rows += [part.header, *part.rows[begin:end]]
    return replace(table, rows=tuple(rows))


@of_table(TRUE, within=0.06)
def other_section(table: Table, draw: Random) -> Table | None:
    """From some rows on there are fewer columns, or others, below their headings."""
    if not _csv(table):
        return None
    cut, names = draw.randrange(1, len(table.rows)), list(table.header)
    kept = draw.sample(range(len(names)), draw.randrange(2, len(names) + 1))
    header = [*(names[n] for n in kept), *draw.choice([[], ["pstate"], ["date", "note"]])]
    more = ("P0", "x")[: len(header) - len(kept)]
    rows = [(*(row[n] for n in kept), *more) for row in table.rows[cut:]]
    return replace(table, rows=(*table.rows[:cut], tuple(header), *rows))


def _under_times(table: Table, draw: Random, places: Sequence[int]) -> bytes:
    """Those columns, below lines with the times that the rows had; the headings stand once or below each time."""
    part, each = columns(table, places), draw.random() < 0.5
    lines = [part.header]
    for n, row in enumerate(part.rows):
        if n == 0 or table.rows[n][0] != table.rows[n - 1][0]:
            lines += [(table.rows[n][0],), *([part.header] if each else [])]
        lines.append(row)
    return replace(part, header=lines[0], rows=tuple(lines[1:])).data()


def time_lines(sample: Sample, draw: Random) -> Mutation | None:
    """Rows have no times: these stand on lines of their own."""
    table = sample.table
    if table is None or sample.form not in ("nvidia_smi", "dcgm") or not _csv(table):
        return None
    changed = _under_times(table, draw, range(1, len(table.header)))
    return Mutation(changed, SAME, sample.whole)


def place_of_gpu(sample: Sample, draw: Random) -> Mutation | None:
    """Likewise, and nothing but the place below the time says of which GPU a row is."""
    table = sample.table
    if table is None or sample.form != "nvidia_smi" or not _csv(table):
        return None
    kept = [n for n in range(1, len(table.header)) if n not in table.roles["devices"]]
    name = ("--device", "NVIDIA H100 80GB HBM3")
    return Mutation(
        _under_times(table, draw, kept), TRUE, sample.whole, options=name, said=str(len(set(devices(table))))
    )


def stray_mark(sample: Sample, draw: Random) -> Mutation | None:
    """A row begins with "#", which means nothing in dmon."""
    table = sample.table
    if table is None or not table.roles or table.written == "scrapes":
        return None
    row = draw.randrange(len(table.rows))
    changed = put(table, row, 0, draw.choice(["#", "# "]) + table.rows[row][0]).data()
    return Mutation(changed, SAME if table.written == "dmon" else TRUE, sample.whole, within=0.1)
