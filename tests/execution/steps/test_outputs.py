"""Data that would draw less power than real data are pointed out."""

import pytest

from jouletrace.errors import BadInputError
from jouletrace.execution.steps import check_outputs
from jouletrace.workloads import ObjectWorkload, WorkloadOptions, resolve

pytestmark = pytest.mark.thorough

torch = pytest.importorskip("torch")


def codes(target, inputs=()):
    return [(w.code, w.where) for w in check_outputs(ObjectWorkload(target, inputs).build("cpu", WorkloadOptions()))]


def test_a_built_in_model_gives_no_warning():
    built = resolve("deit-t").build("cpu", WorkloadOptions(config={"num_hidden_layers": "1"}, input_sets=2))
    assert check_outputs(built) == []


@pytest.mark.parametrize(("bad", "code"), [("nan", "nan_outputs"), ("inf", "inf_outputs"), ("-inf", "inf_outputs")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e5m2])
def test_broken_numbers_in_any_output_are_detected(bad, code, dtype):
    def forward(x):
        return {"good": x, "bad": [None, torch.tensor([1.0, float(bad)]).to(dtype)]}

    assert codes(forward, torch.randn(3)) == [(code, "input set 0")]


def test_a_model_that_raises_while_it_is_looked_at_ends_in_one_line():
    def breaks():
        raise ValueError("third \x1b[31m call\nof this")

    built = ObjectWorkload(breaks, ()).build("cpu", WorkloadOptions())
    with pytest.raises(BadInputError, match="raised ValueError: third") as caught:
        check_outputs(built)
    assert "\n" not in str(caught.value)


def test_the_warning_names_the_output():
    built = ObjectWorkload(lambda: {"a": [torch.tensor(float("nan"))]}).build("cpu", WorkloadOptions())
    assert check_outputs(built)[0].message.startswith("output a.0 holds NaN values")


def test_constant_inputs_are_detected_but_not_flags_and_ids():
    inputs = {"x": torch.zeros(4), "scale": torch.tensor(1.0), "ids": torch.zeros(4, dtype=torch.long)}
    built = ObjectWorkload(lambda x, scale, ids: x.sum(), inputs).build("cpu", WorkloadOptions())
    warnings = check_outputs(built)
    assert [w.code for w in warnings] == ["constant_inputs"]
    assert warnings[0].message.startswith("input x is the same number throughout")


def test_outputs_without_tensors_give_no_warning():
    assert codes(lambda: None) == []
