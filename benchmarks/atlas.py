"""A data set of many profiles: a table of Runs and one of their operators, as Parquet and CSV, with a page of columns.

    jouletrace sweep MODEL ... --batch 1,64 --mode eager,compile --dtype bf16 --detail kernel -o GRID
    python benchmarks/atlas.py GRID/points/* -o DATA

A data set that is there keeps its other Runs; the same Run takes the place of its former rows.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import jouletrace as jt
from jouletrace.analysis.checks import outcomes
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.files import write_whole
from jouletrace.run.parts import Parts
from jouletrace.run.recording_names import IDLE_NAME
from jouletrace.spreadsheets import csv_file
from jouletrace.version import __version__
from jouletrace.words.reasons import printed
from jouletrace.words.text import printable

Column = tuple[str, pa.DataType, str, str]
TEXT, WHOLE, REAL = pa.string(), pa.int64(), pa.float64()


def _figure(name: str, unit: str, what: str) -> tuple[Column, ...]:
    ends = {"low": "lower end of the 95 % interval", "high": "upper end of the 95 % interval"}
    return ((name, REAL, unit, what), *((f"{name}_{end}", REAL, unit, said) for end, said in ends.items()))


KEY: tuple[Column, ...] = (
    ("gpu", TEXT, "", "model of the GPU; a simulated one has SIMULATED in it"),
    ("model", TEXT, "", "name of the model"),
    ("batch", WHOLE, "samples", "samples per iteration"),
    ("mode", TEXT, "", "eager, graph or compile"),
    ("dtype", TEXT, "", "type of weights and inputs"),
    ("run", TEXT, "", "id of the Run, which joins the two tables"),
)
ATLAS: tuple[Column, ...] = (
    *KEY,
    *_figure("latency_ms", "ms", "median time of an iteration by itself"),
    *_figure("iteration_ms", "ms", "mean time of an iteration, back to back"),
    *_figure("power_w", "W", "mean power, back to back"),
    *_figure("energy_j", "J", "energy of an iteration, the GPU's idle power included"),
    *_figure("energy_per_sample_j", "J", "energy_j divided by batch"),
    *_figure("energy_active_j", "J", "energy of an iteration above idle power with a context"),
    *_figure("idle_w", "W", "power of the GPU with a context and no kernel"),
    *_figure("parts_by_whole", "1", "sum of the operators' energies divided by that of the untraced whole"),
    ("trust", TEXT, "", "whether the Run passed its checks: yes, with care or no"),
    ("trust_failed", TEXT, "", "codes of what failed"),
    ("flags", TEXT, "", "flags of the energy"),
    ("reason", TEXT, "", "why there is no energy"),
    ("tokens", WHOLE, "tokens/sample", "length of a sample, for models of text"),
    ("parameters", WHOLE, "1", "parameters of the model"),
    ("graph_breaks", WHOLE, "1", "times that the compiler split the model"),
    ("power_limit_w", REAL, "W", "power limit of the GPU"),
    ("gpu_id", TEXT, "", "identifier of the very GPU"),
    ("latest", pa.bool_(), "", "whether no later Run here is of the same model of GPU, model, batch and mode"),
    ("simulated", pa.bool_(), "", "whether no hardware was measured"),
    ("measured", TEXT, "UTC", "when the Run began"),
    *((f"version_{name}", TEXT, "", f"version of {name}") for name in ("jouletrace", "torch", "transformers", "cuda")),
    ("driver", TEXT, "", "version of the driver"),
)
OPERATORS: tuple[Column, ...] = (
    *KEY,
    ("operator", TEXT, "", "operator; a kernel where the compiler leaves no operator; a sum of unresolved ones"),
    ("group", TEXT, "", "kind of the operator, by its name"),
    ("module", TEXT, "", "module; equal layers have a * and one row"),
    ("shapes", TEXT, "", "shapes of the inputs"),
    ("count", WHOLE, "1/iteration", "how often it runs"),
    ("time_ms", REAL, "ms", "time in an iteration, traced"),
    *_figure("power_w", "W", "mean power while it runs"),
    *_figure("energy_j", "J", "energy in an iteration"),
    *_figure("energy_share", "1", "energy divided by that of the untraced iteration"),
    ("time_share", REAL, "1", "time divided by that of the iteration"),
    ("reason", TEXT, "", "why there is no energy"),
)

PLACES = {name: place for place, (name, *_) in enumerate(ATLAS)}
IDLE, POOL = printed(IDLE_NAME), "several, unresolved"
GROUPS = {
    "compiler's fused kernel": r"^triton_(poi|red|per|for)",
    "attention": r"attention|flash|fmha|sdpa",
    "convolution": r"conv(?!ert)|fprop|winograd",
    "matrix product": r"mm\b|matmul|linear|gemm|gemv|nvjet|cutlass|einsum|triton_tem",
    "normalisation, softmax": r"norm|softmax",
    "embedding, gather": r"embedding|gather|scatter|index",
    "copy, layout": r"copy|clone|contiguous|\bcat\b|\bpad\b|roll|memcpy|memset|permute|transpose",
    "reduction, pooling": r"pool|\b(sum|mean|var|amax|max|argmax|cumsum)\b|reduce",
}
"""Kinds of operators and kernels, by the first expression that occurs in the name; all else is elementwise or other."""


def group_of(name: str, pooled: bool) -> str:
    """The kind of an operator or kernel, by its name."""
    if name in (IDLE, IDLE_NAME):
        return IDLE
    if pooled:
        return POOL
    return next((group for group, form in GROUPS.items() if re.search(form, name, re.I)), "elementwise, other")


def _cells(*figures: Estimate, times: float = 1.0) -> list[float | None]:
    """Figures times a factor, and the ends of their intervals."""
    return [end for one in figures for end in (one.scaled(times).value, one.scaled(times).low, one.scaled(times).high)]


def rows(run: Run) -> tuple[list[object], list[list[object]]]:
    """The row of a Run in the one table, and those in the other, the longest first."""
    results, workload, device = Parts(run), run.workload, run.devices[0]
    name = printable(str(workload.get("name"))).rpartition(":")[2]
    items = int(workload.get("items") or workload.get("batch") or 1)
    key: list[object] = [printable(device.name), name, items, workload.get("mode"), workload.get("dtype"), run.id]
    energy, judged = results.get("energy_total_j"), outcomes(run, results)
    row = [
        *key,
        *_cells(results.get("latency_s"), results.get("iteration_time_s"), times=1e3),
        *_cells(results.get("power_w"), energy, energy.scaled(1 / items)),
        *_cells(*map(results.get, ("energy_active_over_context_idle_j", "baseline_context_idle_w", "closure_kernels"))),
        judged.level,
        ", ".join(dict.fromkeys(f.code for f in judged.failed)),
        ", ".join(energy.flags),
        energy.reason,
        workload.get("seq_len"),
        workload.get("parameters"),
        workload.get("step", {}).get("graph_breaks"),
        device.power_limit_w,
        printable(device.id),
        True,
        run.simulated,
        datetime.fromtimestamp(run.created_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M"),
        *(run.versions.get(one) for one in ("jouletrace", "torch", "transformers", "cuda")),
        device.driver,
    ]
    whole_j, whole_s = energy.value or math.nan, results.get("iteration_time_s").value or math.nan
    found = []
    for unit in results.units("op") + [u for u in results.units("kernel") if u.level == "kernel"]:
        if unit.parent != MODEL_UNIT:
            continue
        own, seconds, joules = printable(printed(unit.name)), unit.get("time_s").value, unit.get("energy_total_j")
        group = group_of(unit.op or own, unit.level == "op" and not unit.op)
        about = [*key, own, group, unit.module, unit.shapes, unit.count]
        milliseconds, of_time = (None, None) if seconds is None else (1e3 * seconds, seconds / whole_s)
        figures = [milliseconds, *_cells(unit.get("power_w"), joules), *_cells(joules, times=1 / whole_j), of_time]
        found.append([*about, *figures, joules.reason])
    place = [column for column, *_ in OPERATORS].index("time_share")
    return row, sorted(found, key=lambda r: -(r[place] or 0.0))


def write(columns: tuple[Column, ...], found: list[list[object]], path: Path) -> None:
    """A table as ``.parquet``, whose fields have unit and description, and as ``.csv``, of six digits."""
    fields = [pa.field(name, kind, metadata={"unit": unit, "description": what}) for name, kind, unit, what in columns]
    values = [pa.array([row[i] for row in found], one.type) for i, one in enumerate(fields)]
    packed = BytesIO()
    pq.write_table(pa.Table.from_arrays(values, schema=pa.schema(fields)), packed)
    write_whole(path.with_suffix(".parquet"), packed.getvalue())
    cells = [[float(f"{cell:.6g}") if isinstance(cell, float) else cell for cell in row] for row in found]
    write_whole(path.with_suffix(".csv"), csv_file([[one.name for one in fields], *cells]).encode())


def profiles(paths: Iterable[Path]) -> list[Run]:
    """The Runs of ``profile`` among files, each once, in order of time.

    Raises:
        BadInputError: If one is no such Run.
    """
    found: dict[str, Run] = {}
    for path in paths:
        run = jt.load(str(path))
        if run.kind != "profile":
            raise jt.BadInputError(f"{path}: a Run of {printable(run.kind)}, not of profile; take it out")
        found[run.id] = run
    return sorted(found.values(), key=lambda run: run.created_ns)


def read(data: Path) -> list[pa.Table]:
    """Both tables of a data set.

    Raises:
        BadInputError: If these are others.
    """
    tables = [pq.read_table(data / f"{name}.parquet") for name in ("atlas", "atlas-operators")]
    for found, columns in zip(tables, (ATLAS, OPERATORS), strict=True):
        if found.column_names != [name for name, *_ in columns]:
            raise jt.BadInputError(f"{data}: not a data set of this version's atlas.py; name another folder")
    return tables


def table(paths: Iterable[Path], data: Path) -> None:
    """Write the data set of these Runs and its description; a data set that is there keeps its other Runs."""
    pairs = [rows(run) for run in profiles(paths)]
    whole, parts = [row for row, _ in pairs], [part for _, some in pairs for part in some]
    if (data / "atlas.parquet").exists():
        place = PLACES["run"]  # the same in both tables
        new = {row[place] for row in whole}
        before = [[list(row.values()) for row in one.to_pylist()] for one in read(data)]
        kept = [[row for row in some if row[place] not in new] for some in before]
        whole, parts = kept[0] + whole, kept[1] + parts
    latest = {tuple(row[:4]): row for row in sorted(whole, key=lambda row: str(row[PLACES["measured"]]))}.values()
    for row in whole:
        row[PLACES["latest"]] = any(row is one for one in latest)
    whole.sort(key=lambda row: (*row[:3], row[3] != "eager"))  # by GPU, model, batch
    order = {row[PLACES["run"]]: k for k, row in enumerate(whole)}
    parts.sort(key=lambda row: order[row[PLACES["run"]]])
    data.mkdir(parents=True, exist_ok=True)
    write(ATLAS, whole, data / "atlas")
    write(OPERATORS, parts, data / "atlas-operators")
    write_whole(data / "README.md", readme(len(whole), len(latest)).encode())
    print(f"{len(whole)} Runs of {len(latest)} configurations: {data}")


def readme(n: int, different: int) -> str:
    """The page of the files and their columns."""
    lines = [
        "# Atlas\n",
        f"{n} Runs of {different} configurations, by `benchmarks/atlas.py` with jouletrace {__version__}. `atlas` has",
        "a row for each Run (`latest` marks one for each configuration), `atlas-operators` one for each of its",
        "operators; `run` joins them. The tables are the same in Parquet, whose fields have unit and description, and",
        'in CSV of six digits: `pandas.read_parquet("atlas.parquet")`.\n',
        "Intervals are of 95 %; the gain error of the GPU's sensor (± 5 %) is not in them. A figure that wasn't",
        "determined is empty, with its reason. Weights and inputs are random. What the checks behind `trust` are, and",
        "what their codes say: `docs/reference/report.md`.",
    ]
    for title, columns in (("atlas", ATLAS), ("atlas-operators", OPERATORS)):
        lines += [f"\n## {title}\n", "| column | unit | what |", "|---|---|---|"]
        lines += [f"| {name} | {unit} | {what} |" for name, _, unit, what in columns]
    return "\n".join(lines) + "\n"


def main() -> int:
    """0; 1 after one line about bad input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="Runs of profile")
    parser.add_argument("-o", "--data", type=Path, required=True, help="folder of the data set")
    asked = parser.parse_args()
    try:
        table(asked.runs, asked.data)
    except (jt.JouletraceError, OSError, ValueError) as error:  # pyarrow's are of the last kind
        kind = "" if isinstance(error, jt.JouletraceError) else f"{type(error).__name__}: "
        print(f"atlas: {kind}{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
