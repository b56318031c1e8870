"""Where in a model the energy goes: modules, their calls, and what they are summed from."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

import jouletrace.profiler.profile as profile_module
from jouletrace import analysis
from jouletrace.analysis.layers import MOST_CALLS, OUTSIDE, layers_of
from jouletrace.analysis.sites import sites_of
from jouletrace.devices import open_device
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import MODEL_UNIT
from jouletrace.steps.counting import count_workload
from jouletrace.steps.simulated import SimulatedStep, kernels_of
from jouletrace.workloads import ObjectWorkload
from jouletrace.workloads.base import WorkloadOptions

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

pytestmark = pytest.mark.thorough

QUICK = {"detail": "layer", "detail_time_s": 100.0, "warmup_s": 1.0, "idle_s": 0.6, "latency_s": 0.1, "max_time_s": 2.0}
WIDTH = 2048


def op(id, parent=MODEL_UNIT, count=1, name="mm"):
    return {"id": id, "parent": parent, "level": "op", "name": name, "module": None, "count": count, "call": None}


def site(id, parent, module, count=1, call=None):
    return {**op(id, parent, count), "level": "site", "module": module, "call": call}


def summed(rows, traced):
    return layers_of(rows, sites_of(rows, traced))


def names(layers):
    return {name: layer.count for name, layer in layers.items()}


def test_children_and_own_work_make_the_parent_and_containers_are_counted_once():
    rows = [op(1, count=2), op(2), site(3, 1, "enc.a"), site(4, 1, "enc.b"), site(5, 2, "enc")]
    layers = summed(rows, {})
    assert layers["enc"].total == {1: 1.0, 2: 1.0}
    assert layers["enc"].own == {2: 1.0}
    assert layers["enc.a"].total == layers["enc.b"].own == {1: 0.5}
    assert list(layers) == ["enc", "enc.a", "enc.b"]


def test_what_no_module_calls_has_a_row_of_its_own():
    assert summed([op(1), site(2, 1, "")], {})[OUTSIDE].own == {1: 1.0}


def test_equal_layers_are_flagged_and_one_that_has_a_part_to_itself_is_not():
    rows = [op(1, count=2), op(2), site(3, 1, "l.0"), site(4, 1, "l.1"), site(5, 2, "head")]
    layers = summed(rows, {})
    assert layers["l.0"].flags == {"grouped"}
    assert layers["l"].flags == layers["head"].flags == set()


def test_a_pool_is_shared_out_by_traced_time():
    rows = [op(1), op(2, 1), op(3, 1), site(4, 2, "a"), site(5, 3, "b")]
    layers = summed(rows, {2: 3e-6, 3: 1e-6})
    assert layers["a"].total == pytest.approx({1: 0.75})
    assert layers["b"].flags == {"pooled"}


def test_calls_of_a_module_are_its_total_and_alike_ones_are_split():
    rows = [op(1, count=2), op(2), site(3, 1, "m", 1, "1"), site(4, 1, "m", 1, "2"), site(5, 2, "m", 1, "2")]
    layer = summed(rows, {})["m"]
    assert layer.count == 2
    first, second = layer.listed()
    assert (first.name, first.total, first.flags) == ("m (call 1)", {1: 0.5}, {"split"})
    assert (second.name, second.total) == ("m (call 2)", {1: 0.5, 2: 1.0})


def test_one_call_needs_no_row_and_very_many_have_the_total_alone():
    assert summed([op(1), site(2, 1, "m", 1, "1")], {})["m"].listed() == []
    n = MOST_CALLS + 1
    many = summed([op(1, count=n), *(site(2 + i, 1, "m", 1, str(i + 1)) for i in range(n))], {})["m"]
    assert (many.count, many.listed()) == (n, [])


def test_runs_without_calls_are_read_as_before():
    layer = summed([op(1, count=3), site(2, 1, "m", 3)], {})["m"]
    assert (layer.count, layer.listed(), layer.total) == (1, [], {1: 1.0})


class Block(nn.Module):
    """Calls itself once: re-entrant, as a tree of modules is."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, depth=1):
        y = self.fc(x)
        return self(y.contiguous(), depth - 1) + y if depth else y


@dataclass
class Output:
    logits: torch.Tensor
    cache: object = None


class Nothing(nn.Module):
    def forward(self, x):
        return None


