"""Kinds of power sensors: by what one is recognised, its nominal timing and response, its model for the regression.

``KINDS`` is the one table of them. Live GPUs, simulated ones and logs look the sensor behind a power field up there
(``sensor_behind``) and state it in the channel, by which the regression finds its model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jouletrace.run import ChannelInfo
from jouletrace.run.channels import GAIN_PCT
from jouletrace.run.info import SECONDS
from jouletrace.sensor import shares
from jouletrace.sensor.calibration.response import SHAPE, StepResponse
from jouletrace.sensor.models import Means, SampleResponse, Sensor

RECORD, USAGE, AVERAGE, INSTANT = "record", "usage", "average", "instant"
"""Power fields of NVIDIA's driver and tools: its own record, ``nvmlDeviceGetPowerUsage`` (``power.draw``), and the two
that state their averaging."""

Capability = tuple[int, int]
"""CUDA compute capability, which distinguishes the generations of GPUs."""


@dataclass(frozen=True)
class PowerField:
    """Power fields behind which a sensor is, on some GPUs, and the nominal timing of their readings."""

    names: tuple[str, ...]
    # The GPUs: by compute capability (from, below) where that is known, else by a pattern of their names, without case;
    # all GPUs without either
    boards: str = ""
    capabilities: tuple[Capability, Capability] | None = None
    # In ``KINDS``, period and window are only stated where they aren't those of the kind's response
    period_s: float | None = None  # seconds between updates; None if unknown
    window_s: float | None = None  # averaging window of a reading in seconds; None if unknown
    most_s: float | None = None  # longest possible window where it is unknown; None for a log's own spacing
    sampling_s: float | None = None  # seconds between the samples behind the readings; None if unknown
    gain_pct: float | None = GAIN_PCT  # proportional error that software can't detect; None if unknown

    def matches(self, board: str, capability: Capability | None) -> bool:
        """True if it is that of a GPU with this name, in whole or in part ("" if unknown)."""
        if capability is not None and self.capabilities is not None:
            return self.capabilities[0] <= capability < self.capabilities[1]
        if not self.boards:
            return self.capabilities is None
        return re.search(self.boards, board, re.I) is not None


@dataclass(frozen=True)
class SensorKind:
    """Facts of a kind of power sensor before its GPU is calibrated."""

    fields: tuple[PowerField, ...]  # where it is recognised by its GPU, live or in a log
    response: StepResponse  # how readings answer, with wide uncertainty (``nominal``)
    sampler: Sensor | None = None  # of readings that average momentary samples; None if they are means over windows
    counts: bool = False  # whether readings are differences of a counter: each is the mean since the one before
    # Whether it is behind a channel that doesn't state its sensor: another meter's, or of a Run of an older version
    recognises: Callable[[ChannelInfo], bool] = lambda channel: False

    def response_of(self, channel: ChannelInfo) -> StepResponse:
        """The response, with the period and, of means, the window that the channel states."""
        response = self.response
        window_s = channel.window_s if self.sampler is None else None
        return replace(response, period_s=channel.period_s or response.period_s, window_s=window_s or response.window_s)

    def timed(self, field: PowerField) -> PowerField:
        """One of ``fields`` with the timing that it leaves to the response."""
        unknown = field.window_s is None and field.most_s is not None
        window_s = None if unknown else field.window_s or self.response.window_s
        return replace(field, period_s=field.period_s or self.response.period_s, window_s=window_s)


def nominal(period_s: float, window_s: float, lag_sd: float, window_sd: float, **more: float) -> StepResponse:
    """A response from documentation or published work; ``lag_sd`` and ``window_sd`` are the spread between GPUs, s."""
    covariance = ((lag_sd**2, 0.0, 0.0), (0.0, window_sd**2, 0.0), (0.0, 0.0, 0.0))
    return StepResponse(period_s=period_s, window_s=window_s, covariance=covariance, **more)  # type: ignore[arg-type]  # stamp_grid is an int


HOPPER = SampleResponse(
    -85e-6,
    np.array(
        [
            *(5, 15, 24, 30, 33, 36, 39, 41, 38, 33, 25, 23, 23, 23, 28, 33, 36, 41, 45, 49, 47, 44, 38, 35, 31, 27),
            *(23, 20, 16, 14, 13, 12, 9, 7, 7, 7, 6, 3, 3, 3, 3, 4, 4, 3, 1),
        ],
        np.float64,
    ),
)
"""Estimate from four programs on an H100 (docs/results/accuracy-programs.md): two lobes 65 us apart and a tail."""

HOPPER_SENSOR = Sensor(HOPPER)
"""Response, average and delay are equal on all recorded H100s and H200s. Of eight, seven take 1217 to 1254 samples per
second, one 1191."""

_ONE_SECOND = (  # Quadro RTX are Turing, named like Ampere's RTX A6000, and unknown
    r"^(?!.*\bQuadro RTX\b).*\b(G?H100|H200|H800|H20|GH200|G?B[123]00|A10G?|A16|A2|A40|L4|L40S?|"
    r"RTX (PRO )?[A-Z]?\d[05]00\w*( Ada| Blackwell)?|RTX [345]0\d0)\b"
)
_FAST = r"\b(V100|TITAN V|P100|P40|P4|GTX 10\d0|TITAN X\w*)\b"

_RECORD_WINDOW_S = 0.025
"""Averaging window that is stated of a Hopper's record; the response is a sampler's."""

# Windows and periods: Yang, Adamek and Armour, "Part-time power measurements", SC 2024, and NVIDIA's documentation
KINDS: dict[str, SensorKind] = {
    # Means of seconds of a long recording's readings, whose sensor trails by 5 to 60 ms.
    SECONDS: SensorKind((), nominal(1.0, 1.0, 0.03, 0.0, lag_s=0.03)),
    # A mean over the last second. GA100 (8.0) and older GPUs report a short window as their usage.
    "average_1s": SensorKind(
        (PowerField((AVERAGE,)), PowerField((USAGE,), _ONE_SECOND, ((8, 6), (99, 0)))),
        nominal(0.100, 1.0, 0.05, 0.02, jitter_s=0.005),
        recognises=lambda channel: (channel.window_s or 0.0) > 4 * (channel.period_s or 0.02),
    ),
    # Differences of a running counter such as RAPL: each reading is the mean since the one before.
    "counter": SensorKind(
        (),
        nominal(0.001, 0.001, 0.0005, 0.0002),
        counts=True,
        recognises=lambda channel: (
            bool(channel.gapless and channel.window_s)
            and channel.window_s == channel.period_s
            and channel.delay_s is not None
        ),
    ),
    # 10 ms of every 20 ms.
    "volta": SensorKind(
        (PowerField((RECORD, USAGE), _FAST, ((6, 0), (7, 5))),),
        nominal(0.020, 0.010, 0.005, 0.003, jitter_s=0.002),
        recognises=lambda channel: not channel.gapless and (channel.period_s or 0.02) < 0.05,
    ),
    # The driver's record of H100 and H200: momentary samples, averaged recursively and read every 20 ms. The time
    # between samples is the middle of the range on eleven H100s and H200s, 1191 to 1254 Hz
    # (docs/results/sensors-h100.md, docs/results/any-model-h200.md).
    "hopper": SensorKind(
        (
            PowerField((RECORD,), "H100|H200", window_s=_RECORD_WINDOW_S, sampling_s=1 / 1222.5),
            PowerField((RECORD,), window_s=_RECORD_WINDOW_S),
        ),
        nominal(0.020, 0.003, 0.003, 0.003, rise_s=0.0125, lag_s=0.002, stamp_grid=2, jitter_s=0.001),  # on an H100 SXM
        HOPPER_SENSOR,
        recognises=lambda channel: bool(channel.gapless) and (channel.period_s or 0.02) < 0.05,
    ),
    # 25 ms of every 100 ms; also what is assumed where nothing is known.
    "ampere_datacenter": SensorKind(
        (
            PowerField((USAGE,), r"\b(A100|A800|A30)\b", ((8, 0), (8, 1))),
            PowerField((INSTANT,), most_s=0.1),
            PowerField((USAGE,), most_s=1.0),
        ),
        nominal(0.100, 0.025, 0.025, 0.005, jitter_s=0.003),
        recognises=lambda channel: True,
    ),
}
"""In the order in which they are asked; ``RECORD``, ``AVERAGE``, ``INSTANT`` and ``USAGE`` each end with a field of any
GPU, and the last kind recognises any channel. A new kind goes first."""


def sensor_behind(field: str, board: str = "", capability: Capability | None = None) -> tuple[str, PowerField]:
    """The kind of sensor behind a power field of an NVIDIA GPU, and the timing of its readings there.

    ``board`` is the GPU's name, in whole or in part; "" if unknown. A field of another name counts as ``USAGE``.
    """
    field = field if field in (RECORD, AVERAGE, INSTANT) else USAGE
    fields = ((name, kind, listed) for name, kind in KINDS.items() for listed in kind.fields if field in listed.names)
    return next((name, kind.timed(listed)) for name, kind, listed in fields if listed.matches(board, capability))


def kind_of(channel: ChannelInfo) -> SensorKind:
    """The kind of sensor behind a power channel: that which it states, else by what else it states."""
    stated = KINDS.get(channel.sensor)
    return stated or next(kind for kind in KINDS.values() if kind.recognises(channel))


def response_of(channel: ChannelInfo) -> StepResponse:
    """The sensor's response: as calibrated, else that of its kind."""
    return StepResponse.from_dict(channel.response) if channel.response else kind_of(channel).response_of(channel)


