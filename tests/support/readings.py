"""Readings of a simulated sensor."""

from dataclasses import replace

import numpy as np

from jouletrace.run.readings import Readings


def taken(time_s, watts, rest_w=None):
    """Readings at true times in seconds since the epoch, with a prior of the power at rest."""
    time_s = np.asarray(time_s)
    found = Readings(np.round(time_s * 1e9).astype(np.int64), np.asarray(watts), true_s=time_s)
    return found if rest_w is None else replace(found, rest_w=rest_w)
