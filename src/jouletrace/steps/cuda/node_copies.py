"""Graphs made of a captured one's nodes, some of them copied: asked of the driver by ctypes.

A copy is a node of its own with the original's kernel, launch configuration, arguments and attributes. The graph is
cloned and instantiated afresh; the captured one stays as it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import JouletraceError, NotPossibleError
from jouletrace.steps.cuda.copy_plan import PAUSE, CopyPlan, Edge
from jouletrace.steps.cuda.graph_nodes import (
    CopyParams,
    GraphNodesError,
    KernelParams,
    Node,
    NodeReader,
    SetParams,
    load_driver,
)

_FUNCTIONS = (
    "cuCtxGetCurrent",
    "cuGraphAddDependencies_v2",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddMemcpyNode",
    "cuGraphAddMemsetNode",
    "cuGraphClone",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetEdges_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphKernelNodeCopyAttributes",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphLaunch",
    "cuGraphMemcpyNodeGetParams",
    "cuGraphMemsetNodeGetParams",
    "cuGraphNodeFindInClone",
    "cuGraphRemoveDependencies_v2",
)
"""Those that take edges with data came with CUDA 12.3."""

_AUTO_FREE = 1
"""CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, as torch instantiates its graphs."""

_EDGE_BYTES = 8
"""Size of CUgraphEdgeData."""

COPIED = ("kernel", "memcpy", "memset")
"""Kinds of nodes that can be copied."""

Handles = NDArray[np.uint64]


class GraphCopyError(JouletraceError):
    """The driver can't make, or launch, a graph; its text says which call failed, and why."""


