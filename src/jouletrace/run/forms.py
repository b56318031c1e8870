"""Types of the free dictionaries of a Run, checked when a Run is read.

``settings``, ``workload`` and ``stored`` may hold anything. The entries that are looked up by name are declared here:
a file with another form is refused with one line, and lookups have types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, Required, TypedDict, cast

import msgspec
from msgspec import Meta

from jouletrace.run.info import Delay, Integer, Seconds

_Positive = Annotated[float, Meta(gt=0, le=1e18)]
_Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Number = Annotated[float, Meta(ge=-1e18, le=1e18)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Variance = Annotated[float, Meta(ge=-1e18, le=1e18)]
Facts = dict[str, Any]
"""Values that are stored and shown as they are, and looked up nowhere."""


class Match(TypedDict):
    """Launches with counters that were matched to kernels of a timeline."""

    launches: Integer
    matched: Integer
    ambiguous: Integer
    unknown: Integer
    rate: _Number


class Imported(TypedDict, total=False):
    """One of ``settings["imported"]``: a file that was read."""

    clock: Required[str]
    path: str
    format: str
    dialect: str
    aligned: str
    left_out: dict[str, Integer]
    of: list[Imported]
    devices: dict[str, str]
    events: dict[str, Integer]
    joins: dict[str, Integer]
    launches: Integer
    match: Match
    not_read: dict[str, Integer]
    page: str
    rules: Integer


class RankFacts(TypedDict):
    """One of ``settings["ranks"]``: a process of several."""

    name: str
    rank: Integer
    devices: list[str]
    restart: NotRequired[Integer]
    host: NotRequired[str]
    complete: NotRequired[bool]


class FleetFacts(TypedDict, total=False):
    """``settings["fleet"]``: a run's place in a fleet."""

    node: str
    repeat: Integer
    order: Integer | None
    placement: str | None
    noise: list[str]
    noise_here: bool
    at_ns: Integer | None


class Settings(TypedDict, total=False):
    """``Run.settings``: options by name, and what came of them; most fields of ``ProfileSettings`` aren't looked up."""

    absolute: bool
    block: Annotated[int, Meta(gt=0, le=2**62)] | None
    carbon_g_per_kwh: _Number | None
    commands: list[str]
    config: Facts | None
    currency: Annotated[str, Meta(max_length=4)] | None
    detail: str | None
    device: str
    devices: list[str]
    doctor: Facts
    duration_s: _Number | None
    ended: bool
    first_stage: Integer | None
    fleet: FleetFacts
    imported: list[Imported]
    interval_s: _Number
    l2: str | None
    latency_s: _Positive | None
    margin: _Positive
    not_synchronised: list[str]
    per: str | None
    pid: Integer | None
    price_per_kwh: _Number | None
    ranks: list[RankFacts]
    repeats: Integer | None
    seconds: _Number
    seed: Integer
    target_ci: _Number | None
    tracing: Facts


class Nodes(TypedDict, total=False):
    """``workload["nodes"]``."""

    iterations: Integer
    mean_of: Integer
    starts: str


class RecordingFacts(TypedDict, total=False):
    """Provenance of the recording behind the rows of kernels of a device (``run.recording_names``).

    Attributes:
        name: Of the device among several: "rank-0".
        rank: Of the process on it.
        last, collectives: In how many of the collectives its rank came last, of how many that were matched.
        kernels_s: Time of its kernels, s.
    """

    name: str
    rank: Integer
    last: Integer
    collectives: Integer
    kernels_s: _Number
    iterations: Annotated[int, Meta(gt=0, le=10**12)]
    start_ns: Integer
    end_ns: Integer
    first_ns: Integer
    device: str
    iterations_by: str | None
    seconds: list[Annotated[list[_Number], Meta(min_length=3, max_length=4)]]
    kernels: Integer
    idle_by: dict[str, _Number]
    whole: Annotated[list[Integer], Meta(min_length=3, max_length=3)]
    plain_s: _Number
    repeated_s: _Number
    variants: Integer | None
    unmatched: _Number | None
    dropped: Integer | None
    note: str


class StepFacts(TypedDict):
    """``workload["steps"]``: how often a program called the module in which most of its kernels' time lies.

    Attributes:
        module: Its name.
        calls: How often it was called outside of other modules.
    """

    module: str
    calls: Annotated[int, Meta(gt=0, le=2**63 - 1)]


class Totals(TypedDict):
    """The answers between the start and the end of a load whose single requests aren't known."""

    requests: _Natural
    input_tokens: _Natural
    output_tokens: _Natural


