"""OpenVINO on the CPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.execution.steps.base import Node, NodeTimes
from jouletrace.wings.runtimes.engine import Feed, TensorSpec, require

_DEVICE = "CPU"
_EXECUTED = "EXECUTED"
_FIRST = 2
"""Iterations that are excluded from the mean."""


class OpenVino:
    """An ``.onnx`` or ``.xml`` file in OpenVINO; see ``Engine``.

    It computes in fp32 where the model does: by default OpenVINO uses bf16 on processors that support it. ``threads``
    are those of all streams together, None for OpenVINO's choice; with a ``hint`` ("latency", "throughput") it chooses
    the streams.

    Raises:
        BadInputError: If the file can't be read.
        NotPossibleError: If OpenVINO isn't installed.
    """

    name = "openvino"

    def __init__(self, path: Path, *, threads: int | None = None, streams: int = 1, hint: str | None = None) -> None:
        self._path, self._threads, self.streams, self._hint = path, threads, streams, hint
        self._ov = require("openvino")
        self._core = self._ov.Core()
        try:
            self._model = self._core.read_model(str(path))
        except Exception as error:  # OpenVINO's errors are RuntimeErrors of many lines
            raise BadInputError(f"{path}: OpenVINO can't read it: {last_line(error)}") from error
        self.inputs = [_spec(port) for port in self._model.inputs]
        self._compiled: Any = None
        self._requests: list[Any] = []
        self._tensors: list[list[Any]] = []

    def bind(self, feeds: Sequence[Feed]) -> None:
        """See ``Engine.bind``; open lengths of the model are fixed here."""
        names = [spec.name for spec in self.inputs]
        try:
            if any(None in spec.shape for spec in self.inputs):
                self._model.reshape(
                    {port: list(feeds[0][name].shape) for port, name in zip(self._model.inputs, names, strict=True)}
                )
            self._compiled = self._compile(self.streams, self._hint)
            if self._hint is not None:
                self.streams = int(self._compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
            self._tensors = [
                [self._ov.Tensor(np.ascontiguousarray(feed[name]), shared_memory=True) for name in names]
                for feed in feeds
            ]
            self._requests = [self._request(self._compiled) for _ in range(self.streams)]
            for number in range(len(feeds)):
                self.infer(0, number)
        except Exception as error:  # as above
            raise BadInputError(f"{self._path}: OpenVINO can't run it: {last_line(error)}") from error

    def infer(self, stream: int, number: int) -> None:
        """See ``Engine.infer``."""
        request = self._requests[stream]
        if len(self._tensors) > 1:
            self._set(request, number)
        request.infer(share_outputs=True)  # outputs are not copied then

    def results(self, number: int) -> list[NDArray[Any]]:
        """See ``Engine.results``."""
        self._set(self._requests[0], number)
        found = self._requests[0].infer()
        return [np.array(found[k]) for k in range(len(self._compiled.outputs))]

    def node_times(self, n: int) -> NodeTimes:
        """See ``Engine.node_times``: one iteration, the mean of ``n``, with its nodes in order.

        OpenVINO reports the mean time of each node since compilation, in whole microseconds, but not its start. The
        first iterations, which are slower, are removed from that mean.
        """
        request = self._request(self._compile(1, PERF_COUNT=True))
        for _ in range(_FIRST):
            request.infer(share_outputs=True)
        before = {node: _FIRST * ns for node, ns in _executed(request)}
        began_ns = time.time_ns()
        for _ in range(n):
            request.infer(share_outputs=True)
        whole_ns = (time.time_ns() - began_ns) // n
        found = _executed(request)
        taken = [max(0, ((_FIRST + n) * ns - before.get(node, 0)) // n) for node, ns in found]
        ends = began_ns + np.cumsum(np.array(taken, np.int64))
        return NodeTimes(
            nodes=tuple(node for node, _ in found),
            node=np.arange(len(found)),
            iteration=np.zeros(len(found), np.int64),
            start_ns=ends - np.array(taken, np.int64),
            end_ns=ends,
            began_ns=np.array([began_ns]),
            ended_ns=np.array([began_ns + whole_ns]),
            starts_known=False,
            mean_of=n,
        )

    def describe(self) -> dict[str, Any]:
        """See ``Engine.describe``."""
        compiled = self._compiled
        properties = (
            {}
            if compiled is None
            else {
                "threads": int(compiled.get_property("INFERENCE_NUM_THREADS")),
                "inference_precision": compiled.get_property("INFERENCE_PRECISION_HINT").to_string(),
                "hint": str(compiled.get_property("PERFORMANCE_HINT")).rpartition(".")[2].lower(),
            }
        )
        return {
            "runtime": "openvino",
            "version": self._ov.get_version(),
            "runtime_device": self._core.get_property(_DEVICE, "FULL_DEVICE_NAME"),
            **properties,
            "streams": self.streams,
            "latency": "wall time of each call",
        }

    def close(self) -> None:
        """See ``Engine.close``."""
        self._requests, self._compiled = [], None

    def _compile(self, streams: int, hint: str | None = None, **more: Any) -> Any:
        options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", **more}
        options["PERFORMANCE_HINT"] = (hint or ("latency" if streams == 1 else "throughput")).upper()
        if hint is None:  # a number of streams would override it
            options["NUM_STREAMS"] = streams
        if self._threads is not None:
            options["INFERENCE_NUM_THREADS"] = self._threads
        return self._core.compile_model(self._model, _DEVICE, options)

    def _request(self, compiled: Any) -> Any:
        request = compiled.create_infer_request()
        self._set(request, 0)
        return request

    def _set(self, request: Any, number: int) -> None:
        for place, tensor in enumerate(self._tensors[number % len(self._tensors)]):
            request.set_input_tensor(place, tensor)


def _executed(request: Any) -> list[tuple[Node, int]]:
    """Nodes that ran, in order, with their mean time in ns; others are fused into them, or optimised away."""
    return [
        (Node(one.node_name, one.node_type, one.exec_type), round(one.real_time.total_seconds() * 1e9))
        for one in request.profiling_info
        if str(one.status).rpartition(".")[2] == _EXECUTED
    ]


def _spec(port: Any) -> TensorSpec:
    shape = port.partial_shape
    lengths = tuple(d.get_length() if d.is_static else None for d in shape) if shape.rank.is_static else ()
    try:
        dtype = np.dtype(port.element_type.to_dtype())
    except Exception:  # a type that NumPy lacks
        dtype = None
    return TensorSpec(port.any_name, dtype, lengths, _vocabulary(port))


def _vocabulary(port: Any) -> int | None:
    """Rows of the table that an input indexes, followed through nodes that pass it on."""
    ports = [port]
    for _ in range(4):
        following = []
        for one in ports:
            for target in one.get_target_inputs():
                node = target.get_node()
                if node.get_type_name() == "Gather" and target.get_index() == 1:
                    table = node.input_value(0).get_partial_shape()
                    if table.rank.is_static and table[0].is_static:
                        return int(table[0].get_length())
                elif node.get_type_name() in ("Convert", "Reshape", "Unsqueeze", "Squeeze"):
                    following.append(node.output(0))
        ports = following
    return None


def last_line(error: Exception) -> str:
    """The last line of OpenVINO's message, which states the cause; earlier lines are its source positions."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:400]
