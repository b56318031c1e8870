"""The kernels of one process, with the operator, module and ranges of each."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    """Kernels, copies and sets, in the order of their launches.

    Attributes:
        names: Distinct names of kernels, copies and sets.
        shapes: How kernels are launched; unknown is the first.
        name: Index into ``names``, shape (n,).
        start_ns, end_ns: Since the Unix epoch, shape (n,).
        correlation: Number of the launch; all kernels of a CUDA graph share one. Shape (n,).
        device: CUDA's number of the device, shape (n,).
        stream: CUDA's number of the stream, shape (n,).
        kind: KERNEL, COPY or SET, shape (n,).
        extra: Of a kernel its index into ``shapes``, of others the bytes that they move, shape (n,).
    """

    names: tuple[str, ...]
    shapes: Sequence[Shape]
    name: Ints
    start_ns: Ints
    end_ns: Ints
    correlation: Ints
    device: Ints
    stream: Ints
    kind: Ints
    extra: Ints

    def __len__(self) -> int:
        return len(self.name)

    @classmethod
    def from_columns(cls, names: Sequence[str], name: Ints, start_ns: Ints, end_ns: Ints, **columns: Ints) -> Launched:
        """Launches, each of its own number, of which columns that aren't given are zeros."""
        given = dict.fromkeys(_OF_WORK, np.zeros(len(name), np.int64)) | {"correlation": np.arange(1, 1 + len(name))}
        given |= {"name": name, "start_ns": start_ns, "end_ns": end_ns} | columns
        return cls(tuple(names), [UNSHAPED], *(given[column] for column in _OF_WORK))

    def take(self, rows: Mask | Ints) -> Launched:
        """A selection."""
        return replace(self, **{column: getattr(self, column)[rows] for column in _OF_WORK})


@dataclass(frozen=True)
class Owners:
    """Operators, modules and ranges of the launches of a process, as they were marked.

    Attributes:
        labels: Operators and modules; ("", "") is the first.
        unmarked: Of each label, the one that the same launches have where operators aren't marked, shape (labels,).
        label: Index into ``labels``, shape (n,).
        sampled: Whether operators were marked at the launch, shape (n,).
        thread: Small number of the thread that launched, shape (n,).
        paths: Paths of ranges; () is the first.
        path: Index into ``paths``, shape (n,).
    """

    labels: Sequence[Label]
    unmarked: Ints
    label: Ints
    sampled: Mask
    thread: Ints
    paths: Sequence[Names]
    path: Ints

    @property
    def known(self) -> bool:
        """True if an operator was marked at some launch."""
        named = np.array([bool(op) for op, _ in self.labels])
        return bool((self.sampled & named[self.label]).any())

    @classmethod
    def none(cls, count: int) -> Owners:
        """Those of launches of which nothing is known."""
        zeros = np.zeros(count, np.int64)
        return cls([("", "")], np.zeros(1, np.int64), zeros, np.zeros(count, bool), zeros, [()], zeros)


@dataclass(frozen=True)
class ProcessTrace:
    """The kernels of a process, with what they belong to.

    Attributes:
        pid: Of the process.
        name: What it runs.
        rank: Among the processes of a launcher; None if it isn't one of several.
        devices: UUIDs of its GPUs, by CUDA's numbers.
        work: What ran.
        owners: What each launch belongs to.
        segments: When it was traced.
        loads: When it waited for its data loader, ns.
        syncs: When its host waited for the GPU, ns, by their ends; shape (m, 2).
        notes: Codes and messages about what is missing.
        unsampled: Why no operators are known; "" if they are.
        dropped: Records that are missing: CUPTI dropped them, or they have no end.
        calls: How often a module was called outside of others, by its name.
    """

    pid: int
    name: str
    rank: int | None
    devices: list[str]
    work: Launched
    owners: Owners
    segments: list[Segment]
    loads: list[tuple[int, int]] = field(default_factory=list)
    syncs: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))
    notes: list[tuple[str, str]] = field(default_factory=list)
    unsampled: str = ""
    dropped: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)

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
        owners = self.owners
        about = {
            **{name: getattr(self, name) for name in ("pid", "name", "rank", "devices", "segments", "loads", "notes")},
            **{name: getattr(self, name) for name in ("unsampled", "dropped", "calls")},
            "names": self.work.names,
            "shapes": self.work.shapes,
            "labels": owners.labels,
            "paths": owners.paths,
        }
        columns = {name: getattr(self.work, name) for name in _OF_WORK} | {"syncs": self.syncs}
        columns |= {name: getattr(owners, name) for name in _OF_OWNERS}
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
        shapes = [tuple(shape) for shape in about.pop("shapes")]
        work = Launched(tuple(about.pop("names")), shapes, *(file[name] for name in _OF_WORK))
        labels = [(op, module) for op, module in about.pop("labels")]
        paths = [tuple(names) for names in about.pop("paths")]
        owners = Owners(labels=labels, paths=paths, **{name: file[name] for name in _OF_OWNERS})
        about |= {name: [tuple(pair) for pair in about[name]] for name in ("segments", "loads", "notes")}
        return cls(work=work, owners=owners, syncs=file["syncs"], **about)


_OF_WORK = ("name", "start_ns", "end_ns", "correlation", "device", "stream", "kind", "extra")
_OF_OWNERS = ("unmarked", "label", "sampled", "thread", "path")
