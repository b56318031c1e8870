"""Everything that users see of Runs, commands and names, taken as it is, and compared with what was frozen.

    PYTHONPATH=src:tests/support python tests/support/frozen.py    # writes what isn't frozen yet, never over what is

Figures are those of ``show --json``, parts by level in place of divisions, and of ``compare --json``, by Run, path and
metric: tables may have another order, other rests and pools. Exports are digests by file. A figure that differs from
the frozen one is accepted by a line of ``accepted.csv`` alone: what, old, new, truth, commit.
"""

from __future__ import annotations

import csv
import hashlib
import inspect
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import jouletrace
from commands import done
from jouletrace.run import load
from jouletrace.run.parts import Part, Parts
from jouletrace.version import __version__
from places import REPOSITORY
from shipped import is_known

HERE = REPOSITORY / "tests" / "frozen"
ACCEPTED = HERE / "accepted.csv"

OF_TESTS = ("cupy-run-h200", "deit-run-h100", "segformer-kernels-h200")
"""Runs that no page shows any more."""

STORED = sorted(
    [
        *(REPOSITORY / "docs" / "results" / "runs").glob("*.zip"),
        *(REPOSITORY / "src/jouletrace/bundled").glob("*.zip"),
        *(REPOSITORY / "tests" / "data" / "runs" / f"{name}.zip" for name in OF_TESTS),
    ],
    key=lambda path: path.stem,
)
"""Runs in the repository that were recorded on GPUs."""

PROGRAMS = sorted((HERE / "programs").glob("*.zip"), key=lambda path: path.stem)
"""Programs under ``run`` on an H100, with CUPTI's buffers beside each (``cupti_records.unpack``)."""

COMPARED = (
    ("serving-rates-a-h200", "serving-rates-b-h200"),
    ("serving-short-h200", "serving-long-h200"),
    ("minilm-256-eager-h100", "minilm-256-compile-h100"),
    ("minilm-1-eager-h200", "minilm-256-eager-h100"),
    ("deit-b-64-graph-h100", "deit-b-64-layers-h200"),
    ("deit-run-h100", "loader-run-h100"),
)
"""Runs compared in pairs; those of ``ab`` show the comparison of their own sides."""

TOY = """
import torch

def make(batch=8, width=1024):
    torch.manual_seed(0)
    layers = torch.nn.Linear(256, width), torch.nn.GELU(), torch.nn.Linear(width, 256), torch.nn.LayerNorm(256)
    return torch.nn.Sequential(*layers), torch.randn(batch, 256)
"""

_PROFILE = ("profile", "toy.py:make", "--device")
SIMULATED: dict[str, tuple[str, ...]] = {
    "h100": (*_PROFILE, "sim:h100?seed=1"),
    "h100-graph": (*_PROFILE, "sim:h100?seed=2", "--mode", "graph"),
    "h100-large": (*_PROFILE, "sim:h100?seed=3", "--batch", "4096"),
    "h100-fp32": (*_PROFILE, "sim:h100?seed=4", "--dtype", "fp32"),
    "h100-bf16": (*_PROFILE, "sim:h100?seed=5", "--dtype", "bf16"),
    "h100-long": (*_PROFILE, "sim:h100?seed=6", "--max-time", "30", "--target-ci", "0.3%"),
    "h200": (*_PROFILE, "sim:h200?seed=7"),
    "h200-large": (*_PROFILE, "sim:h200?seed=8", "--batch", "1024", "--mode", "graph"),
    "a100": (*_PROFILE, "sim:a100?seed=9"),
    "a100-large": (*_PROFILE, "sim:a100?seed=10", "--batch", "2048"),
    "v100": (*_PROFILE, "sim:v100?seed=11"),
    "v100-fp32": (*_PROFILE, "sim:v100?seed=12", "--dtype", "fp32", "--batch", "512"),
    "layers": (*_PROFILE, "sim:h100?seed=13", "--batch", "4096", "--detail", "layer", "--detail-time", "5"),
    "ab-modes": ("ab", "toy.py:make", "toy.py:make", "--device", "sim:h100?seed=14", "--mode-b", "graph"),
    "ab-batches": ("ab", "toy.py:make", "toy.py:make", "--device", "sim:h200?seed=15", "--batch-b", "16"),
    "ab-null": ("ab", "toy.py:make", "toy.py:make", "--device", "sim:h100?seed=16"),
    "calibrate-h100": ("calibrate", "--device", "sim:h100?seed=17"),
    "calibrate-a100": ("calibrate", "--device", "sim:a100?seed=18"),
    "monitor": ("monitor", "--device", "sim:h100?seed=19&load=1:300&realtime=0", "--duration", "20"),
    "monitor-two": ("monitor", "--device", "sim:h200?seed=20&load=0.4:500&realtime=0", "--duration", "20"),
}
"""Twenty simulated Runs by seed: a command without its ``-o``."""

