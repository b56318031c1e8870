"""Why B takes another energy than A: causes that add up, are named where they are certain, and only there."""

import json
import math

import numpy as np
import pytest

from commands import done
from explained import COPY, NORM, PRODUCT, PRODUCT_FP32, SOFTMAX, USUAL, Kernel, explained
from jouletrace import compare
from jouletrace.report import waterfall
from jouletrace.report.comparison import render
from jouletrace.report.comparison_words import note
from jouletrace.report.why import table
from jouletrace.run import Run, tables
from make_runs import gpu
from places import REPOSITORY

RUNS = REPOSITORY / "docs" / "results" / "runs"
EAGER, COMPILED = (RUNS / f"minilm-256-{mode}-h100.zip" for mode in ("eager", "compile"))
OTHER = gpu(id="GPU-99999999-2222-3333-4444-555555555555")


def both(a: Run, b: Run):
    return compare([(a, "a")], [(b, "b")])


def said(found) -> str:
    return " ".join(render(found).replace("\u00a0", " ").split())


def changed(*replaced: Kernel, without: tuple[str, ...] = ()) -> tuple[Kernel, ...]:
    """The usual kernels, those of some modules by others."""
    gone = {one.module for one in replaced} | set(without)
    return (*(one for one in USUAL if one.module not in gone), *replaced)


def causes(found) -> dict[tuple[str, str], float]:
    return {(row.how, row.module): row.value for row in found.why.rows}


@pytest.mark.thorough
@pytest.mark.parametrize("pair", [(EAGER, COMPILED), (COMPILED, EAGER)])
def test_rows_add_up_to_the_whole_and_terms_to_each_row(pair):
    why = compare(*map(str, pair)).why
    assert math.fsum(row.value for row in why.rows) == pytest.approx(why.whole.value, abs=1e-12)
    for row in why.rows:
        assert math.fsum(row.terms.values()) == pytest.approx(row.value, abs=1e-12)
        assert row.change.low <= row.value <= row.change.high


@pytest.mark.thorough
def test_the_other_way_round_each_cause_has_the_other_sign():
    there, back = compare(str(EAGER), str(COMPILED)).why, compare(str(COMPILED), str(EAGER)).why
    assert there.whole.value == pytest.approx(-back.whole.value)
    changes = [sorted(round(sign * row.value, 9) for row in why.rows) for sign, why in ((1, there), (-1, back))]
    assert changes[0] == changes[1]


def test_of_a_model_and_its_compiled_form_the_replaced_attention_is_named_first():
    text = " ".join(done("compare", str(EAGER), str(COMPILED)).out.replace("\u00a0", " ").split())
    assert (
        "+1.42 J: +1.86 bf16 attention replaced by fp32 products, softmax, copies; −0.40 bf16 norms, elementwise"
        in text
    )
    assert "fused, shorter; rest −0.04 B takes" in text
    assert " more: " not in text  # no row without a change is counted


def test_every_leaf_is_in_one_row():
    why = compare(str(EAGER), str(COMPILED)).why
    for side in ("a", "b"):
        leaves = [id(leaf) for row in why.rows for leaf in getattr(row, side)]
        assert len(leaves) == len(set(leaves)) > 10


def test_an_operator_that_is_replaced_by_several_is_one_cause():
    layers = [f"model.layer.{i}.attention" for i in range(2)]
    parts = [("bmm", PRODUCT_FP32, 2e-3), ("softmax", SOFTMAX, 1e-3), ("copy", COPY, 1e-3)]
    kernels = tuple(Kernel(layer, op, name, 1, seconds, 350.0) for layer in layers for op, name, seconds in parts)
    found = both(explained(), explained(changed(*kernels)))
    first = found.why.first[0]
    assert (first.how, first.module) == ("replaced", "model.layer.*.attention")
    assert first.value == pytest.approx(2 * 4e-3 * 350 - 2 * 1e-3 * 400)
    assert "bf16 attention replaced by fp32 products, softmax, copies" in said(found)


@pytest.mark.parametrize(
    ("kernel", "term", "words"),
    [
        (Kernel("model.norm", "native_layer_norm", NORM, 3, 3e-3, 300.0), "count", "norms more often"),
        (Kernel("model.norm", "native_layer_norm", NORM, 1, 3e-3, 300.0), "time", "norms longer"),
        (Kernel("model.norm", "native_layer_norm", NORM, 1, 1e-3, 900.0), "power", "norms at more power"),
    ],
)
def test_a_change_is_of_launches_of_time_or_of_power(kernel, term, words):
    found = both(explained(), explained(changed(kernel)))
    first = found.why.first[0]
    assert first.value == pytest.approx(0.6)
    assert first.terms[term] == pytest.approx(0.6, rel=1e-6)
    assert sum(abs(value) for name, value in first.terms.items() if name != term) < 1e-9
    assert words in said(found)