class LoadFacts(TypedDict, total=False):
    """One of ``workload["serving"]["levels"]``: a load on a server, by number in the ``requests`` table.

    Attributes:
        name: As printed ("4/s", "16 at once").
        kind: "open" or "closed" loop.
        arrivals: Process of arrivals.
        rate_per_s, concurrency: What was offered; None for the other kind.
        seconds: Time in which requests were sent.
        mean_input_tokens, mean_output_tokens: Means of what lengths were drawn from.
        totals, stated: Of a load without single requests: its totals, and figures that a file states, by metric.
        client_cpu_s, client_wall_s: The client's own time.
        client_real_time: Whether the client had a real-time priority to the end.
        server, group, alone: Its server among several, the number that loads at the same time share, and whether it is
            one server's alone, before the others.
        given_up: Whether the rest wasn't sent since nothing was answered any more.
        without_usage, short, over: Requests whose tokens the server didn't count, or that have fewer or more of them
            than asked.
        sent_again: Requests that were sent twice, since the server closed the connection that it had kept.
    """

    name: Required[str]
    kind: str
    server: _Natural
    group: _Natural
    alone: bool
    arrivals: str
    rate_per_s: _Number | None
    concurrency: Integer | None
    seconds: _Number
    mean_input_tokens: _Number | None
    mean_output_tokens: _Number | None
    start_ns: Integer
    end_ns: Integer
    totals: Totals
    stated: dict[str, _Number]
    client_cpu_s: _Number
    client_wall_s: _Number
    client_real_time: bool
    given_up: bool
    without_usage: Integer
    short: Integer
    over: Integer
    sent_again: Integer


class Server(TypedDict):
    """One of several servers on slices of a GPU.

    Attributes:
        url: Its address, or the workload of a simulated one.
        slice: UUID of its slice, the device of the activity's channel.
        profile: The slice's profile.
        slices: Compute slices of it.
    """

    url: str
    slice: str
    profile: str
    slices: Annotated[int, Meta(gt=0, le=64)]


class Serving(TypedDict, total=False):
    """``workload["serving"]``: the server and the loads on it.

    Attributes:
        slo_s: Limits in seconds by name: "ttft", "tpot", "e2e".
        token_ids, ignore_eos, usage: What the server took.
        servers, slices: Servers on slices of one GPU, and how many compute slices that has.
        clock: How the clock of the power record was brought to that of the requests, where they differ.
        streamed: Of steps seen in the answers: how complete they are; absent if logged.
        traced_covariance: Of a step's factors by its traced energy, shape (5, 5).
    """

    url: str
    model: str
    api: str
    token_ids: bool
    ignore_eos: bool
    usage: bool
    levels: Required[list[LoadFacts]]
    slo_s: dict[str, _Number]
    processes: list[str]
    clock: str
    streamed: _Number
    traced_covariance: Annotated[
        list[Annotated[list[_Variance], Meta(min_length=4, max_length=5)]], Meta(min_length=4, max_length=5)
    ]
    servers: list[Server]
    slices: _Natural


LENT: Final = ("serving", "pods")
"""Facts of a workload that wings read (``Wing.kinds``): their figures, and the words for these."""


class WorkloadFacts(TypedDict, total=False):
    """``Run.workload``: what was run, as resolved."""

    a: WorkloadFacts
    arguments: Integer
    attention: str | None
    autocast: str | None
    b: WorkloadFacts
    backend: str | None
    batch: _Positive | None
    bytes_moved: _Number | None
    cache: str | None
    command: str | None
    commit: str
    compile: Facts
    config: Facts
    counted: Facts
    data: str | None
    device: str | None
    direction: str | None
    dtype: str | None
    exit_code: Integer
    export: Facts
    flops: _Number | None
    generated_by: str | None
    generation: Facts  # of an older version, whose phases hold what the GPU takes between kernels
    input_shapes: Facts
    job: Facts  # of a scheduler
    inputs: str | None
    items: _Positive | None
    iterations: Integer | None
    label_smoothing: _Number | None
    least_memory_bytes: _Number
    load: str | None
    mode: str | None
    model: str | None
    name: str
    new_tokens: Integer | None
    nodes: Nodes
    note: str | None
    optimizer: str | None
    parameters: Integer | None
    pods: Facts  # of the kubelet that was asked
    processes: list[str]
    profiles: list[str]
    providers: list[str]
    quantization: str | None
    quantized: Facts
    rank: _Natural
    ranks: Integer | None
    recordings: list[RecordingFacts]
    restart: Integer | None
    sample_shape: list[Integer]
    sampling: str | None
    seq_len: Integer | None
    serving: Serving
    size: Integer | None
    size_mib: Integer | None
    size_tried: Facts
    source: str | None
    step: Facts
    steps: StepFacts
    task: str | None
    threads: Integer | None
    tokens: Integer | None
    torch_flags: Facts
    versions: dict[str, str]
    warm_up: Facts
    weights: str | None
    work: str | None
    world_size: _Natural


