"""Reads other tools' files into Runs: one module per format, ``sniff(head)`` and ``read(path, options)``.

A new format takes one module, and one line in ``registry.FORMATS`` or in a wing; modules are imported on request.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, about, read_head
from jouletrace.formats.importers.registry import LAST, formats, importer
from jouletrace.formats.importers.tools import advice
from jouletrace.option import named
from jouletrace.public import public_names
from jouletrace.wing import registered

if TYPE_CHECKING:
    from jouletrace.run import Run


def recognise(path: Path | str) -> str:
    """The format of a file, determined by its content alone.

    Raises:
        BadInputError: If it can't be read, is empty, or has no known format.
    """
    if Path(path).is_dir():
        return _recognise_folder(Path(path))
    check_readable(path)
    head = read_head(Path(path))
    for name in formats():
        if name == LAST and (refusal := advice(head)):
            raise BadInputError(f"{path}: {refusal}")
        if importer(name).sniff(head):
            return name
    raise BadInputError(f"{path}: not recognised; name its format with --format ({', '.join(formats())})")


def check_readable(path: Path | str) -> None:
    """Refuse a report that only its own tool can read, with the command that converts it.

    Raises:
        BadInputError: If it is such a report, by its name.
    """
    name = Path(path).name.lower()
    for suffix, command in registered("converted_by").items():
        if name.endswith(suffix) and Path(path).exists():
            converted = command.format(file=shlex.quote(str(path)))
            raise BadInputError(f"{path}: only its own tool reads this report: import what `{converted}` writes")


def _recognise_folder(path: Path) -> str:
    for name in formats():
        is_folder = getattr(importer(name), "is_folder", None)
        if is_folder is not None and is_folder(path):
            return name
    raise BadInputError(f"{path}: not the folder of a Run, nor of a known format: name the files in it to import")


def read_file(path: Path | str, options: ImportOptions | None = None) -> Run:
    """Read one file into a Run of kind "import", with the times of the file.

    Raises:
        BadInputError: If it can't be read, or nothing in it is usable.
    """
    from jouletrace.run.header import jsonable

    options = options or ImportOptions()
    check_readable(path)
    name = options.format or recognise(path)
    run = importer(name).read(Path(path), options)
    run.workload = jsonable(run.workload)  # as it will be saved: names of loads must be those of their units
    return run


def import_files(*paths: Path | str, save_to: Path | str | None = None, **options: Any) -> Run:
    """Import files of other profilers and power loggers into one Run on one clock, as ``jouletrace import`` does.

    Args:
        *paths: The files; their formats are determined from their content.
        save_to: Folder or ".zip" file for the Run; None keeps it in memory (``run.save`` writes it later).
        **options: Fields of ``formats.importers.base.ImportOptions``: ``format`` of all files, ``offset_s`` (seconds
            to add to the times of all files but the first), ``offsets_s`` (by file), ``map`` (columns of a table, such
            as ``{"power_w": "P [W]"}``), ``latency_s`` of an iteration, ``device`` (its name), ``time_zone``,
            ``since`` and ``until`` (the part of a log).

    Returns:
        The Run, with its figures.

    Raises:
        BadInputError: If a file can't be read, nothing in it is usable, there is no such option (the nearest are
            named), or the place of the Run is taken.
    """
    from jouletrace.analysis import analyse
    from jouletrace.run.masking import mask
    from jouletrace.run.places import check_free
    from jouletrace.run.store import save

    if other := [path for path in paths if not isinstance(path, str | Path)]:
        raise BadInputError(f"import_files: {other[0]!r} is no path; give each file as an argument of its own")
    place = check_free(save_to) if save_to is not None else None
    run = mask(analyse(read_files(paths, ImportOptions(**named(ImportOptions, options, "import_files")))))
    run.command = f"jouletrace.import_files({', '.join(repr(Path(path).name) for path in paths)})"
    if place is not None:
        save(run, place)
    return run


def read_files(paths: Sequence[Path | str], options: ImportOptions | None = None) -> Run:
    """Read files and merge them into one Run on one clock; ``settings["imported"]`` states how each was aligned.

    Raises:
        BadInputError: If a file can't be read, or nothing in it is usable.
    """
    from jouletrace.analysis.imported_recording import take_for_samples
    from jouletrace.formats.importers.merge import merge

    options = options or ImportOptions()
    if not paths:
        raise BadInputError("no file to import")
    names = {name for path in paths for name in (str(path), Path(path).name)}
    if other := next((name for name in options.offsets_s if name not in names), None):
        raise BadInputError(f"--offset {other}={options.offsets_s[other]:g}: {other} is none of the files")
    runs = _as_one([read_file(path, options) for path in paths], paths, options)
    if options.map and not any(about(run)["format"] == "table" for run in runs):
        raise BadInputError(
            f"--map names columns of a table, and {paths[0]} is read as {about(runs[0])['format']}: leave it out"
        )
    run = merge(runs, [str(path) for path in paths], options)
    take_for_samples(run)
    return run


def _as_one(runs: list[Run], paths: Sequence[Path | str], options: ImportOptions) -> list[Run]:
    """The Runs, of which those of a format with ``read_together`` are read as one: several may be of one machine."""
    read_as = [about(run)["format"] for run in runs]
    for name in {name for name in read_as if read_as.count(name) > 1}:
        together = getattr(importer(name), "read_together", None)
        if together is not None:
            places = [k for k, other in enumerate(read_as) if other == name]
            for k, run in zip(places, together([Path(paths[k]) for k in places], options), strict=True):
                runs[k] = run
    return runs


__getattr__ = public_names(
    __name__,
    {
        "base": "RELATIVE UNIX",
        "columns": "Coded block",
        "stamps": "read_stamps",
    },
)
