"""Kinds of power sensors: by what a channel is recognised, its nominal response, and its model for the regression."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jouletrace.run import ChannelInfo
from jouletrace.sensor.models import Means, SampleResponse, Sensor
from jouletrace.sensor.windows.response import Response


@dataclass(frozen=True)
class SensorKind:
    """What is known of a kind of power sensor before its GPU is calibrated."""

    # Whether a power channel is of this kind; kinds earlier in the table have been asked before
    recognises: Callable[[ChannelInfo], bool]
    response: Response  # how readings answer, with wide uncertainty (``nominal``)
    model: Sensor | Means  # the sensor of the regression; its spreads are the nominal uncertainties
    fixed_window: bool = False  # whether ``response`` holds whatever window a channel states

    def response_of(self, channel: ChannelInfo) -> Response:
        """The response, with the period and window that the channel states."""
        window_s = None if self.fixed_window else channel.window_s
        own = self.response
        return replace(own, period_s=channel.period_s or own.period_s, window_s=window_s or own.window_s)

    def models(self, response: Response, known_hz: float | None) -> Sequence[Sensor | Means]:
        """Models to try in turn, by the response in force and the GPU's sample rate in an earlier recording."""
        if isinstance(self.model, Sensor):
            return self.model.searches(known_hz)
        lag_sd, window_sd = (math.sqrt(response.covariance[k][k]) for k in (0, 1))
        spreads = {"delay_spread_s": lag_sd, "stretch_spread": window_sd / response.window_s}
        return [Means(window_s=response.window_s, delay_s=response.lag_s, **spreads)]


def nominal(period_s: float, window_s: float, lag_sd: float, window_sd: float, **more: float) -> Response:
    """A response from documentation or published work; ``lag_sd`` and ``window_sd`` are the spread between GPUs, s."""
    covariance = ((lag_sd**2, 0.0, 0.0), (0.0, window_sd**2, 0.0), (0.0, 0.0, 0.0))
    return Response(period_s=period_s, window_s=window_s, covariance=covariance, **more)  # type: ignore[arg-type]  # stamp_grid is an int


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
"""Joint estimate from four programs on an H100 (docs/results/attribution-h100.md): two lobes 65 us apart and a tail."""

HOPPER_SENSOR = Sensor(HOPPER)
"""Response, average and delay are equal on all recorded H100s and H200s. Of eight, seven take 1217 to 1254 samples per
second, one 1191."""

KINDS: dict[str, SensorKind] = {
    # A mean over the last second; 10 ms of every 20 ms; 25 ms of every 100 ms: Yang, Adamek and Armour, "Part-time
    # power measurements", SC 2024.
    "average_1s": SensorKind(
        lambda channel: (channel.window_s or 0.0) > 4 * (channel.period_s or 0.02),
        nominal(0.100, 1.0, 0.05, 0.02, jitter_s=0.005),
        Means(1.0),
    ),
    # Differences of a running counter such as RAPL: each reading is the mean since the one before.
    "counter": SensorKind(
        lambda channel: (
            bool(channel.gapless and channel.window_s)
            and channel.window_s == channel.period_s
            and channel.delay_s is not None
        ),
        nominal(0.001, 0.001, 0.0005, 0.0002),
        Means(1e-3, stretch_spread=1e-6),
    ),
    # The driver's record of H100 and H200: momentary samples, averaged recursively and read every 20 ms.
    "hopper": SensorKind(
        lambda channel: bool(channel.gapless) and (channel.period_s or 0.02) < 0.05,
        nominal(0.020, 0.003, 0.003, 0.003, rise_s=0.0125, lag_s=0.002, stamp_grid=2, jitter_s=0.001),  # on an H100 SXM
        HOPPER_SENSOR,
        fixed_window=True,
    ),
    "volta": SensorKind(
        lambda channel: (channel.period_s or 0.02) < 0.05,
        nominal(0.020, 0.010, 0.005, 0.003, jitter_s=0.002),
        Means(0.010),
    ),
    "ampere_datacenter": SensorKind(
        lambda channel: True,
        nominal(0.100, 0.025, 0.025, 0.005, jitter_s=0.003),
        Means(0.025),
    ),
}
"""In the order in which they are asked about a channel; the last recognises any."""


def kind_of(channel: ChannelInfo) -> SensorKind:
    """The kind of sensor behind a power channel."""
    return next(kind for kind in KINDS.values() if kind.recognises(channel))


def response_of(channel: ChannelInfo) -> Response:
    """The sensor's response: as calibrated, else that of its kind."""
    return Response.from_dict(channel.response) if channel.response else kind_of(channel).response_of(channel)


def samples(channel: ChannelInfo) -> bool:
    """Whether a power record is taken for one of momentary samples; readings decide in the end."""
    return isinstance(kind_of(channel).model, Sensor)
