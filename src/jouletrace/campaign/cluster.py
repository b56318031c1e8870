"""Nodes of a cluster that carry out a campaign: ``--on NAME``, by the engines of wings (``Wing.clusters``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast

from jouletrace.devices import is_simulated
from jouletrace.errors import BadInputError, unknown
from jouletrace.run.files import new_folder
from jouletrace.wing import registered

Files = dict[str, bytes]
"""Files of a folder by their paths in it: nodes need no common disk."""


class Cluster(Protocol):
    """A module of ``Wing.clusters``: places, retries and lost nodes are the engine's."""

    def nodes(self, device: str) -> Sequence[str]:
        """The nodes that have a ``--device``, by the engine's names for them, in the same order each time.

        Raises:
            NotPossibleError: If the engine isn't installed or can't be reached, or no node has a GPU.
        """

    def each(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], device: str, nodes: Sequence[str] = ()
    ) -> Iterator[tuple[int, Any]]:
        """The number of each call and what the function returned, as they end; an exception that it raised is returned.

        Each call has one GPU to itself, which alone CUDA shows it. A call whose node was lost is repeated on another;
        if none is left, its result is a ``BrokenOffError``. With ``nodes``, one for each call, it has all GPUs of that
        node instead, and no other takes its place.

        Raises:
            NotPossibleError: As ``nodes``.
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


def filled(fill: Callable[[Path], Any], home: str) -> tuple[Files, Any]:
    """The files that a function writes into a folder, and what it returns, on a node.

    ``home`` is the folder that a workload's file is named from.

    Raises:
        Exception: As the function.
    """
    with TemporaryDirectory(prefix="jouletrace-", ignore_cleanup_errors=True) as scratch:
        with suppress(OSError):
            os.chdir(home)
        folder = Path(scratch, "files")
        returned = fill(folder)
        return files_of(folder), returned


def fill_on(
    there: Cluster, fills: Sequence[Callable[[Path], Any]], folders: Sequence[Path], device: str
) -> Iterator[tuple[int, Exception | None]]:
    """Call functions that each fill a folder, on any GPU of a cluster; the files come to the ``folders`` here.

    Returned is the number of each as it ends, and why its folder has no files.
    """
    for number, result in there.each(filled, [(fill, os.getcwd()) for fill in fills], device):
        failed = isinstance(result, Exception)
        if not failed:
            write_files(result[0], folders[number])
        yield number, result if failed else None


def fill_one_on(there: Cluster, fill: Callable[[Path], Any], folder: Path, device: str) -> None:
    """Call one function that fills a folder, as ``fill_on`` does.

    Raises:
        Exception: Why it has no files.
    """
    for _, error in fill_on(there, [fill], [folder], device):
        if error is not None:
            raise error