def test_a_term_against_the_change_is_not_named():
    found = both(explained(), explained(changed(Kernel("model.norm", "native_layer_norm", NORM, 3, 1.5e-3, 900.0))))
    assert "norms more often, at more power" in said(found)
    assert "shorter" not in said(found)


def test_compiled_code_in_one_module_is_matched_by_what_its_kernels_do():
    layers = [("", PRODUCT_FP32, 4e-3, 350.0), ("", SOFTMAX, 2e-3, 350.0), ("", COPY, 2e-3, 350.0)]
    compiled = [Kernel("model", op, name, 2, seconds, watts) for op, name, seconds, watts in layers]
    compiled += [Kernel("model", "", PRODUCT, 2, 4e-3, 600.0), Kernel("model", "", NORM, 1, 1e-3, 300.0)]
    found = both(explained(), explained(tuple(compiled)))
    assert "bf16 attention replaced by fp32 products, softmax, copies" in said(found)
    assert len(found.why.first) == 1


def test_a_product_in_another_format_under_another_name_is_the_same_product():
    fp32 = [Kernel(f"other.{i}", "", PRODUCT_FP32, 1, 8e-3, 500.0) for i in range(2)]
    found = both(explained(), explained(changed(*fp32, without=("model.layer.0.mlp", "model.layer.1.mlp"))))
    assert [row.value for row in found.why.rows if row.role == "product"] == [pytest.approx(2 * 8e-3 * 500 - 2.4)]
    assert "products bf16 → fp32 longer" in said(found)


def test_programs_with_the_same_modules_are_alike_whatever_one_of_them_adds():
    copies = Kernel("model.layer.0.attention", "repeat_interleave", COPY, 2, 50e-3, 500.0)
    found = both(explained(name="a.py"), explained((*USUAL, copies), name="b.py"))
    assert "copies only in B" in said(found)


def test_kernels_of_programs_are_compared_without_what_sets_up():
    longer = tuple(one._replace(seconds=1.5 * one.seconds) for one in USUAL)
    sides = [explained(some, kind="program", idle_s=idle_s) for some, idle_s in ((USUAL, 50e-3), (longer, 20e-3))]
    found = both(*sides)
    assert found.why.work.value == pytest.approx(0.5 * 3.5)
    assert "kernels alone: 3.50 → 5.25 J, +50.0 ±" in said(found)
    assert "kernels alone" not in said(both(explained(), explained(longer)))


def test_a_wait_of_a_program_is_judged_by_its_own_length():
    """One run a side: two runs of one program waited for up to 1.81 times as long (docs/results/compare-h100.md)."""
    for idle_s, named in ((1.9e-3, False), (20e-3, True)):
        found = both(explained(kind="program", idle_s=1e-3), explained(kind="program", idle_s=idle_s))
        (idle,) = (row for row in found.why.rows if row.how == "idle")
        assert idle.certain is named


def test_a_second_run_of_a_side_makes_no_interval_wider():
    runs = [explained(kind="program", idle_s=idle_s) for idle_s in (1e-3, 4e-3)]
    more = explained(tuple(one._replace(seconds=3 * one.seconds) for one in USUAL), kind="program")
    one, two = compare([(runs[0], "a")], [(more, "b")]), compare([(run, "a") for run in runs], [(more, "b")])
    assert [found.whole["energy_total_j"].verdict for found in (one, two)] == ["worse", "worse"]


def test_kernels_of_several_processes_are_those_of_the_first():
    several = explained()
    several.settings["repeats"] = 2
    window = {"variant": "untouched", "multiplicity": 1.0, "replays": 100, "energy_j": 350.0, "time_s": 0.8}
    edges = [{"block": n, "order": n, "start_ns": 10**9 * n, "end_ns": 10**9 * n + 8 * 10**8} for n in range(2)]
    several.windows = tables.from_rows([window | one | {"energy_j": 350.0 + one["block"]} for one in edges], "windows")
    found = both(several, explained(changed(Kernel("model.norm", "native_layer_norm", NORM, 3, 3e-3, 300.0))))
    assert found.a.count == 2
    assert "norms more often" in said(found)


