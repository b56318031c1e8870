"""What is shared out by time: intervals that allow for a second of one operator costing more than one of another."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from experiment_lab import Lab
from jouletrace import recorded
from jouletrace.analysis import analyse
from jouletrace.analysis.layers import add_layers, layers_of
from jouletrace.analysis.phases import add_phases
from jouletrace.analysis.rows import Figures
from jouletrace.analysis.shared_out import ENERGY_SPREAD, LAUNCH_SPREAD, TIME_SPREAD, SharedOut, Stated
from jouletrace.analysis.sites import shares_of, sites_of
from jouletrace.devices.simulated import SimKernel
from jouletrace.experiments.arms import REFERENCE
from jouletrace.experiments.estimate import Cost, Estimator, estimate_parts
from jouletrace.experiments.parts import unit_rows
from jouletrace.experiments.plan import PlanSettings
from jouletrace.run import MODEL_UNIT, Estimate, load
from test_experiments_states_h100 import windows as recorded_windows

pytestmark = pytest.mark.thorough

Z = 1.96
JOULES, SECONDS, HALF = 10.0, 0.1, 0.02


class Known:
    """An estimator of parts that all cost the same, each known to a fiftieth."""

    def __init__(self, paced=False):
        self.paced = paced

    def sum(self, shares, *, matched=False):
        times, half = sum(shares.values()), HALF * math.hypot(*shares.values())
        return Cost(*(self.about(x * times, x * half) for x in (JOULES, SECONDS)))

    def about(self, value, half):
        return Estimate(value, value - half, value + half, 1000)


def op(id, name, parent=MODEL_UNIT, shapes="f16[8]"):
    return {"id": id, "parent": parent, "level": "op", "name": name, "op": name, "shapes": shapes, "count": 1}


def pool(*members, id=1):
    """A pool of operators: ``(name, module, seconds)``; its rows, and the times of its members."""
    rows, traced = [{**op(id, "other operators"), "op": None}], {}
    for i, (name, module, seconds) in enumerate(members):
        member = id + 1 + 2 * i
        site = {**op(member + 1, name, member), "level": "site", "module": module, "call": None, "phase": None}
        rows += [op(member, name, id), site]
        traced[member] = seconds
    return rows, traced


def layer_costs(rows, traced, estimator=None, matched=False):
    sites = sites_of(rows, traced)
    shared = SharedOut(estimator or Known(), sites)
    return {name: shared.sum(layer.inside, matched=matched) for name, layer in layers_of(rows, sites).items()}


def opened(estimate, half):
    """Standard uncertainty that was added to an interval with that half-width."""
    return math.sqrt(max(estimate.half_width**2 - half**2, 0.0)) / Z


UNLIKE = (("mm", "a", 3.0), ("add", "b", 1.0))


def test_a_row_is_as_uncertain_as_it_is_made_unlike_its_pool():
    costs = layer_costs(*pool(("mm", "a", 3.0), ("norm", "a", 1.0), ("add", "b", 2.0), ("norm", "b", 2.0)))
    share = 0.5
    unlike = math.hypot(3 / 4 - 3 / 8, 1 / 4 - 3 / 8, 0 - 2 / 8)
    energy = costs["a"].energy_j
    assert energy.value == pytest.approx(share * JOULES)
    assert opened(energy, share * JOULES * HALF) == pytest.approx(ENERGY_SPREAD * unlike * energy.value, rel=1e-3)
    assert opened(costs["a"].time_s, share * SECONDS * HALF) == pytest.approx(
        TIME_SPREAD * unlike * share * SECONDS, rel=1e-3
    )


def test_equal_layers_and_all_of_a_pool_are_as_exact_as_the_pool():
    rows, traced = pool(*((name, f"l.{i}", seconds) for i in range(3) for name, seconds in (("mm", 3.0), ("add", 1.0))))
    sites = sites_of(rows, traced)
    shared = SharedOut(Known(), sites)
    for name, layer in layers_of(rows, sites).items():
        assert shared.sum(layer.inside) == Known().sum(shares_of(layer.inside)), name


def test_members_of_one_kind_are_alike_and_other_shapes_are_another_kind():
    rows, traced = pool(("mm", "a", 3.0), ("mm", "b", 1.0))
    assert layer_costs(rows, traced)["a"].energy_j.half_width == pytest.approx(0.75 * JOULES * HALF)
    for row in rows:
        if row.get("module") == "b":
            row["shapes"] = "f16[9]"
    assert layer_costs(rows, traced)["a"].energy_j.half_width > 5 * 0.75 * JOULES * HALF


def test_what_one_pool_gives_too_much_another_takes_away_where_kinds_are_the_same():
    (one, seconds), (other, more) = pool(*UNLIKE), pool(("mm", "b", 3.0), ("add", "a", 1.0), id=11)
    both = layer_costs([*one, *other], {**seconds, **more})
    assert opened(both["a"].energy_j, JOULES * HALF * math.hypot(0.75, 0.25)) == pytest.approx(0, abs=1e-6)
    strange = [{**row, "name": f"{row['name']}2", "op": row["op"] and f"{row['op']}2"} for row in other]
    apart = layer_costs([*one, *strange], {**seconds, **more})
    alone = 0.75 * 0.25 * math.sqrt(2) * ENERGY_SPREAD * JOULES
    assert opened(apart["a"].energy_j, JOULES * HALF * math.hypot(0.75, 0.25)) == pytest.approx(
        math.sqrt(2) * alone, rel=1e-3
    )


def test_at_a_cap_energies_are_as_unlike_as_times_and_at_equal_clocks_as_powers():
    rows, traced = pool(*UNLIKE)
    capped = layer_costs(rows, traced, Known(paced=True))["a"].energy_j
    matched = layer_costs(rows, traced, Known(paced=True), matched=True)["a"].energy_j
    plain = layer_costs(rows, traced)["a"].energy_j
    noise = 0.75 * JOULES * HALF
    assert matched == plain
    assert opened(capped, noise) == pytest.approx(TIME_SPREAD / ENERGY_SPREAD * opened(plain, noise))


def test_what_is_shared_out_by_launches_is_less_certain_than_by_time():
    rows, _ = pool(*UNLIKE)
    cost = layer_costs(rows, {})["a"]
    unlike = 0.5 * 0.5 * math.sqrt(2)
    for estimate, whole in ((cost.energy_j, JOULES), (cost.time_s, SECONDS)):
        assert estimate.value == pytest.approx(whole / 2)
        assert opened(estimate, whole * HALF / 2) == pytest.approx(LAUNCH_SPREAD * unlike * whole, rel=1e-3)


def test_all_of_a_pool_is_less_certain_where_its_members_count_unlike_in_a_generation():
    rows, traced = pool(("mm", "a", 10.0), ("add", "a", 1.0))  # a second of each in the experiment's step
    for row in rows:
        if row["level"] == "site":
            row["weight"] = 10.0 if row["name"] == "mm" else 1.0
    energy = layer_costs(rows, traced)["a"].energy_j
    assert opened(energy, JOULES * HALF) == pytest.approx(
        ENERGY_SPREAD * JOULES * math.hypot(10 / 11 - 1 / 2, 1 / 11 - 1 / 2), rel=1e-3
    )


def test_the_figures_of_layers_their_own_work_and_groups_are_as_wide():
    rows, traced = pool(("mm", "a", 1.0), ("add", "a.b", 1.0), ("gelu", "c", 2.0))
    rows.append({**op(50, "a"), "level": "group", "module": "a"})

    class WithGroup(Known):
        def removed(self, part):
            return self.sum({part: 0.6})

    figures = Figures()
    sites = sites_of(rows, traced)
    layers = layers_of(rows, sites)
    shared = SharedOut(WithGroup(), sites)
    add_layers(
        figures,
        rows,
        WithGroup(),
        sites,
        lambda unit, cost, flags, _: figures.add(unit, "energy_total_j", cost.energy_j, flags),
        100,
    )
    ids = {row["name"]: row["id"] for row in figures.units().to_pylist()}
    for name, layer in layers.items():
        assert figures.get(ids[name], "energy_total_j") == shared.sum(layer.inside).energy_j
    assert figures.get(ids["a"], "energy_own_j") == shared.sum(layers["a"].called).energy_j
    assert figures.get(50, "energy_summed_j") == shared.sum(layers["a"].inside).energy_j
    assert figures.get(50, "energy_summed_j").half_width > 10 * 0.5 * JOULES * HALF
    assert "module_disagrees" not in figures.flags(50, "energy_summed_j")  # it would at the pool's own interval


def phase_figures(phases, estimator):
    rows, traced = pool(*UNLIKE)
    for row in rows:
        if row["level"] == "site":
            row["phase"] = phases[row["module"]]
    figures = Figures()

    def add(unit, cost, flags, alone):
        figures.add(unit, "energy_total_j", cost.energy_j, flags)
        if alone is not None:
            figures.add(unit, "energy_matched_j", alone.energy_j)

    add_phases(figures, sites_of(rows, traced), estimator, add, range(50, 60))
    return figures, {row["name"]: row["id"] for row in figures.units().to_pylist()}


def test_phases_that_share_a_pool_are_as_wide_as_layers_that_do():
    rows, traced = pool(*UNLIKE)
    for paced in (False, True):
        figures, ids = phase_figures({"a": "forward", "b": "backward"}, Known(paced))
        layers = layer_costs(rows, traced, Known(paced))
        assert list(ids) == ["forward", "backward"]
        for phase, layer in (("forward", "a"), ("backward", "b")):
            assert figures.get(ids[phase], "energy_total_j") == layers[layer].energy_j
            assert figures.has(ids[phase], "energy_matched_j") == paced
        assert figures.get(ids["forward"], "energy_total_j").half_width > 3 * 0.75 * JOULES * HALF
    matched = layer_costs(rows, traced, Known(paced=True), matched=True)["a"].energy_j
    assert figures.get(ids["forward"], "energy_matched_j") == matched


def test_figures_of_a_part_are_shared_out_as_its_windows_are():
    rows, traced = pool(*UNLIKE)
    sites = sites_of(rows, traced)
    known = Known(paced=True)
    figures = {"energy_total_j": known.about(JOULES, HALF * JOULES), "time_s": known.about(SECONDS, HALF * SECONDS)}
    figures["energy_matched_j"] = figures["energy_total_j"].scaled(0.5)
    figures["time_matched_s"] = figures["time_s"].scaled(0.8)
    by_figures = SharedOut(Stated(lambda part, metric: figures[metric], paced=True), sites)
    by_windows = SharedOut(known, sites)
    for site in sites:
        assert by_figures.sum([site]) == by_windows.sum([site])
        matched, windows = by_figures.sum([site], matched=True), by_windows.sum([site], matched=True)
        assert matched.energy_j.half_width == pytest.approx(0.5 * windows.energy_j.half_width)
        assert matched.time_s.value == pytest.approx(0.8 * windows.time_s.value)


@pytest.fixture(scope="module")
def recorded_run():
    return load(Path(recorded.__file__).parent / "deit-b-64-kernels-h100.zip")


@pytest.fixture(scope="module")
def analysed(recorded_run):
    return analyse(recorded_run)


def kernels_of(run, op):
    return {row["id"]: row for row in run.units.to_pylist() if row["level"] == "kernel" and row["parent"] == op}


@pytest.mark.parametrize("paced", [True, False])
def test_kernels_of_one_operator_differ_in_power_as_operators_do(recorded_run, analysed, paced):
    run = analysed
    if not paced:
        plain = pc.invert(pc.match_substring(recorded_run.windows["variant"].cast("string"), "paced"))
        run = analyse(replace(recorded_run, windows=recorded_run.windows.filter(plain)))
    convolution = 1
    assert (run.result("time_matched_s", convolution).value is not None) == paced
    kernels = kernels_of(run, convolution)
    assert len(kernels) == 5
    whole = run.result("time_traced_s", convolution).value
    shares = {id: run.result("time_traced_s", id).value / whole for id in kernels}
    for metric, spread in (("energy_total_j", TIME_SPREAD if paced else ENERGY_SPREAD), ("time_s", TIME_SPREAD)):
        part = run.result(metric, convolution)
        for id, share in shares.items():
            found = run.result(metric, id)
            others = [other for at, other in shares.items() if at != id]
            assert found.value == pytest.approx(share * part.value)
            assert opened(found, share * part.half_width) == pytest.approx(
                spread * share * math.hypot(1 - share, *others) * part.value, rel=2e-3
            )
            assert "split" in run.result_flags(metric, id)
    for id in kernels:
        power, above = run.result("power_w", id), run.result("power_w", convolution)
        assert power.value == pytest.approx(above.value)
        assert power.high - power.low > above.high - above.low
        assert ("equal_clocks" in run.result_flags("power_w", id)) == paced
        assert run.result("energy_active_j", id).half_width > shares[id] * run.result("energy_active_j", 1).half_width


def test_one_kernel_of_an_operator_is_as_exact_as_it(analysed):
    run = analysed
    ops = [row["id"] for row in run.units.to_pylist() if row["level"] == "op" and len(kernels_of(run, row["id"])) == 1]
    assert len(ops) >= 2
    for op in ops:
        (kernel,) = kernels_of(run, op)
        for metric in ("energy_total_j", "time_s", "power_w", "share", "energy_matched_j", "time_traced_s"):
            assert run.result(metric, kernel) == run.result(metric, op), metric


def test_no_figure_stays_none():
    class Nothing(Known):
        def sum(self, shares, *, matched=False):
            return Cost(Estimate.null("no_power_sensor"), super().sum(shares).time_s)

    cost = layer_costs(*pool(*UNLIKE), Nothing())["a"]
    assert cost.energy_j.reason == "no_power_sensor"
    assert cost.time_s.half_width > 0.75 * SECONDS * HALF


def test_ninety_five_of_a_hundred_intervals_hold_the_truth():
    rng = np.random.default_rng(1)
    kinds, sd = 6, math.sqrt(math.log(1 + ENERGY_SPREAD**2))
    held = []
    for _ in range(300):
        members = [
            (f"op{kind}", f"m{module}", float(rng.uniform(0.2, 2)))
            for module in range(4)
            for kind in range(kinds)
            if rng.random() < 0.5
        ]
        power = np.exp(sd * rng.normal(size=kinds))
        joules = [seconds * power[int(name[2:])] for name, _, seconds in members]
        costs = layer_costs(*pool(*members))
        for module in sorted({module for _, module, _ in members}):
            right = JOULES * sum(j for j, m in zip(joules, members, strict=True) if m[1] == module) / sum(joules)
            held.append(costs[module].energy_j.low <= right <= costs[module].energy_j.high)
    assert 0.93 <= np.mean(held) <= 0.98


def unlike_layers(seed):
    """Ten layers of up to six operators whose powers differ by the spread of those of a real model."""
    rng = np.random.default_rng(seed)
    sd = math.sqrt(math.log(1 + ENERGY_SPREAD**2))
    watts = 400 * np.exp(sd * rng.normal(size=6) - sd**2 / 2)
    micros = (12, 36, 10, 32, 24, 16)
    return [
        SimKernel(f"k{j}", micros[j] * 1e-6, max(watts[j] - 120, 20), op=f"op{j}", module=f"{i}.m{j}", core=0.5)
        for i in range(10)
        for j in range(6)
        if j == 1 or rng.random() < 0.75
    ]


def true_joules(lab, kernels):
    """Of each kernel in the reference's own windows, the gap after it included."""
    truth = lab.gpu.truth
    edges = [(row["start_ns"], row["end_ns"]) for row in lab.rows if row["variant"] == REFERENCE]
    drawn = np.mean([truth.step(lab.step.schedule, *pair).kernel_j for pair in edges], axis=0)
    assert len(drawn) == len(kernels)
    return drawn + truth.parameters().kernel_gap_s * truth.idle_w(edges[-1][1])


