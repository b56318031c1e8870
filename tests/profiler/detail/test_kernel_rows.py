"""Rows of the operators and kernels of a listed iteration."""

from jouletrace.execution.calls import Call, Listing
from jouletrace.profiler.detail.kernel_recording import _listed
from jouletrace.run.figures import Units


def modules(*calls):
    """The modules of the rows of operators that these calls, of shapes and modules, have."""
    units = Units()
    listed = [Call("aten.addmm", shapes, module, "1", "forward", (0,), 1e-5) for shapes, module in calls]
    _listed(units, Listing(listed, ["gemm"]))
    return [row["module"] for row in units.rows.values() if row["level"] == "op"]


def test_equal_layers_are_a_row():
    assert modules(("f32[8,8]", "layers.0.fc"), ("f32[8,8]", "layers.1.fc")) == ["layers.*.fc"]


def test_a_row_of_one_layer_has_its_name_beside_others_of_other_shapes():
    first, last = ("f32[3,64]", "net.0"), ("f32[64,10]", "net.4")
    assert modules(first, last) == ["net.0", "net.4"]
    assert modules(first, ("f32[64,64]", "net.2"), ("f32[64,64]", "net.3"), last) == ["net.0", "net.*", "net.4"]
