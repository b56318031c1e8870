"""What could save energy: each rule where its fault is, and silence where nothing is at stake."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.analysis.advice import FAR, OF_KERNELS, RULES, Advice, advice_of
from jouletrace.analysis.checks import outcomes
from jouletrace.report.advice import WAYS, lines
from jouletrace.run import Estimate, Parts, Run, load, tables
from make_runs import e, gpu, result
from places import REPOSITORY

RUNS = REPOSITORY / "docs" / "results" / "runs"
COUNTED = REPOSITORY / "tests" / "data" / "counted"

FLASH, SGEMM, LAYOUT = "flash_fwd_kernel", "sm80_xmma_gemm_f32f32_f32f32_f32_nn", "nchwToNhwcKernel<__half>"
BF16, SOFTMAX = "nvjet_sm90_tst_128x256", "cunn_SoftMaxForward<__nv_bfloat16>"


def advised(run: Run) -> list[Advice]:
    """Its advice."""
    parts = Parts(run)
    return advice_of(run, parts, outcomes(run, parts))


def codes(run: Run) -> list[str]:
    """The rules that apply."""
    return [one.code for one in advised(run)]


def program(kernels, idle_j=0.0, half=0.01, recordings=None, kind="program", **causes) -> Run:
    """A Run of energies in J of kernels by name and operator; idle takes ``idle_j`` for a second, by its causes."""
    units, rows = [{"id": 0, "level": "model", "name": "train.py"}], []
    listed = [("kernel", *names, joules) for names, joules in kernels.items()]
    for id, (level, name, op, joules) in enumerate([*listed, ("op", "idle", None, idle_j)], 1):
        units.append({"id": id, "parent": 0, "level": level, "name": name, "op": op, "count": 1})
        rows += [result(id, "energy_total_j", e(joules, half * joules)), result(id, "time_s", Estimate(1.0))]
        rows += [result(id, "share", Estimate(joules / 100))]
    rows += [result(0, "energy_total_j", e(100, 1)), result(0, "iteration_time_s", Estimate(10.0))]
    by = {name.replace("_", " "): share for name, share in causes.items()}
    run = Run(kind=kind, workload={"name": "train.py", "recordings": recordings or [{"idle_by": by}]})
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    return run


@pytest.mark.parametrize(
    ("causes", "code"),
    [
        ({"host": 0.6, "between_launches": 0.4}, "host"),
        ({"data_loading": 1.0}, "data_loader"),
        ({"synchronisation": 1.0}, "synchronisation"),
    ],
)
def test_the_time_between_kernels_by_its_cause(causes, code):
    (found,) = advised(program({(BF16, "mm"): 80}, idle_j=20, **causes))
    assert (found.code, found.share) == (code, pytest.approx(0.2))
    assert (found.energy.value, found.energy.half_width) == (pytest.approx(20), pytest.approx(0.2))


def test_the_idle_time_of_a_profile_is_advised_where_the_host_launches():
    run = program({(BF16, "mm"): 80}, idle_j=20, kind="profile")
    for mode, said in (("eager", ["host"]), ("compile", ["host"]), ("graph", [])):
        run.settings["mode"] = mode
        assert codes(run) == said


def test_without_kernels_at_most_the_time_that_the_power_limit_leaves_is_at_stake():
    """A graph of the same network took 0.30 J less than 1.03 J (H100, three Runs)."""
    run = program({}, kind="profile")
    figures = {"energy_total_j": e(1.03, 0.05), "energy_work_j": e(0.545, 0.01), "power_idle_at_work_w": e(128, 1)}
    run.results = tables.from_rows(
        [result(0, name, one) for name, one in figures.items()]
        + [result(0, "iteration_time_s", Estimate(3.79e-3, 3.6e-3, 4.0e-3))],
        "results",
    )
    run.settings["mode"] = "eager"
    assert codes(run) == [], "no power limit is known"
    run.devices = [gpu(power_limit_w=700.0)]
    (found,) = advised(run)
    assert found.energy.value == pytest.approx(128 * (3.79e-3 - 0.545 / (700 - 128)), rel=1e-6)
    assert found.energy.value == pytest.approx(0.3, rel=0.25)


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ({(SGEMM, "mm"): 40, (BF16, "mm"): 60}, [("fp32", 40)]),
        ({(BF16, "mm"): 40, ("nvjet_sm90_sss_128x128", "mm"): 60}, []),  # tf32
        ({("sm80_xmma_gemm_f32f32_tf32f32_f32_nn", "mm"): 100}, []),
        ({("upsample_bilinear2d_out_frame<float>", "upsample_bilinear2d"): 100}, []),
        ({(SOFTMAX, "_softmax"): 30, (BF16, "bmm"): 20, (BF16, "addmm"): 50}, [("math_attention", 50)]),
        ({(SOFTMAX, ""): 30, (SGEMM, ""): 20, (BF16, ""): 50}, [("math_attention", 50)]),  # compiled
        ({(SOFTMAX, "_softmax"): 30, (BF16, "addmm"): 70}, []),  # of a classifier
        ({(SOFTMAX, "_softmax"): 30, (BF16, "bmm"): 40, (FLASH, ""): 30}, []),  # of a mixture of experts
        (
            {("fmha_cutlassF_f32<AttentionKernel<float>>", "_efficient_attention_forward"): 100},
            [("fp32_attention", 100)],
        ),
        ({("memcpy DtoH", "copy_"): 20, ("copy_kernel", "copy_"): 15}, [("host_copies", 20), ("copies", 15)]),
        ({(LAYOUT, "convolution"): 20, ("copy_kernel", "copy_"): 15}, [("layout", 20), ("copies", 15)]),
        ({("max_pool_forward_nchw<float>", "max_pool2d_with_indices"): 100}, []),
    ],
)
def test_kernels_by_their_names_and_operators(kernels, said):
    found = advised(program(kernels))
    assert [(one.code, one.energy.value) for one in found] == [(code, pytest.approx(joules)) for code, joules in said]


def test_what_stands_beside_products_and_softmax_in_their_module_is_of_attention():
    run = program({(SOFTMAX, "_softmax"): 20, (BF16, "bmm"): 20, ("copy_kernel", "copy_"): 30, (BF16, "addmm"): 30})
    units = run.units.to_pylist()
    run.units = tables.from_rows(
        [{**one, "module": "model.attention" if one["id"] in (1, 2, 3, 4) else None} for one in units], "units"
    )
    (found,) = advised(run)
    assert (found.code, found.energy.value) == ("math_attention", pytest.approx(70))
    assert found.where == "model.attention"
    (line,) = lines([found], run.kind)
    assert "softmax, most in model.attention: try scaled_dot" in line


def test_idle_outside_of_the_recorded_part_is_no_waste():
    run = program({(BF16, "mm"): 80}, idle_j=20, host=1.0)
    starts = np.arange(50) * 0.01
    edges = [{"start_ns": int(1e9 * start), "end_ns": int(1e9 * (start + 0.008)), "unit": 1} for start in starts]
    run.activity = tables.from_rows(edges, "activity")
    assert codes(run) == [], "0.1 s of the second is recorded"


def ranks(held):
    """Two ranks, of which the second comes last and is held at its power cap; the first waits for 15 of 100 J."""
    recordings = [
        {"device": f"gpu-{n}", "name": f"rank-{n}", "last": 10 * (n + 1), "collectives": 30} for n in range(2)
    ]
    run = program({}, recordings=recordings)
    units = [*run.units.to_pylist(), {"id": 9, "parent": 0, "level": "phase", "name": "waiting for other ranks"}]
    rows = [*run.results.to_pylist(), result(9, "energy_total_j", e(15, 1))]
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    checks = outcomes(run, Parts(run))
    reasons = {"gpu-0": {}, "gpu-1": {"sw_power_cap": held}}
    for device, shares in reasons.items():
        checks.conditions[device] = {"throttle_reasons": shares, "power_limit_w": 700.0}
    return run, checks


@pytest.mark.parametrize(("held", "code"), [(0.0, "ranks"), (0.4, "rank_at_cap")])
def test_ranks_wait_for_the_last_one_or_for_its_power_cap(held, code):
    run, checks = ranks(held)
    found = {name: RULES[name](run, Parts(run), checks).value for name in ("ranks", "rank_at_cap")}
    assert found == {"ranks": None, "rank_at_cap": None} | {code: 15}


def test_a_long_time_without_a_kernel_that_comes_once_is_no_waste():
    run = program({(BF16, "mm"): 80}, idle_j=20, host=1.0)
    starts = np.append(np.arange(50) * 0.01, 1.3 + np.arange(50) * 0.01)
    edges = [{"start_ns": int(1e9 * start), "end_ns": int(1e9 * (start + 0.008)), "unit": 1} for start in starts]
    assert codes(run) == ["host"]
    run.activity = tables.from_rows(edges, "activity")
    assert codes(run) == [], "0.8 s of the second"


def test_there_is_silence_below_a_tenth_and_where_it_may_be_nothing():
    assert codes(program({(SGEMM, "mm"): 9.9})) == []
    assert codes(program({(SGEMM, "mm"): 20}, half=1.1)) == []
    run = program({(SGEMM, "mm"): 20})
    assert codes(run) == ["fp32"]
    checks = outcomes(run, Parts(run))
    assert advice_of(run, Parts(run), replace(checks, level="no")) == []
    assert len(advised(program({(SGEMM, "mm"): 30, (LAYOUT, "conv"): 20}, idle_j=30, host=0.5, data_loading=0.5))) == 3


def test_each_rule_has_its_words():
    assert WAYS.keys() == {*RULES, *OF_KERNELS, FAR}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "said"),
    [
        (RUNS / "minilm-1-eager-h200.zip", ["host"]),
        (REPOSITORY / "tests" / "data" / "runs" / "deit-run-h100.zip", ["host"]),
        (RUNS / "loader-run-h100.zip", ["data_loader"]),  # 7 s before its loop begins aren't the host's
        (RUNS / "minilm-256-compile-h100.zip", ["math_attention"]),
        (RUNS / "resnet50-run-h200.zip", ["layout"]),
        (COUNTED / "copy.zip", ["synchronisation", "copies"]),
        (RUNS / "minilm-256-eager-h100.zip", []),
        (RUNS / "llama-generate-h200.zip", []),
        (RUNS / "ddp-run-h200.zip", []),  # waits take 1.5 %
        (COUNTED / "product.zip", []),
    ],
    ids=lambda one: one.stem if hasattr(one, "stem") else "",
)
def test_recorded_runs(path, said):
    assert codes(load(path)) == said
