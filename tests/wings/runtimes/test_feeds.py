"""Inputs of models that are known as files alone."""

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.wings.runtimes.engine import TensorSpec, batch_of, random_feeds
from jouletrace.workloads import WorkloadOptions

FLOATS = np.dtype(np.float32)


@pytest.mark.parametrize(("batch", "first"), [(None, 1), (3, 3)])
def test_the_first_open_length_is_the_batch_and_one_by_default(batch, first):
    specs = [TensorSpec("x", FLOATS, (None, 4)), TensorSpec("scale", FLOATS, (2, 1))]
    (feed,) = random_feeds(specs, WorkloadOptions(batch=batch), "m.onnx")
    assert {name: array.shape for name, array in feed.items()} == {"x": (first, 4), "scale": (2, 1)}
    assert batch_of([feed]) == first
    assert np.count_nonzero(feed["x"]) == first * 4, "products of zeros draw less power"


def test_the_second_open_length_is_that_of_a_sequence_and_must_be_given():
    specs = [TensorSpec("x", FLOATS, (None, None))]
    with pytest.raises(BadInputError, match="leaves a length open: give --seq-len"):
        random_feeds(specs, WorkloadOptions(), "m.onnx")
    (feed,) = random_feeds(specs, WorkloadOptions(seq_len=7), "m.onnx")
    assert feed["x"].shape == (1, 7)
