"""A profile of parts that can only be repeated."""

import pytest

torch = pytest.importorskip("torch")

from fake_capture import CPU  # noqa: E402
from fake_cuda_graphs import install  # noqa: E402
from jouletrace.errors import BadInputError  # noqa: E402
from jouletrace.profiler import prepare  # noqa: E402
from jouletrace.profiler.profile import profile_workload  # noqa: E402
from jouletrace.profiler.settings import ProfileSettings  # noqa: E402
from jouletrace.run import MODEL_UNIT  # noqa: E402
from jouletrace.steps.cuda.compiled_step import make_compiled_step  # noqa: E402
from jouletrace.workloads import ObjectWorkload  # noqa: E402

pytestmark = pytest.mark.thorough

SHORT = {"device": "cpu", "detail": "kernel", "detail_time_s": 1.0, "warmup_s": 0.3, "latency_s": 0.2, "idle_s": 0.2}


def small():
    torch.manual_seed(0)
    return ObjectWorkload(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()), (torch.randn(256, 256),))


def test_parts_that_can_not_be_removed_are_measured_by_repetition_and_it_is_said_once(monkeypatch, no_rapl):
    install(monkeypatch)
    monkeypatch.setattr(prepare, "make_variable_step", lambda built, _device, _mode: make_compiled_step(built, CPU))
    run = profile_workload(small(), ProfileSettings(**SHORT))
    parts = {unit["op"]: unit["id"] for unit in run.units.to_pylist() if unit["level"] == "op" and unit["op"]}
    assert set(parts) == {"aten.addmm", "aten.gelu"}
    times = {op: run.result("time_s", id) for op, id in parts.items()}
    assert {time.method for time in times.values()} == {"repetition"}
    assert all(time.value is not None for time in times.values())
    assert run.result("closure_kernels_time", MODEL_UNIT).value is not None
    codes = [warning.code for warning in run.warnings]
    assert codes.count("by_repetition") == 1
    assert "variant_refused" not in codes


def test_compiled_code_on_the_cpu_is_not_taken_apart():
    with pytest.raises(
        BadInputError, match="--detail kernel with --mode compile on cpu: compiled code plans its buffers"
    ):
        profile_workload(small(), ProfileSettings(**SHORT, mode="compile"))