class Driver:
    """The driver's functions on graphs; what fails is an error with the driver's own words.

    Raises:
        NotPossibleError: If there is no driver, or it is older than CUDA 12.3.
    """

    def __init__(self) -> None:
        try:
            self.library = load_driver(_FUNCTIONS)
        except NotPossibleError as error:
            raise NotPossibleError(f"--mode compile with parts: {error}") from None

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            GraphCopyError: If it fails.
        """
        result = int(getattr(self.library, function)(*arguments))
        if result:
            raise GraphCopyError(f"{function} failed with CUDA error {result}{self._words(result)}")

    def made(self, function: str, *arguments: Any) -> int:
        """Call a function that writes a handle through its first argument; returns that."""
        handle = ctypes.c_void_p()
        self.call(function, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def _words(self, result: int) -> str:
        words = ctypes.c_char_p()
        ask = getattr(self.library, "cuGetErrorString", None)
        if ask is None or ask(ctypes.c_int(result), ctypes.byref(words)) or not words.value:
            return ""
        return f" ({words.value.decode(errors='replace')})"


class CapturedGraph:
    """A captured graph, looked at once.

    Args:
        driver: The driver.
        graph: Handle of the graph, which belongs to whoever captured it and must outlive this.

    Attributes:
        graph: Handle of the graph.
        handles: Handles of its nodes, in the order of their capture.
        nodes: What they launch.
        edges: Its edges, nodes by their place.
    """

    def __init__(self, driver: Driver, graph: int) -> None:
        self.driver = driver
        self.graph = graph
        self.handles: list[int] = [int(handle) for handle in NodeReader(driver.library, graph).new()]
        self.nodes: list[Node] = _read(driver, graph, self.handles)
        self.edges: list[Edge] = _edges(driver, graph, self.handles)


class GraphCopy:
    """A graph of its own: a captured one's nodes, or none of them, with what a plan adds.

    Args:
        captured: What is copied.
        plan: Nodes to add, and all edges. Without the captured nodes, of the added ones alone.
        pause: A graph of one kernel, which waits; for plans with pauses.
        empty: Whether the captured nodes are left out.

    Raises:
        GraphCopyError: If the driver can't; nothing is left behind.
    """

    def __init__(
        self, captured: CapturedGraph, plan: CopyPlan, pause: CapturedGraph | None = None, *, empty: bool = False
    ) -> None:
        self._captured, self._plan, self._pause, self._empty = captured, plan, pause, empty
        self._driver = driver = captured.driver
        self._exec = 0
        if empty:
            self._graph = driver.made("cuGraphCreate", ctypes.c_uint(0))
        else:
            self._graph = driver.made("cuGraphClone", ctypes.c_void_p(captured.graph))
        try:
            self._handles = [] if empty else [self._in_clone(handle) for handle in captured.handles]
            self._handles += [self._add(source) for source in plan.sources]
            before = set() if empty else set(captured.edges)
            self._change_edges("cuGraphRemoveDependencies_v2", before - plan.edges)
            self._change_edges("cuGraphAddDependencies_v2", plan.edges - before)
            self._exec = driver.made(
                "cuGraphInstantiateWithFlags", ctypes.c_void_p(self._graph), ctypes.c_ulonglong(_AUTO_FREE)
            )
        except BaseException:
            self.close()
            raise

    def launch(self, stream: int) -> None:
        """Enqueue it on a stream, by its ``cuda_stream``."""
        self._driver.call("cuGraphLaunch", ctypes.c_void_p(self._exec), ctypes.c_void_p(stream))

    def check(self) -> None:
        """Read the graph back from the driver and hold it against the plan.

        Raises:
            JouletraceError: If it has other nodes or edges; names the first node that differs.
        """
        sources = [*([] if self._empty else range(len(self._captured.nodes))), *self._plan.sources]
        count = len(NodeReader(self._driver.library, self._graph).new())
        if count != len(sources):
            raise JouletraceError(f"a copied graph has {count} nodes, and {len(sources)} were meant")
        there = _read(self._driver, self._graph, self._handles)
        for place, (found, wanted) in enumerate(zip(there, map(self._node, sources), strict=True)):
            if found != wanted:
                raise JouletraceError(f"node {place} of a copied graph is {found}, in the untouched step {wanted}")
        if frozenset(_edges(self._driver, self._graph, self._handles)) != self._plan.edges:
            raise JouletraceError("a copied graph runs its nodes in another order than was meant")

    def close(self) -> None:
        """Free the graph; nothing may be running it."""
        if self._exec:
            handle, self._exec = self._exec, 0
            self._driver.call("cuGraphExecDestroy", ctypes.c_void_p(handle))
        if self._graph:
            handle, self._graph = self._graph, 0
            self._driver.call("cuGraphDestroy", ctypes.c_void_p(handle))

    def _in_clone(self, handle: int) -> int:
        return self._driver.made("cuGraphNodeFindInClone", ctypes.c_void_p(handle), ctypes.c_void_p(self._graph))

    def _node(self, source: int) -> Node:
        return self._spin.nodes[0] if source == PAUSE else self._captured.nodes[source]

    @property
    def _spin(self) -> CapturedGraph:
        assert self._pause is not None, "a plan with pauses and none to put in"
        return self._pause

    def _add(self, source: int) -> int:
        """Add a copy of a node, with no edges yet."""
        kind = self._node(source).kind
        handle = self._spin.handles[0] if source == PAUSE else self._captured.handles[source]
        alone = (ctypes.c_void_p(self._graph), None, ctypes.c_size_t(0))
        if kind == "kernel":
            params = KernelParams()
            self._driver.call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(handle), ctypes.byref(params))
            made = self._driver.made("cuGraphAddKernelNode_v2", *alone, ctypes.byref(params))
            # Cluster sizes, priorities and the like are attributes, and no parameters.
            self._driver.call("cuGraphKernelNodeCopyAttributes", ctypes.c_void_p(made), ctypes.c_void_p(handle))
            return made
        moved: CopyParams | SetParams
        name, moved = ("Memcpy", CopyParams()) if kind == "memcpy" else ("Memset", SetParams())
        context = ctypes.c_void_p(self._driver.made("cuCtxGetCurrent"))
        self._driver.call(f"cuGraph{name}NodeGetParams", ctypes.c_void_p(handle), ctypes.byref(moved))
        return self._driver.made(f"cuGraphAdd{name}Node", *alone, ctypes.byref(moved), context)

    def _change_edges(self, function: str, edges: Iterable[Edge]) -> None:
        ordered = sorted(edges)
        if not ordered:
            return
        before = np.array([self._handles[place] for place, _, _ in ordered], np.uint64)
        after = np.array([self._handles[place] for _, place, _ in ordered], np.uint64)
        data = np.frombuffer(b"".join(data for _, _, data in ordered), np.uint8).copy()
        graph, count = ctypes.c_void_p(self._graph), ctypes.c_size_t(len(ordered))
        self._driver.call(function, graph, _address(before), _address(after), _address(data), count)


def _read(driver: Driver, graph: int, handles: Sequence[int]) -> list[Node]:
    reader = NodeReader(driver.library, graph)
    try:
        return [reader.read(handle) for handle in handles]
    except GraphNodesError as error:
        raise GraphCopyError(str(error)) from None


def _edges(driver: Driver, graph: int, handles: Sequence[int]) -> list[Edge]:
    """The edges of a graph, nodes by their place in ``handles``."""
    count = ctypes.c_size_t()
    driver.call("cuGraphGetEdges_v2", ctypes.c_void_p(graph), None, None, None, ctypes.byref(count))
    if not count.value:
        return []
    before, after = (np.empty(count.value, np.uint64) for _ in range(2))
    data = np.zeros((count.value, _EDGE_BYTES), np.uint8)
    driver.call(
        "cuGraphGetEdges_v2",
        ctypes.c_void_p(graph),
        _address(before),
        _address(after),
        _address(data),
        ctypes.byref(count),
    )
    places = {handle: place for place, handle in enumerate(handles)}
    return [
        (places[a], places[b], row.tobytes()) for a, b, row in zip(before.tolist(), after.tolist(), data, strict=True)
    ]


def _address(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