class Net(nn.Module):
    """Shared, nested, re-entrant and repeated modules, tied weights, and outputs of every form."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.again = self.enc[2]
        self.block = Block()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.tied = nn.Linear(WIDTH, 2 * WIDTH)
        self.tied.weight = self.enc[0].weight
        self.nothing = Nothing()

    def forward(self, x):
        x = self.enc(x)
        x = self.enc(x[:, :512].contiguous())
        for layer in self.layers:
            x = layer(x)
        x = self.block(x)
        self.nothing(x)
        return {"out": Output(self.again(self.tied(x)))}


CALLS = {"enc": 2, "enc.0": 2, "enc.1": 2, "enc.2": 3, "block": 2, "block.fc": 2, "layers": 1, "tied": 1}


def workload():
    return ObjectWorkload(Net().half(), (torch.randn(32, 1024, WIDTH).half(),))


@pytest.fixture(scope="module", params=["grouped", "each"])
def found(request):
    """A profile, and the true joules of each operator call with its module and call."""
    devices = []

    def remembered(spec):
        devices.append(open_device(spec))
        return devices[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile_module, "open_device", remembered)
        settings = ProfileSettings(
            device="sim:h100?cap=off&seed=4", mode="graph", resolve=request.param, calibrated=False, **QUICK
        )
        run = profile_module.profile_workload(workload(), settings)
    (device,) = devices
    _, operators = count_workload(workload(), WorkloadOptions())
    step = SimulatedStep(device, kernels_of(device, operators))
    windows = [w for w in run.windows.to_pylist() if w["variant"] == "reference"]
    truths = [device.truth.step(step.schedule, w["start_ns"], w["end_ns"]) for w in windows]
    gap_s = device.truth.parameters().kernel_gap_s
    gap_j = gap_s * np.mean([device.truth.idle_w(w["end_ns"]) for w in windows])
    joules = np.mean([truth.kernel_j for truth in truths], axis=0) + gap_j
    return run, [(o.module, o.call, float(j)) for o, j in zip(operators, joules, strict=True)]


def layer_units(run):
    return [unit for unit in run.units.to_pylist() if unit["level"] == "layer"]


def true_joules(truth, name, call=None):
    """Of all operators in a module, or in one of its calls."""
    depth = name.count(".")
    return sum(
        joules
        for module, calls, joules in truth
        if f"{module}.".startswith(f"{name}.") and (call is None or calls.split(".")[depth] == str(call))
    )


def test_the_truth_of_every_module_and_every_call_is_recovered(found):
    run, truth = found
    whole = sum(joules for *_, joules in truth)
    checked, covered = [], 0
    for unit in layer_units(run):
        if unit["name"] == OUTSIDE:
            continue
        number = re.fullmatch(r".* \((?:call (\d+)|(called by others))\)", unit["name"])
        call = None if number is None else number[1] or 0
        right = true_joules(truth, unit["module"], call)
        said = run.result("energy_total_j", unit["id"])
        assert said.value == pytest.approx(right, rel=0.05, abs=0.005 * whole), unit["name"]
        checked.append(unit["name"])
        covered += said.low <= right <= said.high
    # Rows share their operators, so they hit or miss together: on boards 3 to 7 operators are covered 95 % in all, and
    # on one of them 77 %.
    assert covered >= 0.8 * len(checked)
    assert {"enc (call 1)", "enc (called by others)", "enc.2 (call 3)", "block (call 2)", "layers.1", "tied"} <= set(
        checked
    )


def test_every_module_is_listed_once_with_its_number_of_calls(found):
    run, _ = found
    counts = {unit["name"]: unit["count"] for unit in layer_units(run)}
    assert {name: counts[name] for name in CALLS} == CALLS
    assert "again" not in counts  # a module under several names goes by its first
    assert len(counts) == len(layer_units(run))


def test_children_and_own_make_the_parent_and_the_top_closes(found):
    run, _ = found
    units = layer_units(run)
    by_id = {unit["id"]: unit for unit in units}

    def energy(unit, metric="energy_total_j"):
        return run.result(metric, unit["id"]).value

    for unit in units:
        inside = [other for other in units if other["parent"] == unit["id"]]
        calls = [other for other in inside if other["module"] == unit["module"]]
        children = [other for other in inside if other["module"] != unit["module"]]
        if calls:
            assert sum(map(energy, calls)) == pytest.approx(energy(unit))
        if children:
            own = energy(unit, "energy_own_j") or 0.0
            assert sum(map(energy, children)) + own == pytest.approx(energy(unit))
    top = sum(energy(unit, "share") for unit in units if unit["parent"] not in by_id)
    gaps = next(unit for unit in run.units.to_pylist() if unit["name"] == "launch and gaps")
    closure = run.result("closure_layers")
    assert top + energy(gaps, "share") == pytest.approx(closure.value, abs=1e-6)
    assert closure.value == pytest.approx(1, abs=0.02)
    assert closure.low <= 1 <= closure.high


def test_modules_removed_as_a_whole_agree_with_their_operators(found):
    run, _ = found
    groups = [unit for unit in run.units.to_pylist() if unit["level"] == "group"]
    assert groups
    for unit in groups:
        removed, summed = (run.result(name, unit["id"]) for name in ("energy_removed_j", "energy_summed_j"))
        assert removed.value == pytest.approx(summed.value, rel=0.05)


def test_equal_layers_share_an_experiment_unless_each_is_asked_for(found):
    run, _ = found
    ids = {unit["name"]: unit["id"] for unit in layer_units(run)}
    flagged = {name for name, id in ids.items() if "grouped" in run.result_flags("energy_total_j", id)}
    values = [run.result("energy_total_j", ids[f"layers.{i}"]).value for i in range(3)]
    if run.settings["resolve"] == "grouped":
        assert {"layers.0", "layers.1", "layers.2"} <= flagged
        assert len(set(values)) == 1
    else:
        assert not flagged & {"layers.0", "layers.1", "layers.2"}
        assert len(set(values)) == 3
        assert max(values) / min(values) < 1.1
    assert "split" in run.result_flags("energy_total_j", ids["block.fc (call 1)"])
    assert "split" not in run.result_flags("energy_total_j", ids["enc (call 1)"])


def test_analysed_again_the_layers_are_the_same(found):
    run, _ = found
    before = run.units.to_pylist()
    assert analysis.analyse(run).units.to_pylist() == before
