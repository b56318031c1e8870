"""Nodes of captured graphs: asked of a driver that is made up here, since a capture needs a GPU."""

import ctypes
from dataclasses import replace

import pytest

from jouletrace.errors import JouletraceError, NotPossibleError
from jouletrace.steps.cuda import graph_nodes
from jouletrace.steps.cuda.captured_nodes import CapturedNodes, check_changed, check_same
from jouletrace.steps.cuda.graph_nodes import GraphNodes, GraphNodesError, Node

torch = pytest.importorskip("torch")

from jouletrace.steps.structure import Call, Structure  # noqa: E402

pytestmark = pytest.mark.thorough

GRAPH, GEMM, RELU = 77, 0x1000, 0x2000


def as_pointer(kind, argument):
    return ctypes.cast(argument, ctypes.POINTER(kind))


class FakeDriver:
    """Answers as ``libcuda`` does; nodes are (handle, kind, what)."""

    def __init__(self):
        self.nodes = []
        self.status = 1
        self.names = {GEMM: b"gemm", RELU: b"relu"}

    def kernel(self, handle, function=GEMM, grid=(8, 1, 1), block=(128, 1, 1), shared=0):
        self.nodes.append((handle, 0, (function, grid, block, shared)))

    def cuStreamGetCaptureInfo_v3(self, stream, status, number, graph, dependencies, edges, count):
        assert stream.value == 5
        as_pointer(ctypes.c_int, status)[0] = self.status
        as_pointer(ctypes.c_void_p, graph)[0] = GRAPH
        return 0

    def cuGraphGetNodes(self, graph, out, count):
        assert graph.value == GRAPH
        as_pointer(ctypes.c_size_t, count)[0] = len(self.nodes)
        if out is not None:
            for i, (handle, _, _) in enumerate(self.nodes):
                as_pointer(ctypes.c_uint64, out)[i] = handle
        return 0

    def cuGraphNodeGetType(self, node, kind):
        as_pointer(ctypes.c_int, kind)[0] = self._find(node)[1]
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node, params):
        function, grid, block, shared = self._find(node)[2]
        # by offset, as the driver's C struct has them
        raw = as_pointer(ctypes.c_uint64, params)
        raw[0] = function
        sizes = as_pointer(ctypes.c_uint32, params)
        for i, value in enumerate((*grid, *block, shared)):
            sizes[2 + i] = value
        return 0

    def cuGraphMemcpyNodeGetParams(self, node, params):
        as_pointer(ctypes.c_uint64, params)[22] = self._find(node)[2]
        return 0

    def cuGraphMemsetNodeGetParams(self, node, params):
        as_pointer(ctypes.c_uint64, params)[3] = self._find(node)[2]
        return 0

    def cuFuncGetName(self, name, function):
        as_pointer(ctypes.c_char_p, name)[0] = self.names[function.value]
        return 0

    def _find(self, node):
        return next(one for one in self.nodes if one[0] == node.value)


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(graph_nodes, "load_driver", lambda: fake)
    return fake


def test_new_nodes_are_those_since_the_last_question(driver):
    nodes = GraphNodes(5)
    assert nodes.new().tolist() == []
    driver.kernel(11)
    driver.kernel(12)
    assert nodes.new().tolist() == [11, 12]
    assert nodes.new().tolist() == []
    driver.kernel(13)
    assert nodes.new().tolist() == [13]


def test_new_nodes_are_found_even_if_the_driver_lists_them_first(driver):
    nodes = GraphNodes(5)
    driver.kernel(11)
    nodes.new()
    driver.kernel(12)
    driver.nodes.reverse()
    assert nodes.new().tolist() == [12]


def test_a_node_says_what_it_launches(driver):
    driver.kernel(11, RELU, (4, 2, 1), (32, 4, 1), 1024)
    driver.nodes += [(12, 1, 4096), (13, 2, 256), (14, 5, None)]
    nodes = GraphNodes(5)
    relu = nodes.read(11)
    assert relu == Node("kernel", RELU, (4, 2, 1), (32, 4, 1), 1024, "relu")
    assert str(relu) == "relu <4x2x1, 32x4x1>"
    assert nodes.read(12).grid[0] == 4096
    assert nodes.read(13) == Node("memset", grid=(256, 0, 1), block=(0, 1, 1))
    assert nodes.read(14) == Node("empty")


