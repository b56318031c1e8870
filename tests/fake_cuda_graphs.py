"""A CUDA driver whose graphs are kept, copied and run in Python; structures are read by the offsets of ``cuda.h``."""

import ctypes
import struct
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

import fake_capture
from jouletrace.steps import pacing
from jouletrace.steps.cuda import compiled_calls, node_copies
from jouletrace.steps.cuda.graph_nodes import Node

KINDS = {"kernel": 0, "memcpy": 1, "memset": 2, "empty": 5}
_SIZES = {"kernel": 72, "memcpy": 200, "memset": 40}
_CONTEXT = 0xC0


@dataclass
class FakeNode:
    """A node: its parameters are the bytes of its C structure, its attributes a dictionary."""

    kind: str
    params: bytes = b""
    attributes: dict = field(default_factory=dict)

    @property
    def arguments(self):
        """What ``kernelParams`` points to, of a kernel."""
        return struct.unpack_from("<Q", self.params, 40)[0]


@dataclass
class FakeGraph:
    """Nodes by handle, edges with their data; ``origin`` says which node a cloned one was."""

    nodes: dict = field(default_factory=dict)
    edges: dict = field(default_factory=dict)
    origin: dict = field(default_factory=dict)

    def order(self):
        """Handles as they may run: each after all that it waits for."""
        left, done = list(self.nodes), []
        while left:
            ready = next(node for node in left if all(a in done for a, b in self.edges if b == node))
            left.remove(ready)
            done.append(ready)
        return done


def kernel(function, grid=(1, 1, 1), block=(32, 1, 1), shared=0, arguments=0):
    """Bytes of CUDA_KERNEL_NODE_PARAMS_v2."""
    return struct.pack("<Q3I3II4xQQQQ", function, *grid, *block, shared, arguments, 0, 0, _CONTEXT)


def _at(kind, argument):
    return ctypes.cast(argument, ctypes.POINTER(kind))


def _array(kind, argument, length):
    return list(_at(kind, argument)[:length]) if length else []


