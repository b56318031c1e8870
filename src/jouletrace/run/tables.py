"""The tables of a Run: Arrow schemas whose fields carry a unit and a description.

All times are integer nanoseconds since the Unix epoch.
"""

from __future__ import annotations

# pyarrow imports pandas when it is first used, which imports this, and an interpreter that is ending refuses that
import concurrent.futures.thread  # noqa: F401
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from jouletrace.arrays import Ints
from jouletrace.run.lazily import compute as pc
from jouletrace.run.lazily import parquet as pq
from jouletrace.run.limits import Allowance, TooLargeError, check_table

_BATCH_ROWS, _READ_BYTES = 1 << 20, 1 << 20

SPAN_KINDS = ("run", "phase", "iteration", "layer", "op", "site", "group", "kernel", "range", "memcpy", "launch")
UNIT_LEVELS = ("model", "phase", "length", "context", "layer", "op", "kernel", "range", "device", "load")
"""An ``op`` is an operator on the same shapes in the same module (or in equal layers); its kernels are its children,
with a ``site`` for each of those modules. A ``group`` is a module removed as a whole. A ``length`` is a forward of
one token at that length of the cache, a ``load`` a rate or concurrency of requests to a server."""
SPANS_OF_A_PROCESS = 1_000_000_000
"""Ids of spans of each process of a Run of several begin at a multiple of this."""

LEVEL_OF_SPANS = {
    **{"kernel": "kernel", "memcpy": "kernel", "op": "op", "layer": "layer", "range": "range", "iteration": "range"},
}
"""Level of the units that an import creates from the names of each kind of span."""

_NAME = pa.dictionary(pa.int32(), pa.string())


def _field(name: str, kind: pa.DataType, unit: str, description: str) -> pa.Field:
    return pa.field(name, kind, metadata={"unit": unit, "description": description})


def _schema(*fields: pa.Field) -> pa.Schema:
    return pa.schema(fields)


SAMPLES = _schema(
    _field("time_ns", pa.int64(), "ns", "the sensor's stamp, since the Unix epoch"),
    _field("device", _NAME, "", "id of the device"),
    _field("channel", _NAME, "", "channel name; run.json and the suffix give its unit"),
    _field("value", pa.float64(), "by channel", "the reading"),
)

RECENT = SAMPLES
"""Of a recording of which ``samples`` holds means of seconds: the last hour, reading by reading."""

EXTREMES = _schema(
    _field("time_ns", pa.int64(), "ns", "the stamp of the mean in samples, since the Unix epoch"),
    _field("device", _NAME, "", "id of the device"),
    _field("channel", _NAME, "", "channel name"),
    _field("low", pa.float64(), "by channel", "the lowest reading of that second"),
    _field("high", pa.float64(), "by channel", "the highest reading of that second"),
)
"""Of such a recording, the seconds in which a channel had different readings."""

SPANS = _schema(
    _field("id", pa.int64(), "", "unique in the Run"),
    _field("parent", pa.int64(), "", "id of the enclosing span; null at the top"),
    _field("kind", _NAME, "", "one of " + ", ".join(SPAN_KINDS)),
    _field("name", _NAME, "", "name of the phase, layer, operator or kernel"),
    _field("device", _NAME, "", "id of the device"),
    _field("lane", _NAME, "", "stream or thread on which it ran, or the pass it belongs to"),
    _field("start_ns", pa.int64(), "ns", "start since the Unix epoch"),
    _field("end_ns", pa.int64(), "ns", "end since the Unix epoch"),
    _field("unit", pa.int64(), "", "id in the units table, where the span belongs to a unit"),
    _field("correlation", pa.int64(), "", "joins a kernel to its launch"),
    _field("graph_node", pa.int64(), "", "id of the CUDA graph node, in imported traces"),
    *(_field(f"grid_{axis}", pa.int32(), "blocks", f"launch grid, {axis}") for axis in "xyz"),
    *(_field(f"block_{axis}", pa.int32(), "threads", f"thread block, {axis}") for axis in "xyz"),
    _field("registers", pa.int32(), "1/thread", "registers per thread"),
    _field("shared_static_bytes", pa.int32(), "B", "static shared memory per block"),
    _field("shared_dynamic_bytes", pa.int32(), "B", "dynamic shared memory per block"),
    _field("bytes", pa.int64(), "B", "bytes moved by a memory copy or set"),
)

