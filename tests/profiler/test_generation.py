"""Profiles that generate tokens: the whole, phases and their operators against the truth of a simulated GPU."""

import json

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from jouletrace import compare
from jouletrace.analysis import analyse
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError
from jouletrace.execution.steps import count_operators, count_workload, fake_tensors
from jouletrace.profiler import ProfileSettings, profile_workload
from jouletrace.profiler.detail.part_profiler import LayerProfiler
from jouletrace.profiler.prepare import prepare
from jouletrace.report import json_schema, render, to_json_object
from jouletrace.workloads import WorkloadOptions, resolve
from printed_sums import sums_of
from shown import name_of, rows
from step_truth import steady_step

pytestmark = pytest.mark.thorough

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

FACTS = {"task": "generate", "batch": 2, "seq_len": 16, "max_new_tokens": 12, "config": {"num_hidden_layers": "1"}}
QUICK = {"warmup_s": 1.5, "latency_s": 0.1, **FACTS}
GRAPH = ProfileSettings(device="sim:h100?cap=off&seed=5", mode="graph", detail="kernel", detail_time_s=1.0, **QUICK)
EAGER = ProfileSettings(device="sim:h100?cap=off&seed=6", detail="phase", detail_time_s=2.0, **QUICK)


@pytest.fixture(scope="module")
def captured():
    return profile_workload("llama-tiny", GRAPH)


@pytest.fixture(scope="module")
def eager():
    return profile_workload("llama-tiny", EAGER)


def units(run, level):
    return {unit["name"]: unit["id"] for unit in run.units.to_pylist() if unit["level"] == level}


PHASES = ("prefill", "decode", "between forwards")


def truth_of(run, settings):
    """An iteration, the kernels of each phase in seconds and joules, and seconds to the first token."""
    device = open_device(settings.device)
    prepared = prepare(resolve("llama-tiny"), device, settings)
    heat = np.mean([row["temperature_c"] for row in run.windows.to_pylist() if row["variant"] == "untouched"])
    whole = steady_step(device, prepared.step.schedule, temperature_c=heat)
    phase = np.array([call.phase for call in prepared.traceable().listing().calls])
    each = {name: (whole.kernel_s[phase == name].sum(), whole.kernel_j[phase == name].sum()) for name in PHASES}
    first_s = steady_step(device, prepared.make_first_token().schedule, temperature_c=heat).time_s
    device.close()
    return whole, each, first_s


@pytest.mark.parametrize(("name", "settings"), [("captured", GRAPH), ("eager", EAGER)])
def test_phases_hold_their_truth_and_are_the_whole(name, settings, request):
    run = request.getfixturevalue(name)
    whole, each, first_s = truth_of(run, settings)
    ids = units(run, "phase")
    assert set(ids) == set(PHASES)
    for phase, (seconds, joules) in each.items():
        energy = run.result("energy_total_j", ids[phase])
        assert run.result("time_s", ids[phase]).value == pytest.approx(seconds, rel=2e-3)
        if energy.value is not None:
            assert energy.value == pytest.approx(joules, abs=1.5 * energy.half_width)
    energy = run.result("energy_total_j")
    assert energy.value == pytest.approx(whole.energy_j, abs=1.5 * energy.half_width)
    assert run.result("iteration_time_s").value == pytest.approx(whole.time_s, rel=2e-3)
    assert run.result("time_to_first_token_s").value == pytest.approx(first_s, rel=0.01)


def test_operators_are_counted_of_three_tokens_and_go_on_as_those_of_all():
    """Keys and values large enough that a forward at the last length takes twice what one at the first does."""
    large = {"num_hidden_layers": "1", "num_attention_heads": "32", "num_key_value_heads": "32", "head_dim": "128"}
    options = WorkloadOptions(task="generate", batch=64, seq_len=16, max_new_tokens=9, config=large, own_loop="static")
    built, continued = count_workload(resolve("llama-tiny"), options)
    with fake_tensors():
        built = resolve("llama-tiny").build("cpu", options)
        counted = count_operators(lambda: built.call(0), built.module)
    assert len(continued) == len(counted)
    for a, b in zip(continued[:-1], counted[:-1], strict=True):  # the last joins all tokens
        assert (a.op, a.module, a.call) == (b.op, b.module, b.call)
        assert (a.flops, a.bytes_moved) == pytest.approx((b.flops, b.bytes_moved))


def test_figures_a_token_are_those_of_the_whole(captured):
    assert captured.result("energy_per_token_j").value == pytest.approx(captured.result("energy_total_j").value / 24)
    assert captured.result("tokens_per_s").value == pytest.approx(24 / captured.result("iteration_time_s").value)
    first = captured.result("time_to_first_token_s")
    assert captured.result("time_s", units(captured, "phase")["prefill"]).value < first.value
    assert first.low <= first.value <= first.high


