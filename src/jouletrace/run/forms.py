"""Types of the free dictionaries of a Run, checked when a Run is read.

``settings``, ``workload`` and the like may hold anything. The entries that the analysis or a report reads are declared
here, so that a file with another form is refused with one line, and later code can rely on the types.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, Required, TypedDict

from msgspec import Meta

from jouletrace.run.info import Delay, Integer, Seconds

_Positive = Annotated[float, Meta(gt=0, le=1e18)]
_Number = Annotated[float, Meta(ge=-1e18, le=1e18)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Variance = Annotated[float, Meta(ge=-1e18, le=1e18)]
_Facts = dict[str, Any]


class Imported(TypedDict, total=False):
    """One of ``settings["imported"]``: a file that was read."""

    clock: Required[str]
    path: str
    format: str
    aligned: str
    left_out: dict[str, Integer]
    of: list[_Facts]


class Rank(TypedDict):
    """One of ``settings["ranks"]``: a process of several."""

    name: str
    rank: Integer
    devices: list[str]
    restart: NotRequired[Integer]


class Settings(TypedDict, total=False):
    """``Run.settings``."""

    config: _Facts | None
    detail: str | None
    device: str
    fleet: _Facts | None
    imported: list[Imported] | None
    margin: _Positive
    not_synchronised: list[str] | None
    ranks: list[Rank] | None


class Segment(TypedDict):
    """A part of token generation that was measured separately."""

    unit: Integer
    phase: str
    weight: _Number
    times: _Positive
    length: Integer | None


class Generation(TypedDict):
    """``workload["generation"]``."""

    prompt: _Number
    steps: _Positive
    tokens: _Positive
    cache: str
    segments: list[Segment]


class Nodes(TypedDict, total=False):
    """``workload["nodes"]``."""

    mean_of: Integer


class Side(TypedDict, total=False):
    """``workload["a"]`` and ``["b"]`` of a Run that compares two workloads."""

    items: _Positive | None


class Recording(TypedDict, total=False):
    """Provenance of the recording behind rows of kernels (``analysis.recording``)."""

    device: str | None
    iterations: Annotated[int, Meta(gt=0, le=10**12)]
    start_ns: Integer
    end_ns: Integer
    unmatched: _Number | None
    dropped: Integer | None


class Workload(TypedDict, total=False):
    """``Run.workload``."""

    a: Side | None
    b: Side | None
    batch: _Positive | None
    generation: Generation | None
    items: _Positive | None
    least_memory_bytes: _Number | None
    nodes: Nodes
    parts: _Facts | None
    recording: Recording
    restart: Integer | None
    versions: _Facts | None


class StoredLevel(TypedDict, total=False):
    """A figure from an earlier measurement."""

    value: _Number | None
    low: _Number | None
    high: _Number | None
    n: Integer | None
    method: str | None
    reason: str | None


class StoredFigures(TypedDict, total=False):
    """``Run.stored``."""

    deep_idle: StoredLevel | None
    sample_rate_hz: StoredLevel | None


class ClockPair(TypedDict):
    """One of ``Run.clock_pairs``."""

    time_ns: Integer
    monotonic_ns: Integer


class SensorResponse(TypedDict, total=False):
    """``ChannelInfo.response``: fields of ``sensor.windows.response.Response``."""

    period_s: Annotated[float, Meta(gt=0, le=1e9)]
    window_s: Seconds
    rise_s: Seconds
    lag_s: Delay
    tail_share: _Share
    tail_s: Seconds
    jitter_s: Seconds
    stamp_grid: Annotated[int, Meta(ge=0, le=1000)]
    noise_w: Annotated[float, Meta(ge=0, le=1e9)]
    noise_relative: Annotated[float, Meta(ge=0, le=1e9)]
    wander_relative: Annotated[float, Meta(ge=0, le=1e9)]
    noise_tau_s: Annotated[float, Meta(gt=0, le=1e9)]
    misfit_relative: Annotated[float, Meta(ge=0, le=1e9)]
    counter_ratio: _Number | None
    covariance: Annotated[list[list[_Variance]], Meta(min_length=1, max_length=5)]
    uncertainty: dict[str, _Number]
    explained: _Number | None
    flags: list[str]
    origin: str


FREE: dict[str, Any] = {"settings": Settings, "workload": Workload, "stored": StoredFigures}
"""The form of each free field of a Run."""