UNITS = _schema(
    _field("id", pa.int64(), "", "unique in the Run; 0 is the whole model"),
    _field("parent", pa.int64(), "", "id of the enclosing unit; null at the top"),
    _field("level", _NAME, "", "one of " + ", ".join(UNIT_LEVELS)),
    _field("name", pa.string(), "", "what is printed"),
    _field("op", pa.string(), "", "operator, for units of operators"),
    _field("shapes", pa.string(), "", "input shapes and types of the operator"),
    _field("module", pa.string(), "", "qualified name of the module"),
    _field("count", pa.int64(), "1/iteration", "how often it runs per iteration"),
    _field("phase", _NAME, "", "forward, backward, optimizer, prefill or decode; null where there are no phases"),
    _field(
        "weight",
        pa.float64(),
        "1",
        "how often it counts in the whole for each time in the experiment; null for once",
    ),
    _field(
        "call",
        pa.string(),
        "",
        "for a site: index of the call of each module in the qualified name; null where unknown",
    ),
    _field(
        "flops", pa.float64(), "1/iteration", "for a site: floating-point operations by torch's formulas; else null"
    ),
    _field("bytes", pa.float64(), "B/iteration", "for a site: bytes of inputs read and outputs written; else null"),
)


class UnitRow(TypedDict):
    """A row of ``units``."""

    id: int
    parent: int | None
    level: str
    name: str
    op: str | None
    shapes: str | None
    module: str | None
    phase: str | None
    call: str | None
    count: int | None
    flops: float | None
    bytes: float | None


WINDOWS = _schema(
    _field("variant", _NAME, "", "untouched, flush; in older Runs: step, reference, null, remove, repeat, ..."),
    _field("unit", pa.int64(), "", "id of the unit that was changed; null for untouched"),
    _field("multiplicity", pa.float64(), "", "launches of the unit per launch in the model"),
    _field("block", pa.int32(), "", "block of the plan"),
    _field("order", pa.int32(), "", "position in the order in which windows ran"),
    _field("replays", pa.int64(), "", "iterations in the window"),
    _field("beyond", pa.int64(), "", "iterations directly before and after it, half each; null for none"),
    _field("start_ns", pa.int64(), "ns", "start since the Unix epoch"),
    _field("end_ns", pa.int64(), "ns", "end since the Unix epoch"),
    _field("energy_j", pa.float64(), "J", "energy of the GPU in the window; null if not measured"),
    _field("time_s", pa.float64(), "s", "duration of the window"),
    _field("clock_mhz", pa.float64(), "MHz", "mean SM clock in the window, as the driver reports it"),
    _field("counted_mhz", pa.float64(), "MHz", "measured mean SM clock, by the SMs' cycle counters; null if not read"),
    _field("temperature_c", pa.float64(), "Cel", "mean temperature in the window"),
    _field("flags", pa.string(), "", "comma-separated codes"),
)

RESULTS = _schema(
    _field("unit", pa.int64(), "", "id in the units table"),
    _field("metric", _NAME, "", "name of the metric, with its unit as suffix"),
    _field("value", pa.float64(), "by metric", "the figure; null with a reason"),
    _field("low", pa.float64(), "by metric", "lower end of the 95 % interval"),
    _field("high", pa.float64(), "by metric", "upper end of the 95 % interval"),
    _field("n", pa.int64(), "", "independent windows, blocks or samples behind it"),
    _field("method", _NAME, "", "how it was obtained"),
    _field("flags", pa.string(), "", "comma-separated codes"),
    _field("reason", pa.string(), "", "why value is null"),
    _field("budget", pa.string(), "by metric", "standard uncertainties by cause, a JSON object; null where not stated"),
)

COUNTERS = _schema(
    _field("span", pa.int64(), "", "id in the spans table: the kernel or range that the counter belongs to"),
    _field("metric", _NAME, "", "name of the metric in its tool"),
    _field("section", _NAME, "", "the tool's heading above it; null if none"),
    _field("value", pa.float64(), "by row", "the reading; null where the tool reports none"),
    _field("value_unit", _NAME, "", "unit of the value: %, Hz, B, B/s, s, 1, ..."),
)

