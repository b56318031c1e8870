"""The results of a fleet: a Parquet dataset that pandas and DuckDB open, and every Run itself.

    fleet.json                                   what was asked for
    runs/node=NODE/gpu=UUID/repeat-0003.parquet  a row of figures; written last, so it says that all is there
    windows/..., iterations/..., samples/...     the same way
    raw/NODE/UUID/repeat-0003.zip                the Run, for ``jouletrace show``
    failed/NODE/UUID/repeat-0003.json            why there is none

Two hosts write different files, so that any number of them can share a place.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jouletrace.addons.fleet.plan import FleetSettings, Task
from jouletrace.addons.fleet.rows import TABLES, Measured, check_possible, to_parquet
from jouletrace.addons.fleet.store import Store
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run import save
from jouletrace.run.header import jsonable
from jouletrace.run.scratch import Scratch

Key = tuple[str, str, int]
"""A result: host, UUID of the GPU, and repeat."""

ABOUT = "fleet.json"
SCHEMA = 1

_FREE = ("repeats", "limit_s", "cool_limit_s")
"""Settings in which a resumed fleet may differ from what it began with."""

_BESIDE = (
    ("samples", ".parquet", "readings of that run are missing from the page"),
    ("iterations", ".parquet", "single iterations of that run can't be read"),
    ("raw", ".zip", "that Run can't be opened by itself"),
)
"""Folders whose files no figure of a report rests on, the ending of these, and what is lost with one."""

_JUDGED = ("runs", "windows")
"""Tables that figures of a report rest on."""

_NAME = re.compile(r"\w+/node=([^/]+)/gpu=([^/]+)/repeat-([0-9]+)\.parquet")


class Dataset:
    """The results of one fleet.

    Args:
        store: Where they lie.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def begin(self, settings: FleetSettings, command: str, gpus: Iterable[dict[str, Any]]) -> None:
        """Write down what is asked for, or check that it is what was asked for before.

        Raises:
            BadInputError: If another fleet's results are there, or it can't be written.
        """
        known = self.about()
        asked = jsonable(settings.to_dict())
        if known is not None:
            before, wanted = _flat(known.get("settings", {})), _flat(asked)
            for name in wanted:
                if name not in _FREE and before.get(name) != wanted[name]:
                    was, now = json.dumps(before.get(name)), json.dumps(wanted[name])
                    raise BadInputError(
                        f"{self.store.root} holds a fleet run with other settings ({name}: {_brief(was)}, not "
                        f"{_brief(now)}); give another -o, or the same command to resume"
                    )
        boards = {(one["node"], one["id"]): one for one in [*(known or {}).get("gpus", []), *gpus]}
        told = {
            "format": "jouletrace-fleet",
            "schema": SCHEMA,
            "command": command,
            "settings": asked,
            "gpus": list(boards.values()),
        }
        self.store.write(ABOUT, json.dumps(told, indent=1).encode())

    def about(self) -> dict[str, Any] | None:
        """What ``begin`` wrote; None if there is nothing.

        Raises:
            BadInputError: If it can't be read.
        """
        data = self.store.read(ABOUT)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except ValueError as error:
            raise BadInputError(f"{self.store.root}/{ABOUT} is not valid JSON: {error}") from None
        if not isinstance(found, dict) or found.get("format") != "jouletrace-fleet":
            raise BadInputError(f"{self.store.root}/{ABOUT} is not of a fleet")
        if not _is_about(found):
            raise BadInputError(f"{self.store.root}/{ABOUT} is damaged: it lacks what fleet run writes")
        if found["schema"] > SCHEMA:
            raise BadInputError(f"{self.store.root} was written by a newer jouletrace: upgrade")
        return found

    def add(self, task: Task, found: Measured) -> None:
        """Put away a Run; its row of figures last, which says that all is there.

        Raises:
            NotPossibleError: If its figures are none that a measurement gives.
            BadInputError: If it can't be written.
        """
        with Scratch() as scratch:
            packed = save(found.run, scratch.path / "run.zip")
            self.store.write(_place("raw", task, "zip"), packed.read_bytes())
        self.put(task, found.tables())

    def put(self, task: Task, tables: dict[str, pa.Table]) -> None:
        """Put away the tables of a task, ``runs`` last; see ``add``."""
        for name in _JUDGED:
            try:
                check_possible(tables.get(name, TABLES[name].empty_table()))
            except ValueError as error:
                raise NotPossibleError(f"{task.gpu}: the result can't be right: {error}") from None
        about = _about(task.gpu.node, task.gpu.id, task.repeat)
        for name in ("samples", "iterations", "windows", "runs"):
            if name in tables:
                self.store.write(_place(name, task, "parquet"), to_parquet(tables[name], about))
        self.store.remove(_place("failed", task, "json"))

    def fail(self, task: Task, reason: str, text: str) -> None:
        """Write down why a task has no result; one that it may have had after all doesn't count."""
        self.store.remove(_place("runs", task, "parquet"))
        told = {"node": task.gpu.node, "gpu": task.gpu.id, "repeat": task.repeat, "reason": reason, "text": text}
        self.store.write(_place("failed", task, "json"), json.dumps(told).encode())

    def done(self, gpus: set[str] | None = None) -> set[Key]:
        """All results that are there, whole; of these GPUs only, if any are given.

        What was half written when its host went down counts as missing, and so is measured again; likewise what is
        another GPU's, or holds figures that no measurement gives.
        """
        return self.read("runs", gpus)[0].keys() & self.read("windows", gpus)[0].keys()

    def failures(self) -> list[dict[str, Any]]:
        """What has no result, and why; a note that can't be read is left out, as the result is missing anyway."""
        return [note for _, note in self._notes() if note is not None]

    def cut_off(self) -> list[str]:
        """A line for each file that ends too early among those that no figure rests on, which nobody would read."""
        lines = [
            f"{self.store.root}/{name} is cut off: {lost}; no figure here rests on it"
            for folder, ending, lost in _BESIDE
            for name in self.store.names(folder, ending)
            if not _ends_whole(self.store.read(name, last=_END) or b"", ending)
        ]
        notes = [name for name, note in self._notes() if note is None]
        return lines + [
            f"{self.store.root}/{name} can't be read: why that result is missing isn't known" for name in notes
        ]

    def _notes(self) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """Each file that says why there is no result, and what it says; None if it can't be read."""
        for name in self.store.names("failed", ".json"):
            try:
                note = json.loads(self.store.read(name) or b"")
            except ValueError:
                note = None
            said = isinstance(note, dict) and note.keys() >= {"node", "gpu", "repeat", "reason", "text"}
            yield name, note if said else None

    def read(
        self, table: str, gpus: set[str] | None = None, columns: Iterable[str] | None = None
    ) -> tuple[dict[Key, pa.Table], list[str]]:
        """The results of a table.

        Args:
            table: One of ``rows.TABLES``.
            gpus: Only of these.
            columns: Only these.

        Returns:
            The table of each, and a line for each file that can't be read.
        """
        schema = TABLES[table]
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        found: dict[Key, pa.Table] = {}
        damaged: list[str] = []
        for name in self.store.names(table, ".parquet"):
            parts = _NAME.fullmatch(name)
            if parts is None:
                damaged.append(f"{self.store.root}/{name} isn't named as a result is: left out")
                continue
            key = unquote(parts[1]), unquote(parts[2]), int(parts[3])
            if gpus is not None and key[1] not in gpus:
                continue
            try:
                part = _read(self.store.read(name) or b"", schema, key, alone=table == "runs")
                if table in _JUDGED:
                    check_possible(part)
                found[key] = part
            except (pa.ArrowException, OSError, ValueError, BadInputError) as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                damaged.append(f"{self.store.root}/{name} can't be read: {reason}")
        return found, damaged