def test_operators_of_all_forwards_are_the_whole(captured):
    rows = captured.units.to_pylist()
    ops = {row["id"]: row for row in rows if row["level"] == "op"}
    whole = [id for id, row in ops.items() if row["parent"] == 0]
    seconds = sum(captured.result("time_s", id).value for id in whole)
    assert seconds == pytest.approx(captured.result("iteration_time_s").value, rel=0.005)
    # a second is too short for powers of kernels, and the Run says so
    assert all(captured.result("energy_total_j", id).reason == "not_attributed" for id in whole)
    heads = [row for row in ops.values() if row["module"] == "lm_head" and row["op"] in ("aten.mm", "aten.bmm")]
    assert sum(row["count"] for row in heads) == 12, "one for each token"
    projections = [row for row in ops.values() if (row["module"] or "").endswith("down_proj")]
    assert sorted((row["phase"], row["count"]) for row in projections) == [("decode", 11), ("prefill", 1)]
    attention = [row for row in ops.values() if "attention" in (row["op"] or "") and row["phase"] == "decode"]
    assert sum(row["count"] for row in attention) == 11


def test_printed_rows_make_up_the_row_above_them_and_the_whole(captured):
    assert sums_of(captured) == []


def test_layers_are_distinguished_by_phase(captured):
    ids = units(captured, "layer")
    decode, prefill, both = (ids[f"model.layers.0.mlp{text}"] for text in (" (decode)", " (prefill)", ""))
    parts = sum(captured.result("time_s", unit).value for unit in (decode, prefill))
    assert captured.result("time_s", both).value == pytest.approx(parts)
    assert captured.result("time_s", decode).value == pytest.approx(
        11 * captured.result("time_s", prefill).value, rel=0.2
    )


def test_figures_are_the_same_when_computed_again(captured):
    results, rows = captured.results.to_pylist(), captured.units.to_pylist()
    analyse(captured)
    assert captured.units.to_pylist() == rows
    for before, after in zip(results, captured.results.to_pylist(), strict=True):
        assert (before["unit"], before["metric"]) == (after["unit"], after["metric"])
        assert after["value"] == (
            None if before["value"] is None else pytest.approx(before["value"], rel=1e-9, abs=1e-12)
        )


def test_phases_are_shown_and_in_the_json_object(eager):
    for detail in ("model", "phase"):
        text = render([eager], detail=detail, width=150, verbose=True)
        for words in (
            "12 new · dynamic cache",
            "prefill",
            "decode",
            "between forwards",
            "First token",
        ):
            assert words in text, (detail, words)
    found = to_json_object(eager)
    Draft202012Validator(json.loads(json_schema())).validate(found)
    assert {name_of(row) for row in rows(found, "phase")} >= set(PHASES)
    seconds = sum(row["time_s"]["value"] for row in rows(found, "phase"))
    assert seconds == pytest.approx(eager.result("iteration_time_s").value, rel=0.01)
    assert found["model"]["other"]["energy_per_token_j"]["value"] > 0


def test_two_runs_are_compared_phase_by_phase(eager, captured):
    found = compare([(eager, "a")], [(captured, "b")])
    rows = {(row.level, row.name, row.metric) for row in found.rows}
    assert ("phase", "decode", "energy_total_j") in rows
    assert {metric for level, _, metric in rows if level == "model"} >= {"time_to_first_token_s", "energy_per_token_j"}


def test_a_cpu_gives_times_of_phases_and_says_why_there_is_no_energy():
    facts = {"task": "generate", "seq_len": 4, "max_new_tokens": 3, "config": {"num_hidden_layers": "1"}}
    quick = {"warmup_s": 0.2, "latency_s": 0.1, "first_stage": 3, "idle_s": 0.1, "window_s": 0.05}
    run = profile_workload("llama-tiny", ProfileSettings(device="cpu", detail="phase", **facts, **quick))
    ids = units(run, "phase")
    for phase in ids:
        assert run.result("time_s", ids[phase]).value > 0
    if run.result("energy_total_j").value is None:
        assert run.result("energy_total_j", ids["decode"]).reason == run.result("energy_total_j").reason
        assert run.result("energy_per_token_j").reason not in (None, "not_measured")
    assert run.result("tokens_per_s").value > 0
    assert run.result("time_to_first_token_s").value > 0


def test_a_users_model_is_profiled_while_it_generates_and_left_as_it_was():
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, **sizes)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    inputs = {"input_ids": torch.randint(1, 64, (1, 8)), "attention_mask": torch.ones(1, 8, dtype=torch.long)}
    profiler = LayerProfiler(model, "sim:h100?cap=off", mode="graph", dtype="fp16")
    run = profiler.profile_generation(inputs, 5, detail_time=1, warmup=3, latency_s=0.1).run
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert run.workload["tokens"] == 5
    parts = {(row.name, row.part) for row in profiler.rows()[0]}
    assert {("lm_head", "prefill"), ("lm_head", "decode"), ("(idle)", "rest")} <= parts
    seconds = sum(row.time.value for row in profiler.rows()[0])
    assert seconds == pytest.approx(run.result("iteration_time_s").value, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"mode": "compile"}, "--mode compile")],
)
def test_what_a_generation_can_not_be_is_refused(changes, words):
    with pytest.raises(BadInputError, match=words):
        profile_workload("llama-tiny", ProfileSettings(device="sim:h100", task="generate", **changes))
