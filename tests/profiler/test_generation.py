"""Profiles that generate tokens: phases and their operators against the truth of a simulated GPU."""

import json
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from jouletrace import compare
from jouletrace.analysis import analyse, fill
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError
from jouletrace.execution.steps import SimulatedStep
from jouletrace.profiler import ProfileSettings, Progress, generation, profile_workload
from jouletrace.profiler.detail.part_profiler import LayerProfiler
from jouletrace.profiler.prepare import prepare
from jouletrace.recording import Session
from jouletrace.report import json_schema, render, to_json_object
from jouletrace.simulator.boards import SimKernel
from jouletrace.workloads import resolve
from printed_sums import sums_of
from shown import name_of, rows
from step_truth import mean_step, steady_step

pytestmark = pytest.mark.thorough

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

FACTS = {"task": "generate", "batch": 2, "seq_len": 16, "max_new_tokens": 12, "config": {"num_hidden_layers": "1"}}
QUICK = {"warmup_s": 3.0, "latency_s": 0.1, **FACTS}
GRAPH = ProfileSettings(device="sim:h100?cap=off&seed=5", mode="graph", detail="kernel", detail_time_s=1.0, **QUICK)
EAGER = ProfileSettings(device="sim:h100?cap=off&seed=6", **QUICK)


@pytest.fixture(scope="module")
def captured():
    return profile_workload("llama-tiny", GRAPH)


@pytest.fixture(scope="module")
def eager():
    return profile_workload("llama-tiny", EAGER)


def units(run, level):
    return {unit["name"]: unit["id"] for unit in run.units.to_pylist() if unit["level"] == level}


def truth_of_phases(run, settings):
    """Time and energy of each phase, from the kernels of the whole where the host is never waited for."""
    device = open_device(settings.device)
    prepared = prepare(resolve("llama-tiny"), device, settings)
    heat = np.mean(
        [row["temperature_c"] for row in run.windows.to_pylist() if row["variant"] in ("untouched", "segment")]
    )
    whole = steady_step(device, prepared.step.schedule, temperature_c=heat)
    pieces = {}
    for segment, step in prepared.make_generation().segments:
        one = steady_step(device, step.schedule, temperature_c=heat)
        before = pieces.get(segment.phase, (0.0, 0.0))
        weight = segment.weight / segment.times
        pieces[segment.phase] = (before[0] + weight * one.time_s, before[1] + weight * one.energy_j)
    device.close()
    return whole, pieces


@pytest.mark.parametrize(("name", "settings"), [("captured", GRAPH), ("eager", EAGER)])
def test_phases_hold_their_truth_and_are_the_whole(name, settings, request):
    run = request.getfixturevalue(name)
    whole, pieces = truth_of_phases(run, settings)
    ids = units(run, "phase")
    assert list(ids) == ["prefill", "decode", "between forwards"]
    for phase, (seconds, joules) in pieces.items():
        assert run.result("time_s", ids[phase]).value == pytest.approx(seconds, rel=1e-3)
        assert run.result("energy_total_j", ids[phase]).value == pytest.approx(joules, rel=0.005)
    assert sum(seconds for seconds, _ in pieces.values()) == pytest.approx(whole.time_s, rel=0.005)
    closure = run.result("closure_phases")
    assert closure.value == pytest.approx(sum(joules for _, joules in pieces.values()) / whole.energy_j, rel=0.005)
    assert closure.value == pytest.approx(1, abs=0.01)
    assert run.result("closure_phases_time").value == pytest.approx(1, abs=0.005)


def test_interpolated_decode_is_the_sum_over_all_lengths():
    """Keys and values large enough that a forward at the last length takes twice what one at the first does."""
    large = {"num_hidden_layers": "1", "num_attention_heads": "32", "num_key_value_heads": "32", "head_dim": "128"}
    facts = {**QUICK, "batch": 64, "max_new_tokens": 600, "config": large}
    settings = ProfileSettings(device="sim:h100?cap=off", mode="graph", **facts)
    device = open_device(settings.device)
    prepared = prepare(resolve("llama-tiny"), device, settings)
    one = {
        s.length: steady_step(device, step.schedule).time_s / s.times for s, step in prepared.make_generation().segments
    }
    assert one[615] > 2 * one[17]
    parts = sum(
        segment.weight / segment.times * steady_step(device, step.schedule).time_s
        for segment, step in prepared.make_generation().segments
    )
    assert parts == pytest.approx(steady_step(device, prepared.step.schedule).time_s, rel=0.005)
    device.close()


