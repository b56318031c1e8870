"""Specifications of simulated GPUs: ``sim:NAME?key=value&...``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.option import number
from jouletrace.simulator.boards.presets import CLOCK_STEP_MHZ, Parameters, Preset, find

PREFIX = "sim:"
_MAY_BE_NEGATIVE = ("record_lag_s", "slow_lag_s")
_LONGEST_S, _MOST_W, _MOST_NOISE = 1e6, 2000, 100
"""Beyond these the model of a GPU has no meaning: its die would boil."""

SENSORS = ("modelled", "sampled")


@dataclass(frozen=True)
class SimSpec:
    """A parsed specification of a simulated GPU."""

    name: str  # full name of the preset
    seed: int = 0  # number of the GPU, which draws its hidden parameters
    run: int = 0  # number of the run on that GPU, which draws its noise
    realtime: bool = False  # whether it runs in real time
    load: tuple[tuple[float, float], ...] = ()  # what it does between calls: (seconds, watts of board power), repeated
    noise: float = 1.0  # scale of all noise and drift, of the GPU and its sensors
    cap: float | None = None  # power limit in watts; None for the preset's, infinity for none
    sensor: str = "modelled"  # "modelled", or "sampled" for momentary samples, as an H100's record
    gain: bool = False  # whether its power sensors have a gain error of up to 5 %
    reads: float = 1.0  # watts that they read for each watt drawn, on top of that
    offset: float = 0.0  # watts by which they read more
    # Hidden parameters given by name instead of drawn, such as those of a calibrated GPU
    given: tuple[tuple[str, float], ...] = ()
    # Faults of its driver when a power limit or a clock is set
    refuses: bool = False  # whether users may not set them
    rounds: float = CLOCK_STEP_MHZ  # step in MHz to which it rounds a clock, whatever it lists
    lags: float = 0.0  # seconds after which they are in force
    forgets: float | None = None  # seconds after which it drops them again

    def cap_w(self, preset: Preset) -> float | None:
        """The power limit in force in watts; None for none.

        Raises:
            BadInputError: If it is out of the preset's range.
        """
        if self.cap is None:
            return preset.cap_w
        if not isfinite(self.cap):
            return None
        if not preset.cap_min_w <= self.cap <= preset.cap_w:
            raise BadInputError(
                f"power cap of {self.cap:g} W is out of range for {preset.name}: "
                f"{preset.cap_min_w:g}..{preset.cap_w:g} W, or cap=off"
            )
        return self.cap


def parse(text: str) -> SimSpec:
    """Read ``sim:NAME[?key=value&...]``.

    Raises:
        BadInputError: If the name or a key is unknown, or a value is out of range.
    """
    if not text.startswith(PREFIX):
        raise BadInputError(f"a simulated GPU is written {PREFIX}NAME, not {text!r}")
    name, _, query = text[len(PREFIX) :].partition("?")
    values: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if key not in _READERS:
            raise BadInputError(f"{text}: unknown key {key!r}; there are: {', '.join(_READERS)}")
        if not equals or key in values:
            raise BadInputError(f"{text}: {key!r} needs one value, written {key}=VALUE")
        try:
            values[key] = _READERS[key](value)
        except ValueError as error:
            raise BadInputError(f"{text}: bad value {value!r} for {key!r}: {error}") from None
    preset = find(name)
    spec = SimSpec(preset.name, **values)
    spec.cap_w(preset)
    return spec


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("a whole number from 0 on")
    return int(text)


def _number(text: str) -> float:
    try:
        value = number(text)
    except ValueError:
        raise ValueError("not a number") from None
    if not isfinite(value):
        raise ValueError("not a finite number")
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _step(text: str) -> float:
    value = _number(text)
    if value < 1:
        raise ValueError("at least 1 MHz")
    return value


def _reads(text: str) -> float:
    value = _number(text)
    if not 0.1 <= value <= 10:
        raise ValueError("0.1 to 10")
    return value


def _offset(text: str) -> float:
    try:
        value = number(text)
    except ValueError:
        raise ValueError("not a number") from None
    if not abs(value) <= _MOST_W:
        raise ValueError(f"at most {_MOST_W} W")
    return value


def _noise(text: str) -> float:
    value = _number(text)
    if value > _MOST_NOISE:
        raise ValueError(f"at most {_MOST_NOISE}")
    return value


def _flag(text: str) -> bool:
    if text.lower() not in {"0", "1", "true", "false", "yes", "no"}:
        raise ValueError("1 or 0")
    return text.lower() in {"1", "true", "yes"}


def _cap(text: str) -> float:
    return float("inf") if text == "off" else _number(text)


def _sensor(text: str) -> str:
    if text not in SENSORS:
        raise ValueError(f"one of {', '.join(SENSORS)}")
    return text


def _plan(text: str) -> tuple[tuple[float, float], ...]:
    pieces = []
    for piece in text.split(","):
        seconds, colon, watts = piece.partition(":")
        if not colon:
            raise ValueError("SECONDS:WATTS,SECONDS:WATTS,...")
        pieces.append((_number(seconds), _number(watts)))
        if not 1e-3 <= pieces[-1][0] <= _LONGEST_S:
            raise ValueError(f"each piece lasts 0.001 to {_LONGEST_S:g} s")
        if not 0 < pieces[-1][1] <= _MOST_W:
            raise ValueError(f"each piece draws more than 0 and at most {_MOST_W} W")
    return tuple(pieces)


def _given(text: str) -> tuple[tuple[str, float], ...]:
    names = {field.name for field in fields(Parameters)}
    given = {}
    for piece in text.split(","):
        name, colon, value = piece.partition(":")
        if not colon or name in given:
            raise ValueError("NAME:VALUE,NAME:VALUE,..., each name once")
        if name not in names:
            raise ValueError(f"no parameter {name!r}; there are: {', '.join(sorted(names))}")
        try:
            given[name] = number(value)
        except ValueError:
            raise ValueError(f"{name} is not a number") from None
        if not isfinite(given[name]) or (given[name] <= 0 and name not in _MAY_BE_NEGATIVE):
            raise ValueError(f"{name} must be positive")
    return tuple(given.items())


_READERS: dict[str, Callable[[str], Any]] = {
    "seed": _whole,
    "run": _whole,
    "realtime": _flag,
    "load": _plan,
    "noise": _noise,
    "cap": _cap,
    "sensor": _sensor,
    "gain": _flag,
    "reads": _reads,
    "offset": _offset,
    "given": _given,
    "refuses": _flag,
    "rounds": _step,
    "lags": _number,
    "forgets": _number,
}
