"""Which fit of a recording to trust: ranges of rates, windows and phases are tried until one passes all checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jouletrace.attribution.activity import Activity
from jouletrace.attribution.checks import OF_RECORDING, checks
from jouletrace.attribution.lock import EVIDENCE, Known, Lock, lock, rephased
from jouletrace.attribution.outcome import Outcome
from jouletrace.run.readings import Readings
from jouletrace.sensor.models import Means, Sensor

SURE_EVIDENCE = 50.0
"""Evidence from which a rate needs no other range to be searched."""


def trusted(
    activity: Activity, sensors: Iterable[Sensor | Means], readings: Readings, kernels: int, dropped: int
) -> tuple[Lock, list[Outcome]]:
    """The lock that passes all checks with the most evidence, else the one with the most evidence; and its checks.

    A rate that is 50 Hz off, by the rate of the readout, can pass with weak evidence: then all ranges of rates that
    ``sensors`` have are searched. A place without the evidence that it needs isn't followed. Of ``kernels`` that ran
    the tracer missed ``dropped`` more. A recording that is too short or lacks kernels is refused at any rate, and
    searched once.
    """
    tried: list[tuple[bool, float, Lock, list[Outcome]]] = []
    known = Known()
    for sensor in sensors:
        for locked in attempts(activity, sensor, readings, known):
            asked = checks(locked, readings, kernels, dropped)
            passed = all(check.passed for check in asked)
            evidence = locked.search.evidence if locked.search is not None else SURE_EVIDENCE
            tried.append((passed, evidence, locked, asked))
            if passed:
                break
            if not all(check.passed for check in asked if check.code in OF_RECORDING):
                return locked, asked
        if tried[-1][0] and tried[-1][1] >= SURE_EVIDENCE:
            break
    best = max(tried, key=lambda one: one[:2])
    return best[2], best[3]


def attempts(
    activity: Activity, sensor: Sensor | Means, readings: Readings, known: Known | None = None
) -> Iterator[Lock]:
    """Locks to check in turn: later ones from other parts of the recording and other phases. Fits have local minima.

    None begins where one did that is ``known``. Args, Raises: As for ``lock``.
    """
    known = known or Known()
    for inner in (False, True):
        before = list(known.locks)
        locked = lock(activity, sensor, readings, inner, known)
        if any(locked.fit is one.fit for one in before):
            continue
        yield locked
        if locked.search is None:
            return
        if locked.search.evidence >= EVIDENCE:
            yield rephased(locked, readings)
