"""Fits that tests share: what is asked is how a recording is read, kept or shown, and each fit takes seconds."""

import hashlib
import pickle
import sys
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from jouletrace.analysis import kernel_powers
from jouletrace.attribution import attribute, checks, program
from jouletrace.attribution import lock as locks
from jouletrace.run.files import write_whole
from jouletrace.sensor import power_record
from jouletrace.sensor.kinds import HOPPER_SENSOR, samples
from jouletrace.sensor.models import RATE_NEAR_HZ
from jouletrace.simulator.boards.driver import SampledStretch


@contextmanager
def fits_once(folder):
    """Within it the analysis fits, checks and solves a recording once: what is equal to the bit has the same results.

    So have analyses of equal readings their grid and energies. Processes that share the folder have these in common.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module, name in _REMEMBERED:
            patch.setattr(module, name, _remembered(getattr(module, name), folder))
        assert _as_imported(), "else nothing would be remembered"
        yield


_REMEMBERED = (
    (attribute, "attribute"),
    (checks, "checks"),
    (checks, "lock"),
    (checks, "rephased"),
    (kernel_powers, "attribute_program"),
    (power_record, "find_grid"),
)
"""Functions by the module that calls them."""


def _remembered(step, folder):
    def remembered(*of, **more):
        if not _as_imported():
            return step(*of, **more)
        digest = hashlib.sha256(f"{step.__name__} {_constants()}".encode())
        _add(digest, (*of, *more.items()))
        path = folder / digest.hexdigest()
        try:
            return pickle.loads(path.read_bytes())
        except FileNotFoundError:
            result = step(*of, **more)
            write_whole(path, pickle.dumps(result), durable=False)
            return result

    remembered.step = step
    return remembered


def _reached():
    """The modules of the code that a fit runs."""
    found, left = {}, {module.__name__ for module in (checks, program, attribute, power_record)}
    while left:
        name = left.pop()
        found[name] = sys.modules[name]
        of = {str(getattr(value, "__module__", "")) for value in vars(found[name]).values()}
        left |= {one for one in of if one.startswith("jouletrace.")} - found.keys()
    return [module for _, module in sorted(found.items())]


_MODULES = _reached()


def _constants():
    """Their constants, of which tests replace some."""
    plain = (bool, int, float, str, tuple, range)
    return [(name, value) for module in _MODULES for name, value in vars(module).items() if isinstance(value, plain)]


def _code():
    """Their functions, arrays and priors, and functions of their classes."""
    for module in _MODULES:
        for name, value in vars(module).items():
            if callable(value) or isinstance(value, np.ndarray) or is_dataclass(value):
                yield vars(module), name, value
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from ((vars(value), of, one) for of, one in vars(value).items() if callable(one))


_IMPORTED = list(_code())


def _as_imported():
    """True if no test has replaced a function, which has no digest; one that remembers stands for its own."""
    now = ((names.get(name), value) for names, name, value in _IMPORTED)
    return all(one is value or getattr(one, "step", None) is value for one, value in now)


def _add(digest, value):
    """Everything that a value holds; what earlier attempts have computed (``Known``) saves time and changes nothing."""
    if isinstance(value, locks.Attempts):
        return
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape} ".encode() + np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value):
        for field in fields(value):
            _add(digest, getattr(value, field.name))
    elif isinstance(value, tuple | list):
        digest.update(f"{len(value)} of ".encode())
        for one in value:
            _add(digest, one)
    else:
        assert type(value).__repr__ is not object.__repr__, f"{value!r} says nothing of what it holds"
        digest.update(f"{type(value).__name__} {value!r};".encode())


@contextmanager
def known_rates():
    """Within it the sample rate of a simulated GPU is known to 2 Hz, as after another profile of that GPU."""
    rates = []
    begin = SampledStretch.__init__

    def began(self, board, ring, rng, rate_hz, *more):
        rates.append(rate_hz)
        begin(self, board, ring, rng, rate_hz, *more)

    nominal = kernel_powers.models

    def models(run, channel):
        if not samples(channel):
            return nominal(run, channel)
        return [replace(HOPPER_SENSOR, rates_hz=(rates[-1] - RATE_NEAR_HZ, rates[-1] + RATE_NEAR_HZ))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SampledStretch, "__init__", began)
        patch.setattr(kernel_powers, "models", models)
        yield


def first_range_only(monkeypatch):
    """The sample rate is looked for where it is looked for first: a recording that is refused is refused there."""
    models = kernel_powers.models
    monkeypatch.setattr(kernel_powers, "models", lambda *of: models(*of)[:1])