class FakeCuda:
    """Stands in for ``libcuda``.

    Attributes:
        graphs: Those that are alive, by handle.
        execs: Instantiated ones, by handle.
        fail: Error code by name of a function that is to fail.
        run: What the kernel with these ``kernelParams`` does.
        launched: ``kernelParams`` of each kernel that ran.
    """

    def __init__(self):
        self.graphs, self.execs, self.fail, self.run, self.names = {}, {}, {}, {}, {}
        self.launched = []
        self._handles = count(0x100, 0x10)

    def __getattribute__(self, name):
        if name.startswith("cu") and name in object.__getattribute__(self, "fail"):
            return lambda *_: self.fail[name]
        return object.__getattribute__(self, name)

    def graph(self, nodes=(), edges=()):
        """Make a graph of ``FakeNode``s; edges are (from, to) or (from, to, data) by place. Returns its handle."""
        handle, made = next(self._handles), FakeGraph()
        handles = [next(self._handles) for _ in nodes]
        made.nodes = dict(zip(handles, nodes, strict=True))
        made.edges = {(handles[a], handles[b]): bytes(*data) if not data else data[0] for a, b, *data in edges}
        made.edges = {edge: data or bytes(8) for edge, data in made.edges.items()}
        self.graphs[handle] = made
        return handle

    def cuCtxGetCurrent(self, out):
        _at(ctypes.c_void_p, out)[0] = _CONTEXT
        return 0

    def cuGetErrorString(self, code, out):
        _at(ctypes.c_char_p, out)[0] = {801: b"operation not supported"}.get(code.value, b"")
        return 0

    def cuFuncGetName(self, out, function):
        _at(ctypes.c_char_p, out)[0] = self.names.get(function.value, "").encode()
        return 0

    def cuGraphCreate(self, out, flags):
        assert flags.value == 0
        _at(ctypes.c_void_p, out)[0] = self.graph()
        return 0

    def cuGraphClone(self, out, graph):
        old, handle, new = self.graphs[graph.value], next(self._handles), FakeGraph()
        for node, what in old.nodes.items():
            new.origin[node] = at = next(self._handles)
            new.nodes[at] = FakeNode(what.kind, what.params, dict(what.attributes))
        new.edges = {(new.origin[a], new.origin[b]): data for (a, b), data in old.edges.items()}
        self.graphs[handle] = new
        _at(ctypes.c_void_p, out)[0] = handle
        return 0

    def cuGraphDestroy(self, graph):
        del self.graphs[graph.value]
        return 0

    def cuGraphNodeFindInClone(self, out, node, graph):
        _at(ctypes.c_void_p, out)[0] = self.graphs[graph.value].origin[node.value]
        return 0

    def cuGraphGetNodes(self, graph, out, number):
        nodes = self.graphs[graph.value].nodes
        _at(ctypes.c_size_t, number)[0] = len(nodes)
        if out is not None:
            for i, handle in enumerate(nodes):
                _at(ctypes.c_uint64, out)[i] = handle
        return 0

    def cuGraphNodeGetType(self, node, kind):
        _at(ctypes.c_int, kind)[0] = KINDS[self._node(node.value).kind]
        return 0

    def cuGraphGetEdges_v2(self, graph, before, after, data, number):
        edges = self.graphs[graph.value].edges
        _at(ctypes.c_size_t, number)[0] = len(edges)
        if before is not None:
            for i, ((a, b), bits) in enumerate(edges.items()):
                _at(ctypes.c_uint64, before)[i], _at(ctypes.c_uint64, after)[i] = a, b
                ctypes.memmove(data.value + 8 * i, bits, 8)
        return 0

    def cuGraphAddDependencies_v2(self, graph, before, after, data, number):
        edges = self.graphs[graph.value].edges
        for edge, bits in self._edges(before, after, data, number):
            assert edge not in edges, "an edge is added twice"
            edges[edge] = bits
        return 0

    def cuGraphRemoveDependencies_v2(self, graph, before, after, data, number):
        edges = self.graphs[graph.value].edges
        for edge, bits in self._edges(before, after, data, number):
            assert edges.pop(edge) == bits, "an edge is removed by its data"
        return 0

    def cuGraphKernelNodeCopyAttributes(self, target, source):
        self._node(target.value).attributes = dict(self._node(source.value).attributes)
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node, out):
        return self._get("kernel", node, out)

    def cuGraphMemcpyNodeGetParams(self, node, out):
        return self._get("memcpy", node, out)

    def cuGraphMemsetNodeGetParams(self, node, out):
        return self._get("memset", node, out)

    def cuGraphAddKernelNode_v2(self, out, graph, after, number, params):
        return self._add("kernel", out, graph, after, number, params)

    def cuGraphAddMemcpyNode(self, out, graph, after, number, params, context):
        assert context.value == _CONTEXT
        return self._add("memcpy", out, graph, after, number, params)

    def cuGraphAddMemsetNode(self, out, graph, after, number, params, context):
        assert context.value == _CONTEXT
        return self._add("memset", out, graph, after, number, params)

    def cuGraphInstantiateWithFlags(self, out, graph, flags):
        assert flags.value == 1
        made = self.graphs[graph.value]
        handle = next(self._handles)
        self.execs[handle] = [made.nodes[node] for node in made.order()]
        _at(ctypes.c_void_p, out)[0] = handle
        return 0

    def cuGraphLaunch(self, made, stream):
        self.start(self.execs[made.value])
        return 0

    def cuGraphExecDestroy(self, made):
        del self.execs[made.value]
        return 0

    def start(self, nodes):
        """Run nodes one after the other."""
        with torch.inference_mode():
            for node in nodes:
                if node.kind == "kernel":
                    self.launched.append(node.arguments)
                    self.run.get(node.arguments, lambda: None)()

    def _node(self, handle):
        return next(graph.nodes[handle] for graph in self.graphs.values() if handle in graph.nodes)

    def _get(self, kind, node, out):
        found = self._node(node.value)
        assert found.kind == kind
        ctypes.memmove(out, found.params.ljust(_SIZES[kind], b"\0"), _SIZES[kind])
        return 0

    def _add(self, kind, out, graph, after, number, params):
        assert (after, number.value) == (None, 0)
        raw = ctypes.string_at(ctypes.cast(params, ctypes.c_void_p), _SIZES[kind])
        handle = next(self._handles)
        self.graphs[graph.value].nodes[handle] = FakeNode(kind, raw)
        _at(ctypes.c_void_p, out)[0] = handle
        return 0

    def _edges(self, before, after, data, number):
        ends = zip(*(_array(ctypes.c_uint64, end, number.value) for end in (before, after)), strict=True)
        return [(edge, ctypes.string_at(data.value + 8 * i, 8)) for i, edge in enumerate(ends)]