COMMANDS = (
    *(
        "",
        "doctor",
        "calibrate",
        "profile",
        "run",
        "bench",
        "bill",
        "monitor",
        "show",
        "report",
        "demo",
        "compare",
        "ab",
    ),
    *(
        "sweep",
        "import",
        "export",
        "merge",
        "verify",
        "fleet",
        "fleet run",
        "fleet report",
        "mig",
        "mig list",
        "mig plan",
    ),
    *("mig apply", "mig restore", "mig sweep", "convert", "trace"),
)

EXPORTS = ("chrome", "collapsed", "csv", "parquet", "speedscope", "svg", "zip")

_FACTS = ("schema", "kind", "complete", "absolute", "workload", "device", "simulated", "sensors", "warnings")
"""Sections of a document that hold no figures."""
_ABOUT = ("n", "method", "of", "budget", "title", "message", "action", "runs")
"""Facts about a figure that aren't figures, words, and places of files."""

_LISTS = {
    **{"phases": "phase", "lengths": "length", "layers": "layer", "operators": "op", "kernels": "kernel"},
    **{"ranges": "range", "devices": "device", "contexts": "context", "loads": "load", "idle_causes": "cause"},
}
"""Sections of parts, and their level."""

_FIGURES = {"power_w": "power_w", "energy_total_j": "energy_j", "energy_active_j": "energy_active_j"}
_APART = ("time_s", "share", *_FIGURES)
"""Metrics of a part that stand beside its others."""

_NAMES = ("module", "name", "metric", "op", "shapes", "level", "where")
"""Names that distinguish the rows of a table."""

Row = dict[str, Any]


def simulate(name: str, folder: Path) -> Path:
    """Make a simulated Run; the current folder holds ``toy.py``."""
    place = folder / name
    done(*SIMULATED[name], "-o", str(place))
    return place


def figures_of(name: str, path: Path) -> list[Row]:
    """The figures of a Run by path and metric."""
    document = json.loads(done("show", str(path), "--json").out)
    for gone in ("parts", "devices", "advice"):  # in other forms below, or frozen elsewhere
        del document[gone]
    del document["model"]["latency_ms"]["percentiles"]
    document.get("comparison", {}).pop("advice", None)
    results = Parts(load(path))
    for section, level in _LISTS.items():
        units = results.units(level)
        if level == "phase" and results.gpus:
            units = units + results.outside()
        if units or level not in ("context", "load", "cause"):
            document[section] = [_part(unit, level) for unit in units]
    document["closure"] = {one: results.get(f"closure_{one}").to_dict() for one in ("layers", "kernels")}
    document["perturbation"] = results.get("perturbation").to_dict()
    return _rows(name, document)


def _part(unit: Part, level: str) -> Row:
    own = {name: getattr(unit, name) for name in ("name", "op", "shapes", "module", "count")}
    if unit.gpu:
        own |= {"device": unit.gpu} | ({"name": f"{unit.gpu}: {unit.name}"} if level == "phase" else {})
    stated = {_FIGURES[metric]: unit.get(metric).to_dict() for metric in _FIGURES}
    return {
        **own,
        "time_ms": unit.get("time_s").scaled(1e3).to_dict(),
        **stated,
        "share": unit.get("share").value,
        "flags": list(dict.fromkeys(flag for figure in unit.figures.values() for flag in figure.flags)),
        "other": {name: one.to_dict() for name, one in unit.figures.items() if name not in _APART},
    }


def compared(names: tuple[str, ...]) -> list[Row]:
    """The figures of a comparison by path and metric."""
    paths = {path.stem: str(path) for path in STORED}
    document = json.loads(done("compare", *(paths[name] for name in names), "--json").out)
    del document["advice"]  # sums of rows of B, which are frozen as its own: tests/analysis/test_advice.py
    if why := document["why"]:  # the causes to name first are sums of all rows
        first = [{name: one[name] for name in ("what", "how", "change_j", "terms_j")} for one in why["first"]]
        document["why"] = {"change_j": why["change_j"], "first": first, "others_j": why["others_j"]}
    return _rows(" : ".join(names), document)


def _rows(run: str, document: dict[str, Any]) -> list[Row]:
    sections = [section for section in document if section not in _FACTS]
    return [{"run": run, **row} for section in sections for row in _figures(section, document[section])]


def _figures(section: str, values: Any) -> list[Row]:
    rows = [{"path": path, "metric": metric, **figure} for path, metric, figure in _walk((section,), values)]
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:  # several rows may share a path: their order among themselves is the path's last step
        key = row["path"], row["metric"]
        row["path"] += f" #{seen[key]}" if seen[key] else ""
        seen[key] += 1
    return rows


