"""Why a workload can't be captured, said in one line. The captures themselves need a GPU."""

import pytest

from jouletrace.errors import BadInputError
from jouletrace.execution.steps import CaptureError
from jouletrace.execution.steps.graph import explain, generator_kept, last_operator, plain_path

torch = pytest.importorskip("torch")


def broken_capture(forward):
    """The error of a failed capture: the model's failure, hidden behind that of ending the capture."""
    try:
        try:
            forward()
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")
    except RuntimeError as error:
        return error


def forward():
    x = torch.ones(3).unsqueeze(0)
    return x.reshape(2, 7)


@pytest.mark.thorough
def test_the_first_failure_is_reported_with_its_line():
    text = explain(broken_capture(forward), "aten.view.default")
    assert text.startswith("can't be captured as a CUDA graph at aten.view.default (test_capture.py, line ")
    assert "return x.reshape(2, 7)): shape '[2, 7]' is invalid" in text
    assert text.endswith("; use --mode eager")
    assert "\n" not in text


def test_an_unknown_operator_and_place_are_left_out():
    text = explain(RuntimeError("CUDA error: operation not permitted\nCompile with TORCH_USE_CUDA_DSA"), None)
    assert text == "can't be captured as a CUDA graph: CUDA error: operation not permitted; use --mode eager"


@pytest.mark.thorough
def test_the_last_operator_before_a_failure_is_known():
    with pytest.raises(RuntimeError), torch.inference_mode(), last_operator() as ran:
        torch.ones(3).unsqueeze(0).view(2, 7)
    assert ran == ["aten.view.default"]


def test_a_host_sync_is_seen_as_the_operator_that_syncs():
    with torch.inference_mode(), last_operator() as ran:
        torch.ones(3).sum().item()
    assert ran == ["aten.item.default"]


def test_a_capture_error_is_bad_input():
    assert issubclass(CaptureError, BadInputError)


@pytest.mark.thorough
def test_transformers_takes_its_ordinary_path_while_a_graph_is_captured():
    from transformers.utils import import_utils

    import_utils_asks = import_utils.is_cuda_stream_capturing
    import_utils.is_cuda_stream_capturing = lambda: True
    try:
        assert import_utils.is_tracing()
        with plain_path():
            assert not import_utils.is_tracing()
        assert import_utils.is_tracing()
    finally:
        import_utils.is_cuda_stream_capturing = import_utils_asks


class FakeGenerator:
    """A CUDA generator: a handle on a state that a capture marks, with a seed and an offset."""

    def __init__(self, device=None, seed=0, offset=0):
        self.state = {"seed": seed, "offset": offset, "capturing": False}

    def get_state(self):
        return self.state["seed"], self.state["offset"]

    def set_state(self, values):
        if self.state["capturing"]:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        self.state["seed"], self.state["offset"] = values

    def graphsafe_get_state(self):
        return self

    def graphsafe_set_state(self, other):
        self.state = other.state


@pytest.fixture
def generators(monkeypatch):
    """Two GPUs' generators in the place of torch's."""
    found = (FakeGenerator(seed=1, offset=4), FakeGenerator(seed=7, offset=12))
    monkeypatch.setattr(torch.cuda, "default_generators", found)
    monkeypatch.setattr(torch, "Generator", FakeGenerator)
    return found


def test_a_failed_capture_leaves_the_generator_as_it_was_before(generators):
    def capture():
        with generator_kept(torch.device("cuda", 1)):
            generators[1].state["capturing"] = True
            generators[1].state["offset"] = 400
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        capture()
    assert generators[1].state == {"seed": 7, "offset": 12, "capturing": False}
    assert generators[0].state == {"seed": 1, "offset": 4, "capturing": False}


def test_a_capture_that_works_leaves_the_generator_alone(generators):
    state = generators[0].state
    with generator_kept(torch.device("cuda", 0)):
        state["offset"] = 8
    assert generators[0].state is state
    assert state["offset"] == 8
