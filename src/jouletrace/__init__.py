"""jouletrace: how much time, power and energy a deep-learning workload takes on a GPU, and where it goes.

    import jouletrace as jt

    run = jt.profile(model, inputs)
    with jt.measure("epoch") as m:
        train()
    print(m.energy_j)

Names are loaded when they are first used, so that importing jouletrace costs nothing.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing takes longer than all that is done here
if TYPE_CHECKING:
    from typing import Any

    from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError, RecorderDiedError
    from jouletrace.profiler.measure import Measurement, measure
    from jouletrace.profiler.python import profile
    from jouletrace.run import Estimate, Run, load

_HOMES = {
    "BadInputError": "jouletrace.errors",
    "Estimate": "jouletrace.run",
    "JouletraceError": "jouletrace.errors",
    "Measurement": "jouletrace.profiler.measure",
    "NotPossibleError": "jouletrace.errors",
    "RecorderDiedError": "jouletrace.errors",
    "Run": "jouletrace.run",
    "load": "jouletrace.run",
    "measure": "jouletrace.profiler.measure",
    "profile": "jouletrace.profiler.python",
}

__all__ = [
    "BadInputError",
    "Estimate",
    "JouletraceError",
    "Measurement",
    "NotPossibleError",
    "RecorderDiedError",
    "Run",
    "load",
    "measure",
    "profile",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jouletrace' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