class Generated:
    """A kernel of compiled code: torch sees no operator when it is launched."""

    def __init__(self, name, compute):
        self.name, self._compute = name, compute

    def __call__(self, out, *inputs):
        """Write what it computes over ``out``."""
        self._launch(out, *inputs)
        tape = fake_capture.FakeNodes.tape
        if tape is not None:
            tape.launches.append((self, (out, *inputs), {}, None))

    def _launch(self, out, *inputs):
        with _disable_current_modes():
            out.copy_(self._compute(*inputs))


def install(monkeypatch):
    """Put fakes where torch and the driver are: captures of the CPU, which the returned driver can copy and run."""
    fake_capture.install(monkeypatch)
    cuda = FakeCuda()

    class Captured:
        """``torch.cuda.CUDAGraph``."""

        tape = None

        def __init__(self, keep_graph=False):
            self._keeps, self._graph = keep_graph, 0

        def raw_cuda_graph(self):
            assert self._keeps
            if not self._graph:
                nodes = [_node(cuda, launch) for launch in self.tape.launches]
                self._graph = cuda.graph(nodes, [(i, i + 1) for i in range(len(nodes) - 1)])
            return self._graph

        def instantiate(self):
            assert self._keeps

        def replay(self):
            cuda.start(cuda.graphs[self.raw_cuda_graph()].nodes.values())

        def reset(self):
            cuda.graphs.pop(self._graph, None)

    class Nodes:
        """``GraphNodes`` of the capture that is under way."""

        def __init__(self, stream):
            assert stream == 5
            self._seen = 0

        def new(self):
            launches = fake_capture.FakeNodes.tape.launches
            before, self._seen = self._seen, len(launches)
            return np.arange(before, self._seen, dtype=np.uint64)

        def read(self, handle):
            name, function = _kernel(cuda, fake_capture.FakeNodes.tape.launches[handle])
            return Node("kernel", function, (8, 1, 1), (32, 1, 1), 0, name)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Captured)
    monkeypatch.setattr(compiled_calls, "GraphNodes", Nodes)
    monkeypatch.setattr(pacing, "cycles_per_second", lambda _device: 2e9)
    monkeypatch.setattr(node_copies, "load_driver", lambda _functions: cuda)
    return cuda


def _node(cuda, launch):
    func, args, kwargs, out = launch
    _, function = _kernel(cuda, launch)
    number = len(cuda.run) + 1

    def run():
        made = func._launch(*args) if isinstance(func, Generated) else func(*args, **kwargs)
        if isinstance(out, torch.Tensor) and made is not out:
            out.copy_(made)

    cuda.run[number] = run
    return FakeNode("kernel", kernel(function, (8, 1, 1), arguments=number), {"cluster": number})


def _kernel(cuda, launch):
    func, *_ = launch
    name = func.name if isinstance(func, Generated) else func.overloadpacket.__name__
    function = next((known for known, other in cuda.names.items() if other == name), 0x1000 + len(cuda.names))
    cuda.names[function] = name
    return name, function


@contextmanager
def nothing_left(cuda):
    """Every graph made inside is freed at its end."""
    graphs, execs = set(cuda.graphs), set(cuda.execs)
    yield
    assert set(cuda.graphs) == graphs
    assert set(cuda.execs) == execs
