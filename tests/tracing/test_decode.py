"""Decoding CUPTI buffers: recorded on an H100 under CUDA 13.0, and made by hand."""

import numpy as np
import pytest

from cupti_records import made
from jouletrace.tracing.decode import DRIVER, KERNEL, MEMCPY, RUNTIME, UnknownRecordError, column, decode, layouts_for
from places import DATA

RECORDED = np.load(DATA / "cupti_13_0_h100.npz")
LAYOUTS = layouts_for(int(RECORDED["version"]))


def test_recorded_kernels_have_possible_times_grids_and_names():
    (kernels,) = decode([RECORDED["kernels"]], LAYOUTS)[KERNEL]
    assert len(kernels) == 400
    assert (kernels["end"] > kernels["start"]).all()
    assert (kernels["end"] - kernels["start"] < 1_000_000).all()
    assert (np.diff(kernels["start"].astype(np.int64)) > 0).all()
    assert (kernels["grid"] >= 1).all()
    assert (kernels["block"].prod(axis=1) <= 1024).all()
    assert set(kernels["name"]) <= set(RECORDED["pointers"])
    assert (kernels["graph_node"] > 0).all()  # the recording is of a replayed graph


def test_a_recorded_buffer_of_several_kinds_is_split_to_the_last_byte():
    found = decode([RECORDED["mixed"]], LAYOUTS)
    assert {RUNTIME, DRIVER} <= set(found)
    assert sum(records.nbytes for (records,) in found.values()) == len(RECORDED["mixed"])
    for (records,) in found.values():
        assert (records["end"] >= records["start"]).all()


def test_kinds_keep_their_order_and_buffers_are_joined():
    first = np.concatenate([made(KERNEL, correlation=1), made(RUNTIME, correlation=7), made(KERNEL, correlation=2)])
    second = np.concatenate([made(KERNEL, correlation=3), made(MEMCPY, bytes=5)])
    found = decode([first, second], LAYOUTS)
    assert column(found[KERNEL], "correlation").tolist() == [1, 2, 3]
    assert column(found[RUNTIME], "correlation").tolist() == [7]
    assert column(found[MEMCPY], "bytes").tolist() == [5]


@pytest.mark.parametrize(
    ("version", "kernel", "memcpy"), [(18, 208, 88), (24, 208, 88), (26, 208, 96), (130001, 216, 96)]
)
def test_records_have_the_sizes_of_their_version(version, kernel, memcpy):
    layouts = layouts_for(version)
    assert (layouts[KERNEL].itemsize, layouts[MEMCPY].itemsize) == (kernel, memcpy)


def test_a_version_before_cuda_12_is_not_trusted():
    assert layouts_for(17) is None


def test_an_unknown_kind_is_named_with_its_place():
    unknown = np.zeros(24, np.uint8)
    unknown[0] = 77
    with pytest.raises(UnknownRecordError, match="buffer 1, byte 216: record of unknown kind 77"):
        decode([made(KERNEL), np.concatenate([made(KERNEL), unknown])], LAYOUTS)


def test_a_record_that_is_cut_off_is_an_error():
    cut = np.concatenate([made(KERNEL), made(RUNTIME)])[:-8]
    with pytest.raises(UnknownRecordError, match="byte 216: the last record is cut off"):
        decode([cut], LAYOUTS)


def test_an_empty_buffer_holds_nothing():
    assert decode([np.empty(0, np.uint8)], LAYOUTS) == {}