def test_copies_that_explain_more_than_the_difference_are_not_called_all_kernels():
    def run(copies_s: float, watts: float) -> Run:
        kernels = [one._replace(watts=watts * one.watts) for one in USUAL]
        return explained((*kernels, Kernel("model.norm", "copy_", COPY, 1, copies_s, 400.0)))

    found = both(run(1e-3, 1.0), run(4e-3, 0.8))
    assert "copies longer" in said(found)
    assert "kernels on both sides" not in said(found)


@pytest.mark.parametrize(
    ("format_of_b", "words"), [(PRODUCT_FP32, "copies longer, beside work in fp32"), ("", "copies longer")]
)
def test_copies_that_cast_to_another_format_say_to_which(format_of_b, words):
    def run(copies_s: float, *more: Kernel) -> Run:
        return explained((*USUAL, Kernel("model.norm", "copy_", COPY, 1, copies_s, 400.0), *more))

    head = [Kernel("model.head", "mm", format_of_b, 1, 2e-3, 350.0)] if format_of_b else []
    text = said(both(run(1e-3), run(8e-3, *head)))
    assert words in text
    assert ("beside work" in text) == bool(format_of_b)


@pytest.mark.parametrize(("idle_s", "words"), [(9e-3, "no kernel running longer"), (0.0, "no kernel running shorter")])
def test_a_host_that_keeps_the_gpu_waiting_is_a_cause(idle_s, words):
    found = both(explained(idle_s=4e-3), explained(idle_s=idle_s))
    assert [row.how for row in found.why.first] == ["idle"]
    assert words in said(found)


def test_longer_waiting_at_a_power_below_zero_is_not_called_shorter():
    """As an offset of the sensor may make it."""
    assert "no kernel running less" in said(both(explained(), explained(idle_s=5e-3, idle_w=-10.0)))


@pytest.mark.thorough
def test_each_of_many_sites_is_matched_with_itself():
    def run(factor: float) -> Run:
        return explained(
            tuple(USUAL[i % 5]._replace(module=f"model.p{i:x}x", seconds=factor * 1e-6) for i in range(800))
        )

    rows = [row for row in both(run(1.0), run(1.5)).why.rows if row.a or row.b]
    assert len(rows) == 801
    assert {row.how for row in rows} == {"same", "idle"}


def test_twice_the_steps_are_one_cause():
    """Two programs of one code, one of which runs for longer."""
    twice = tuple(one._replace(count=2 * one.count, seconds=2 * one.seconds) for one in USUAL)
    found = both(explained(kind="program"), explained(twice, kind="program"))
    first = found.why.first[0]
    assert first.terms["count"] == pytest.approx(first.value)
    assert first.value == pytest.approx(sum(one.seconds * one.watts for one in USUAL))
    assert "more often" in said(found)


def test_programs_of_other_numbers_of_steps_are_compared_per_step():
    twice = tuple(one._replace(count=2 * one.count, seconds=2 * one.seconds) for one in USUAL)
    of_a, of_b = ({"module": "Model", "calls": calls} for calls in (100, 200))
    found = both(explained(kind="program", steps=of_a), explained(twice, idle_s=2e-3, kind="program", steps=of_b))
    energy = found.row("energy_total_j")
    assert energy.change.value == pytest.approx(0, abs=1e-9)
    assert energy.a.value == pytest.approx(found.a.run.result("energy_total_j").value / 100)
    assert "energy per step: inconclusive, equal in these runs" in said(found)
    assert "as a whole: A 3.6000 ± 0.0071 J in 100 steps, B 7.200 ± 0.015 J in 200 steps" in said(found)
    assert "numbers of steps differ" in " ".join(map(note, found.notes))
    assert not any(abs(row.value) > 1e-9 for row in found.why.rows)
    slower = tuple(one._replace(count=2 * one.count, seconds=4 * one.seconds) for one in USUAL)
    (first, *_) = both(explained(kind="program", steps=of_a), explained(slower, kind="program", steps=of_b)).why.first
    assert first.terms["count"] == pytest.approx(0, abs=1e-9)
    assert first.terms["time"] > 0


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("calls", [1, 100])
def test_all_kernels_of_a_kind_differ_by_nothing_per_step_or_in_a_mean_of_runs(calls, runs):
    def halves(varies: float) -> list[float]:
        sides = [
            [
                (explained(kind="program", varies=varies, steps={"module": "Model", "calls": of}), f"{i}")
                for i in range(runs)
            ]
            for of in (calls, 2 * calls)
        ]
        return [row.change.half_width for row in compare(*sides).why.rows]

    assert halves(0.2) == pytest.approx(halves(0.0))


