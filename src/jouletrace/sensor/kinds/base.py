"""What is known of a power sensor before its GPU is calibrated: a ``Kind``, with its model for the regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jouletrace.run import ChannelInfo
from jouletrace.sensor.response import Response as SampleResponse
from jouletrace.sensor.windows.response import Response

RATE_NEAR_HZ = 2.0
"""Range around a stored sample rate in which a GPU's rate is searched: it falls by about 0.3 Hz as a die warms."""


@dataclass(frozen=True)
class Sensor:
    """A sensor that takes momentary samples: properties that hold for all recordings of a GPU.

    Attributes:
        response: Response of one sample.
        averages: Length of the recursive average: ``y += (x - y) / averages`` at each sample.
        delay_s: From the moment at which the average is read to the reading's place on the grid.
        rates_hz: Range of sample rates to search.
        any_rate_hz: Wider range, for GPUs whose rate isn't in the first one.
    """

    response: SampleResponse
    averages: int = 16
    delay_s: float = 3.4e-3
    rates_hz: tuple[float, float] = (1200.0, 1260.0)
    any_rate_hz: tuple[float, float] = (1150.0, 1310.0)

    def searches(self, known_hz: float | None) -> list[Sensor]:
        """The sensor with each range to search: near the rate of an earlier recording, the usual one, any."""
        ranges = [self.rates_hz, self.any_rate_hz]
        if known_hz is not None and self.any_rate_hz[0] <= known_hz <= self.any_rate_hz[1]:
            ranges.insert(0, (known_hz - RATE_NEAR_HZ, known_hz + RATE_NEAR_HZ))
        return [replace(self, rates_hz=rates) for rates in ranges]


@dataclass(frozen=True)
class Means:
    """A sensor whose readings are means over windows that end some delay before them.

    Attributes:
        window_s: Length of a window; None where each reading has its own (a counter's ``Readings.window_s``).
        delay_s, delay_spread_s: Delay, and its standard deviation between GPUs.
        stretch_spread: Relative standard deviation of the window's length between GPUs.
    """

    window_s: float | None
    delay_s: float = 3e-3
    delay_spread_s: float = 1.5e-3
    stretch_spread: float = 0.015


PART_TIME, BOXCAR, SECOND = Means(25e-3), Means(20e-3), Means(1.0)
"""25 ms of every 100 ms (A100, published); 20 ms of every 20 ms; the last second."""

COUNTER = Means(None, 0.0, 1.5e-3, 1e-6)
"""An energy counter: a reading is the difference between two of its steps."""


@dataclass(frozen=True)
class Kind:
    """A kind of power sensor; ``KIND`` of a module of ``kinds.KINDS``.

    Attributes:
        recognises: Whether a power channel is of this kind; kinds earlier in the table have been asked before.
        response: How readings answer, with wide uncertainty (``nominal``).
        model: The sensor of the regression; its spreads are the nominal uncertainties.
        fixed_window: Whether ``response`` holds whatever window a channel states.
    """

    recognises: Callable[[ChannelInfo], bool]
    response: Response
    model: Sensor | Means
    fixed_window: bool = False

    def response_of(self, channel: ChannelInfo) -> Response:
        """The response, with the period and window that the channel states."""
        window_s = None if self.fixed_window else channel.window_s
        own = self.response
        return replace(own, period_s=channel.period_s or own.period_s, window_s=window_s or own.window_s)

    def models(self, response: Response, known_hz: float | None) -> Sequence[Sensor | Means]:
        """Models to try in turn, by the response in force and the GPU's sample rate in an earlier recording."""
        if isinstance(self.model, Sensor):
            return self.model.searches(known_hz)
        return [replace(self.model, window_s=response.window_s, delay_s=response.lag_s)]


def nominal(period_s: float, window_s: float, lag_sd: float, window_sd: float, **more: float) -> Response:
    """A response from documentation or published work; ``lag_sd`` and ``window_sd`` are the spread between GPUs, s."""
    covariance = ((lag_sd**2, 0.0, 0.0), (0.0, window_sd**2, 0.0), (0.0, 0.0, 0.0))
    return Response(period_s=period_s, window_s=window_s, covariance=covariance, **more)  # type: ignore[arg-type]  # stamp_grid is an int
