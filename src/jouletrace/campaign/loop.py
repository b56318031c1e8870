"""The loop of every campaign: what is missing is measured in groups, and each result is stored at once.

A folder belongs to one campaign, so that the same command goes on where it ended. What a point is, where its result
lies and how it is measured is the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from jouletrace.campaign.worker import reason_of
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.processes.locks import alone_in
from jouletrace.profiler.progress import Progress
from jouletrace.run.files import shown, write_whole
from jouletrace.run.header import jsonable
from jouletrace.run.places import file_mode

Point = TypeVar("Point", bound=Hashable)

NOT_REACHED, OUT_OF_MEMORY = "interrupted", "out_of_memory"

_THEIRS = ("bad_input", "disk_full")
"""Reasons that the user can resolve."""


@dataclass(frozen=True)
class Outcome(Generic[Point]):
    """The outcome of a point: why it has no result, as a code and a sentence; "" if it has one.

    Codes are those of ``worker.reason_of``, "interrupted", and of a fleet "busy" and "no_noise".
    """

    point: Point
    reason: str = ""
    text: str = ""


Note = Callable[[Outcome[Point]], None]
"""Receives each outcome at once."""


class Watch(Generic[Point]):
    """An observer that reports "point 3 of 12" as a phase; subclasses display more."""

    def __init__(self, progress: Progress | None = None, what: str = "point") -> None:
        self.progress = progress or Progress()
        self._what = what
        self._total = self._done = 0

    def begin(self, total: int, done: int) -> None:
        """Start with the number of requested results, and of those that exist already."""
        self._total, self._done = total, done

    def group(self, points: Sequence[Point]) -> None:
        """Begin points that are measured together."""
        self.progress.begin(f"{self._what} {self._done + 1} of {self._total}: {', '.join(map(str, points))}", 0)

    def outcome(self, found: Outcome[Point]) -> None:
        """Receive an outcome."""
        self._done = min(self._done + 1, self._total)  # points that run together may be measured again


@dataclass
class Tally(Generic[Point]):
    """The outcomes of a campaign.

    Attributes:
        wanted: All its points.
        before: Those whose result existed.
        outcomes: Of those that were measured now.
        ended_by: The exception that broke it off.
    """

    wanted: tuple[Point, ...]
    before: frozenset[Point]
    outcomes: dict[Point, Outcome[Point]] = field(default_factory=dict)
    ended_by: BaseException | None = None

    def of(self, point: Point) -> Outcome[Point]:
        """The outcome of a point, "interrupted" if its turn didn't come."""
        here = Outcome(point) if point in self.before else Outcome(point, NOT_REACHED, "it was not measured")
        return self.outcomes.get(point, here)

    @property
    def missing(self) -> list[Outcome[Point]]:
        """The points without a result."""
        return [found for point in self.wanted if (found := self.of(point)).reason]

    @property
    def measured(self) -> int:
        """Number of new results."""
        return sum(not found.reason and point not in self.before for point, found in self.outcomes.items())


def carry_out(
    groups: Sequence[Sequence[Point]],
    there: Collection[Point],
    measure: Callable[[Sequence[Point], Note[Point]], None],
    watch: Watch[Point],
    what: str = "points",
) -> Tally[Point]:
    """Measure the groups of points that aren't all ``there``, one after the other.

    ``measure`` states the outcome of each point of a group. An exception of it, Ctrl-C among them, ends the campaign
    and is in the tally: the caller shows what there is, then raises it.

    Raises:
        BadInputError: If there is no result, for reasons that the user can resolve.
        NotPossibleError: If there is no result.
    """
    wanted = tuple(point for group in groups for point in group)
    tally = Tally(wanted, frozenset(there).intersection(wanted))
    watch.begin(len(wanted), len(tally.before))

    def note(found: Outcome[Point]) -> None:
        tally.outcomes[found.point] = found
        watch.outcome(found)

    try:
        for group in groups:
            if not tally.before.issuperset(group):
                watch.group(group)
                measure(group, note)
    except BaseException as error:
        tally.ended_by = error
        return tally
    missing = tally.missing
    if len(missing) == len(wanted):
        reasons = list(dict.fromkeys(found.text for found in missing))
        kind = BadInputError if all(found.reason in _THEIRS for found in missing) else NotPossibleError
        raise kind(f"none of {len(wanted)} {what} could be measured: {'; '.join(reasons[:3])}")
    return tally


def one_by_one(do: Callable[[Point], None]) -> Callable[[Sequence[Point], Note[Point]], None]:
    """A ``measure`` of ``carry_out`` by a function that raises where a point fails."""

    def measure(group: Sequence[Point], note: Note[Point]) -> None:
        for point in group:
            try:
                do(point)
            except (JouletraceError, TimeoutError, RuntimeError) as error:  # a RuntimeError carries a child's traceback
                text = (str(error).strip().splitlines() or ["it failed without a message"])[-1]
                note(Outcome(point, reason_of(error), text))
            else:
                note(Outcome(point))

    return measure


@contextmanager
def claimed(
    path: Path, what: str, settings: Mapping[str, Any], *, free: Collection[str] = (), **more: Any
) -> Iterator[None]:
    """Hold the folder of a campaign, whose settings are in the file ``path``: they are written, or must be the same.

    Args:
        path: The file.
        what: The kind of campaign: "sweep".
        settings: All that its points share.
        free: Settings that may differ when it is resumed.
        more: Further content of the file.

    Raises:
        BadInputError: If the folder holds something else, or can't be written.
        NotPossibleError: If another process of this host is writing there.
    """
    with alone_in(path.parent, f"running a {what}"):
        known, asked = claim_at(path), jsonable(dict(settings))
        if known is None and any(not other.name.startswith(".") for other in path.parent.iterdir()):
            raise BadInputError(f"{shown(path.parent)} is not empty and holds no {what}")
        if known is not None:
            # Earlier versions wrote those of MIG without a heading, and no repeats.
            before, now = _flat({"repeats": 1, **known.get("settings", known)}), _flat(asked)
            name = next((name for name in now if name not in free and before.get(name) != now[name]), None)
            if name is not None:
                was, wanted = json.dumps(before.get(name)), json.dumps(now[name])
                raise BadInputError(
                    f"{shown(path.parent)} holds a {what} with other settings ({name}: {was:.60}, not {wanted:.60}); "
                    "give another -o, or the same command to resume"
                )
        try:
            write_whole(path, json.dumps({**more, "settings": asked}, indent=1).encode(), mode=file_mode())
        except OSError as error:
            raise BadInputError(f"cannot write {shown(path)}: {error.strerror or error}") from None
        yield


def claim_at(path: Path) -> dict[str, Any] | None:
    """The content of the file that ``claimed`` wrote; None without it.

    Raises:
        BadInputError: If it can't be read.
    """
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{shown(path)} can't be read: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("settings", {}), dict):
        raise BadInputError(f"{shown(path)} can't be read: it does not hold settings")
    return found


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings merged with those of the profile, so that a difference can be named."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _flat(value) if isinstance(value, dict) and name != "config" else {"": value}
        found |= {f"{name} {key}".strip(): one for key, one in inner.items()}
    return found
