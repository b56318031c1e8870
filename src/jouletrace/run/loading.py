"""Reading a Run from a folder or a zip file, and comparing its files with their checksums."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from jouletrace.errors import BadInputError
from jouletrace.known_secrets import known, refresh
from jouletrace.run import sound, tables
from jouletrace.run.channel_file import ChannelFile
from jouletrace.run.division import divisions_of
from jouletrace.run.files import RUN_JSON, chunks
from jouletrace.run.gathered import READINGS, gather, sound_parts
from jouletrace.run.header import Checksums, decode, is_sealed, matches
from jouletrace.run.limits import MOST_JSON_BYTES, Allowance
from jouletrace.run.masking import mask
from jouletrace.run.model import Held, Run, held, put
from jouletrace.run.old import add_totals, name_parts
from jouletrace.run.reading import FILES, RunFiles, of_csv, run_files
from jouletrace.run.spool import SPOOL, read_spool

REPEATS = "repeats"
"""Folder beside a Run of several processes that holds the Run of each process."""

_SAYS_INCOMPLETE = ("incomplete", "interrupted", "failed")


class Doubts:
    """The files of a Run that their checksums don't confirm.

    Attributes:
        unknown: Files without one.
        changed: Files that aren't what was saved.
    """

    def __init__(self, checksums: Checksums, sealed: bool | None) -> None:
        self._checksums = checksums
        self.unknown = [RUN_JSON] if sealed is None else []
        self.changed = [RUN_JSON] if sealed is False else []

    def look_at(self, name: str, file: BinaryIO) -> bool:
        """Compare a file with its checksum; True if that confirms it."""
        file.seek(0)
        if name not in self._checksums:
            self.unknown.append(name)
        elif not matches(chunks(file), self._checksums[name]):
            self.changed.append(name)
        return name not in (*self.unknown, *self.changed)


def load(path: Path | str) -> Run:
    """Read a Run from a folder, its ``run.json``, or a zip file.

    A spool left by a crash is read too, and the Run is then marked incomplete. A table that is readable but not what
    was saved produces a warning.

    Raises:
        BadInputError: If there is no Run, it has a newer major version, a file is damaged, or it would unpack to more
            than ``run.limits`` allows.
    """
    source = source_of(path)
    refresh()
    with run_files(source) as files:
        run = _assemble(files, source)
    return mask(run) if known() else run  # another may have saved it, who didn't know what is secret here


def source_of(path: Path | str) -> Path:
    """The location of a Run: the folder of a ``run.json``, or the path itself.

    Raises:
        BadInputError: If the argument isn't a path.
    """
    try:
        source = Path(path)
    except TypeError:
        raise BadInputError(f"load({path!r}): the argument must be the path of a Run") from None
    return source.parent if source.name == RUN_JSON else source


def read_header(files: RunFiles, where: str) -> tuple[Run, Checksums, bool | None]:
    """The Run without tables, the checksums of its files, and whether ``run.json`` is what was saved (None: unknown).

    Raises:
        BadInputError: If it can't be read.
    """
    with files.open(RUN_JSON) as file:
        text = file.read(MOST_JSON_BYTES + 1)
    run, checksums = decode(text, f"{where}/{RUN_JSON}")
    sealed = is_sealed(text)
    if sealed is None and any(isinstance(stated, str) for stated in checksums.values()):
        sealed = False  # a version that writes such checksums also writes that of run.json
    return run, checksums, sealed


def load_header(path: Path) -> Run:
    """A Run without its tables; also works during a recording.

    Raises:
        BadInputError: If there is no Run, or its ``run.json`` can't be read.
    """
    with run_files(path) as files:
        return read_header(files, str(path))[0]


def lost_repeats(run: Run, folder: Path) -> list[str]:
    """The ``run.json`` of each process of a complete Run that isn't beside it any more; none if no process is kept."""
    if not run.complete or not (folder / REPEATS).is_dir():
        return []
    names = [f"{REPEATS}/{number}/{RUN_JSON}" for number in range(1, (run.settings.get("repeats") or 1) + 1)]
    return [name for name in names if not (folder / name).is_file()]


def _assemble(files: RunFiles, source: Path) -> Run:
    if exported := of_csv(source):
        raise BadInputError(exported)
    run, checksums, sealed = read_header(files, str(source))
    allowance = Allowance(files.packed)
    doubts = Doubts(checksums, sealed)
    there = set(files.names())
    if not run.complete and source.is_dir():
        # A table that its run.json doesn't know is of a save that was broken off.
        there -= {f"{name}.parquet" for name in _gather(run, source)} - set(checksums)
    for name in tables.TABLES:
        file_name = f"{name}.parquet"
        if file_name in there:
            put(run, name, _held(files, name, f"{source}/{file_name}", doubts, allowance))
        elif run.complete and (name not in tables.OPTIONAL or file_name in checksums):
            raise BadInputError(f"{source}/{file_name} is missing")
        elif source.is_dir() and name not in READINGS:
            recorded = read_spool(source / SPOOL, name)
            put(run, name, tables.concat(sound_parts(run, [recorded], name, str(source)), name))
    for of_table, check in (("activity.parquet is damaged: ", sound.check_kernels), ("", divisions_of)):
        try:
            check(run)
        except ValueError as error:
            raise BadInputError(f"{source}/{of_table}{error}") from None
    for name in doubts.changed:
        run.warn("changed_since_saved", f"{name} is not what was saved: it was damaged or changed since", str(source))
    name_parts(run)
    add_totals(run)
    names = ", ".join(name for name in doubts.unknown if name != RUN_JSON)
    if names and run.complete:
        message = f"{RUN_JSON} holds no checksum of {names}: whether they are what was saved can't be determined"
        run.warn("not_checked", message, str(source))
    if not run.complete and not any(warning.code in _SAYS_INCOMPLETE for warning in run.warnings):
        run.warn("incomplete", "the recording was cut off; only data that had reached the disk is kept", str(source))
    return run


