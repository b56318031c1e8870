"""Nodes of a cluster that carry out a campaign: ``--on NAME``, by the engines of wings (``Wing.clusters``)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast

from jouletrace.campaign.worker import profile_in_child
from jouletrace.devices import is_simulated
from jouletrace.errors import BadInputError, unknown
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run.files import new_folder
from jouletrace.wing import registered

Files = dict[str, bytes]
"""Files of a folder by their paths in it: nodes need no common disk."""


class Cluster(Protocol):
    """A module of ``Wing.clusters``: places, retries and lost nodes are the engine's."""

    def check(self, device: str) -> None:
        """Refuse a ``--device`` that no node has, before anything is measured.

        Raises:
            NotPossibleError: If the engine isn't installed or can't be reached, or no node has a GPU.
        """

    def each(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], device: str
    ) -> Iterator[tuple[int, Any]]:
        """The number of each call and what the function returned, as they end; an exception that it raised is returned.

        Each call has one GPU to itself, which alone CUDA shows it. A call whose node was lost is repeated on another;
        if none is left, its result is a ``BrokenOffError``.

        Raises:
            NotPossibleError: As ``check``.
        """


def cluster(name: str | None, device: str) -> Cluster | None:
    """The engine of a name, a value of ``--on``; None for None.

    Raises:
        BadInputError: If there is none, or ``device`` is one GPU of this host.
    """
    if name is None:
        return None
    if name not in (known := registered("clusters")):
        raise unknown("value of --on", name, known)
    if device not in ("auto", "cpu") and not is_simulated(device):
        raise BadInputError(f"--on {name} --device {device}: the cluster chooses GPUs; give auto, cpu or sim:NAME")
    return cast(Cluster, import_module(known[name]))


def files_of(folder: Path) -> Files:
    """All files in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files into a folder: in one that isn't there all appear at once.

    Raises:
        BadInputError: If they can't be written.
    """
    try:
        with new_folder(folder) as partial:
            _write(files, partial)
    except OSError as error:
        raise BadInputError(f"cannot write {folder}: {error.strerror or error}") from None


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def profiled(workload: str, settings: ProfileSettings, home: str, limit_s: float | None) -> Files:
    """The Run of ``worker.profile_in_child``, on a node; ``home`` is the folder that a workload's file is named from.

    Raises:
        Exception: As ``profile_in_child``.
    """
    with TemporaryDirectory(prefix="jouletrace-", ignore_cleanup_errors=True) as scratch:
        with suppress(OSError):
            os.chdir(home)
        folder = Path(scratch, "run")
        profile_in_child(workload, settings, folder, limit_s)
        return files_of(folder)


def profile_on(
    there: Cluster,
    calls: Sequence[tuple[str, ProfileSettings, Path]],
    limit_s: float | None = None,
) -> Iterator[tuple[int, Exception | None]]:
    """Profile workloads, each on any GPU of a cluster; ``profile_in_child`` does it here, one after the other.

    Each call is a workload, its settings and the folder that receives the Run, which is emptied. Returned is the number
    of each as it ends, and why it has no Run.
    """
    work = [(workload, settings, os.getcwd(), limit_s) for workload, settings, _ in calls]
    for number, result in there.each(profiled, work, calls[0][1].device):
        if isinstance(result, Exception):
            yield number, result
        else:
            shutil.rmtree(calls[number][2], ignore_errors=True)
            write_files(result, calls[number][2])
            yield number, None