def test_on_simulated_boards_rows_that_were_shared_out_hold_the_truth():
    settings = PlanSettings(
        budget_s=20, together=False, pace=False, repetition=False, spikes=0, pairs=0, modules=0, pool_below=0.03
    )
    held, before = [], []
    for seed in range(1, 6):
        kernels = unlike_layers(seed)
        lab = Lab(f"sim:h100?cap=off&seed={seed}", kernels, settings)
        lab.run()
        parts = lab.experiment.parts
        rows = unit_rows(parts, [], MODEL_UNIT)
        inner = [member for part in parts for member in part.members or (part,)]
        traced = {
            part.id: sum(kernels[i].time_s for unit in part.units for i in lab.step.places(unit)) for part in inner
        }
        sites, joules = sites_of(rows, traced), true_joules(lab, kernels)
        estimator = Estimator(lab.measured())
        shared = SharedOut(estimator, sites)
        for name, layer in layers_of(rows, sites).items():
            if "pooled" in layer.flags:
                right = sum(j for j, k in zip(joules, kernels, strict=True) if f"{k.module}.".startswith(f"{name}."))
                now, then = shared.sum(layer.inside).energy_j, estimator.sum(layer.total).energy_j
                held.append(now.low <= right <= now.high)
                before.append(then.low <= right <= then.high)
    assert len(held) > 100
    assert np.mean(held) >= 0.9
    assert np.mean(before) < 0.5