@pytest.mark.parametrize("of_b", [None, {"module": "Other", "calls": 200}, {"module": "Model", "calls": 100}])
def test_programs_whose_steps_are_not_known_or_equal_are_compared_in_all(of_b):
    of_a = {"module": "Model", "calls": 100}
    found = both(explained(kind="program", steps=of_a), explained(kind="program", **({"steps": of_b} if of_b else {})))
    assert found.steps is None
    assert found.row("energy_total_j").a.value == found.a.run.result("energy_total_j").value


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("mul+native_layer_norm", "triton_per_fused_native_layer_norm_3"),
        ("", "triton_per_fused_mul_native_layer_norm_3"),
    ],
    ids=["stored", "by its name"],
)
def test_operators_that_a_compiler_fused_are_part_of_its_kernel(op, name):
    product = Kernel("", "", PRODUCT, 2, 4e-3, 600.0)
    norm, add = Kernel("model.norm", "native_layer_norm", NORM, 2, 1e-3, 300.0), "vectorized_elementwise"
    eager = (product._replace(module="model.mlp"), norm, Kernel("model.scale", "mul", add, 2, 5e-4, 250.0))
    found = both(explained(eager), explained((product, Kernel("", op, name, 2, 1e-3, 300.0)), mode="compile"))
    (fused,) = (row for row in found.why.rows if row.how == "fused")
    assert {leaf.op for leaf in fused.a} == {"native_layer_norm", "mul"}
    assert [leaf.kernel for leaf in fused.b] == [name]
    assert fused.value == pytest.approx(-5e-4 * 250)


def test_what_is_on_one_side_alone_is_listed_and_counts():
    more = Kernel("model.extra", "conv2d", "sm90_xmma_fprop_implicit_gemm_bf16", 1, 2e-3, 500.0)
    found = both(explained(), explained((*USUAL, more)))
    assert causes(found)["only in B", "model.extra"] == pytest.approx(1.0)
    found = both(explained((*USUAL, more)), explained())
    assert causes(found)["only in A", "model.extra"] == pytest.approx(-1.0)
    assert "convolutions only in A" in said(found)


def test_launches_of_a_unit_are_divided_over_its_sites_by_their_time():
    """As in Runs of older versions, which state how often the unit was launched alone."""
    gelu = "vectorized_elementwise_gelu"

    def run(launches: int, *seconds: float) -> Run:
        made = explained(
            tuple(Kernel(f"model.{x}", "gelu", gelu, launches, s, 400.0) for x, s in zip("ab", seconds, strict=True))
        )
        rows = [row | ({"unit": 1, "site": row["unit"]} if row["unit"] < 3 else {}) for row in made.divided.to_pylist()]
        made.divided = made.divided.from_pylist(rows, schema=made.divided.schema)
        return made

    why = both(run(2, 2e-3, 2e-3), run(4, 6e-3, 2e-3)).why
    terms = {row.module: row.terms for row in why.rows if row.module}
    assert terms["model.a"]["count"] == pytest.approx(4e-3 * 400)
    assert max(abs(each["time"]) for each in terms.values()) < 1e-9


def test_a_cause_is_called_by_the_role_that_takes_most_and_its_format():
    name = "sm90_xmma_fprop_implicit_gemm_bf16"

    def run(seconds: float) -> Run:
        return explained(
            (
                *USUAL,
                Kernel("net", "conv2d", name, 1, seconds, 500.0),
                Kernel("net", "conv2d", "memset", 1, 1e-5, 100.0),
            )
        )

    assert "+1.00 bf16 convolutions longer;" in said(both(run(1e-3), run(3e-3)))


def test_rows_say_whether_they_are_in_their_interval_or_below_the_margin():
    kernels = (
        *USUAL,
        *(USUAL[2]._replace(module=f"model.more.part{chr(97 + i)}", seconds=1e-4 * (i + 1)) for i in range(12)),
    )
    longer = tuple(one._replace(seconds=(1.01, 1.6)[i % 2] * one.seconds) for i, one in enumerate(kernels))
    why = both(explained(kernels), explained(longer)).why
    for row in why.rows:
        beyond = row.change.low > 0 or row.change.high < 0
        assert row.certain == (beyond and abs(row.value) > 0.01 * why.of_a)
    assert {"below the margin", "no difference seen"} <= {row[3] for row in table(why, 99).rows}