def _gather(run: Run, source: Path) -> Sequence[str]:
    """Give a Run the readings of its spool; returns the names of their tables, none if there are no readings.

    Raises:
        BadInputError: If there is no room to put them together, or a file of the spool is refused.
    """
    try:
        gather(run, source / SPOOL)
    except OSError as error:
        why = f"its readings can't be put together in the folder for temporary files: {error.strerror or error}"
        raise BadInputError(f"cannot open {source}: {why} (TMPDIR names another folder)") from None
    return READINGS if len(held(run, "samples")) else ()


def _held(files: RunFiles, name: str, where: str, doubts: Doubts, allowance: Allowance) -> Held:
    """A table of a Run; its file, if that is what was saved and is divided by channel, as of long recordings."""
    file_name = f"{name}.parquet"
    with files.open(file_name) as file:
        is_saved = doubts.look_at(file_name, file)
        try:
            if is_saved and name in READINGS:
                in_file = ChannelFile.of(file, name, where, sound.check)
                if in_file is not None and in_file.has_several():
                    return in_file
            return checked_table(file, name, allowance)
        except ValueError as error:
            raise BadInputError(f"{where} is damaged: {error}") from None


def checked_table(file: BinaryIO, name: str, allowance: Allowance) -> pa.Table:
    """A table from its Parquet file.

    Raises:
        ValueError: If it is damaged, larger than allowed, or a row violates an invariant.
    """
    table = tables.read(file, name, allowance)
    sound.check(table, name)
    return table


@dataclass(frozen=True)
class Verified:
    """The outcome for one Run.

    Attributes:
        place: Its folder or zip.
        files: How many files are what was saved.
        problems: By file name: why a file isn't what was saved, or why that is unknown.
    """

    place: Path
    files: int
    problems: dict[str, str]

    @property
    def whole(self) -> bool:
        """True if every file exists and is what was saved."""
        return not self.problems


def runs_in(path: Path | str) -> list[Path]:
    """The Runs of a folder that is none itself, such as that of a sweep, in order of their names; else the path."""
    source = Path(path)
    if not source.is_dir() or (source / RUN_JSON).exists() or any(source.glob(f"rank-*/{RUN_JSON}")):
        return [source]  # parts of ranks are one Run, once they are merged
    folders = {file.parent for file in source.rglob(RUN_JSON)}
    outer = [
        run_path for run_path in (*folders, *source.rglob("*.zip")) if folders.isdisjoint(run_path.parents)
    ]  # no single repeats
    names = {
        run_path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(run_path))]
        for run_path in outer
    }
    return sorted(outer, key=names.__getitem__) or [source]


def verify(path: Path | str) -> list[Verified]:
    """Compare the files of a Run, and of all Runs in folders within it, with their checksums.

    The folder itself need not be a Run: all Runs in the folder of a sweep, say, are checked, and no exports to CSV.

    Raises:
        BadInputError: If there is no Run.
    """
    source = source_of(path)
    if not source.is_dir():
        return [_verify(source)]
    try:
        places = sorted({file.parent for file in source.rglob(RUN_JSON)})
    except OSError as error:
        raise BadInputError(f"cannot read {source}: {error.strerror or error}") from None
    if not places:
        raise BadInputError(f"no Run in {source}: neither it nor a folder within it holds a {RUN_JSON}")
    runs = [folder for folder in places if not of_csv(folder)]
    if not runs:
        raise BadInputError(of_csv(places[0]))
    return [_verify(folder) for folder in runs]


def _verify(folder: Path) -> Verified:
    zipped = folder.suffix.lower() == ".zip" and folder.is_file()
    if not zipped and not folder.is_dir():
        with run_files(folder):  # raises the specific error
            raise BadInputError(f"{folder} is neither a folder nor a .zip file")
    try:
        with run_files(folder) as files:
            return _compare(files, folder)
    except BadInputError as error:  # a file named like a Run that can't be opened is a damaged Run
        return Verified(folder, 0, {folder.name if zipped else RUN_JSON: str(error)})


def _compare(files: RunFiles, folder: Path) -> Verified:
    run, checksums, sealed = read_header(files, str(folder))
    doubts = Doubts(checksums, sealed)
    there, problems = files.names(), {}
    for name in FILES:
        if name in there and name != RUN_JSON:
            try:
                with files.open(name) as file:
                    doubts.look_at(name, file)
            except (OSError, BadInputError) as error:
                problems[name] = f"it can't be read: {getattr(error, 'strerror', None) or error}"
        elif name not in there and (
            name in checksums or (run.complete and name.removesuffix(".parquet") not in (*tables.OPTIONAL, RUN_JSON))
        ):
            problems[name] = "it is missing"
    problems |= dict.fromkeys(doubts.changed, "it is not what was saved: it was damaged or changed since")
    if not run.complete and len(checksums) < 2:  # only its own: nothing was saved after the start
        problems[RUN_JSON] = "the recording was cut off: its files have no checksums"
    elif doubts.unknown:
        unknown = "it has no checksum, as in older versions: whether it is what was saved can't be determined"
        problems |= dict.fromkeys(doubts.unknown, unknown)
    problems |= dict.fromkeys(lost_repeats(run, folder), "it is missing")
    return Verified(folder, len(set(there) - set(problems)), dict(sorted(problems.items())))
