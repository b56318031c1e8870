"""Which pauses the variants of a step make: for a power cap, or for how the sensor samples."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jouletrace.energy.sampling_rate import SamplingRate
from jouletrace.errors import JouletraceError
from jouletrace.experiments import commons, off_beat, pacing
from jouletrace.experiments.arms import REFERENCE, Arm
from jouletrace.experiments.bench import Bench, Window
from jouletrace.experiments.commons import Common
from jouletrace.experiments.detuning import detuning, longer
from jouletrace.experiments.find_pause import find_pause
from jouletrace.experiments.pacing import Pace
from jouletrace.experiments.plan import PlanSettings

_TRIALS, _WARM_S, _TRIAL_S = 3, 0.3, 0.1
"""How often a pause is tried, and how long: a board's clock rises after a capture, and a pause counts its cycles."""

_EXACT = 0.002
"""How far a pause may be from what is wanted, over the step's time."""


class Pauses:
    """The pauses of an experiment, once ``find`` has run.

    Args:
        bench: Where to run.
        settings: Length of windows, and how the sensor reads.
        share: Rough share of the step's time of each part, by id, as far as it is known.

    Attributes:
        least_s: Least pause that keeps the step below the power cap; 0 where none acts.
        detuned_s: Pause in every iteration of a step that would beat with the sensor's samples; 0 of others, and under
            a cap.
        note: Code and text of what a reader should know of that; None if nothing.
        free_s: Seconds of an iteration at the highest clock, once they are known.
    """

    def __init__(self, bench: Bench, settings: PlanSettings, share: Mapping[int, float]) -> None:
        self.least_s = 0.0
        self.detuned_s = 0.0
        self.free_s = 0.0
        self._bench = bench
        self._settings = settings
        self._share = share
        self.note: tuple[str, str] | None = None
        self._no_cap = True
        self._lasts = 1.0  # seconds by which an iteration grows for each of the pause that is asked for
        self._pace: Pace | None = None
        self._fraction = 1.0
        self._sampling: SamplingRate | None = None

    @property
    def capped(self) -> bool:
        """Whether variants are measured at equal clocks too, below a power cap."""
        return self._pace is not None

    def find(self, measured: Callable[[], pa.Table]) -> Generator[Window, None, None]:
        """Run what tells whether a cap acts, and which pause keeps it away.

        Args:
            measured: As of ``Experiment``.
        """
        if self._settings.pace:
            found = yield from find_pause(self._bench, measured, self._settings)
            self._no_cap = not found.capped
            self._pace, self._fraction = found.pace, found.fraction
        if self._pace is not None:
            self.least_s = round(self._pace.pause_s(self._fraction), 6)

    def detune(self, arms: Iterable[Arm], sampling: SamplingRate | None = None) -> None:
        """Where no cap acts: choose a pause that keeps the step and its variants from beating with the sensor.

        Args:
            arms: The variants.
            sampling: How the sensor samples, where that was measured.
        """
        self._sampling = sampling
        added = {self._added(arm) for arm in arms}
        iteration_s, sampling_s = self._bench.iteration_s, self._settings.sampling_s
        self.detuned_s, self.note = 0.0, None
        window_s = self._settings.detuned_window_s
        wanted_s: float | None = 0.0
        if self._no_cap and sampling is not None:
            wanted_s = off_beat.step_pause(iteration_s, np.array([*added]), window_s, sampling)
        elif self._no_cap:
            wanted_s = detuning(iteration_s, added, sampling_s, window_s)
        if wanted_s == 0 or sampling_s is None:
            return
        one, every = f"an iteration of {iteration_s * 1e3:.3f} ms", f"{sampling_s * 1e3:.3f} ms"
        beat = f"{one}, or one without some part, beats with the sensor's samples, {every} apart"
        if wanted_s is None:
            self.note = ("beats_with_sensor", f"{beat}, and no pause would end that")
            return
        try:
            pause_s = self._lasting(wanted_s)
        except JouletraceError as error:
            self.note = ("beats_with_sensor", f"{beat}, and can't be made to pause: {error}")
            return
        pause = f"a pause of {pause_s * self._lasts * 1e3:.3f} ms in every iteration"
        self.note = ("detuned", f"{beat}: parts are measured with {pause}; its cost is taken off")
        self.detuned_s = pause_s

    def _lasting(self, wanted_s: float) -> float:
        """The pause to ask for so that an iteration takes so much longer; it is launched, and counts clock cycles."""
        once_s = self._bench.iteration_s + wanted_s
        for last in range(_TRIALS - 1, -1, -1):
            pause_s = wanted_s / self._lasts
            spin_ns = round(1e9 * pause_s)
            split = self._bench.pieces(spin_ns)
            step = self._bench.paced(spin_ns, split)
            self._bench.run(step, max(1, round(_WARM_S / once_s)))
            found_s = self._bench.run(step, max(1, round(_TRIAL_S / once_s))) - self._bench.iteration_s
            if found_s <= 0 or abs(found_s - wanted_s) < _EXACT * self._bench.iteration_s:
                break
            self._lasts = found_s / pause_s
            if last:
                self._bench.unpace(spin_ns, split)
        return pause_s

    def of(self, arm: Arm) -> int:
        """The pause of a variant under a cap, in nanoseconds: long enough, and not in step with the sensor.

        All come from one short ladder, since every pause is a step of its own to be made ready.
        """
        added = self._added(arm)
        ladder = self.least_s * pacing.LADDER
        if self._pace is not None:
            ladder = ladder[ladder >= min(self._pace.pause_s(self._fraction, added), ladder[-1])]
        return self._apart(self.free_s * (1 + added), ladder)

    def tuned(self, arm: Arm) -> int:
        """The pause of a variant where no cap acts, in nanoseconds: all pause alike, or a little longer off a beat."""
        if self._sampling is None or not self.detuned_s:
            return round(1e9 * self.detuned_s)
        pause_s = self.detuned_s * self._lasts
        period_s = self._bench.iteration_s * (1 + self._added(arm)) + pause_s
        more_s = off_beat.variant_more(period_s, pause_s, self._settings.detuned_window_s, self._sampling)
        return round(1e9 * (self.detuned_s + more_s / self._lasts))

    def plain(self) -> Common:
        """What blocks without a cap's pauses have."""
        sampling_s = self._settings.sampling_s
        if not self.detuned_s or sampling_s is None:
            return commons.PLAIN
        lasts, window_s = self._lasts, self._settings.detuned_window_s
        if self._sampling is not None:
            others_s = off_beat.others(self._bench.iteration_s, self.detuned_s * lasts, window_s, self._sampling)
        else:
            others_s = longer(self._bench.iteration_s, self.detuned_s * lasts, sampling_s, window_s)
        return commons.detuned(round(1e9 * self.detuned_s), [round(1e9 * other_s / lasts) for other_s in others_s])

    def paced(self) -> Common:
        """What blocks below the cap have."""
        spin_ns = self.of(Arm(REFERENCE))
        others = [self._apart(self.free_s, spin_ns / 1e9 * some) for some in pacing.FURTHER]
        return commons.paced(spin_ns, others)

    def _added(self, arm: Arm) -> float:
        """Time that a variant adds, over the step's."""
        share = sum(self._share.get(id, 0.0) for id in (arm.part, arm.partner) if id is not None)
        return max(arm.added * share, -1.0)

    def _apart(self, step_s: float, pauses_s: NDArray[np.float64]) -> int:
        """Of several pauses, in nanoseconds: the shortest if it is split, or one that doesn't beat with readings."""
        if self._bench.pieces(0) > 1:
            return round(1e9 * float(pauses_s[0]))
        return round(1e9 * pacing.off_readings(step_s, pauses_s, self._settings.window_s, self._settings.sensor_s))
