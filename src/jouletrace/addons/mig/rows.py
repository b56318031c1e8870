"""The rows of a sweep: stored line by line while it runs, and exported as CSV and Parquet at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jouletrace.addons.mig.jobs import Job
from jouletrace.errors import BadInputError
from jouletrace.run.files import shown
from jouletrace.run.header import RUN_JSON
from jouletrace.spreadsheets import csv_file

ROWS, ABOUT = "rows.jsonl", "sweep.json"

_TEXT, _NUMBER, _WHOLE = pa.string(), pa.float64(), pa.int64()


def _with_interval(name: str, unit: str, about: str) -> dict[str, tuple[pa.DataType, str, str]]:
    ends = {"low": "lower end of its 95 % interval", "high": "upper end of its 95 % interval"}
    return {name: (_NUMBER, unit, about), **{f"{name}_{end}": (_NUMBER, unit, text) for end, text in ends.items()}}


COLUMNS: dict[str, tuple[pa.DataType, str, str]] = {
    "profile": (_TEXT, "", "MIG profile of the slice"),
    "together": (_WHOLE, "1", "slices at work at once"),
    "slot": (_WHOLE, "1", "number of this row's slice among them"),
    "model": (_TEXT, "", "model, as requested"),
    "workload": (_TEXT, "", "model, by its name in jouletrace profile"),
    "task": (_TEXT, "", "task of a request"),
    "batch": (_WHOLE, "1", "samples per request"),
    "seq_len": (_WHOLE, "1", "tokens per sample; empty for the model's own"),
    "dtype": (_TEXT, "", "number format; empty for the workload's own"),
    "mode": (_TEXT, "", "how a request is launched"),
    "status": (_TEXT, "", "done or failed; a failed row has no figures"),
    "reason": (_TEXT, "", "why it failed: out_of_memory, vanished, not_possible, failed"),
    "detail": (_TEXT, "", "the same in words"),
    "device": (_TEXT, "", "UUID of the slice"),
    "latency_mean_s": (_NUMBER, "s", "mean latency of a request"),
    "latency_std_s": (_NUMBER, "s", "standard deviation of a sample (n - 1)"),
    "latency_p50_s": (_NUMBER, "s", "median"),
    "latency_p95_s": (_NUMBER, "s", "95th percentile; empty below 20 requests"),
    "latency_p99_s": (_NUMBER, "s", "99th percentile; empty below 100 requests"),
    "requests": (_WHOLE, "1", "requests that were timed"),
    "requests_per_s": (_NUMBER, "1/s", "requests completed per second"),
    "samples_per_s": (_NUMBER, "1/s", "samples completed per second"),
    "fb_used_bytes": (_NUMBER, "B", "frame buffer in use on the slice"),
    "graphics_active": (_NUMBER, "1", "graphics engine activity of the slice, 0 to 1"),
    "sm_active": (_NUMBER, "1", "SM activity of the slice, 0 to 1"),
    "sm_occupancy": (_NUMBER, "1", "SM occupancy of the slice, 0 to 1"),
    "pipe_tensor_active": (_NUMBER, "1", "tensor pipe activity of the slice, 0 to 1"),
    "memory_active": (_NUMBER, "1", "memory activity of the slice, 0 to 1"),
    "board_power_w": (_NUMBER, "W", "measured power of the whole GPU"),
    "idle_power_w": (_NUMBER, "W", "measured power of the whole GPU with contexts alive and nothing running"),
    "unattributed_w": (_NUMBER, "W", "power above idle that belongs to no slice"),
    **_with_interval("power_active_w", "W", "power of the slice above idle (modelled)"),
    **_with_interval("power_w", "W", "the same with the slice's share of idle power (modelled)"),
    **_with_interval("energy_active_per_sample_j", "J", "energy above idle per sample (modelled)"),
    **_with_interval("energy_per_sample_j", "J", "energy per sample, share of idle included (modelled)"),
    "power_reason": (_TEXT, "", "why the power of the slice is missing"),
    "flags": (_TEXT, "", "what qualifies the figures"),
    "latency_quantiles_s": (pa.list_(_NUMBER), "s", "0th to 100th percentile of latency, for its distribution"),
}
"""Type, unit and description of each column; a missing figure is null, never 0."""


def failed_row(profile: str, together: int, slot: int, job: Job, reason: str, detail: str) -> dict[str, Any]:
    """The row of a job that could not be run: no figures."""
    place = {"profile": profile, "together": together, "slot": slot, **asdict(job)}
    return {**dict.fromkeys(COLUMNS), **place, "status": "failed", "reason": reason, "detail": detail, "flags": ""}


class RowStore:
    """Rows in a folder; each point's rows are on the disk before the next point begins.

    Args:
        folder: Folder of the sweep; created if it is missing.
        about: Settings that all its points share; a folder of another sweep is refused.

    Raises:
        BadInputError: If the folder belongs to another sweep, or can't be read or written.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder = folder
        self._path = folder / ROWS
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / RUN_JSON).exists():
                raise BadInputError(f"{shown(folder)} holds a Run, not a sweep: give a new --output")
            told = folder / ABOUT
            if told.exists():
                before = json.loads(told.read_text())
                different = [key for key in about if before.get(key) != about[key]]
                if different:
                    raise BadInputError(
                        f"{shown(folder)} holds another sweep ({', '.join(different)} differ): give a new --output"
                    )
            else:
                told.write_text(json.dumps(about, indent=1))
            self.rows = self._read()
        except (OSError, ValueError) as error:
            raise BadInputError(f"{shown(folder)}: the sweep can't be stored there ({error})") from None

    def has(self, profile: str, together: int, job: Job) -> bool:
        """Whether a point is done, or has failed."""
        point = {"profile": profile, "together": together, **asdict(job)}
        return any(all(row[name] == value for name, value in point.items()) for row in self.rows)

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Store the rows of one point: all of them or, after a crash, none."""
        ordered = [{name: row.get(name) for name in COLUMNS} for row in rows]
        with self._path.open("a") as file:
            file.write(json.dumps(ordered) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows += ordered

    def export(self) -> list[Path]:
        """Write ``sweep.csv`` and ``sweep.parquet``; returns their paths."""
        table, text = self.folder / "sweep.parquet", self.folder / "sweep.csv"
        fields = [
            pa.field(name, kind, metadata={"unit": unit, "description": about})
            for name, (kind, unit, about) in COLUMNS.items()
        ]
        pq.write_table(pa.Table.from_pylist(self.rows, pa.schema(fields)), table)
        text.write_text(to_csv(self.rows))
        return [table, text]

    def _read(self) -> list[dict[str, Any]]:
        """Read the stored rows; an unfinished line from a crash is removed."""
        if not self._path.exists():
            return []
        rows: list[dict[str, Any]] = []
        whole = 0
        data = self._path.read_bytes()
        for line in data.splitlines(keepends=True):
            try:
                if not line.endswith(b"\n"):
                    raise ValueError
                rows += json.loads(line)
            except ValueError:
                if whole + len(line) < len(data):
                    raise BadInputError(f"{self._path} is damaged at byte {whole}") from None
                break
            whole += len(line)
        if whole < len(data):
            os.truncate(self._path, whole)
        return rows


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV, with null as an empty cell; only the Parquet file contains distributions."""
    names = [name for name in COLUMNS if name != "latency_quantiles_s"]
    return csv_file([names, *([row.get(name) for name in names] for row in rows)])
