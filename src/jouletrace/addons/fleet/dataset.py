"""The results of a fleet: a Parquet dataset for pandas and DuckDB, and every Run itself.

    fleet.json                                   the settings
    runs/node=NODE/gpu=UUID/repeat-0003.parquet  a row of figures; written last, as a sign that the result is complete
    windows/..., iterations/..., samples/...     in the same way
    raw/NODE/UUID/repeat-0003.zip                the Run, for ``jouletrace show``
    failed/NODE/UUID/repeat-0003.json            the reason for a missing result

Two hosts write different files, so any number of hosts can share a place.
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
"""Settings in which a resumed fleet may differ from its first run."""

_BESIDE = (
    ("samples", ".parquet", "readings of that run are missing from the page"),
    ("iterations", ".parquet", "single iterations of that run can't be read"),
    ("raw", ".zip", "that Run can't be opened by itself"),
)
"""Folders whose files don't affect the figures of a report, with their suffix and the effect of a loss."""

_JUDGED = ("runs", "windows")
"""Tables from which a report computes figures."""

_NAME = re.compile(r"\w+/node=([^/]+)/gpu=([^/]+)/repeat-([0-9]+)\.parquet")


class Dataset:
    """The results of one fleet.

    Args:
        store: Place of the results.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def begin(self, settings: FleetSettings, command: str, gpus: Iterable[dict[str, Any]]) -> None:
        """Write the settings, or check that they are those written before.

        Raises:
            BadInputError: If another fleet's results are stored there, or it can't be written.
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
        """The settings from ``begin``; None without any.

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
            raise BadInputError(f"{self.store.root}/{ABOUT} does not describe a fleet")
        if not _is_about(found):
            raise BadInputError(f"{self.store.root}/{ABOUT} is damaged: it lacks settings that fleet run writes")
        if found["schema"] > SCHEMA:
            raise BadInputError(f"{self.store.root} was written by a newer jouletrace: upgrade")
        return found

    def add(self, task: Task, found: Measured) -> None:
        """Store a Run; its row of figures comes last, as a sign that the result is complete.

        Raises:
            NotPossibleError: If a measurement can't have given its figures.
            BadInputError: If it can't be written.
        """
        with Scratch() as scratch:
            packed = save(found.run, scratch.path / "run.zip")
            self.store.write(_place("raw", task, "zip"), packed.read_bytes())
        self.put(task, found.tables())

    def put(self, task: Task, tables: dict[str, pa.Table]) -> None:
        """Store the tables of a task, ``runs`` last; see ``add``."""
        for name in _JUDGED:
            try:
                check_possible(tables.get(name, TABLES[name].empty_table()))
            except ValueError as error:
                raise NotPossibleError(f"{task.gpu}: the result is implausible: {error}") from None
        about = _about(task.gpu.node, task.gpu.id, task.repeat)
        for name in ("samples", "iterations", "windows", "runs"):
            if name in tables:
                self.store.write(_place(name, task, "parquet"), to_parquet(tables[name], about))
        self.store.remove(_place("failed", task, "json"))

    def fail(self, task: Task, reason: str, text: str) -> None:
        """Store the reason for a task's missing result; an existing result takes precedence."""
        self.store.remove(_place("runs", task, "parquet"))
        told = {"node": task.gpu.node, "gpu": task.gpu.id, "repeat": task.repeat, "reason": reason, "text": text}
        self.store.write(_place("failed", task, "json"), json.dumps(told).encode())

    def done(self, gpus: set[str] | None = None) -> set[Key]:
        """All complete results; optionally of these GPUs only.

        A file that was half written when its host failed counts as missing, and so does a file that belongs to another
        GPU, or holds figures that no measurement gives. They are measured again.
        """
        return self.read("runs", gpus)[0].keys() & self.read("windows", gpus)[0].keys()

    def failures(self) -> list[dict[str, Any]]:
        """Missing results and their reasons; an unreadable note is omitted, since the result is missing anyway."""
        return [note for _, note in self._notes() if note is not None]

    def cut_off(self) -> list[str]:
        """A line for each truncated file among those that no figure is computed from, which nothing else would read."""
        lines = [
            f"{self.store.root}/{name} is cut off: {lost}; no figure depends on it"
            for folder, ending, lost in _BESIDE
            for name in self.store.names(folder, ending)
            if not _ends_whole(self.store.read(name, last=_END) or b"", ending)
        ]
        notes = [name for name, note in self._notes() if note is None]
        return lines + [
            f"{self.store.root}/{name} can't be read: the reason for that missing result is unknown" for name in notes
        ]

    def _notes(self) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """Each file with the reason for a missing result, and its content; None if it can't be read."""
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
            gpus: Restricts the result to these GPUs.
            columns: Restricts the table to these columns.

        Returns:
            The table of each result, and a line for each file that can't be read.
        """
        schema = TABLES[table]
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        found: dict[Key, pa.Table] = {}
        damaged: list[str] = []
        for name in self.store.names(table, ".parquet"):
            parts = _NAME.fullmatch(name)
            if parts is None:
                damaged.append(f"{self.store.root}/{name} isn't named like a result: left out")
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
"""Bytes at the end of a file that are checked; they may contain a zip's comment, of which we write none."""

_ZIP_END = b"PK\x05\x06"
_ZIP_END_BYTES = 22


def _ends_whole(end: bytes, ending: str) -> bool:
    """Whether a file has its last bytes: both formats end with their table of contents."""
    if ending == ".parquet":
        return end.endswith(b"PAR1")
    at = end.rfind(_ZIP_END)
    return at >= 0 and len(end) - at >= _ZIP_END_BYTES


def _is_about(found: dict[str, Any]) -> bool:
    """Whether all later used entries of ``fleet.json`` have the right form."""
    gpus = found.get("gpus")
    return (
        isinstance(found.get("schema"), int)
        and isinstance(found.get("settings"), dict)
        and isinstance(gpus, list)
        and all(isinstance(gpu, dict) and gpu.keys() >= {"node", "id"} for gpu in gpus)
    )


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings merged with those of the profile, so that a difference can be named."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _flat(value) if isinstance(value, dict) and name != "config" else {"": value}
        found |= {f"{name} {key}".strip(): one for key, one in inner.items()}
    return found


def _about(node: str, gpu: str, repeat: int) -> dict[str, str]:
    """The result to which a file belongs, by its metadata, whatever its name."""
    return {"node": node, "gpu": gpu, "repeat": str(repeat)}


def _read(data: bytes, schema: pa.Schema, key: Key, alone: bool = False) -> pa.Table:
    """Read a file of a table.

    Args:
        data: Its bytes.
        schema: Schema of the requested columns.
        key: The result that its name states.
        alone: Whether it must hold one row.

    Raises:
        ValueError: If it holds anything else.
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