_END = 1024
"""Bytes that hold the end of a file that is looked at; a zip's comment, of which we write none, may be in them."""

_ZIP_END = b"PK\x05\x06"
_ZIP_END_BYTES = 22


def _ends_whole(end: bytes, ending: str) -> bool:
    """Whether the last bytes of a file are those that are written last: both formats say there what is in them."""
    if ending == ".parquet":
        return end.endswith(b"PAR1")
    at = end.rfind(_ZIP_END)
    return at >= 0 and len(end) - at >= _ZIP_END_BYTES


def _is_about(found: dict[str, Any]) -> bool:
    """Whether all that is read of ``fleet.json`` later on has its form."""
    gpus = found.get("gpus")
    return (
        isinstance(found.get("schema"), int)
        and isinstance(found.get("settings"), dict)
        and isinstance(gpus, list)
        and all(isinstance(gpu, dict) and gpu.keys() >= {"node", "id"} for gpu in gpus)
    )


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with those of the profile beside them, so that what differs can be named."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _flat(value) if isinstance(value, dict) and name != "config" else {"": value}
        found |= {f"{name} {key}".strip(): one for key, one in inner.items()}
    return found


def _about(node: str, gpu: str, repeat: int) -> dict[str, str]:
    """What a file says in its metadata of the result that it belongs to, whatever its name is."""
    return {"node": node, "gpu": gpu, "repeat": str(repeat)}


def _read(data: bytes, schema: pa.Schema, key: Key, alone: bool = False) -> pa.Table:
    """A file of a table.

    Args:
        data: Its bytes.
        schema: Of the columns that are wanted.
        key: Which result it is of, by its name.
        alone: Whether it must hold one row.

    Raises:
        ValueError: If it holds something else.
    """
    # without Arrow's threads, which may abort a process that ends right after a read
    with pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True, pre_buffer=False) as file:
        there = set(file.schema_arrow.names)
        part = file.read(columns=[name for name in schema.names if name in there], use_threads=False)
    about = _about(*key)
    said = {key.decode(): value.decode() for key, value in (part.schema.metadata or {}).items()}
    if any(said.get(key, value) != value for key, value in about.items()):
        raise ValueError("it is repeat {repeat} of {gpu} of {node}".format(**{**about, **said}))
    if alone and len(part) != 1:
        raise ValueError(f"it holds {len(part)} rows, not one")
    if "repeat" in schema.names and ("repeat" not in there or part["repeat"].null_count):
        raise ValueError("it holds another table")
    if "repeat" in schema.names and pc.any(pc.not_equal(part["repeat"], int(about["repeat"]))).as_py():
        raise ValueError("it holds another repeat")
    if part.schema.equals(schema):
        return pa.Table.from_arrays(part.columns, schema=schema)  # with our units, whoever wrote the file
    columns = [part[f.name].cast(f.type) if f.name in there else pa.nulls(len(part), f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _place(folder: str, task: Task, ending: str) -> str:
    node, gpu = quote(task.gpu.node, safe="-_."), quote(task.gpu.id, safe="-_.")
    inside = f"node={node}/gpu={gpu}" if folder in TABLES else f"{node}/{gpu}"
    return f"{folder}/{inside}/repeat-{task.repeat:04d}.{ending}"


def _brief(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
