"""jouletrace: how much time, power and energy a deep-learning workload takes on a GPU, and where it goes.

    import jouletrace as jt

    run = jt.profile(model, inputs)
    with jt.measure("epoch") as m:
        train()
    print(m.energy_j)

Names are loaded on first use, so that importing jouletrace is fast; wings add some (``wing.Wing.names``).
"""

from __future__ import annotations

from jouletrace.version import __version__ as __version__

TYPE_CHECKING = False  # importing typing takes longer than all that is done here
if TYPE_CHECKING:
    from typing import Any

    from jouletrace.campaign.sweep import sweep
    from jouletrace.campaign.tune import tune
    from jouletrace.comparing.compare import compare
    from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError, RecorderDiedError, TakenError
    from jouletrace.formats.importers import import_files
    from jouletrace.profiler.ab import ab
    from jouletrace.profiler.detail.part_profiler import KernelProfiler, LayerProfiler
    from jouletrace.profiler.loading import load
    from jouletrace.profiler.measure import Measurement, measure
    from jouletrace.profiler.profile import profile
    from jouletrace.profiler.record.live import range as range  # not in __all__, where it would hide the builtin
    from jouletrace.profiler.record.live import record, step
    from jouletrace.profiler.record.live_sums import RangeSoFar, SoFar
    from jouletrace.profiler.record.magic import load_ipython_extension as load_ipython_extension
    from jouletrace.profiler.record.ranks import merge_ranks
    from jouletrace.profiler.record.recording import Recording
    from jouletrace.run import Estimate, Run

    # without its wing: Any
    from jouletrace.wings.trainers.callbacks import (  # type: ignore[import, unused-ignore]
        lightning_callback,
        trainer_callback,
    )
    from jouletrace.wings.trainers.trackers import log_to  # type: ignore[import, unused-ignore]

    __all__ = [
        "BadInputError",
        "Estimate",
        "JouletraceError",
        "KernelProfiler",
        "LayerProfiler",
        "Measurement",
        "NotPossibleError",
        "RangeSoFar",
        "RecorderDiedError",
        "Recording",
        "Run",
        "SoFar",
        "TakenError",
        "ab",
        "compare",
        "import_files",
        "lightning_callback",
        "load",
        "log_to",
        "measure",
        "merge_ranks",
        "profile",
        "record",
        "step",
        "sweep",
        "trainer_callback",
        "tune",
    ]

_HOMES = {
    "BadInputError": "jouletrace.errors",
    "Estimate": "jouletrace.run",
    "JouletraceError": "jouletrace.errors",
    "KernelProfiler": "jouletrace.profiler.detail.part_profiler",
    "LayerProfiler": "jouletrace.profiler.detail.part_profiler",
    "Measurement": "jouletrace.profiler.measure",
    "NotPossibleError": "jouletrace.errors",
    "RecorderDiedError": "jouletrace.errors",
    "Recording": "jouletrace.profiler.record.recording",
    "RangeSoFar": "jouletrace.profiler.record.live_sums",
    "Run": "jouletrace.run",
    "SoFar": "jouletrace.profiler.record.live_sums",
    "TakenError": "jouletrace.errors",
    "ab": "jouletrace.profiler.ab",
    "compare": "jouletrace.comparing.compare",
    "import_files": "jouletrace.formats.importers",
    "load": "jouletrace.profiler.loading",
    "load_ipython_extension": "jouletrace.profiler.record.magic",
    "measure": "jouletrace.profiler.measure",
    "merge_ranks": "jouletrace.profiler.record.ranks",
    "profile": "jouletrace.profiler.profile",
    "range": "jouletrace.profiler.record.live",
    "record": "jouletrace.profiler.record.live",
    "step": "jouletrace.profiler.record.live",
    "sweep": "jouletrace.campaign.sweep",
    "tune": "jouletrace.campaign.tune",
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted({*_homes()} - {"load_ipython_extension", "range"})  # range would hide the builtin
    home = _HOMES.get(name) or _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'jouletrace' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(home), name)  # asked for once, not in every step
    return found


def _homes() -> dict[str, str]:
    """Module of each name; those of wings can't replace others."""
    from jouletrace.wing import registered

    return registered("names", _HOMES)


def __dir__() -> list[str]:
    """The public names alone: what completion in a shell offers."""
    return sorted([*__getattr__("__all__"), "__version__", "range"])
