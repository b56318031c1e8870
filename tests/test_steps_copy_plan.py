"""Where copies of nodes and pauses go in a graph."""

import pytest

from jouletrace.steps import VariantRefusedError
from jouletrace.steps.cuda.copy_plan import PAUSE, PLAIN, plan_copies, plan_pauses

EARLY = bytes([1, 0, 1, 0, 0, 0, 0, 0])
"""An edge over which the next kernel may begin before the one before has ended."""


def plain(*edges):
    return [(a, b, PLAIN) for a, b in edges]


def pairs(plan):
    return sorted((a, b) for a, b, _ in plan.edges)


def test_copies_in_a_chain_run_between_a_node_and_what_followed_it():
    plan = plan_copies(3, plain((0, 1), (1, 2)), [((1,), 3)])
    assert plan.sources == (1, 1)
    assert pairs(plan) == [(0, 1), (1, 3), (3, 4), (4, 2)]


def test_the_first_and_the_last_node_of_a_chain_can_be_repeated():
    plan = plan_copies(2, plain((0, 1)), [((0,), 2), ((1,), 2)])
    assert plan.sources == (0, 1)
    assert pairs(plan) == [(0, 2), (1, 3), (2, 1)]


def test_branches_wait_for_the_copy_where_they_part_and_go_on_side_by_side():
    diamond = plain((0, 1), (0, 2), (1, 3), (2, 3))
    assert pairs(plan_copies(4, diamond, [((0,), 2)])) == [(0, 4), (1, 3), (2, 3), (4, 1), (4, 2)]
    assert pairs(plan_copies(4, diamond, [((1,), 2)])) == [(0, 1), (0, 2), (1, 4), (2, 3), (4, 3)]
    assert pairs(plan_copies(4, diamond, [((3,), 2)])) == [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]


def test_nodes_of_one_call_are_repeated_together():
    plan = plan_copies(4, plain((0, 1), (1, 2), (2, 3)), [((1, 2), 3)])
    assert plan.sources == (1, 2, 1, 2)
    assert pairs(plan) == [(0, 1), (1, 2), (2, 4), (4, 5), (5, 6), (6, 7), (7, 3)]


def test_neighbours_that_are_both_repeated_stay_in_order():
    plan = plan_copies(3, plain((0, 1), (1, 2)), [((0,), 2), ((1,), 2)])
    assert pairs(plan) == [(0, 3), (1, 4), (3, 1), (4, 2)]


def test_what_followed_a_call_early_follows_its_last_copy_early():
    edges = [(0, 1, EARLY), (1, 2, EARLY)]
    plan = plan_copies(3, edges, [((1,), 2)])
    assert plan.edges == {(0, 1, EARLY), (1, 3, PLAIN), (3, 2, EARLY)}


def test_nothing_repeated_is_the_graph_itself():
    edges = [(0, 1, EARLY), (1, 2, PLAIN)]
    plan = plan_copies(3, edges, [((1,), 1)])
    assert plan.sources == ()
    assert plan.edges == set(edges)


def test_a_call_that_runs_before_and_after_others_is_refused():
    with pytest.raises(VariantRefusedError, match="before and after others") as refused:
        plan_copies(3, plain((0, 1), (1, 2)), [((0, 2), 2)])
    assert refused.value.reason == "interleaved"


def test_a_pause_at_the_end_waits_for_all_branches_and_their_copies():
    plan = plan_copies(3, plain((0, 1), (0, 2)), [((2,), 2)], pause_at_end=True)
    assert plan.sources == (2, PAUSE)
    assert pairs(plan) == [(0, 1), (0, 2), (1, 4), (2, 3), (3, 4)]


def test_a_pause_between_calls_comes_after_the_copies_and_lets_nothing_begin_early():
    plan = plan_copies(3, [(0, 1, EARLY), (1, 2, PLAIN)], [((0,), 2)], [(0,)])
    assert plan.sources == (0, PAUSE)
    assert plan.edges == {(0, 3, PLAIN), (3, 4, PLAIN), (4, 1, PLAIN), (1, 2, PLAIN)}


def test_pauses_alone_follow_one_another():
    assert plan_pauses(0).edges == frozenset()
    assert plan_pauses(3).sources == (PAUSE,) * 3
    assert pairs(plan_pauses(3)) == [(0, 1), (1, 2)]
