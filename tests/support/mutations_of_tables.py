"""Changes of the cells, columns and layout of tables, and of the layout of other text."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from mutable import Sample, Table
from mutation import SAME, TRUE, Mutation, columns, devices, of_table, put, with_column

_BLANKS = (
    *("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU is lost]", "ERR!", "ENABLED", "-", "–", "nan", ""),
    *("140737488355328", "140737488355329", "140737488355344", "9223372036854775794", "9223372036854775807"),
    *("9223372036854775808", "9223372036854775792", "18446744073709551615", "4294967295", "2147483632", "-1"),
)
"""The cells of drivers and exporters that know nothing: DCGM's blanks, NVML's largest values, words."""

_WORDS = {
    **{"mW": 1e-3, "kW": 1e3, "milliwatts": 1e-3, "kilowatts": 1e3, "kWatt": 1e3, "hectowatts": 1e2, "dW": 0.1},
    **{"BTU/h": 0.29307107, "hp": 745.7, "dBm": 0.0, "VA": 0.0, "J": 0.0, "furlongs": 0.0, "kWh": 0.0, "mA": 0.0},
}
"""Unit words and how many watts each is; 0 for what is no power."""


@of_table(TRUE, within=0.1)
def blank_cell(table: Table, draw: Random) -> Table | None:
    """One numeric cell holds a blank of a driver."""
    if "power" not in table.roles:
        return None
    column = draw.choice([n for n in range(len(table.header)) if n not in (0, *table.roles["devices"])])
    return put(table, draw.randrange(len(table.rows)), column, draw.choice(_BLANKS))


@of_table(TRUE)
def blank_column(table: Table, draw: Random) -> Table | None:
    """A channel holds a blank throughout, of one device or of all."""
    if "power" not in table.roles:
        return None
    column = draw.choice([n for n in range(len(table.header)) if n not in (0, *table.roles["devices"])])
    column = table.roles["power"] if draw.random() < 0.4 else column
    blank, whose = draw.choice(_BLANKS), devices(table)
    some = {draw.choice(whose)} if draw.random() < 0.7 else set(whose)
    for n, device in enumerate(whose):
        table = put(table, n, column, blank) if device in some else table
    return table


@of_table(TRUE, within=0.05)
def zeros(table: Table, draw: Random) -> Table | None:
    """A third of the readings of power, or all, are 0 W."""
    if "power" not in table.roles:
        return None
    every = draw.choice([1, 3])
    for n in range(0, len(table.rows), every):
        cell = table.rows[n][table.roles["power"]]
        table = put(table, n, table.roles["power"], "0.00 W" if cell.endswith(" W") else "0.00")
    return table


def unit_word(sample: Sample, draw: Random) -> Mutation | None:
    """Another word stands for the unit of power, in the heading and in the cells that state it."""
    table = sample.table
    if table is None or "power" not in table.roles:
        return None
    word, column = draw.choice(sorted(_WORDS)), table.roles["power"]
    heading = table.header[column]
    new = heading.replace("[W]", f"[{word}]").replace("(W)", f"({word})")
    new = new.replace("power_w", draw.choice([word, f"power_{word}", f"power ({word})"]))
    if new == heading:
        return None
    rows = tuple(
        tuple(cell.replace(" W", f" {word}") if n == column else cell for n, cell in enumerate(row))
        for row in table.rows
    )
    header = (*table.header[:column], new, *table.header[column + 1 :])
    changed = replace(table, header=header, rows=rows).data()
    compared, factor = ("power_w", "energy_total_j"), _WORDS[word]
    return Mutation(changed, TRUE, sample.whole, factor=factor, within=0.01, compared=compared, said=new)


@of_table(TRUE, within=0.01)
def column_twice(table: Table, draw: Random) -> Table | None:
    """A heading occurs twice, over the same values or others."""
    if not table.roles:
        return None
    column = table.roles["power"] if draw.random() < 0.7 else draw.randrange(1, len(table.header))
    cells = [row[column] for row in table.rows]
    if draw.random() < 0.6:
        cells = [cell.replace("2", "1").replace("3", "1") for cell in cells]
    return with_column(table, draw.randrange(1, len(table.header) + 1), table.header[column], cells)


@of_table(SAME)
def column_more(table: Table, draw: Random) -> Table | None:
    """A column that says nothing of power or time."""
    if not table.roles or table.written != "csv":
        return None
    name, cell = draw.choice([("note", "a b"), ("fan.speed [%]", "30 %"), ("comment", ""), ("label", "x1")])
    at = draw.randrange(1, len(table.header) + 1)
    return with_column(table, at, name, [cell] * len(table.rows))


@of_table(TRUE)
def column_less(table: Table, draw: Random) -> Table | None:
    """A column is missing that neither power nor the devices need."""
    needed = {0, table.roles.get("power")}
    named = table.roles.get("devices", ())
    if len(set(devices(table))) > 1:
        needed.add(draw.choice(named))
    can = [n for n in range(len(table.header)) if n not in needed]
    if not table.roles or not can:
        return None
    gone = draw.choice(can)
    return columns(table, [n for n in range(len(table.header)) if n != gone])


@of_table(SAME)
def columns_reordered(table: Table, draw: Random) -> Table | None:
    """The columns stand in another order."""
    if not table.roles or table.written == "dmon":
        return None
    places = list(range(len(table.header)))
    draw.shuffle(places)
    return columns(table, places)


@of_table(SAME)
def quotation_marks(table: Table, _: Random) -> Table | None:
    """All cells are in quotation marks, or only those that need them."""
    return replace(table, quoted=not table.quoted) if table.written == "csv" else None


@of_table(SAME)
def trailing_commas(table: Table, draw: Random) -> Table | None:
    """Each line ends with separators, as spreadsheets write them."""
    return replace(table, behind="," * draw.choice([1, 1, 3])) if table.written == "csv" else None


def ends_of_lines(sample: Sample, draw: Random) -> Mutation | None:
    """Lines end as on Windows, blank lines follow, or stand between rows; a mark of the encoding is in front."""
    if sample.kind not in ("text", "table"):
        return None
    text = sample.whole.decode()
    if draw.random() < 0.4:
        text += "\n" * draw.randrange(1, 5)
    if sample.table is not None and draw.random() < 0.4:
        lines = text.split("\n")
        for _ in range(draw.randrange(1, 4)):
            lines.insert(draw.randrange(sample.table.preamble.count("\n") + 2, len(lines)), "")
        text = "\n".join(lines)
    text = text.replace("\n", "\r\n") if draw.random() < 0.5 else text
    return Mutation((("\ufeff" if draw.random() < 0.4 else "") + text).encode(), SAME, sample.whole)