ACTIVITY = _schema(
    _field("start_ns", pa.int64(), "ns", "start since the Unix epoch"),
    _field("end_ns", pa.int64(), "ns", "end since the Unix epoch"),
    _field("unit", pa.int64(), "", "id of the kernel in the units table"),
    _field("site", pa.int64(), "", "id in the units table of the operator call; null where unknown"),
    _field("copy", pa.bool_(), "", "whether only its power counts: repeated in place, or outside iterations"),
    _field("device", _NAME, "", "id of the device; null for that of the one recording"),
)
"""Kernels of a long recording, from which their power is computed; ``spans`` holds some iterations in full."""

WAVEFORM = _schema(
    _field("start_ns", pa.int64(), "ns", "start since the Unix epoch"),
    _field("end_ns", pa.int64(), "ns", "end since the Unix epoch, equal to the start of the next row"),
    _field("power_w", pa.float64(), "W", "mean power; null where the readings don't resolve it"),
    _field("low_w", pa.float64(), "W", "lower end of the 95 % interval"),
    _field("high_w", pa.float64(), "W", "upper end of the 95 % interval"),
)
"""Power inside one recorded iteration, in equal bins; computed by the analysis."""

REQUESTS = pa.schema(
    [
        _field("id", pa.int64(), "", "number of the request within its level"),
        _field("level", pa.int64(), "", "number of the load, from 0: its place in run.json's workload.serving.levels"),
        _field("scheduled_ns", pa.int64(), "ns", "when it was due, since the Unix epoch; when sent, in a closed loop"),
        _field("sent_ns", pa.int64(), "ns", "when the client began to send it, since the Unix epoch"),
        _field("first_ns", pa.int64(), "ns", "arrival of its first token, since the Unix epoch; null if none came"),
        _field("last_ns", pa.int64(), "ns", "arrival of its last token, or its failure, since the Unix epoch"),
        _field(
            "input_tokens", pa.int64(), "1", "tokens of the prompt, as the server counts; as planned, if it doesn't"
        ),
        _field("output_tokens", pa.int64(), "1", "tokens of the answer, as the server counts; chunks, if it doesn't"),
        _field("chunks", pa.int64(), "1", "parts with a token in which the answer came"),
        _field("status", _NAME, "", "ok or failed"),
        _field("error", pa.string(), "", "why it failed, in one line"),
        _field("energy_j", pa.float64(), "J", "its bill: its share of the GPUs' energy of its steady window; computed"),
        _field("billed", pa.float64(), "1", "share of its time, sent to last, within that window; computed"),
        _field("energy_own_j", pa.float64(), "J", "of the bill, what its own tokens added; computed from steps"),
        _field("half_width_j", pa.float64(), "J", "half-width of the bill's 95 % interval; computed from steps"),
    ]
)
"""Requests to a server, one a row."""

BILL = ("energy_j", "billed", "energy_own_j", "half_width_j")
"""Columns of ``requests`` that the analysis computes."""

STEPS = _schema(
    _field("start_ns", pa.int64(), "ns", "start since the Unix epoch, on the clock of the requests"),
    _field("end_ns", pa.int64(), "ns", "end since the Unix epoch, on the clock of the requests"),
    _field("new_tokens", pa.int64(), "1", "prompt tokens that it read"),
    _field("prefilling", pa.int64(), "1", "sequences whose prompts these are; null where the log doesn't state it"),
    _field("decoding", pa.int64(), "1", "sequences that it gave an output token without reading prompt tokens"),
    _field("context_tokens", pa.int64(), "1", "tokens in the caches of these decoding sequences"),
    _field("traced_j", pa.float64(), "J", "energy of the GPUs in it by the server's traced kernels; null where none"),
)
"""Steps of a server's scheduler, one a row."""

DIVIDED = _schema(
    _field("device", _NAME, "", "id of the device"),
    _field("unit", pa.int64(), "", "id in the units table: a kernel, or idle"),
    _field("site", pa.int64(), "", "id in the units table of the operator call; null where unknown"),
    _field("kind", pa.int64(), "", "its kind in the powers table; null where its power isn't known"),
    _field("seconds", pa.float64(), "s", "time in an iteration, or in all of a program"),
    _field("count", pa.float64(), "", "launches in that; null where unknown"),
    _field("reason", _NAME, "", "why the power isn't known; null if it is"),
)
"""Energy of each device divided by what ran: seconds, whose powers are in ``powers``."""

