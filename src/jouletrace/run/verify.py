"""Whether the files of a Run are what was saved, by their checksums."""

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
    """What became of a Run.

    Attributes:
        place: Its folder or zip.
        files: How many files are what was saved.
        problems: By name of a file: why it isn't, or why that is unknown.
    """

    place: Path
    files: int
    problems: dict[str, str]

    @property
    def whole(self) -> bool:
        """Whether every file is there and is what was saved."""
        return not self.problems


def verify(path: Path | str) -> list[Verified]:
    """Compare the files of a Run with their checksums, and those of the Runs in folders within it.

    A folder may be no Run itself: of a sweep, say, all Runs in it are looked at.

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
        with run_files(place):  # says what is wrong
            raise BadInputError(f"{place} is neither a folder nor a .zip file")
    try:
        with run_files(place) as files:
            return _compare(files, place)
    except BadInputError as error:  # a Run by its name that can't be opened is a damaged one
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
    if not run.complete and len(checksums) < 2:  # its own alone: nothing was saved after it had begun
        problems[RUN_JSON] = "the recording was cut off: what there is has no checksums"
    elif doubts.unknown:
        unknown = "it has no checksum, as of older versions: whether it is what was saved can't be told"
        problems |= dict.fromkeys(doubts.unknown, unknown)
    return Verified(place, len(set(there) - set(problems)), dict(sorted(problems.items())))


def _is_needed(name: str) -> bool:
    return name.removesuffix(".parquet") not in (*tables.OPTIONAL, RUN_JSON)