def _walk(path: tuple[str, ...], value: Any, metric: str = "") -> Iterator[tuple[str, str, Row]]:
    if isinstance(value, dict) and {"value", "low", "high"} <= set(value):
        numbers = {name: value[name] for name in ("value", "low", "high")}
        yield " / ".join(path), metric, {**numbers, "text": value.get("reason")}
    elif isinstance(value, dict):
        own = tuple(str(value[name]) for name in _NAMES if isinstance(value.get(name), str) and value[name])
        for name, inner in value.items():
            if name not in _ABOUT and not (own and name in _NAMES and isinstance(inner, str)):
                yield from _walk(path + own, inner, f"{metric}.{name}" if metric else name)
    elif isinstance(value, list) and all(isinstance(inner, str) for inner in value):
        yield " / ".join(path), metric, {"value": None, "low": None, "high": None, "text": ", ".join(sorted(value))}
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _walk(path if isinstance(inner, dict | list) else (*path, str(number)), inner, metric)
    elif isinstance(value, bool | str):
        yield " / ".join(path), metric, {"value": None, "low": None, "high": None, "text": str(value)}
    elif isinstance(value, int | float):
        yield " / ".join(path), metric, {"value": float(value), "low": None, "high": None, "text": None}


def exports_of(name: str, path: Path, folder: Path) -> list[Row]:
    """A digest of each file of each export of a Run; of Parquet its columns and rows."""
    rows = []
    for form in EXPORTS:
        target = folder / f"{name}.{form}"
        try:
            done("export", str(path), "--format", form, "--output", str(target))
        except AssertionError as refused:
            rows.append({"run": name, "format": form, "file": "", "digest": str(refused).strip()[-60:]})
            continue
        files = sorted(file for file in target.rglob("*") if file.is_file()) if target.is_dir() else [target]
        for file in files:
            rows.append({"run": name, "format": form, "file": file.name, "digest": _digest(form, file)})
    return rows


def _digest(form: str, file: Path) -> str:
    if file.suffix == ".parquet":
        table = pq.read_table(file)
        return f"{len(table)} rows of {', '.join(table.column_names)}"
    if form == "zip" or file.name == "run.json":
        return "a Run"  # opened and compared by its figures
    stated = f'"jouletrace {__version__}"'.encode()  # a release changes no export
    return hashlib.sha256(file.read_bytes().replace(stated, b'"jouletrace"')).hexdigest()[:16]


def help_texts() -> str:
    """The help of each command, at 80 columns."""
    os.environ["COLUMNS"] = "80"
    return "\n".join(f"== {name}\n{done(*name.split(), '--help').out}" for name in COMMANDS if is_known(name.split()))


def public_names() -> str:
    """Each public name with its signature."""
    lines = []
    for name in sorted({*jouletrace.__all__, "range"}):
        found = getattr(jouletrace, name)
        lines.append(f"{name}{_signature(found)}")
        if inspect.isclass(found) and not issubclass(found, BaseException):
            for inner in sorted(vars(found)):
                if not inner.startswith("_"):
                    lines.append(f"  {name}.{inner}{_signature(inspect.getattr_static(found, inner))}")
    return "\n".join(lines) + "\n"


def _signature(found: Any) -> str:
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    try:
        return str(inspect.signature(found)) if callable(found) else ""
    except ValueError:
        return ""


FIGURES, EXPORTED, HELP, NAMES = (HERE / n for n in ("figures.parquet", "exports.csv", "help.txt", "names.txt"))


def frozen_figures() -> dict[tuple[str, str, str], Row]:
    """The frozen figures by Run, path and metric."""
    return by_key(pq.read_table(FIGURES).to_pylist())


def frozen_exports() -> dict[tuple[str, str, str], str]:
    """The frozen digests by Run, format and file."""
    with EXPORTED.open(newline="") as file:
        return {(row["run"], row["format"], row["file"]): row["digest"] for row in csv.DictReader(file)}


def by_key(rows: list[Row]) -> dict[tuple[str, str, str], Row]:
    """Rows by Run, path and metric."""
    return {(row["run"], row["path"], row["metric"]): row for row in rows}


def accepted() -> list[dict[str, str]]:
    """Accepted differences."""
    with ACCEPTED.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Freeze what isn't frozen yet."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"JOULETRACE_PROGRESS": "0", "JOULETRACE_SIMULATED_START": "1767225600"}
        os.environ |= {"JOULETRACE_CACHE": str(folder / "cache"), "JOULETRACE_LOCKS": str(folder / "locks")}
        os.chdir(folder)
        Path("toy.py").write_text(TOY)
        made = {path.stem: path for path in (*STORED, *PROGRAMS)} | {name: simulate(name, folder) for name in SIMULATED}

        def figures() -> None:
            rows = [row for name, path in made.items() for row in figures_of(name, path)]
            rows += [row for names in COMPARED for row in compared(names)]
            pq.write_table(pa.Table.from_pylist(rows), FIGURES, compression="zstd", compression_level=19)

        def exports() -> None:
            rows = [row for path in STORED for row in exports_of(path.stem, path, folder)]
            with io.StringIO(newline="") as text:
                writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
                EXPORTED.write_text(text.getvalue())

        writers: dict[Path, Callable[[], object]] = {
            FIGURES: figures,
            EXPORTED: exports,
            HELP: lambda: HELP.write_text(help_texts()),
            NAMES: lambda: NAMES.write_text(public_names()),
            ACCEPTED: lambda: ACCEPTED.write_text("what,old,new,truth,commit\n"),
        }
        for path, write in writers.items():
            if not path.exists():
                write()


if __name__ == "__main__":
    main()