POWERS = _schema(
    _field("device", _NAME, "", "id of the device"),
    _field("kind", pa.int64(), "", "number of the kind of kernels, from 0; the last is idle"),
    _field("watts", pa.float64(), "W", "power of the kind"),
    _field("own", pa.float64(), "1", "share of its time that counts as its own: of n kernels at once, 1/n"),
    _field("overlapped", pa.float64(), "1", "share of its time that is its own while others run"),
    _field("most_w", pa.float64(), "W", "the largest power that is possible"),
    _field("prior_w", pa.float64(), "W", "standard deviation of the power before any reading"),
    _field("tracing_w", pa.float64(), "W", "standard uncertainty by tracing: one error of all kinds"),
    _field("varies_w", pa.float64(), "W", "standard deviation of some of its kernels from others: one error of all"),
    _field("scatter_w", pa.float64(), "W√s", "the same of a second of kernels that differ each by itself"),
    _field("readings", pa.int64(), "", "how many readings determine the powers of the device"),
    _field("coverage", pa.float64(), "1", "standard uncertainties by the readings in a 95 % half-width"),
)

ERRORS = _schema(
    _field("device", _NAME, "", "id of the device"),
    _field("matrix", _NAME, "", "a cause of errors, in order, the last with the root of all covariance; or gained"),
    _field("value", pa.float32(), "by matrix", "lower triangle over kinds, row by row: root in W, others as shares"),
)
"""The table holds what the errors of ``powers`` have in common (``run.division.Powers``)."""

TABLES: dict[str, pa.Schema] = {
    "samples": SAMPLES,
    "spans": SPANS,
    "units": UNITS,
    "windows": WINDOWS,
    "results": RESULTS,
    "counters": COUNTERS,
    "activity": ACTIVITY,
    "waveform": WAVEFORM,
    "requests": REQUESTS,
    "steps": STEPS,
    "divided": DIVIDED,
    "powers": POWERS,
    "errors": ERRORS,
    "recent": RECENT,
    "extremes": EXTREMES,
}

_SIMULATED = _field("SIMULATED", pa.bool_(), "", "true: from a simulated GPU, no hardware was measured")

SOLVED = ("divided", "powers", "errors")
"""Written by the analysis of kernels (``run.division``), which ``show --by`` runs again where they are missing."""

OF_LONG = ("recent", "extremes")
"""Only of a recording of which ``samples`` holds means of seconds."""

OPTIONAL = ("counters", "activity", "waveform", "requests", "steps", *SOLVED, *OF_LONG)
"""Written only if they have rows: Runs of format 1.0 don't contain them."""

REQUIRED: dict[str, tuple[str, ...]] = {
    "samples": ("time_ns", "device", "channel", "value"),
    "recent": ("time_ns", "device", "channel", "value"),
    "extremes": tuple(EXTREMES.names),
    "spans": ("id", "kind", "name", "start_ns", "end_ns"),
    "units": ("id", "level", "name"),
    "windows": ("variant", "start_ns", "end_ns"),
    "results": ("unit", "metric", "value"),
    "counters": ("span", "metric", "value"),
    "activity": ("start_ns", "end_ns", "unit"),
    "waveform": ("start_ns", "end_ns", "power_w"),
    "requests": ("level", "sent_ns", "last_ns", "status"),
    "steps": ("start_ns", "end_ns", "new_tokens", "decoding", "context_tokens"),
    "divided": ("device", "unit", "kind", "seconds"),
    "powers": tuple(name for name in POWERS.names if name not in ("varies_w", "scatter_w")),
    "errors": tuple(ERRORS.names),
}
"""Columns that every table of a Run has; a version may add others."""


def read(source: Any, name: str, allowance: Allowance | None = None, groups: Sequence[int] | None = None) -> pa.Table:
    """Read the table ``name``, or some row groups of it, from Parquet opened for random access, checked byte by byte.

    Columns that this version doesn't know are ignored. ``allowance``, how much it may unpack to, is reduced by what is
    read, and derived from the file size if None.

    Raises:
        ValueError: With one line, if it is damaged, or a column of ``REQUIRED`` is missing; ``TooLargeError`` if it
            would unpack to more than is allowed.
    """
    try:
        if allowance is None:
            allowance = Allowance(source.seek(0, os.SEEK_END))
        there = check_table(source, name, set(TABLES[name].names), allowance, groups)
        missing = [column for column in REQUIRED[name] if column not in there]
        if missing:
            raise ValueError(f"it has no column {missing[0]!r}")
        table = _decode(source, name, there, allowance, groups)
        table.validate(full=True)
    except TooLargeError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise ValueError(lines[0]) from None
    return table


