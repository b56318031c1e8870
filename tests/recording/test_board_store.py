"""Figures of a GPU that are kept between runs."""

import pytest

from jouletrace.recording import board_store
from jouletrace.run.forms import StoredLevel

LEVEL = {"value": 72.5, "low": 72.0, "high": 73.0, "n": 3, "method": "idle", "reason": None, "time_ns": 1}


@pytest.mark.thorough
def test_a_stored_figure_is_recalled_as_it_was_stored():
    board_store.remember("GPU-1", deep_idle={**LEVEL, "more": "kept"})
    assert board_store.recall_as(StoredLevel, "GPU-1", "deep_idle") == {**LEVEL, "more": "kept"}
    assert board_store.recall_as(StoredLevel, "GPU-1", "sample_rate_hz") is None
    assert board_store.recall_as(StoredLevel, "GPU-2", "deep_idle") is None


@pytest.mark.parametrize("wrong", ["x", 72.5, [LEVEL], {**LEVEL, "value": "72 W"}, {**LEVEL, "n": 0.5}])
def test_a_stored_figure_of_another_form_is_none(wrong):
    board_store.remember("GPU-1", deep_idle=wrong)
    assert board_store.recall_as(StoredLevel, "GPU-1", "deep_idle") is None
