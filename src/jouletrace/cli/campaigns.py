"""How a command that carries out a campaign begins and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jouletrace.cli.output import say
from jouletrace.errors import NotPossibleError

if TYPE_CHECKING:
    from jouletrace.campaign.loop import Tally


def say_plan(device: str, varied: Mapping[str, Sequence[Any]]) -> None:
    """Say which settings of a GPU would be changed; ``varied`` has their values by name, among others.

    Raises:
        BadInputError, NotPossibleError: As ``GpuSettings``.
    """
    from jouletrace.profiler.gpu_settings import GpuSettings

    with GpuSettings(device, varied) as gpu:
        for line in gpu.plan():
            say(line)


def conclude(tally: Tally[Any], folder: Path, what: str = "points", *, answer: str = "") -> None:
    """End a command behind its table, and say how it goes on; ``answer`` is a reason that counts as a result.

    Raises:
        BaseException: What broke the campaign off.
        NotPossibleError: If results are missing.
    """
    from jouletrace.run.files import quoted

    total, missing = len(tally.outcomes), tally.missing
    again = f"the same command with -o {quoted(folder)}"
    if tally.ended_by is not None:
        say(f"{total - len(missing)} of {total} {what} are measured; {again} goes on")
        raise tally.ended_by
    lost = [point for point in missing if point.reason != answer]
    if lost:
        reasons = "; ".join(list(dict.fromkeys(point.text for point in lost))[:3])
        raise NotPossibleError(f"{len(lost)} of {total} {what} could not be measured: {reasons}; {again} tries again")