def relative_spread(values):
    return float(np.std(values, ddof=1) / np.mean(values))


PRODUCTS = (5, 6, 7, 9)
"""Query, key, value and output of the attention: one kind."""

KINDS = ((1,), (4, 11), PRODUCTS, (8,), (10,), (12,), (13,), (14,))
"""Parts of DeiT-B in the recording that are known to better than a third: convolution, norms, products, attention..."""


@pytest.fixture(scope="module")
def recorded_kinds():
    """Energies and times of the kinds of operators in a model that an H100 ran below its cap, shape (kinds, 2)."""
    parts = estimate_parts(recorded_windows(), [part for kind in KINDS for part in kind]).parts
    costs = [[parts[part].cost for part in kind] for kind in KINDS]
    return np.array([[sum(c.energy_j.value for c in kind), sum(c.time_s.value for c in kind)] for kind in costs])


def test_powers_of_kinds_of_operators_differ_on_a_real_board_as_is_taken(recorded_kinds):
    assert relative_spread(recorded_kinds[:, 0] / recorded_kinds[:, 1]) == pytest.approx(ENERGY_SPREAD, abs=0.06)


def test_times_in_context_differ_from_traced_ones_as_is_taken(analysed):
    run = analysed
    kinds = {}
    for unit in run.units.to_pylist():
        context, traced = (run.result(name, unit["id"]).value for name in ("time_s", "time_traced_s"))
        if unit["level"] == "op" and unit["op"] and context and traced:
            seconds = kinds.setdefault((unit["op"], unit["shapes"]), [0.0, 0.0])
            seconds[0] += context
            seconds[1] += traced
    assert len(kinds) == 8
    assert relative_spread([context / traced for context, traced in kinds.values()]) == pytest.approx(
        TIME_SPREAD, abs=0.03
    )


def test_had_the_operators_of_a_real_model_been_pooled_their_rows_would_hold_them(recorded_kinds):
    joules, seconds = recorded_kinds.T
    costs = layer_costs(*pool(*((f"op{i}", f"m{i}", s) for i, s in enumerate(seconds))))
    shares = joules / joules.sum() * JOULES
    rows = [costs[f"m{i}"].energy_j for i in range(len(shares))]
    assert all(row.low <= right <= row.high for row, right in zip(rows, shares, strict=True))
    bare = [abs(row.value - right) > row.value * HALF for row, right in zip(rows, shares, strict=True)]
    assert sum(bare) >= 7