def _decode(source: Any, name: str, there: list[str], allowance: Allowance, groups: Sequence[int] | None) -> pa.Table:
    """The table, column by column: the memory for the conversion of one column is freed before the next."""
    source.seek(0)
    columns: dict[str, pa.Array] = {}
    # Arrow's thread pools may abort a process that ends right after a read, so they aren't used.
    with pq.ParquetFile(
        source, page_checksum_verification=True, pre_buffer=False, buffer_size=_READ_BYTES, read_dictionary=there
    ) as file:
        numbers, stored = range(file.num_row_groups) if groups is None else groups, file.schema_arrow
        rows = sum(file.metadata.row_group(number).num_rows for number in numbers)
        for field in TABLES[name]:
            if field.name in there:
                columns[field.name] = _conform(_column(file, field, stored, allowance, numbers), field.type, rows)
                taken = columns[field.name].nbytes
                allowance.spend(taken, taken * pa.types.is_string(field.type))
    arrays = [columns[f.name] if f.name in columns else nulls(rows, f.type) for f in TABLES[name]]
    return pa.Table.from_arrays(arrays, schema=TABLES[name])


def _column(
    file: pq.ParquetFile, field: pa.Field, stored: pa.Schema, allowance: Allowance, groups: Sequence[int]
) -> pa.Array:
    """A column as stored, dictionary-encoded, in one chunk, which NumPy needn't copy.

    The allowance is checked against its texts at full length.
    """
    taken, texts, chunks = 0, 0, []
    for batch in file.iter_batches(_BATCH_ROWS, list(groups), [field.name], use_threads=False):
        chunk = batch.column(0)
        taken += chunk.nbytes
        if pa.types.is_dictionary(chunk.type):
            texts += chunk.dictionary.nbytes + (_text_bytes(chunk) if pa.types.is_string(field.type) else 0)
        allowance.check(taken + texts, texts)
        chunks.append(chunk)
    return pa.chunked_array(chunks, type=stored.field(field.name).type).combine_chunks()


def _text_bytes(column: pa.DictionaryArray) -> int:
    """Bytes of all texts of a column, each counted as often as it occurs."""
    lengths = pc.fill_null(pc.binary_length(column.dictionary), 0)
    return pc.sum(lengths.cast(pa.int64()).take(column.indices)).as_py() or 0


def write(table: pa.Table, name: str, sink: Any, *, simulated: bool = False) -> None:
    """Write the table ``name`` as Parquet with units in its schema and checksums in its pages."""
    table = conform(table, name)
    with writer(sink, name, simulated=simulated) as opened:
        opened.write_table(mark_simulated(table) if simulated else table)


def writer(sink: Any, name: str, *, simulated: bool, by_channel: bool = False) -> pq.ParquetWriter:
    """A writer of the table ``name``, piece by piece, as ``write`` does; ``by_channel``: each piece of one channel."""
    schema = TABLES[name]
    encodings = {f.name: "DELTA_BINARY_PACKED" for f in schema if f.name.endswith("_ns")}
    encodings |= {f.name: "BYTE_STREAM_SPLIT" for f in schema if f.type == pa.float32()}
    return pq.ParquetWriter(
        sink,
        schema.append(_SIMULATED) if simulated else schema,
        compression="zstd",
        write_page_checksum=True,
        # Differences of stamps are small: a third smaller and four times faster than dictionaries of 64-bit stamps.
        use_dictionary=[f.name for f in schema if f.name not in encodings],
        column_encoding=encodings,
        # A channel repeats few values, or hardly any: 16,384 make a dictionary. With more a file is a quarter larger.
        **({"dictionary_pagesize_limit": 1 << 17, "compression_level": 3} if by_channel else {}),
    )


def mark_simulated(table: pa.Table) -> pa.Table:
    """The table with a last column SIMULATED in every row: files get separated from their ``run.json``."""
    return table.append_column(_SIMULATED, pa.repeat(pa.scalar(True), len(table)))


