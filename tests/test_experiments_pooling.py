"""Parts that are changed together: small ones, too many, and phases as a whole."""

import numpy as np
import pytest

from experiment_units import Unit
from jouletrace.experiments.parts import make_parts
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.pooling import by_phase, pool_small
from jouletrace.experiments.resolution import tellable

WHERE = (("mm", "attn.q"), ("mm", "attn.o"), ("norm", "ln"), ("mm", "mlp.up"), ("mm", "mlp.down"))
LAYERS = make_parts([Unit(op, f"layers.{i}.{where}") for i in range(4) for op, where in WHERE], together=False)
SHARE = {part.id: 0.02 if "mlp" in part.module else 0.01 for part in LAYERS}


def modules(parts):
    return sorted(part.module for part in parts if part.members)


def test_operators_are_pooled_within_their_modules_before_modules_are():
    for most in (16, 12, 8):
        assert all(module.startswith("layers.") for module in modules(pool_small(LAYERS, SHARE, 0.0, most)))
    assert modules(pool_small(LAYERS, SHARE, 0.0, 19)) == ["layers.0.attn"]
    assert modules(pool_small(LAYERS, SHARE, 0.0, 4)) == [f"layers.{i}" for i in range(4)]
    assert modules(pool_small(LAYERS, SHARE, 0.0, 2)) == ["layers", "layers"]


@pytest.mark.parametrize("most", range(6, 20))
def test_small_operators_outside_of_all_layers_do_not_part_them(most):
    outside = [Unit("norm", "norm"), Unit("add", "embeddings"), Unit("cat", "embeddings")]
    inner = [Unit(op, f"layers.{i}.{where}") for i in range(4) for op, where in WHERE]
    parts = make_parts([*outside, *inner], together=False)
    share = {part.id: 0.02 if part.module.startswith("layers.") else 0.003 for part in parts}
    pooled = pool_small(parts, share, 0.0, most)
    for part in (part for part in pooled if part.members):
        layers = {".".join(inner.module.split(".")[:2]) for inner in part.members if "layers." in inner.module}
        assert len(layers) <= 1
        assert not layers or all("layers." in inner.module for inner in part.members)


@pytest.mark.parametrize("most", range(1, 21))
def test_however_many_may_remain_no_operator_is_lost_or_in_two_parts(most):
    pooled = pool_small(LAYERS, SHARE, 0.0, most)
    assert len(pooled) <= most
    ids = [inner.id for part in pooled for inner in part.members or (part,)]
    assert sorted(ids) == [part.id for part in LAYERS]
    assert len({part.id for part in pooled}) == len(pooled)


def test_phases_are_not_mixed_while_there_are_others_to_pool_with():
    units = [
        Unit(f"op{i}", "m", phase=phase, backward=phase == "backward")
        for phase in ("forward", "backward")
        for i in range(3)
    ]
    pooled = pool_small(make_parts(units), dict.fromkeys(range(1, 7), 0.01), 0.0, 2)
    assert [part.phase for part in pooled] == ["forward", "backward"]


def test_each_phase_can_be_one_part():
    units = [
        Unit("mm", "a"),
        Unit("mm", "b"),
        Unit("mm_backward", "a", phase="backward"),
        Unit("adam", phase="optimizer"),
    ]
    phases = by_phase(make_parts(units), 10)
    assert [(part.id, part.name, part.phase) for part in phases] == [
        (10, "operators of forward (2)", "forward"),
        (11, "operators of backward (1)", "backward"),
        (12, "operators of optimizer (1)", "optimizer"),
    ]
    alone = make_parts(units[:2])
    assert by_phase(alone, 10) == alone


def test_so_many_parts_are_told_apart_that_each_is_known_as_well_as_wanted():
    settings = PlanSettings(target=0.1)
    parts = tellable(0.002, 150.0, settings)
    windows = 0.4 * 150 / (settings.window_s + settings.ramp_s)
    half_width = 2 * 0.002 * np.sqrt(2 / (windows / (2 * parts)))
    assert half_width * parts == pytest.approx(0.1, rel=0.1)
    assert tellable(0.004, 150.0, settings) < parts < tellable(0.002, 300.0, settings)


def test_when_the_time_is_over_nothing_more_is_told_apart():
    assert tellable(0.002, 0.0, PlanSettings()) == tellable(0.002, -3.0, PlanSettings()) == 0