def test_each_window_lies_within_a_run_that_goes_on_alike_on_either_side(captured):
    windows = [row for row in captured.windows.to_pylist() if row["variant"] in ("untouched", "segment")]
    margins = [row["beyond"] / 2 * (row["end_ns"] - row["start_ns"]) / row["replays"] for row in windows]
    assert min(margins) >= 0.1e9
    pauses = [
        after["start_ns"] - other - before["end_ns"] - one
        for (before, after), (one, other) in zip(pairwise(windows), pairwise(margins), strict=True)
    ]
    assert min(pauses) > -1e3
    pauses.remove(max(pauses))  # the recording between the stages
    assert max(pauses) < 0.03e9, "a random pause of at most a period of the sensor, and what launching takes"


def test_what_an_iteration_draws_at_its_head_is_in_its_energy():
    """Windows that began with a run would lose some of the head, and say 0.2 % less."""
    device = open_device("sim:h100?noise=0&cap=off&seed=1")
    head, tail = SimKernel("prefill", 5e-3, 600.0), SimKernel("decode", 27.5e-3, 250.0)
    steps = {"untouched": SimulatedStep(device, [head, tail]), "segment": SimulatedStep(device, [tail])}
    parts = [generation._Part(name, None, step, 21, 7, 0.0) for name, step in steps.items()]
    session = Session("profile", [device], workload={"name": "uneven"})
    with session:
        generation._stage(session, parts, "energy", 14, Random(1), Progress())
        device.clock.sleep(1.0)
        run = session.finish()
    fill(run)
    windows = [row for row in run.windows.to_pylist() if row["variant"] == "untouched"]
    schedule = steps["untouched"].schedule
    truth = sum(mean_step(device, schedule, row["start_ns"], row["end_ns"]).energy_j * 21 for row in windows)
    device.close()
    assert sum(row["energy_j"] for row in windows) == pytest.approx(truth, rel=0.001)


def test_figures_a_token_are_those_of_the_whole(captured):
    assert captured.result("energy_per_token_j").value == pytest.approx(captured.result("energy_total_j").value / 24)
    assert captured.result("tokens_per_s").value == pytest.approx(24 / captured.result("iteration_time_s").value)
    ids = units(captured, "phase")
    prefill, decode = ids["prefill"], ids["decode"]
    for unit, tokens in ((prefill, 32), (decode, 22)):
        joules = captured.result("energy_total_j", unit)
        assert captured.result("energy_per_token_j", unit).value == pytest.approx(joules.value / tokens)
    first = captured.result("time_to_first_token_s")
    assert captured.result("time_s", prefill).value < first.value < 1.2 * captured.result("time_s", prefill).value
    assert first.low <= first.value <= first.high
    lengths = units(captured, "length")
    assert [name.split(",")[1] for name in lengths] == [f" {n} in the static cache" for n in (17, 22, 27)]


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
            "17–27 tokens, dynamic cache",
            "between forwards",
            "First token",
        ):
            assert words in text, (detail, words)
    assert "one token, 22 in the dynamic cache" in text
    found = to_json_object(eager)
    Draft202012Validator(json.loads(json_schema())).validate(found)
    assert [name_of(row) for row in rows(found, "phase")] == ["prefill", "decode", "between forwards"]
    assert sum(row["share"]["value"] for row in rows(found, "phase")) == pytest.approx(1, abs=0.02)
    assert len(rows(found, "length")) == 3
    assert found["model"]["other"]["energy_per_token_j"]["value"] > 0


def test_two_runs_are_compared_phase_by_phase(eager, captured):
    found = compare([(eager, "a")], [(captured, "b")])
    rows = {(row.level, row.name, row.metric) for row in found.rows}
    assert ("phase", "decode", "energy_total_j") in rows
    assert {metric for level, _, metric in rows if level == "model"} >= {"time_to_first_token_s", "energy_per_token_j"}