_LEAST_NOISE_W = 0.05
"""Noise of a reading whose calibration determined none: rounded levels may fit a load to the last bit."""


def calibrated(calibration: StepResponse, sampler: Sensor | None = None, back_to_back: bool = False) -> shares.Response:
    """The response of a GPU as it was calibrated, or of its kind; ``sampler`` takes the samples, if any.

    Of a window and an approach the longer one is taken, with the mean delay and the variance of both. The lag that
    its errors leave is split into what goes with the width and what doesn't.
    """
    box = calibration.window_s >= 2 * calibration.approach_s
    of_window, of_rise = (1.0, 12.0) if box else (1 / 12, 1.0)
    width = math.sqrt(of_window * calibration.window_s**2 + of_rise * calibration.approach_s**2)
    half = width / 2 if box else width
    meets = box and width >= shares.GAPLESS * calibration.period_s
    covariance = np.zeros((len(SHAPE), len(SHAPE)))
    covariance[: len(calibration.covariance), : len(calibration.covariance)] = calibration.covariance
    share, apart = calibration.tail_share, calibration.tail_s - calibration.rise_s
    approach = np.array([0.0, 0.0, 1 - share, apart, share])
    by_width = of_rise * calibration.approach_s * approach / width
    by_width[1] += of_window * calibration.window_s / width
    by_delay = approach + np.array([1.0, 0.5, 0.0, 0.0, 0.0]) - half / width * by_width
    variance, both = by_width @ covariance @ by_width, by_width @ covariance @ by_delay
    slope = both / variance if variance > 0 else 0.0
    left = max(float(by_delay @ covariance @ by_delay - slope * both), 0.0)
    delay_s = calibration.delay_s - half
    shape = calibration.shape._replace(late_s=delay_s - calibration.lag_s)
    return shares.Response(
        rise_s=0.0 if box else width,
        width_sd=math.sqrt(variance) / width,
        delay_s=delay_s,
        delay_sd_s=math.sqrt(left),
        weight=1 / sampler.averages if sampler and not box else 0.0,
        noise_w=max(calibration.noise_w, _LEAST_NOISE_W),
        period_s=calibration.period_s,
        window_s=width if box else 0.0,
        back_to_back=back_to_back,
        jitter_s=calibration.jitter_s,
        any_rate=meets and not back_to_back and calibration.origin == "calibrated",
        delay_by_width_s=float(slope * width),
        shape=None if back_to_back else shape,  # windows between reads have lengths of their own
    )


