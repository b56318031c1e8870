"""Sub-tracks of overlapping spans."""

import numpy as np
import pytest

from jouletrace.formats.exporters.timeline.tracks import sub_tracks
from pace import worked


@pytest.mark.thorough
def test_spans_that_all_overlap_do_not_take_for_ever():
    start = np.arange(100_000)
    with worked() as work:  # of 5e9 pairs
        number = sub_tracks(start, start + 100_000, nest=True)
    assert work.loops < 150
    assert len(set(number.tolist())) == 100_000
