"""The kernels of one process, with the operator, module and ranges of each."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from jouletrace.arrays import Floats, Ints, Mask
from jouletrace.errors import BadInputError
from jouletrace.run.files import write_whole
from jouletrace.tracer.rows import UNSHAPED, Shape

SIDE_S = 5.0
"""Traced time on each side of an untraced interval that stands for it."""

Segment = tuple[int, int]
"""Edges of a traced interval, ns since the Unix epoch."""

Label = tuple[str, str]
"""Name of an operator, and the module in which it runs, with * in place of the numbers of equal layers; "" for none."""

Names = tuple[str, ...]
"""Names of a range and of those around it, the outermost first."""


@dataclass(frozen=True)
class Launched:
    """Kernels, copies and sets, in the order of their launches, and what each belongs to as far as it was marked.

    Attributes:
        names: Distinct names of kernels, copies and sets.
        shapes: How kernels are launched; unknown is the first.
        labels: Operators and modules; ("", "") is the first.
        paths: Paths of ranges; () is the first.
        name: Index into ``names``, shape (n,).
        start_ns, end_ns: Since the Unix epoch, shape (n,).
        correlation: Number of the launch; all kernels of a CUDA graph share one. Shape (n,).
        device: CUDA's number of the device, shape (n,).
        stream: CUDA's number of the stream, shape (n,).
        kind: KERNEL, COPY or SET, shape (n,).
        extra: Of a kernel its index into ``shapes``, of others the bytes that they move, shape (n,).
        label: Index into ``labels``, shape (n,).
        module: Number of the module around the launch, 0 for none, whether or not operators were marked, shape (n,).
        sampled: Whether operators were marked at the launch, shape (n,).
        thread: Small number of the thread that launched, shape (n,).
        path: Index into ``paths``, shape (n,).
        weight: For how many of its like each kernel stands, shape (n,).
        wait_ns: How long each kernel waited for other ranks when it began, shape (n,).
    """

    names: tuple[str, ...]
    shapes: Sequence[Shape]
    labels: Sequence[Label]
    paths: Sequence[Names]
    name: Ints
    start_ns: Ints
    end_ns: Ints
    correlation: Ints
    device: Ints
    stream: Ints
    kind: Ints
    extra: Ints
    label: Ints
    module: Ints
    sampled: Mask
    thread: Ints
    path: Ints
    weight: Floats
    wait_ns: Ints

    def __len__(self) -> int:
        return len(self.name)

    @classmethod
    def from_columns(cls, names: Sequence[str], name: Ints, start_ns: Ints, end_ns: Ints, **known: Any) -> Launched:
        """Launches, each of its own number and weight, of which all that isn't ``known`` is zeros, or names nothing."""
        found: dict[str, Any] = {column: np.zeros(len(name), np.int64) for column in _COLUMNS}
        found |= {"shapes": [UNSHAPED], "labels": [("", "")], "paths": [()], "correlation": np.arange(1, 1 + len(name))}
        found |= {"sampled": np.zeros(len(name), bool), "weight": np.ones(len(name))}
        return cls(**found | {"names": tuple(names), "name": name, "start_ns": start_ns, "end_ns": end_ns} | known)

    @property
    def marked(self) -> bool:
        """True if an operator was marked at some launch."""
        named = np.array([bool(op) for op, _ in self.labels])
        return bool((self.sampled & named[self.label]).any())

    def take(self, rows: Mask | Ints) -> Launched:
        """A selection."""
        return replace(self, **{column: getattr(self, column)[rows] for column in _COLUMNS})


@dataclass(frozen=True)
class ProcessTrace:
    """The kernels of a process, with what they belong to.

    Attributes:
        pid: Of the process.
        name: What it runs.
        rank: Among the processes of a launcher; None if it isn't one of several.
        devices: UUIDs of its GPUs, by CUDA's numbers.
        work: What ran.
        segments: When it was traced.
        loads: When it waited for its data loader, ns.
        syncs: When its host waited for the GPU, ns, by their ends; shape (m, 2).
        notes: Codes and messages about what is missing.
        unsampled: Why no operators are known; "" if they are.
        dropped: Records that are missing: CUPTI dropped them, or they have no end.
        calls: How often a module was called outside of others, by its name.
        marked: Of what ran on one GPU: whether an operator was marked at some launch of the process.
        prefix: Ranges around all, where several processes share the GPU.
        away: When another process had the GPU within kernels of this one, ns, disjoint, shape (m, 2).
    """

    pid: int
    name: str
    rank: int | None
    devices: list[str]
    work: Launched
    segments: list[Segment]
    loads: list[tuple[int, int]] = field(default_factory=list)
    syncs: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))
    notes: list[tuple[str, str]] = field(default_factory=list)
    unsampled: str = ""
    dropped: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)
    marked: bool = False
    prefix: Names = ()
    away: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))

    def take(self, rows: Mask) -> ProcessTrace:
        """The same with a selection of what ran."""
        return replace(self, work=self.work.take(rows))

    def weights(self) -> Floats:
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
        about = {name: getattr(self, name) for name in _FACTS} | {name: getattr(self.work, name) for name in _LISTS}
        columns = {name: getattr(self.work, name) for name in _COLUMNS} | {"syncs": self.syncs}
        file = io.BytesIO()
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
        lists: dict[str, Any] = {
            name: [tuple(one) for one in about.pop(name)] for name in ("shapes", "labels", "paths")
        }
        work = Launched(tuple(about.pop("names")), **lists, **{name: file[name] for name in _COLUMNS})
        about |= {name: [tuple(pair) for pair in about[name]] for name in ("segments", "loads", "notes")}
        return cls(work=work, syncs=file["syncs"], **about)


_FACTS = ("pid", "name", "rank", "devices", "segments", "loads", "notes", "unsampled", "dropped", "calls")
_LISTS = ("names", "shapes", "labels", "paths")
_COLUMNS = tuple(one.name for one in fields(Launched) if one.name not in _LISTS)
