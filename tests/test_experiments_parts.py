"""What is changed at a time, and how it is written down."""

import pytest

from experiment_units import Unit
from jouletrace.experiments.arms import GAPS, KINDS, REFERENCE, REMOVE, TOGETHER, Arm
from jouletrace.experiments.parts import POOLED_OP, make_parts
from jouletrace.experiments.pooling import pool_small
from jouletrace.run import tables

LAYERS = [Unit(op, f"model.layers.{i}.{where}") for i in range(3) for op, where in (("mm", "mlp"), ("norm", "ln"))]


def test_equal_layers_are_one_part_with_all_their_launches():
    parts = make_parts([Unit("conv", "stem", count=2), *LAYERS], first_id=5)
    assert [(p.id, p.op, p.module, p.count) for p in parts] == [
        (5, "conv", "stem", 2),
        (6, "mm", "model.layers.*.mlp", 3),
        (7, "norm", "model.layers.*.ln", 3),
    ]
    assert parts[1].changes(0) == {LAYERS[0]: 0, LAYERS[2]: 0, LAYERS[4]: 0}


def test_layers_can_be_kept_apart():
    assert len(make_parts(LAYERS, together=False)) == 6


@pytest.mark.parametrize("other", [Unit("mm", "layers.1.mlp", "f16[9]"), Unit("mm", "layers.1.mlp", backward=True)])
def test_other_shapes_and_backward_are_parts_of_their_own(other):
    assert len(make_parts([Unit("mm", "layers.0.mlp"), other])) == 2


def test_a_number_within_a_name_is_no_layer():
    assert make_parts([Unit("mm", "conv1.0.x2"), Unit("mm", "conv1.1.x2")])[0].module == "conv1.*.x2"
    assert make_parts([Unit("mm", "conv1.0.x2")])[0].module == "conv1.0.x2"
    assert len(make_parts([Unit("mm", "conv1"), Unit("mm", "conv2")])) == 2


def test_small_parts_are_pooled_and_none_is_lost():
    parts = make_parts([Unit(f"op{i}", "m", count=i + 1) for i in range(5)])
    share = {1: 0.5, 2: 0.001, 3: 0.3, 4: -0.002, 5: 0.1}
    pooled = pool_small(parts, share, 0.003, 5)
    assert [p.id for p in pooled] == [1, 3, 5, 6]
    pool = pooled[-1]
    assert pool.op == POOLED_OP
    assert pool.count == 2 + 4
    assert [member.id for member in pool.members] == [2, 4]
    assert {unit.op for p in pooled for unit in p.units} == {f"op{i}" for i in range(5)}


def test_the_smallest_are_pooled_until_few_enough_remain():
    parts = make_parts([Unit(f"op{i}", "m") for i in range(6)])
    share = {i: i / 100 for i in range(1, 7)}
    assert [p.id for p in pool_small(parts, share, 0.0, 3)] == [5, 6, 7]


def test_what_may_not_be_pooled_and_a_single_small_part_stay():
    parts = make_parts([Unit(f"op{i}", "m") for i in range(3)])
    assert pool_small(parts, {1: 0.001}, 0.003, 3) == parts
    assert pool_small(parts, {1: 0.001}, 0.003, 1) == parts


def test_parts_become_rows_of_the_units_table_members_under_their_pool():
    parts = pool_small(make_parts([Unit("a", "m"), Unit("b", "m"), Unit("c", "m")]), {1: 0.001, 2: 0.001}, 0.01, 3)
    rows = tables.from_rows(
        [row for part in parts for row in (part.row(), *(member.row(part.id) for member in part.members))], "units"
    ).to_pylist()
    assert [(r["id"], r["parent"], r["name"]) for r in rows] == [
        (3, None, "c"),
        (4, None, "other operators (2) in m"),
        (1, 4, "a"),
        (2, 4, "b"),
    ]


@pytest.mark.parametrize(
    ("arm", "text"),
    [
        (Arm(REFERENCE), "reference"),
        (Arm(REMOVE, 3, 0, spin_ns=612_345), "remove paced 612.345us"),
        (Arm(TOGETHER, 3, 0, 17), "together+17"),
        (Arm(GAPS, None, 0, spin_ns=50_000), "gaps paced 50.000us"),
    ],
)
def test_an_arm_is_read_back_as_it_was_written(arm, text):
    assert arm.variant == text
    assert Arm.read(text, arm.part, float(arm.multiplicity)) == arm


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_written(kind):
    assert Arm.read(Arm(kind, spin_ns=1).variant, None, 1.0) == Arm(kind, spin_ns=1)


@pytest.mark.parametrize("variant", [None, "untouched", "flush", "remove paced", "naive", "reference2"])
def test_windows_of_other_passes_are_no_arms(variant):
    assert Arm.read(variant, None, None) is None
