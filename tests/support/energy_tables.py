"""The table of a lock: a row for each thing or pool that the readings resolve, the unresolved rest, and idle."""

from dataclasses import dataclass

import numpy as np

from jouletrace.analysis.kernel_powers import RecordedKernels, placed, pools, powers_of_kinds
from jouletrace.attribution.checks import check_rest
from jouletrace.run import Estimate
from jouletrace.run.division import METHOD
from jouletrace.sensor.shares import Response
from readings import taken

IDLE = "idle"


@dataclass(frozen=True)
class Row:
    """Energy of some rows together, and the time that counts as their own."""

    names: tuple[str, ...]
    seconds: float
    energy: Estimate

    @property
    def pooled(self):
        return len(self.names) > 1

    @property
    def relative(self):
        """Half-width of the interval over the value; infinite where there is none."""
        return self.energy.half_width / abs(self.energy.value) if self.energy.value else float("inf")

    @property
    def power(self):
        """Mean power while it ran, W."""
        return self.energy.scaled(1 / self.seconds)


def recorded_of(fit, idle_w=(130.0, 30.0)):
    """The recording of a fit, whose zero of seconds is that of its times."""
    sensor, known = fit.observer.sensor, Response(0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.02)
    if hasattr(sensor, "window_s"):
        width_sd, period_s = max(sensor.stretch_spread, 1e-4), float(np.median(np.diff(fit.time_s)))
        known = Response(0.0, width_sd, 0.0, sensor.delay_spread_s, 0.0, 1.0, period_s, sensor.window_s)
    return RecordedKernels(fit.activity, taken(fit.time_s, fit.watts), placed(fit, known), idle_w, fit)


def rest_of(fit):
    """The check of the power between kernels."""
    return check_rest(recorded_of(fit).rows(), float(fit.activity.seconds[-1]))


class Rows:
    """Groups of kinds of a recording, which last as long as it; idle last."""

    def __init__(self, fit, group, most_w=1e9):
        recording = recorded_of(fit)
        self.of(recording, recording.rows(), group, most_w)

    @classmethod
    def given(cls, recording, rows, group, most_w=1e9):
        """Of energies that are given."""
        self = cls.__new__(cls)
        self.of(recording, rows, group, most_w)
        return self

    def of(self, recording, rows, group, most_w):
        kinds = recording.activity.kinds
        self.powers, place = powers_of_kinds(recording, rows, np.ones(len(kinds)), most_w)
        self.groups = {}
        for i, kind in enumerate(kinds):
            if not kind.repeat:
                whole = self.groups.setdefault(group(kind), np.zeros(len(self.powers.watts)))
                if i in place:
                    whole[place[i]] = 1.0
        self.kernels = dict(self.groups)
        self.groups[IDLE] = np.append(np.zeros(len(place)), recording.activity.seconds[-1])
        self.names = list(self.groups)
        self.seconds = [float(whole @ self.powers.own) for whole in self.groups.values()]

    def together(self, amounts):
        """So much of each row, in the form of the powers."""
        return np.array(amounts, float) @ np.array(list(self.groups.values()))

    def row(self, names):
        return self.mixture([float(name in names) for name in self.names], names)

    def mixture(self, amounts, names=()):
        seconds = self.together(amounts)
        return Row(tuple(names), float(seconds @ self.powers.own), self.powers.energy(seconds))

    def resolved(self, names):
        return self.powers.resolves(self.together([float(name in names) for name in self.names]))


def energy_table(fit, group, near=lambda name: ""):
    """The rows of a grouping, which last as long as the recording: largest energy first, idle last."""
    rows = Rows(fit, group)
    found = pools(rows.powers, rows.kernels, near)
    there = [name for name, seconds in zip(rows.names[:-1], rows.seconds[:-1], strict=True) if seconds > 0]
    rest = tuple(name for name in there if not any(name in names for names in found))
    return [_row(rows, names) for names in (*found, *([rest] if rest else []), (IDLE,))]


def _row(rows, names):
    row = rows.row(names)
    return row if rows.resolved(names) else Row(row.names, row.seconds, Estimate.null("not_resolved", METHOD))