def test_figures_are_in_the_unit_of_the_larger_side():
    found = both(explained(), explained(tuple(one._replace(seconds=1e3 * one.seconds) for one in USUAL)))
    assert "+3.50 kJ: +" in said(found)


def test_all_that_an_outermost_module_holds_was_replaced_together():
    conv = "sm90_xmma_dgrad_implicit_gemm_bf16"
    a = (Kernel("loop", "_foreach_div_", "multi_tensor_apply", 1, 1e-3, 300.0), USUAL[2]._replace(module="loop.net"))
    b = (Kernel("loop", "conv_backward", conv, 1, 1e-4, 500.0), Kernel("loop.stem", "conv2d", conv, 1, 4e-3, 500.0))
    rows = both(explained(a), explained(b)).why.rows
    assert [(row.how, row.module) for row in rows if row.a or row.b] == [("replaced", "loop"), ("idle", "")]


def test_what_only_changed_its_module_is_no_cause():
    """Between versions of a model, or where calls of operators were seen on one side alone."""
    moved = tuple(one._replace(module=f"net.{one.module.removeprefix('model.')}") for one in USUAL)
    found = both(explained(), explained(moved))
    assert not found.why.stated
    assert max(abs(row.value) for row in found.why.rows) < 1e-9


def test_small_changes_of_all_kernels_are_named_together_where_none_is_shown():
    """A sum of rows may be certain where none of its rows is: its errors aren't one."""
    kernels = tuple(one._replace(module=f"model.part{i}", watts=300.0 + i) for i, one in enumerate(USUAL[2:3] * 24))
    longer = tuple(one._replace(seconds=1.06 * one.seconds) for one in kernels)
    found = both(explained(kernels, error=0.015), explained(longer, error=0.015))
    assert not any(row.certain for row in found.why.rows)
    (first,) = found.why.first
    assert first.terms["time"] == pytest.approx(first.value)
    assert first.how in {row.how for row in found.why.rows}, "all of them were matched in one way"
    assert "products longer" in said(found)


@pytest.mark.thorough
@pytest.mark.parametrize("device", [None, OTHER], ids=["one board", "two boards"])
def test_equal_sides_have_no_cause(device):
    """100 pairs whose powers and wholes have drawn errors of the stated size: at most 9 name one."""
    rng = np.random.default_rng(60)
    pairs = [(explained(errors=rng, error=0.03), explained(errors=rng, error=0.03, device=device)) for _ in range(100)]
    named = [both(*pair).why.stated for pair in pairs]
    assert sum(named) <= 9


def test_a_cause_is_certain_beyond_the_errors_of_its_powers_alone():
    """5 % more power of one kind is a cause where powers are known to 0.5 %, and not where they are known to 4 %."""
    hungrier = changed(Kernel("model.norm", "native_layer_norm", NORM, 1, 1e-3, 360.0))
    for error, shown in ((0.005, True), (0.08, False)):
        why = both(explained(error=error), explained(hungrier, error=error)).why
        row = next(row for row in why.rows if row.module == "model.norm")
        assert row.certain == shown


def test_an_error_of_the_response_that_both_sides_share_cancels():
    hungrier = changed(Kernel("model.norm", "native_layer_norm", NORM, 1, 1e-3, 315.0))
    halves = []
    for response, device in ((0.0, None), (0.9, None), (0.9, OTHER)):
        a, b = (
            explained(error=0.05, response=response),
            explained(hungrier, error=0.05, response=response, device=device),
        )
        row = next(row for row in both(a, b).why.rows if row.module == "model.norm")
        halves.append(row.change.half_width)
    alone, shared, other = halves
    assert shared < 0.5 * alone
    assert other >= 0.99 * alone


def test_unlike_models_are_refused_with_what_they_have_in_common():
    other = (Kernel("net.stem", "conv2d", "sm90_xmma_fprop_implicit_gemm_bf16", 1, 9e-3, 500.0), USUAL[2])
    found = both(explained(), explained(other, name="resnet50"))
    assert found.why is None
    assert "what makes the difference can't be said" in said(found)
    assert "in common: product" in said(found)