def test_a_stream_that_does_not_capture_has_no_nodes(driver):
    driver.status = 0
    with pytest.raises(GraphNodesError, match="isn't capturing"):
        GraphNodes(5)


def test_a_driver_that_does_not_answer_is_an_error(driver):
    nodes = GraphNodes(5)
    driver.cuGraphGetNodes = lambda *_: 901
    with pytest.raises(GraphNodesError, match="cuGraphGetNodes failed with CUDA error 901"):
        nodes.new()


def test_without_a_driver_it_is_not_possible(monkeypatch):
    def absent(name):
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(NotPossibleError, match=r"libcuda\.so\.1: no such file"):
        GraphNodes(5)


def call(op):
    return Call(None, (op, "f16[4]", "m", False), True, True, frozenset(), frozenset(), frozenset(), True)


STRUCTURE = Structure((call("aten.mm"), call("aten.relu"), call("aten.mm")), frozenset())


def capture(driver, launches):
    """A capture of (place, kernels) in order."""
    driver.nodes = []
    nodes = CapturedNodes(GraphNodes(5))
    handle = 100
    for place, kernels in launches:
        nodes.observe(None)
        for function, grid in kernels:
            driver.kernel(handle, function, grid)
            handle += 1
        if place is not None:
            nodes.observe(place)
    nodes.read()
    return nodes


MM, ACT = (GEMM, (8, 1, 1)), (RELU, (4, 1, 1))
REFERENCE = [(0, [MM, MM]), (1, [ACT]), (None, [ACT]), (2, [MM])]


def test_nodes_belong_to_the_call_that_made_them(driver):
    nodes = capture(driver, REFERENCE)
    assert [place for place, _ in nodes.sequence] == [0, 0, 1, None, 2]
    assert nodes.places() == [0, 1, 2]
    assert [node.name for node in nodes.of(0)] == ["gemm", "gemm"]
    assert [node.name for node in nodes.of(None)] == ["relu"]


def test_a_variant_with_its_changes_alone_passes(driver):
    reference = capture(driver, REFERENCE)
    check_same(reference, capture(driver, [(None, [node]) for _, nodes in REFERENCE for node in nodes]), "it")
    check_changed(reference, capture(driver, REFERENCE), {}, STRUCTURE)
    check_changed(reference, capture(driver, [(1, [ACT]), (None, [ACT]), (2, [MM])]), {0: 0}, STRUCTURE)
    twice = [(0, [MM, MM, MM, MM]), (1, [ACT]), (None, [ACT]), (2, [MM, MM, MM])]
    check_changed(reference, capture(driver, twice), {0: 2, 2: 3}, STRUCTURE)


@pytest.mark.parametrize(
    ("launches", "text"),
    [
        ([(0, [MM]), *REFERENCE[1:]], r"in aten\.mm f16\[4\] in m: 1 for 2 in the untouched step"),
        ([(0, [MM, ACT]), *REFERENCE[1:]], r"kernel 1 is relu <4x1x1, .*>, in the untouched step gemm <8x1x1"),
        ([(0, [MM, (GEMM, (9, 1, 1))]), *REFERENCE[1:]], r"kernel 1 is gemm <9x1x1"),
        ([*REFERENCE[:2], *REFERENCE[3:]], "what no operator launches: 0 for 1"),
        ([*REFERENCE, (None, [MM])], "what no operator launches: 2 for 1"),
    ],
)
def test_a_variant_with_another_kernel_is_found(driver, launches, text):
    reference = capture(driver, REFERENCE)
    with pytest.raises(JouletraceError, match=text):
        check_changed(reference, capture(driver, launches), {}, STRUCTURE)
    with pytest.raises(JouletraceError, match="other kernels in it"):
        check_same(reference, capture(driver, launches), "it")


def test_nodes_are_equal_only_if_they_launch_the_same_in_the_same_way():
    node = Node("kernel", GEMM, (8, 1, 1), (128, 1, 1), 0, "gemm")
    assert node == replace(node)
    for change in ({"function": RELU}, {"grid": (9, 1, 1)}, {"block": (64, 1, 1)}, {"shared_bytes": 8}):
        assert node != replace(node, **change)