def readings_of(channel: ChannelInfo, rate_hz: float | None = None) -> shares.Response:
    """The response by which the channel's readings show power, for ``attribution.attribute``.

    ``rate_hz`` is the GPU's sample rate, if a recording determined it.
    """
    kind, response = kind_of(channel), response_of(channel)
    if kind.sampler is not None and not channel.response:
        return shares.Response.sampled(kind.sampler, response.period_s, rate_hz)
    response_of_reading = calibrated(response, kind.sampler, kind.counts)
    if rate_hz and response_of_reading.weight:
        response_of_reading = response_of_reading.at_rate(rate_hz)
    if not kind.counts:
        return response_of_reading
    # A counter that is read is up to one of its updates old
    return replace(
        response_of_reading, jitter_s=math.hypot(response_of_reading.jitter_s, kind.response.period_s / math.sqrt(12))
    )


def samples(channel: ChannelInfo) -> bool:
    """True if a power record is taken for one of momentary samples; readings decide in the end.

    Readings that were polled from such a record don't cover all time, and aren't on its grid.
    """
    return bool(channel.gapless) and kind_of(channel).sampler is not None


def models(channel: ChannelInfo, known_hz: float | None) -> Sequence[Sensor | Means]:
    """Models of a channel's sensor to try in turn; ``known_hz`` is the GPU's sample rate in an earlier recording."""
    sampler = kind_of(channel).sampler
    if sampler is not None and samples(channel):
        return sampler.searches(known_hz)
    response = response_of(channel)
    lag_sd, window_sd = (math.sqrt(response.covariance[k][k]) for k in (0, 1))
    window_s = response.window_s or response.seen_s  # a box as wide as an exponential approach without one
    return [
        Means(window_s, delay_s=response.lag_s, delay_spread_s=lag_sd, stretch_spread=window_sd / window_s),
    ]
