"""Checks by checksum that the files of a Run are what was saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.run import tables
from jouletrace.run.header import RUN_JSON
from jouletrace.run.reading import FILES, RunFiles, run_files
from jouletrace.run.store import Doubts, read_header, source_of


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
        """Whether every file exists and is what was saved."""
        return not self.problems


def verify(path: Path | str) -> list[Verified]:
    """Compare the files of a Run, and of all Runs in folders within it, with their checksums.

    The folder itself need not be a Run: all Runs in the folder of a sweep, say, are checked.

    Raises:
        BadInputError: If there is no Run.
    """
    source = source_of(path)
    if not source.is_dir():
        return [_verify(source)]
    try:
        places = sorted({found.parent for found in source.rglob(RUN_JSON)})
    except OSError as error:
        raise BadInputError(f"cannot read {source}: {error.strerror or error}") from None
    if not places:
        raise BadInputError(f"no Run in {source}: neither it nor a folder within it holds a {RUN_JSON}")
    return [_verify(place) for place in places]


def _verify(place: Path) -> Verified:
    zipped = place.suffix.lower() == ".zip" and place.is_file()
    if not zipped and not place.is_dir():
        with run_files(place):  # raises the specific error
            raise BadInputError(f"{place} is neither a folder nor a .zip file")
    try:
        with run_files(place) as files:
            return _compare(files, place)
    except BadInputError as error:  # a file named like a Run that can't be opened is a damaged Run
        return Verified(place, 0, {place.name if zipped else RUN_JSON: str(error)})


def _compare(files: RunFiles, place: Path) -> Verified:
    run, checksums, sealed = read_header(files, str(place))
    doubts = Doubts([RUN_JSON] if sealed is None else [], [RUN_JSON] if sealed is False else [])
    there, problems = files.names(), {}
    for name in FILES:
        if name in there and name != RUN_JSON:
            try:
                with files.open(name) as file:
                    doubts.look_at(name, file, checksums)
            except (OSError, BadInputError) as error:
                problems[name] = f"it can't be read: {getattr(error, 'strerror', None) or error}"
        elif name not in there and (name in checksums or (run.complete and _is_needed(name))):
            problems[name] = "it is missing"
    problems |= dict.fromkeys(doubts.changed, "it is not what was saved: it was damaged or changed since")
    if not run.complete and len(checksums) < 2:  # only its own: nothing was saved after the start
        problems[RUN_JSON] = "the recording was cut off: its files have no checksums"
    elif doubts.unknown:
        unknown = "it has no checksum, as in older versions: whether it is what was saved can't be determined"
        problems |= dict.fromkeys(doubts.unknown, unknown)
    return Verified(place, len(set(there) - set(problems)), dict(sorted(problems.items())))


def _is_needed(name: str) -> bool:
    return name.removesuffix(".parquet") not in (*tables.OPTIONAL, RUN_JSON)
