"""How a power sensor answers in time: the model, its step response, and what is known beforehand.

A reading stamped ``t`` is the load's power, smoothed by a causal response ``r`` of unit area::

    y(t) = ∫ r(d) p(t - d) dd + noise,
    r = delay(lag) * boxcar(window) * [(1 - tail_share) exp(rise) + tail_share exp(tail)]

Rise and tail belong to the GPU as much as to its sensor (capacitors and regulators between the
die and the shunt): software can't separate them, and does not have to.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats
from jouletrace.sensor.shares import Shape

SHAPE = ("lag_s", "window_s", "rise_s", "tail_share", "tail_s")
"""The parameters of the response's shape, in the order of ``StepResponse.covariance``."""


@dataclass(frozen=True)
class StepResponse:
    """A sensor's timing and noise, nominal or calibrated."""

    period_s: float  # seconds between readings
    window_s: float = 0.0  # width of the boxcar over which a reading is a mean
    rise_s: float = 0.0  # time constant of an exponential approach
    lag_s: float = 0.0  # seconds by which a stamp trails the end of the boxcar; negative if it leads
    tail_share: float = 0.0  # share of the response that approaches with ``tail_s`` instead
    tail_s: float = 0.0  # time constant of that slower part
    jitter_s: float = 0.0  # standard deviation of what remains unknown of a reading's time
    # 0 if stamps are the times of the readings; k if readings are taken at multiples of period / k and their stamps
    # come late (``stamps.Grid``)
    stamp_grid: int = 0
    noise_w: float = 0.5  # standard deviation of independent noise of a reading, in watts
    noise_relative: float = 0.0  # the same in proportion to the power; adds in quadrature
    # Standard deviation of the power's own correlated fluctuation under a steady load, over that load's power. It is
    # real power, not an error of the sensor
    wander_relative: float = 0.02
    noise_tau_s: float = 0.06  # correlation time of that fluctuation
    misfit_relative: float = 0.0  # what the shape gets wrong of readings just after an edge, over its jump
    # Of the parameters in ``SHAPE``, one row each, in SI units; zeros for what is exact. Fewer rows, as older Runs have
    # them, are those of the first parameters
    covariance: tuple[tuple[float, ...], ...] = ((0.0,) * 3,) * 3
    uncertainty: dict[str, float] = field(default_factory=dict)  # standard errors by name of field, and of "delay_s"
    explained: float | None = None  # share of the variance of held-out readings that the model explains
    # "unmodelled" if readings don't fit the model, with "misfit_at_edges", "drifting" or "drops_samples" for the cause
    flags: tuple[str, ...] = ()
    origin: str = "nominal"  # "nominal", "calibrated" or "exact"

    @property
    def delay_s(self) -> float:
        """Mean delay of a stamp behind the power it speaks of: lag + window / 2 + mean approach."""
        return self.lag_s + self.window_s / 2 + self.approach_s

    @property
    def delay_sd_s(self) -> float:
        """Standard deviation of ``delay_s``, by ``covariance``."""
        by = np.array([1.0, 0.5, 1 - self.tail_share, self.tail_s - self.rise_s, self.tail_share])
        of = by[: len(self.covariance)]
        return float(np.sqrt(max(of @ np.array(self.covariance) @ of, 0.0)))

    @property
    def approach_s(self) -> float:
        """Mean time constant of the exponential approach, rise and tail by their shares."""
        return (1 - self.tail_share) * self.rise_s + self.tail_share * self.tail_s

    @property
    def memory_s(self) -> float:
        """After this long a reading has forgotten a step, to one part in a thousand."""
        tail = self.tail_s * np.log(max(1000 * self.tail_share, 1.0))
        return max(self.lag_s, 0.0) + self.window_s + max(7 * self.rise_s, float(tail))

    @property
    def reach_s(self) -> float:
        """So long before and after an edge readings count for what is inferred there, each with a memory of its own."""
        return 2 * self.memory_s + 4 * self.period_s

    @property
    def seen_s(self) -> float:
        """Length of time that a reading speaks for: the width of a boxcar, twice an exponential's constant."""
        return self.window_s + 2 * self.approach_s

    @property
    def kind(self) -> str:
        """``gapless``, ``sampled`` (leaves time unseen) or ``averaged`` (over many periods)."""
        if self.window_s > 4.0 * self.period_s:
            return "averaged"
        return "gapless" if self.seen_s >= 0.9 * self.period_s else "sampled"

    @property
    def gapless(self) -> bool:
        """True if consecutive readings leave no time unseen."""
        return self.kind != "sampled"

    @property
    def modelled(self) -> bool:
        """True if readings fit the model: intervals hold only if they do."""
        return "unmodelled" not in self.flags

    @property
    def shape(self) -> Shape:
        """Window and approach, of readings by their stamps."""
        tail = self.tail_share
        return Shape(-self.lag_s, self.window_s, ((1 - tail, self.rise_s), (tail, self.tail_s)))

    def step(self, delay_s: ArrayLike) -> Floats:
        """Share of a power step that a reading shows whose stamp is ``delay_s`` after it; same shape."""
        return self.shape.averaged(np.asarray(delay_s, np.float64), np.array([-1.0, 0.0, 1.0]), np.array([0.0, 1.0]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with ``kind``, ``gapless`` and ``delay_s`` for readers of the file."""
        data = asdict(self)
        data["covariance"] = [list(row) for row in self.covariance]
        data["flags"] = list(self.flags)
        return data | {"kind": self.kind, "gapless": self.gapless, "delay_s": self.delay_s}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StepResponse:
        """The inverse of ``to_dict``; unknown and derived keys are ignored."""
        facts = {key: data[key] for key in (f.name for f in fields(cls)) if key in data}
        if "covariance" in facts:
            facts["covariance"] = tuple(tuple(row) for row in facts["covariance"])
        if "flags" in facts:
            facts["flags"] = tuple(facts["flags"])
        return cls(**facts)
