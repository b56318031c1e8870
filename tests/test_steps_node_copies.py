"""Graphs made of a captured one's nodes, by a driver that keeps graphs in Python."""

import struct

import pytest

torch = pytest.importorskip("torch")

from fake_cuda_graphs import FakeCuda, FakeNode, kernel, nothing_left  # noqa: E402
from jouletrace.errors import JouletraceError, NotPossibleError  # noqa: E402
from jouletrace.steps.cuda import graph_nodes, node_copies  # noqa: E402
from jouletrace.steps.cuda.copy_plan import plan_copies, plan_pauses  # noqa: E402
from jouletrace.steps.cuda.node_copies import CapturedGraph, Driver, GraphCopy, GraphCopyError  # noqa: E402

pytestmark = pytest.mark.thorough

GEMM, NORM, SPIN = 0x1000, 0x2000, 0x3000
EARLY = bytes([1, 0, 1, 0, 0, 0, 0, 0])


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    fake.names = {GEMM: "gemm", NORM: "norm", SPIN: "spin"}
    monkeypatch.setattr(node_copies, "load_driver", lambda _functions: fake)
    return fake


def chain(cuda, early=False):
    """A product over a cluster of blocks, a norm, a copy and a fill, one after the other."""
    nodes = [
        FakeNode("kernel", kernel(GEMM, (8, 2, 1), (128, 1, 1), 4096, arguments=1), {"cluster": 2}),
        FakeNode("kernel", kernel(NORM, (64, 1, 1), arguments=2)),
        FakeNode("memcpy", bytes(range(200))),
        FakeNode("memset", struct.pack("<QQIIQQ", 0xD, 0, 7, 4, 256, 1)),
    ]
    return CapturedGraph(Driver(), cuda.graph(nodes, [(0, 1, EARLY if early else bytes(8)), (1, 2), (2, 3)]))


def copied(captured, repeated, **options):
    plan = plan_copies(len(captured.nodes), captured.edges, repeated, pause_at_end="pause" in options)
    return GraphCopy(captured, plan, **options)


def test_a_captured_graph_is_read_with_its_edges(cuda):
    captured = chain(cuda, early=True)
    assert [node.kind for node in captured.nodes] == ["kernel", "kernel", "memcpy", "memset"]
    assert captured.nodes[0].name == "gemm"
    assert captured.edges[0] == (0, 1, EARLY)


def test_a_repeated_kernel_runs_after_itself_on_its_own_arguments(cuda):
    captured = chain(cuda)
    with nothing_left(cuda):
        copy = copied(captured, [((0,), 3)])
        copy.check()
        copy.launch(5)
        assert cuda.launched == [1, 1, 1, 2]
        copy.close()


def test_a_copy_has_the_originals_parameters_and_attributes_bit_for_bit(cuda):
    captured = chain(cuda)
    old = list(cuda.graphs[captured.graph].nodes.values())
    copy = copied(captured, [((0, 1, 2, 3), 2)])
    new = list(list(cuda.graphs.values())[-1].nodes.values())
    assert new == [*old, *old]
    copy.check()
    copy.close()


def test_the_captured_graph_stays_as_it_was(cuda):
    captured = chain(cuda)
    before = repr(cuda.graphs[captured.graph])
    copied(captured, [((1,), 4)]).close()
    assert repr(cuda.graphs[captured.graph]) == before


def test_an_edge_over_which_a_kernel_begins_early_is_kept_from_the_last_copy(cuda):
    captured = chain(cuda, early=True)
    copy = copied(captured, [((0,), 2)])
    copy.check()
    edges = list(cuda.graphs.values())[-1].edges
    assert sorted(edges.values()) == sorted([bytes(8), EARLY, bytes(8), bytes(8)])


def test_branches_of_a_graph_are_copied_side_by_side(cuda):
    nodes = [FakeNode("kernel", kernel(GEMM, arguments=number)) for number in range(1, 5)]
    captured = CapturedGraph(Driver(), cuda.graph(nodes, [(0, 1), (0, 2), (1, 3), (2, 3)]))
    copy = copied(captured, [((1,), 2), ((2,), 3)])
    copy.check()
    copy.launch(5)
    assert sorted(cuda.launched) == [1, 2, 2, 3, 3, 3, 4]
    assert cuda.launched[0] == 1
    assert cuda.launched[-1] == 4


def test_a_pause_comes_from_a_graph_of_its_own(cuda):
    pause = CapturedGraph(Driver(), cuda.graph([FakeNode("kernel", kernel(SPIN, arguments=9))]))
    captured = chain(cuda)
    with nothing_left(cuda):
        copy = copied(captured, [((1,), 2)], pause=pause)
        copy.check()
        copy.launch(5)
        assert cuda.launched == [1, 2, 2, 9]
        copy.close()


def test_a_graph_of_nothing_and_one_of_pauses_are_made_from_scratch(cuda):
    pause = CapturedGraph(Driver(), cuda.graph([FakeNode("kernel", kernel(SPIN, arguments=9))]))
    captured = chain(cuda)
    with nothing_left(cuda):
        for pieces in (0, 2):
            copy = GraphCopy(captured, plan_pauses(pieces), pause, empty=True)
            copy.check()
            copy.launch(5)
            copy.close()
    assert cuda.launched == [9, 9]


@pytest.mark.parametrize(
    "function",
    [
        "cuGraphNodeFindInClone",
        "cuGraphAddKernelNode_v2",
        "cuGraphKernelNodeCopyAttributes",
        "cuGraphRemoveDependencies_v2",
        "cuGraphAddDependencies_v2",
        "cuGraphInstantiateWithFlags",
    ],
)
def test_what_the_driver_refuses_is_one_line_and_leaves_nothing_behind(cuda, function):
    captured = chain(cuda)
    cuda.fail[function] = 801
    with nothing_left(cuda), pytest.raises(GraphCopyError) as failed:
        copied(captured, [((0,), 2)])
    assert str(failed.value) == f"{function} failed with CUDA error 801 (operation not supported)"


def test_a_launch_that_fails_says_so(cuda):
    copy = copied(chain(cuda), [])
    cuda.fail["cuGraphLaunch"] = 700
    with pytest.raises(GraphCopyError, match=r"cuGraphLaunch failed with CUDA error 700$"):
        copy.launch(5)


def test_a_graph_that_is_not_as_planned_is_found(cuda):
    copy = copied(chain(cuda), [((0,), 2)])
    graph = list(cuda.graphs.values())[-1]
    handle = list(graph.nodes)[4]
    right = graph.nodes[handle]
    graph.nodes[handle] = FakeNode("kernel", kernel(GEMM, (9, 2, 1), (128, 1, 1), 4096))
    with pytest.raises(JouletraceError, match=r"node 4 of a copied graph is gemm <9x2x1, .*step gemm <8x2x1"):
        copy.check()
    graph.nodes[handle] = right
    edge = next(iter(graph.edges))
    data = graph.edges.pop(edge)
    with pytest.raises(JouletraceError, match="another order"):
        copy.check()
    graph.edges[edge] = data
    del graph.nodes[handle]
    with pytest.raises(JouletraceError, match="4 nodes, and 5 were meant"):
        copy.check()


def test_a_driver_without_edge_data_is_too_old(monkeypatch):
    class Old:
        cuGraphClone = None

    monkeypatch.setattr(graph_nodes.ctypes, "CDLL", lambda _name: Old())
    with pytest.raises(NotPossibleError, match=r"--mode compile with parts: .*cuCtxGetCurrent"):
        Driver()