def conform(table: pa.Table, name: str) -> pa.Table:
    """Convert a table to the schema ``name``: absent columns become null, extra columns are dropped.

    Raises:
        pyarrow.ArrowInvalid: If a column can't be cast to its type without loss.
    """
    schema, there, rows = TABLES[name], set(table.column_names), len(table)
    columns = [_conform(table.column(f.name), f.type, rows) if f.name in there else nulls(rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def concat(parts: Iterable[pa.Table], name: str) -> pa.Table:
    """Tables one after another in the schema ``name``, empty if there is none."""
    return conform(pa.concat_tables([empty(name), *parts]), name)


def changed(table: pa.Table, column: str, values: Any) -> pa.Table:
    """The table with other values in a column, whose type stays."""
    field = table.schema.field(column)
    new = values if isinstance(values, pa.Array | pa.ChunkedArray) else array(values, field.type)
    return table.set_column(table.schema.get_field_index(column), field, new)


def _conform(column: pa.Array | pa.ChunkedArray, kind: pa.DataType, rows: int) -> pa.Array | pa.ChunkedArray:
    return nulls(rows, kind) if column.null_count == rows else _whole(column.cast(kind))


def nulls(length: int, kind: pa.DataType) -> pa.Array:
    """An array of nulls in zero pages that are never written: most columns of most spans are null."""
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(nulls(length, kind.index_type), pa.array([], kind.value_type))
    zeros = pa.py_buffer(np.zeros(length + 1, np.int64))  # untouched zero pages take no memory
    buffers = [zeros, zeros, *([pa.py_buffer(b"")] if pa.types.is_string(kind) else [])]
    return pa.Array.from_buffers(kind, length, buffers, null_count=length)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The column with one dictionary for all chunks, which Parquet readers expect."""
    if isinstance(column, pa.ChunkedArray) and pa.types.is_dictionary(column.type):
        return column.unify_dictionaries()
    return column


def from_rows(rows: list[dict[str, object]], name: str) -> pa.Table:
    """A table of the schema ``name`` from dictionaries; absent keys become null."""
    schema, there, count = TABLES[name], set().union(*rows), len(rows)
    columns = [
        array([row.get(f.name) for row in rows], f.type) if f.name in there else nulls(count, f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def array(values: Any, kind: pa.DataType) -> pa.Array:
    """An Arrow array; code points that UTF-8 can't encode (surrogates of a file name, say) are escaped."""
    try:
        return pa.array(values, type=kind)
    except UnicodeEncodeError:
        spelt = [v.encode("utf-8", "backslashreplace").decode() if isinstance(v, str) else v for v in values]
        return pa.array(spelt, type=kind)


def filled(column: pa.Array | pa.ChunkedArray, value: float) -> pa.Array | pa.ChunkedArray:
    """The column with a value for nulls; itself where there are none, of which Arrow would make a copy."""
    return pc.fill_null(column, value) if column.null_count else column


def decoded(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Codes of a column of text, -1 where null, and its distinct texts."""
    if len(column) == 0:
        return np.empty(0, np.int64), []
    parts = column.unify_dictionaries().chunks
    codes = [filled(part.indices, -1).to_numpy(zero_copy_only=False) for part in parts]
    texts = [str(text) for text in parts[0].dictionary.to_pylist()]
    first = {text: i for i, text in reversed(list(enumerate(texts)))}
    code = np.concatenate(codes, dtype=np.int64)
    if len(first) < len(texts):  # another program wrote a text twice
        code = np.append([first[text] for text in texts], -1)[code]
    return code, texts


def distinct(values: Ints) -> tuple[Ints, Ints]:
    """Distinct values, ascending, and the place of each value among them: ``np.unique`` in a tenth of the time."""
    coded = pa.array(values).dictionary_encode()
    uniques = coded.dictionary.to_numpy()
    rank = np.empty(len(uniques), np.int64)
    rank[np.argsort(uniques)] = np.arange(len(uniques))
    return np.sort(uniques), rank[coded.indices.to_numpy()]


def empty(name: str) -> pa.Table:
    """An empty table of the schema ``name``."""
    return pa.Table.from_batches([], TABLES[name])  # empty_table() makes arrays: the first imports pandas