class StoredLevel(TypedDict, total=False):
    """A figure from an earlier measurement."""

    value: _Number | None
    low: _Number | None
    high: _Number | None
    n: Integer | None
    method: str | None
    reason: str | None
    time_ns: Integer
    driver: str | None


class StoredScatter(TypedDict):
    """The scatter between runs, from repeated runs of another GPU.

    Attributes:
        sd_pct: Standard deviation of the energy of an iteration between runs, % of its mean.
        runs: From how many, at least 2.
        source: Of what.
    """

    sd_pct: Annotated[float, Meta(ge=0, le=1e6)]
    runs: Annotated[int, Meta(ge=2, le=1_000_000)]
    source: str


class StoredFigures(TypedDict, total=False):
    """``Run.stored``; the sample rate is by device."""

    deep_idle: StoredLevel | None
    deep_idle_reason: str
    sample_rate_hz: dict[str, StoredLevel]
    between_runs: StoredScatter | None


_Rate = Annotated[float, Meta(gt=0, le=1e18)]


class BestRates(TypedDict, total=False):
    """The best rates that a GPU reached (``execution.steps.rates``).

    Attributes:
        device: Its UUID.
        name: Its name.
        flops_per_s: Of products by number format, FLOP/s.
        bytes_per_s: Of copies in its memory, bytes read and written.
    """

    device: str
    name: str
    flops_per_s: dict[str, _Rate]
    bytes_per_s: _Rate


_Row = Annotated[list[_Variance], Meta(min_length=2, max_length=2)]
_Level = Annotated[list[_Number], Meta(min_length=4, max_length=4)]


class AgainstMeter(TypedDict):
    """Gain and offset of a GPU's power sensor, against a meter of its supply: drawn = offset + gain x read.

    Attributes:
        gain_half, offset_half_w: Half-widths of their 95 % intervals, without the meter's accuracy.
        covariance: Of offset in W and gain, shape (2, 2): 1.96 standard deviations are these half-widths.
        scatter_w: Standard deviation of levels about the line, beyond the errors of both means.
        accuracy_pct: Limit of the meter's own error, % of its reading.
        accuracy_w: Limit of the rest of it, in W.
        gain_pct: Half-width of the 95 % interval of all this, % of the power; the largest from half of the load on.
        shift_s: What was added to the meter's stamps.
        levels: Watts read and by the meter, with the standard uncertainties of both, of each level.
        meter: Name of the meter's file.
    """

    time_ns: Integer
    gain: Annotated[float, Meta(gt=0, le=1e9)]
    gain_half: Annotated[float, Meta(ge=0, le=1e9)]
    offset_w: Delay
    offset_half_w: Annotated[float, Meta(ge=0, le=1e9)]
    covariance: Annotated[list[_Row], Meta(min_length=2, max_length=2)]
    scatter_w: Annotated[float, Meta(ge=0, le=1e9)]
    accuracy_pct: Annotated[float, Meta(ge=0, le=100)]
    accuracy_w: Annotated[float, Meta(ge=0, le=1e9)]
    gain_pct: Annotated[float, Meta(ge=0, le=1e9)]
    shift_s: _Number
    levels: Annotated[list[_Level], Meta(min_length=1)]
    meter: str


class Calibration(TypedDict, total=False):
    """``Run.calibration`` of a device.

    Attributes:
        channels: Fields of ``sensor.calibration.response.StepResponse`` by channel.
        rates: Missing in those of older versions.
        meter: Missing without a meter.
    """

    time_ns: Integer
    load: str
    driver: str | None
    channels: dict[str, Facts]
    rates: BestRates
    meter: AgainstMeter


class ClockPair(TypedDict):
    """One of ``Run.clock_pairs``."""

    time_ns: Integer
    monotonic_ns: Integer


class SensorResponse(TypedDict, total=False):
    """``ChannelInfo.response``: fields of ``sensor.calibration.response.StepResponse``."""

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
    covariance: Annotated[list[list[_Variance]], Meta(min_length=1, max_length=5)]
    uncertainty: dict[str, _Number]
    explained: _Number | None
    flags: list[str]
    origin: str


def stated_facts(stated: Mapping[str, object]) -> WorkloadFacts:
    """Facts of another tool, for ``Run.workload``; those of another form than ours are kept as ``NAME_stated``."""
    return cast(
        WorkloadFacts, {name if _fits(name, value) else f"{name}_stated": value for name, value in stated.items()}
    )


def _fits(name: str, value: object) -> bool:
    try:
        msgspec.convert({name: value}, WorkloadFacts)
    except msgspec.ValidationError:
        return False
    return True


FREE: dict[str, Any] = {
    "settings": Settings,
    "workload": WorkloadFacts,
    "stored": StoredFigures,
    "calibration": dict[str, Calibration],
}
"""The form of each free field of a Run."""
