"""The loop of every campaign: what is missing is measured in groups, and each result is stored at once.

What a point is, where its result lies and how it is measured is the caller's.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.locks import alone_in
from jouletrace.profiler.progress import Progress
from jouletrace.run.files import shown, write_whole
from jouletrace.run.header import jsonable
from jouletrace.run.masking import masked_all
from jouletrace.run.places import file_mode, fresh_folder

Point = TypeVar("Point", bound=Hashable)

RESULT = "result.json"
"""The result of a campaign, which ``results.printed`` shows again."""

NOT_REACHED, OUT_OF_MEMORY = "interrupted", "out_of_memory"

_NAMED = 8
"""Points that are named of those that are measured together: the GPUs of a host."""

_THEIRS = ("bad_input", "disk_full")
"""Reasons that the user can resolve."""


@dataclass(frozen=True)
class PointOutcome(Generic[Point]):
    """Why a point has no result, as a code and a sentence; "" if it has one.

    Codes are those of ``worker.reason_of``, "interrupted", and those of the campaign.
    """

    point: Point
    reason: str = ""
    text: str = ""


Note = Callable[[PointOutcome[Point]], None]
"""Receives each outcome at once."""


class DamagedError(BadInputError):
    """A result is there and can't be read."""


class PointObserver(Generic[Point]):
    """An observer that reports "point 3 of 12" as a phase; subclasses display more."""

    def __init__(self, progress: Progress | None = None, what: str = "point") -> None:
        self._phases, self._what = progress or Progress(), what
        self._total = self._done = 0

    def begin(self, total: int, done: int) -> None:
        """Start with the number of requested results, and of those that exist already."""
        self._total, self._done = total, done

    def group(self, points: Sequence[Point]) -> None:
        """Begin points that are measured together."""
        more = f" and {len(points) - _NAMED} more" if len(points) > _NAMED else ""
        named = ", ".join(map(str, points[:_NAMED])) + more
        self._phases.begin(f"{self._what} {self._done + 1} of {self._total}: {named}", 0)

    def note(self, text: str) -> None:
        """State what the user should know, in a line."""
        self._phases.note(text)

    def outcome(self, found: PointOutcome[Point]) -> None:
        """Receive an outcome."""
        self._done = min(self._done + 1, self._total)  # points that run together may be measured again


@dataclass
class Tally(Generic[Point]):
    """The outcomes of all points of a campaign, the number that existed ``before``, and what broke it off."""

    outcomes: dict[Point, PointOutcome[Point]]
    before: int
    ended_by: BaseException | None = None

    @property
    def missing(self) -> list[PointOutcome[Point]]:
        """The points without a result."""
        return [found for found in self.outcomes.values() if found.reason]


def carry_out(
    groups: Sequence[Sequence[Point]],
    is_there: Callable[[Point], bool],
    measure: Callable[[Sequence[Point], Note[Point]], None],
    watch: PointObserver[Point],
    what: str = "points",
    *,
    at_once: bool = False,
) -> Tally[Point]:
    """Measure the groups of points that aren't all there, one after the other; a line states those that are damaged.

    With ``at_once``, where a cluster measures, these are one group.

    ``measure`` states the outcome of each point of a group. An exception of it, Ctrl-C among them, ends the campaign
    and is in the tally: the caller shows what there is, then raises it.

    Raises:
        BadInputError: If there is no result, for reasons that the user can resolve.
        NotPossibleError: If there is no result.
    """
    points = [point for group in groups for point in group]
    there = set()
    for point in points:
        try:
            there |= {point} if is_there(point) else set()
        except DamagedError as error:
            watch.note(f"{point} is measured again: {error}")
    missed = {point: PointOutcome(point, NOT_REACHED, "not all of it was measured") for point in points}
    tally = Tally({**missed, **{point: PointOutcome(point) for point in there}}, len(there))
    watch.begin(len(points), len(there))

    def note(found: PointOutcome[Point]) -> None:
        tally.outcomes[found.point] = found
        watch.outcome(found)

    try:
        missing = [group for group in groups if not there.issuperset(group)]
        for group in [[*itertools.chain(*missing)]] if at_once and missing else missing:
            watch.group(group)
            measure(group, note)
    except BaseException as error:
        tally.ended_by = error
        return tally
    if len(tally.missing) == len(points):
        reasons = list(dict.fromkeys(found.text for found in tally.missing))
        kind = BadInputError if all(found.reason in _THEIRS for found in tally.missing) else NotPossibleError
        raise kind(f"none of {len(points)} {what} could be measured: {'; '.join(reasons[:3])}")
    return tally


def keep(path: Path, text: str) -> None:
    """Write a file of a campaign.

    Raises:
        BadInputError: If it can't be written.
    """
    try:
        write_whole(path, text.encode(), mode=file_mode())
    except OSError as error:
        raise BadInputError(f"cannot write {shown(path)}: {error.strerror or error}") from None


@contextmanager
def folder_of(output: Path | None, name: str) -> Iterator[Path]:
    """The requested folder, or a fresh one under ``runs/``; a new one is removed if it stays empty."""
    is_new = output is None or not output.exists()
    folder = output or fresh_folder("runs", name)
    try:
        yield folder
    finally:
        if is_new:
            with suppress(OSError):  # it holds something, that of another process perhaps
                folder.rmdir()


@contextmanager
def claimed(
    path: Path, what: str, settings: Mapping[str, Any], *, free: Collection[str] = (), part: str = "", **more: Any
) -> Iterator[None]:
    """Hold the folder of a campaign, a ``what``, whose settings are in the file ``path``, with ``more``.

    They are written, without secrets, or must be those written before, except that the ``free`` ones may differ.
    Processes with different ``part`` may hold it at the same time.

    Raises:
        BadInputError: If the folder holds something else, or can't be written.
        NotPossibleError: If another process of this host is writing there.
    """
    folder = path.parent
    with alone_in(folder, f"running a {what}", part):
        is_used = any(not other.name.startswith(".") for other in folder.iterdir())  # first: another part may claim now
        known, asked = claim_at(path), masked_all(jsonable(dict(settings)))
        if known is None and is_used:
            raise BadInputError(f"{shown(folder)} is not empty and holds no {what}")
        if known is not None:
            # Earlier versions wrote those of MIG without a heading, and no repeats.
            before = _flat({"repeats": 1, **known.get("settings", known)})
            for name, value in _flat(asked).items():
                if name not in free and before.get(name) != value:
                    was, now = json.dumps(before.get(name)), json.dumps(value)
                    raise BadInputError(
                        f"{shown(folder)} holds a {what} with other settings ({name}: {was:.60}, not {now:.60}); "
                        "give another -o, or the same command to resume"
                    )
        keep(path, json.dumps({**more, "settings": asked}, indent=1))
        yield


def claim_at(path: Path) -> dict[str, Any] | None:
    """The content of the file that ``claimed`` wrote; None without it.

    Raises:
        BadInputError: If it can't be read.
    """
    try:
        found = json.loads(path.read_bytes())
        if isinstance(found, dict) and isinstance(found.get("settings", {}), dict):
            return found
        raise ValueError("it does not hold settings")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{shown(path)} can't be read: {error}") from None


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings merged with those of the profile, so that a difference can be named."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _flat(value) if isinstance(value, dict) and name != "config" else {"": value}
        found |= {f"{name} {key}".strip(): one for key, one in inner.items()}
    return found
