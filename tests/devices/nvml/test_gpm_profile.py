"""Activity by GPM counters beside power, in a profile: on a simulated GPU whose library has such counters."""

import json
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator

from jouletrace.devices.nvml import METRICS
from jouletrace.devices.nvml.gpm import gpm_sources
from jouletrace.execution.steps import SimulatedStep
from jouletrace.profiler import ProfileSettings, Progress, passes
from jouletrace.profiler.profile import finish
from jouletrace.recording import Session
from jouletrace.report import json_schema, render, to_json_object
from jouletrace.simulator.boards import SimKernel, SimulatedGpu, engine

SHARES = {"graphics_active": 100.0, "sm_active": 80.0, "pipe_tensor_active": 37.0, "memory_active": 21.0}
"""Per cent while a kernel runs."""


class Counters:
    """The calls of NVML that GPM needs: counters go on while a kernel runs on a simulated GPU."""

    def __init__(self, board):
        self.board = board

    def constant(self, name):
        metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in METRICS]
        return lambda: SimpleNamespace(metrics=metrics)

    def call(self, function, *args):
        return getattr(self, function)(*args)

    def nvmlGpmQueryDeviceSupport(self, board):
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlGpmSampleAlloc(self):
        return SimpleNamespace(at_ns=0, busy_s=0.0)

    def nvmlGpmSampleGet(self, board, sample):
        sample.at_ns = self.board.clock.time_ns()
        sample.busy_s = float(self.board.truth._engine.trace.reached(engine.BUSY, sample.at_ns))

    def nvmlGpmMetricsGet(self, request):
        old, new = request.sample1, request.sample2
        busy = (new.busy_s - old.busy_s) / ((new.at_ns - old.at_ns) / 1e9)
        for metric in request.metrics[: request.numMetrics]:
            share = SHARES.get(METRICS[metric.metricId][0])
            metric.nvmlReturn = 0 if share is not None else 3
            metric.value = busy * (share or 0.0)


class BoardWithGpm(SimulatedGpu):
    def sources(self):
        return [*super().sources(), *gpm_sources(Counters(self.board), None, self.info.id, self.clock)]


@pytest.fixture(scope="module")
def run():
    device = BoardWithGpm("sim:h100?noise=0")
    settings = ProfileSettings(warmup_s=1.0, idle_s=2.0)
    step = SimulatedStep(device, [SimKernel("mm", 1.9e-3, 400.0), SimKernel("gelu", 0.1e-3, 200.0)])
    session = Session("profile", [device], workload={"name": "x", "items": 1}, settings=settings.to_dict())
    with session:
        step.replay(500)
        passes.idle(session, "context idle before", settings, Progress())
        passes.energy(session, step, settings, 2e-3, Progress())
        passes.idle(session, "context idle after", settings, Progress())
        found = session.finish()
    device.close()
    return finish(found, None)


@pytest.mark.thorough
def test_activity_is_shown_beside_power_as_its_mean_while_energy_was_measured(run):
    text = render([run], width=150, verbose=True).replace("\u00a0", " ")
    line = next(line for line in text.splitlines() if "Activity" in line)
    # windows pause for an iteration of 2 ms in 0.25 s, and so do the latencies between them
    assert "graphics engine 97 % · SMs 78 % · tensor pipes 36 % · memory 20 %" in line, "idle phases have no part in it"
    assert "Power" in text


@pytest.mark.thorough
def test_activity_is_in_the_json_object_as_shares(run):
    found = to_json_object(run)
    Draft202012Validator(json.loads(json_schema())).validate(found)
    activity = found["conditions"]["activity"]
    assert list(activity) == ["graphics", "sm", "tensor", "memory"], "what the GPU doesn't count is left out"
    assert activity["sm"] == pytest.approx(0.8 * activity["graphics"], rel=1e-6)
    names = {sensor["name"]: sensor for sensor in found["sensors"]}
    assert names["pipe_tensor_active"]["source"] == "nvmlGpmMetricsGet"


@pytest.mark.thorough
def test_the_readings_themselves_are_kept_every_200_ms(run):
    stamps, values = run.series(run.devices[0].id, "sm_active")
    assert values.min() == 0, "idle phases too"
    assert 0.75 < values.max() <= 0.8
    assert (stamps[1:] - stamps[:-1]).mean() == pytest.approx(0.2e9, rel=0.05)
