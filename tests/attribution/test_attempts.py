"""Which of several attempts is trusted, and what is tried next: with locks and checks that are made up."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from jouletrace.attribution import checks as trying
from jouletrace.attribution import trusted
from jouletrace.attribution.checks import attempts
from jouletrace.attribution.lock import EVIDENCE, Attempts
from jouletrace.attribution.outcome import Outcome
from jouletrace.sensor import HOPPER_SENSOR


def locked(evidence):
    search = None if evidence is None else SimpleNamespace(evidence=evidence, rate_hz=1230.0)
    return SimpleNamespace(search=search, fit=object())


@pytest.fixture
def tried(monkeypatch):
    """The chosen attempt at each sensor, and those that were checked."""
    asked = []

    def run(*ranges, beside=()):
        """``beside`` are attempts at rates that could be taken for that of 1230 Hz."""
        of = {(1200.0 + step, 1260.0): attempts for step, attempts in enumerate(ranges)} | {(1228.0, 1232.0): beside}
        sensors = [replace(HOPPER_SENSOR, rates_hz=rates) for rates in list(of)[:-1]]
        monkeypatch.setattr(trying, "attempts", lambda activity, sensor, *_: iter(of[sensor.rates_hz]))

        def judged(one, *_):
            asked.append(one)
            return [
                Outcome.without_interval(name, name not in one.failed, 0.0) for name in ("length", "traced", "held_out")
            ]

        monkeypatch.setattr(trying, "checks", judged)
        return trusted(None, sensors, None, 1, 0)[0], asked

    return run


def attempt(evidence, *failed):
    one = locked(evidence)
    one.failed = failed
    return one


def test_a_sure_rate_that_passes_needs_no_other_range(tried):
    sure, other = attempt(50.0), attempt(99.0)
    assert tried([sure], [other]) == (sure, [sure])


def test_a_weak_one_is_compared_with_rates_that_could_be_taken_for_it_alone(tried):
    weak, better, worse, other = attempt(49.9), attempt(60.0, "held_out"), attempt(48.0), attempt(99.0)
    assert tried([weak], [other], beside=[better, worse]) == (weak, [weak, better, worse])
    again, stronger = attempt(30.0), attempt(31.0)
    assert tried([again], beside=[stronger])[0] is stronger


def test_later_attempts_of_a_range_follow_those_that_fail(tried):
    first, second, third = attempt(70.0, "held_out"), attempt(60.0), attempt(80.0)
    assert tried([first, second, third]) == (second, [first, second])


def test_if_none_passes_the_one_with_the_most_evidence_says_why(tried):
    one, other = attempt(30.0, "held_out"), attempt(40.0, "held_out")
    assert tried([one], [other])[0] is other
    assert tried([other], [one])[0] is other
    alike = attempt(40.0, "held_out")
    assert tried([other], [alike])[0] is other


def test_a_sure_rate_that_fails_gives_way_to_one_that_passes(tried):
    sure, other = attempt(70.0, "held_out"), attempt(50.0)
    assert tried([sure], [other])[0] is other


def test_an_averaging_sensor_has_no_rate_to_doubt(tried):
    means, other = attempt(None), attempt(99.0)
    assert tried([means], [other])[0] is means


@pytest.mark.parametrize("why", ["length", "traced"])
def test_a_fault_of_the_recording_itself_ends_the_search(tried, why):
    one, other = attempt(10.0, why), attempt(99.0)
    found, asked = tried([one, other])
    assert found is one
    assert asked == [one]


@pytest.fixture
def begun(monkeypatch):
    """Where attempts begin; locks have the evidence needed, or ``weak`` ones less; ``again`` begins at one place."""
    made = []

    def lock(activity, sensor, readings, inner, known):
        made.append(inner)
        if sensor == "again" and known.locks:
            return SimpleNamespace(search=known.locks[0].search, fit=known.locks[0].fit)
        known.locks.append(locked(EVIDENCE - (0.1 if sensor == "weak" else 0.0)))
        return known.locks[-1]

    monkeypatch.setattr(trying, "lock", lock)
    monkeypatch.setattr(trying, "rephased", lambda one, readings: (one, "rephased"))
    return made


def test_attempts_are_two_searches_each_with_other_phases(begun):
    found = list(attempts(None, None, None))
    assert begun == [False, True]
    assert [found[1], found[3]] == [(found[0], "rephased"), (found[2], "rephased")]


def test_a_place_without_the_evidence_that_it_needs_has_no_other_phases(begun):
    assert len(list(attempts(None, "weak", None))) == len(begun) == 2


def test_a_place_is_tried_once_in_all_ranges(begun):
    known = Attempts()
    assert len(list(attempts(None, "again", None, known))) == 2
    assert list(attempts(None, "again", None, known)) == []
    assert begun == [False, True] * 2


def test_an_averaging_sensor_is_tried_once(monkeypatch):
    monkeypatch.setattr(trying, "lock", lambda *_: locked(None))
    assert len(list(attempts(None, None, None))) == 1