def test_models_that_spend_most_on_different_things_are_unlike():
    a = (USUAL[2]._replace(seconds=9e-3), USUAL[4])
    b = (
        Kernel("stem", "conv2d", "sm90_xmma_fprop_implicit_gemm_bf16", 1, 1e-3, 500.0),
        USUAL[4]._replace(seconds=3e-2),
    )
    assert both(explained(a), explained(b, name="resnet50")).why is None
    assert both(explained(a), explained(b)).why is not None


def bare(run: Run) -> Run:
    """The same as it is without kernels."""
    for name in ("divided", "powers", "errors"):
        setattr(run, name, getattr(run, name).slice(0, 0))
    run.units = run.units.slice(0, 1)
    return run


@pytest.mark.parametrize("sides", [(False, False), (False, True)])
def test_without_kernels_waiting_and_work_are_distinguished_and_an_option_is_named(sides):
    a, b = (
        run if kernels else bare(run) for run, kernels in zip((explained(), explained(idle_s=9e-3)), sides, strict=True)
    )
    found = both(a, b)
    assert [row.value for row in found.why.rows] == pytest.approx([0.8, 0.0, 0.0], abs=1e-9)
    assert "+0.800 J: +0.800 floor of the GPU longer; rest" in said(found)
    assert "count" not in [column.name for column in table(found.why, 9).columns], "of launches, which aren't known"
    lacking = "A, B" if not any(sides) else "A"
    assert f"the energies of kernels aren't known in {lacking}: --detail kernel, or jouletrace run" in said(found)


def test_without_any_power_of_the_parts_a_note_says_so():
    a, b = (bare(explained(idle_s=seconds)) for seconds in (1e-3, 9e-3))
    for run in (a, b):
        rows = [row for row in run.results.to_pylist() if row["metric"] != "power_idle_at_work_w"]
        run.results = run.results.from_pylist(rows, schema=run.results.schema)
    found = both(a, b)
    assert found.why is None
    assert "the energies of kernels aren't known in A, B" in said(found)


def test_other_batch_sizes_are_compared_per_sample():
    double = tuple(one._replace(seconds=2 * one.seconds) for one in USUAL)
    found = both(explained(), explained(double, idle_s=1e-3, batch=16, items=16))
    assert found.why.whole.value == pytest.approx(-0.5 * 0.1 / 8)
    assert [row.how for row in found.why.rows if abs(row.value) > 1e-9] == ["idle"]


def test_where_most_is_in_no_part_no_cause_is_named():
    a, b = explained(), explained()
    rows = b.results.to_pylist()
    for row in rows:
        if row["metric"] in ("energy_total_j", "power_w"):
            row |= {end: 1.5 * row[end] for end in ("value", "low", "high")}
    b.results = b.results.from_pylist(rows, schema=b.results.schema)
    found = both(a, b)
    assert found.why.first == ()
    assert "most of it is in no part" in said(found)


@pytest.mark.thorough
def test_a_waterfall_is_pale_where_a_cause_is_not_certain():
    found = compare(str(EAGER), str(COMPILED))
    opacity = waterfall(found)["data"][0]["marker"]["opacity"]
    assert [each == 1.0 for each in opacity[1:-1]] == [row.certain for row in found.why.rows if row.value]
    assert opacity[0] == opacity[-1] == 1.0


def test_json_states_causes_with_their_kernels():
    found = json.loads(done("compare", str(EAGER), str(COMPILED), "--json").out)["why"]
    first = found["first"][0]
    assert first["how"] == "replaced"
    assert first["roles_b"][0] == "fp32 product"
    assert any("cudnn" in name or "sdpa" in name for name in first["kernels_a"])
    assert math.fsum(row["change_j"]["value"] for row in found["rows"]) == pytest.approx(found["change_j"]["value"])


def test_causes_of_hostile_names_stay_on_one_line():
    odd = Kernel("model.\x1b[31mred\n|", "add\n", "kernel\n\x1b]0;evil\x07 <b>", 1, 3e-3, 500.0)
    text = render(both(explained(), explained((*USUAL, odd))))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_several_runs_a_side_are_explained_by_their_mean():
    longer = changed(Kernel("model.norm", "native_layer_norm", NORM, 1, 3e-3, 300.0))
    rng = np.random.default_rng(6)
    sides = [[(explained(k, errors=rng), f"{i}") for i in range(3)] for k in (USUAL, longer)]
    why = compare(*sides).why
    row = next(row for row in why.rows if row.module == "model.norm")
    assert row.value == pytest.approx(0.6, rel=0.05)
    assert row.certain