def test_a_cpu_gives_times_of_phases_and_says_why_there_is_no_energy():
    facts = {"task": "generate", "seq_len": 4, "max_new_tokens": 3, "config": {"num_hidden_layers": "1"}}
    quick = {"warmup_s": 0.2, "latency_s": 0.1, "first_stage": 3, "idle_s": 0.1, "window_s": 0.05}
    run = profile_workload("llama-tiny", ProfileSettings(device="cpu", **facts, **quick))
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


CONTEXTS = ProfileSettings(
    device="sim:h100?cap=off&seed=7",
    mode="graph",
    context=(4096, 64),
    **{**QUICK, "batch": 16, "config": {"num_attention_heads": "32", "num_key_value_heads": "32", "head_dim": "128"}},
)


@pytest.fixture(scope="module")
def contexts():
    return profile_workload("llama-tiny", CONTEXTS)


def test_joules_per_token_by_context_hold_their_truth(contexts):
    device = open_device(CONTEXTS.device)
    prepared = prepare(resolve("llama-tiny"), device, CONTEXTS)
    heat = np.mean([row["temperature_c"] for row in contexts.windows.to_pylist() if row["variant"] == "segment"])
    ids = units(contexts, "context")
    names = [
        f"{what}{n}{end}"
        for n in (64, 4096)
        for what, end in (("prompt of ", " tokens"), ("one token at a context of ", ""))
    ]
    assert list(ids) == names
    for name, (segment, step) in zip(names, prepared.make_generation().contexts, strict=True):
        truth = steady_step(device, step.schedule, temperature_c=heat)
        tokens = 16 * (segment.context if segment.phase == "prefill" else 1)
        found = contexts.result("energy_per_token_j", ids[name])
        true_j = truth.energy_j / segment.times / tokens
        assert found.value == pytest.approx(true_j, abs=max(1.5 * found.half_width, 0.005 * true_j))
        assert found.half_width < 0.02 * true_j
        assert contexts.result("time_s", ids[name]).value == pytest.approx(truth.time_s / segment.times, rel=1e-3)
    device.close()
    short, long = (contexts.result("energy_per_token_j", ids[names[n]]) for n in (1, 3))
    assert long.low > 1.5 * short.high, "keys and values of 4096 tokens are read for each"


def test_contexts_are_no_part_of_the_whole(contexts):
    assert contexts.result("closure_phases").value == pytest.approx(1, abs=0.01)
    assert len(units(contexts, "length")) == 3


def test_contexts_are_shown_and_in_the_json_object(contexts):
    text = render([contexts], detail="model", width=150)
    for words in ("Forwards, by context", "one token at a context of 4096", "prompt of 64 tokens"):
        assert words in text, words
    found = to_json_object(contexts)
    Draft202012Validator(json.loads(json_schema())).validate(found)
    assert [name_of(row) for row in rows(found, "context")][::2] == ["prompt of 64 tokens", "prompt of 4096 tokens"]
    assert rows(found, "context")[1]["other"]["energy_per_token_j"]["value"] > 0


def test_a_cpu_generates_at_each_context():
    facts = {"task": "generate", "seq_len": 4, "max_new_tokens": 3, "config": {"num_hidden_layers": "1"}}
    quick = {"warmup_s": 0.2, "latency_s": 0.1, "first_stage": 3, "idle_s": 0.1, "window_s": 0.05}
    run = profile_workload("llama-tiny", ProfileSettings(device="cpu", context=[8, 256], **facts, **quick))
    seconds = {name: run.result("time_s", unit).value for name, unit in units(run, "context").items()}
    assert list(seconds) == [
        "prompt of 8 tokens",
        "one token at a context of 8",
        "prompt of 256 tokens",
        "one token at a context of 256",
    ]
    assert all(value > 0 for value in seconds.values())
    energy = run.result("energy_per_token_j", units(run, "context")["prompt of 256 tokens"])
    assert energy.value is not None or energy.reason not in (None, "not_measured")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"context": (0,)}, "--context 0: must be a whole number"),
        ({"context": (4096,), "config": {"max_position_embeddings": "512"}}, "takes, 512 tokens"),
        ({"context": (8,), "task": "infer", "max_new_tokens": None}, "--context is for --task generate"),
    ],
)
def test_contexts_that_can_not_be_are_refused(changes, words):
    with pytest.raises(BadInputError, match=words):
        profile_workload("llama-tiny", ProfileSettings(**{"device": "sim:h100", **FACTS, **changes}))
