"""What one process ran on GPUs, as it is handed over to the process that records power."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.profiler.program.labels import LaunchMarks
from jouletrace.run.files import write_whole
from jouletrace.tracing.log import Ints, Launched

SIDE_S = 5.0
"""Traced time on each side of an untraced interval that stands for it."""

Segment = tuple[int, int]
"""Edges of a traced interval, ns since the Unix epoch."""


@dataclass(frozen=True)
class ProcessTrace:
    """The kernels of a process, with what they belong to.

    Attributes:
        pid: Of the process.
        name: What it runs.
        rank: Among the processes of a launcher; None if it isn't one of several.
        devices: UUIDs of its GPUs, by CUDA's numbers.
        work: What ran.
        marks: Of ranges and operators.
        segments: When it was traced.
        loads: When it waited for its data loader, ns.
        syncs: When its host waited for the GPU, ns, by their ends; shape (m, 2).
        notes: Codes and messages about what is missing.
        unsampled: Why no operators are known; "" if they are.
        dropped: Records that CUPTI dropped.
    """

    pid: int
    name: str
    rank: int | None
    devices: list[str]
    work: Launched
    marks: LaunchMarks
    segments: list[Segment]
    loads: list[tuple[int, int]] = field(default_factory=list)
    syncs: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))
    notes: list[tuple[str, str]] = field(default_factory=list)
    unsampled: str = ""
    dropped: int = 0

    def weights(self) -> NDArray[np.float64]:
        """For how many of its like each kernel stands, shape (n,).

        A kernel that ran within ``SIDE_S`` of an untraced interval stands for a part of it, too.
        """
        weight = np.ones(len(self.work))
        middle = (self.work.start_ns + self.work.end_ns) / 2
        for (begin, end), (later, until) in zip(self.segments[:-1], self.segments[1:], strict=True):
            since, last = max(begin, end - SIDE_S * 1e9), min(until, later + SIDE_S * 1e9)
            beside = ((middle >= since) & (middle <= end)) | ((middle >= later) & (middle <= last))
            weight[beside] += (later - end) / max(end - since + last - later, 1.0)
        return weight

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        work, marks = self.work, self.marks
        about = {
            **{name: getattr(self, name) for name in ("pid", "name", "rank", "devices", "segments", "loads", "notes")},
            **{name: getattr(self, name) for name in ("unsampled", "dropped")},
            "names": work.names,
            "labels": marks.labels,
            "ranges": marks.ranges,
            "first_range": marks.first_range,
        }
        columns = {name: getattr(work, name) for name in _COLUMNS} | {"syncs": self.syncs}
        file = io.BytesIO()
        columns |= {"number": marks.number, "meaning": marks.meaning}
        np.savez_compressed(file, about=np.array(json.dumps(about)), **columns)
        write_whole(path, file.getvalue(), durable=False)

    @classmethod
    def load(cls, path: Path) -> ProcessTrace:
        """Read what ``save`` wrote.

        Raises:
            BadInputError: If it can't be read.
        """
        try:
            with np.load(path) as file:
                return cls._of(json.loads(str(file["about"])), file)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise BadInputError(f"damaged file ({error})") from None

    @classmethod
    def _of(cls, about: dict[str, Any], file: Mapping[str, Any]) -> ProcessTrace:
        work = Launched(tuple(about.pop("names")), *(file[name] for name in _COLUMNS))
        labels = [(op, module) for op, module in about.pop("labels")]
        ranges = [tuple(names) for names in about.pop("ranges")]
        syncs = file["syncs"]
        marks = LaunchMarks(file["number"], file["meaning"], labels, ranges, about.pop("first_range"))
        about |= {name: [tuple(pair) for pair in about[name]] for name in ("segments", "loads", "notes")}
        return cls(work=work, marks=marks, syncs=syncs, **about)


_COLUMNS = ("name", "start_ns", "end_ns", "correlation", "device")
