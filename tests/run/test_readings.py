"""The readings of one power channel."""

import numpy as np

from jouletrace.run import Readings


def test_readings_of_a_mask_keep_the_times_at_which_they_were_taken():
    every = Readings(np.array([0, 10, 20]), np.array([100.0, 200.0, 300.0]), 0.1, true_s=np.array([0.1, 0.2, 0.3]))
    found = every.take(np.array([True, False, True]))
    assert (found.time_s.tolist(), found.value.tolist(), found.period_s) == ([0.1, 0.3], [100.0, 300.0], 0.1)
    assert Readings(every.time_ns, every.value).take(np.array([True, False, True])).time_s.tolist() == [0.0, 2e-8]
