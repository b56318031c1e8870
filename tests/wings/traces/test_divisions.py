"""Operators and kernels of a trace as divisions."""

import json

import pytest

import import_timelines
from commands import done
from shown import name_of, rows


@pytest.mark.thorough
def test_operators_of_a_trace_stand_apart_from_its_kernels_and_paths_are_unique(tmp_path):
    """A trace states the time of both, and each step twice: of the host and of the GPU."""
    done("import", str(import_timelines.kineto(tmp_path / "trace.json")), "-o", str(tmp_path / "run"))
    found = json.loads(done("show", str(tmp_path / "run"), "--json").out)
    assert {name_of(row) for row in rows(found, "operator", "op")} == {"aten::mm", "aten::relu", "aten::copy_"}
    assert {row["path"][-1]["kind"] for row in rows(found, "code")} == {"kernel"}
    for own in found["parts"].values():
        assert len({tuple((step["kind"], step["name"]) for step in row["path"]) for row in own}) == len(own)
    assert {"ProfilerStep#0", "ProfilerStep#0 (2)"} <= {name_of(row) for row in rows(found, "range")}
