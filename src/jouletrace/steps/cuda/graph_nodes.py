"""The nodes of a CUDA graph: which kernels, launched how, and while it is captured by which operator.

Asked of the driver by ctypes, during the capture itself too, which allows everything on its graph but
taking nodes away. No tracing is needed, and the graph runs as it would have.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import NotPossibleError

KERNEL, MEMCPY, MEMSET = 0, 1, 2
_KINDS = {0: "kernel", 1: "memcpy", 2: "memset", 3: "host", 4: "graph", 5: "empty", 6: "wait", 7: "event"}
_CAPTURING = 1
_FUNCTIONS = (
    "cuGraphGetNodes",
    "cuGraphNodeGetType",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphMemcpyNodeGetParams",
    "cuGraphMemsetNodeGetParams",
)


class KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of NVIDIA's public header ``cuda.h``."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class _CopyEnd(ctypes.Structure):
    """One half of CUDA_MEMCPY3D of ``cuda.h``: where a copy reads, or writes."""

    _fields_ = (
        ("place", ctypes.c_size_t * 4),
        ("memory_type", ctypes.c_int),
        ("pointers", ctypes.c_void_p * 4),
        ("pitch", ctypes.c_size_t * 2),
    )


class CopyParams(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = (("source", _CopyEnd), ("target", _CopyEnd), ("extent", ctypes.c_size_t * 3))


class SetParams(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS of ``cuda.h``."""

    _fields_ = (
        ("target", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element_bytes", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a CUDA graph, without its addresses: equal ones launch the same in the same way.

    Attributes:
        kind: "kernel", "memcpy", "memset" or another.
        function: The driver's handle of the kernel, valid in this process; 0 if it is none.
        grid: Blocks along x, y and z; of a copy, bytes, rows and planes.
        block: Threads of a block along x, y and z; of a memset, bytes of an element, 1 and 1.
        shared_bytes: Dynamic shared memory of a block.
        name: Mangled name of the kernel; "" where the driver doesn't say.
    """

    kind: str
    function: int = 0
    grid: tuple[int, ...] = (0, 0, 0)
    block: tuple[int, ...] = (0, 0, 0)
    shared_bytes: int = 0
    name: str = ""

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.grid))
        return f"{self.name or self.kind} <{sizes}, {'x'.join(map(str, self.block))}>"


class GraphNodesError(RuntimeError):
    """The driver doesn't answer; most likely since the capture has become invalid."""


class NodeReader:
    """Reads the nodes of a graph.

    Args:
        driver: The driver's library, as ``load_driver`` gives it.
        graph: The driver's handle of the graph.
    """

    def __init__(self, driver: Any, graph: int) -> None:
        self._driver = driver
        self._graph = ctypes.c_void_p(graph)
        self._handles = np.empty(0, np.uint64)

    def new(self) -> NDArray[np.uint64]:
        """Handles of the nodes added since the last call, in the order of their making."""
        count = ctypes.c_size_t()
        self._call("cuGraphGetNodes", self._graph, None, ctypes.byref(count))
        before = self._handles
        if count.value == len(before):
            return before[:0]
        handles = np.empty(count.value, np.uint64)
        self._call("cuGraphGetNodes", self._graph, ctypes.c_void_p(handles.ctypes.data), ctypes.byref(count))
        self._handles = handles
        # The driver lists nodes as they were made, which its documentation doesn't promise.
        if np.array_equal(handles[: len(before)], before):
            return handles[len(before) :]
        return handles[~np.isin(handles, before)]

    def read(self, handle: int) -> Node:
        """What a node launches."""
        kind = ctypes.c_int()
        self._call("cuGraphNodeGetType", ctypes.c_void_p(handle), ctypes.byref(kind))
        if kind.value == KERNEL:
            return self._kernel(handle)
        if kind.value == MEMCPY:
            copy = CopyParams()
            self._call("cuGraphMemcpyNodeGetParams", ctypes.c_void_p(handle), ctypes.byref(copy))
            return Node("memcpy", grid=tuple(copy.extent))
        if kind.value == MEMSET:
            fill = SetParams()
            self._call("cuGraphMemsetNodeGetParams", ctypes.c_void_p(handle), ctypes.byref(fill))
            return Node("memset", grid=(fill.width, fill.height, 1), block=(fill.element_bytes, 1, 1))
        return Node(_KINDS.get(kind.value, f"kind {kind.value}"))

    def _kernel(self, handle: int) -> Node:
        params = KernelParams()
        self._call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(handle), ctypes.byref(params))
        function = int(params.function or params.kernel or 0)
        call = "cuFuncGetName" if params.function else "cuKernelGetName"
        return Node(
            "kernel", function, tuple(params.grid), tuple(params.block), int(params.shared), self._name(call, function)
        )

    def _name(self, call: str, function: int) -> str:
        name = ctypes.c_char_p()
        ask = getattr(self._driver, call, None)  # since CUDA 12.3
        if ask is None or not function or ask(ctypes.byref(name), ctypes.c_void_p(function)) or not name.value:
            return ""
        return name.value.decode(errors="replace")

    def _call(self, function: str, *arguments: Any) -> None:
        result = int(getattr(self._driver, function)(*arguments))
        if result:
            raise GraphNodesError(f"{function} failed with CUDA error {result}")


class GraphNodes(NodeReader):
    """Follows the capture of one graph, on whichever thread: made inside of it, to be read inside too.

    Args:
        stream: ``cuda_stream`` of the capturing stream.

    Raises:
        NotPossibleError: If the driver is older than CUDA 12.
        GraphNodesError: If the stream doesn't capture.
    """

    def __init__(self, stream: int) -> None:
        driver = load_driver()
        status, graph, number = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        # CUDA 13 has the third version, which asks for the edges' data too; drivers keep the second.
        third = hasattr(driver, "cuStreamGetCaptureInfo_v3")
        self._driver = driver
        self._call(
            f"cuStreamGetCaptureInfo_v{3 if third else 2}",
            ctypes.c_void_p(stream),
            ctypes.byref(status),
            ctypes.byref(number),
            ctypes.byref(graph),
            *(None,) * (3 if third else 2),
        )
        if status.value != _CAPTURING or not graph.value:
            raise GraphNodesError("the stream isn't capturing")
        super().__init__(driver, graph.value)


def load_driver(functions: Sequence[str] = _FUNCTIONS) -> Any:
    """The driver's library.

    Args:
        functions: What it must have.

    Raises:
        NotPossibleError: If there is none, or it is older than CUDA 12.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NotPossibleError(f"graph nodes: the CUDA driver's library can't be loaded: {error}") from None
    missing = [name for name in functions if not hasattr(driver, name)]
    if missing:
        raise NotPossibleError(f"graph nodes: the CUDA driver has no {missing[0]}; CUDA 12 or later is needed")
    return driver
