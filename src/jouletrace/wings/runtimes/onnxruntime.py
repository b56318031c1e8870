"""onnxruntime: on the CPU, or on an NVIDIA GPU where its CUDA provider is installed."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.execution.steps.base import Node, NodeTimes
from jouletrace.run.scratch import Scratch
from jouletrace.wings.runtimes.engine import Feed, TensorSpec, require

_HANDED_ON = {"Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Transpose"}


def vocabularies(path: Path) -> dict[str, int]:
    """Rows by input, as far as the graph states them; empty where ``onnx`` isn't installed or can't read it."""
    try:
        import onnx

        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception:  # the runtime that runs the model reports what is wrong with it
        return {}
    rows = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    origin = {value.name: value.name for value in graph.input}
    found: dict[str, int] = {}
    for node in graph.node:  # in an order in which they can be executed
        if node.op_type in _HANDED_ON and node.input and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        elif node.op_type == "Gather" and node.input[0] in rows and node.input[1] in origin:
            name = origin[node.input[1]]
            found[name] = min(rows[node.input[0]], found.get(name, rows[node.input[0]]))
    return found


CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"

_FATAL_ONLY = 4
_TYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": "bool",
}
_KERNEL = "_kernel_time"


class OnnxRuntime:
    """An ``.onnx`` file in onnxruntime; see ``Engine``.

    ``threads`` are those of an operator, None for onnxruntime's own choice; ``cuda`` is the GPU's index in CUDA's
    order, None for the CPU.

    Raises:
        BadInputError: If the file can't be loaded.
        NotPossibleError: If onnxruntime, or its CUDA provider, isn't installed.
    """

    name = "onnxruntime"

    def __init__(self, path: Path, *, threads: int | None = None, streams: int = 1, cuda: int | None = None) -> None:
        self._path, self._threads, self.streams, self._cuda = path, threads, streams, cuda
        self._ort = require("onnxruntime")
        if cuda is not None and CUDA not in self._ort.get_available_providers():
            raise NotPossibleError(
                "this onnxruntime has no CUDA provider: pip install onnxruntime-gpu, or use --device cpu"
            )
        self._session = self._open()
        if cuda is not None and CUDA not in self._session.get_providers():  # it silently falls back to the CPU
            raise NotPossibleError("onnxruntime's CUDA provider doesn't start: are its CUDA and cuDNN installed?")
        self._names = [output.name for output in self._session.get_outputs()]
        self._feeds: list[dict[str, NDArray[Any]]] = []
        found = vocabularies(path)
        self.inputs = [
            TensorSpec(one.name, _dtype(one.type), tuple(_length(d) for d in one.shape), found.get(one.name))
            for one in self._session.get_inputs()
        ]

    def bind(self, feeds: Sequence[Feed]) -> None:
        """See ``Engine.bind``."""
        self._feeds = [dict(feed) for feed in feeds]
        for number in range(len(feeds)):
            self.results(number)

    def infer(self, stream: int, number: int) -> None:
        """See ``Engine.infer``."""
        self._session.run(self._names, self._feeds[number % len(self._feeds)])

    def results(self, number: int) -> list[NDArray[Any]]:
        """See ``Engine.results``."""
        try:
            found: list[NDArray[Any]] = self._session.run(self._names, self._feeds[number % len(self._feeds)])
        except Exception as error:  # onnxruntime's errors have no common type
            raise BadInputError(f"{self._path}: onnxruntime can't run it: {_line(error)}") from error
        return found

    def node_times(self, n: int) -> NodeTimes:
        """See ``Engine.node_times``; nodes are those of the optimised graph."""
        with Scratch() as scratch:
            session = self._open(profile=scratch.path / "nodes")
            for number in range(2):  # the first runs plan their memory
                session.run(self._names, self._feeds[number % len(self._feeds)])
            anchor_ns = time.time_ns()
            for number in range(n):
                session.run(self._names, self._feeds[number % len(self._feeds)])
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8", errors="replace"))
        return read_profile(events, n, anchor_ns)

    def describe(self) -> dict[str, Any]:
        """See ``Engine.describe``."""
        return {
            "runtime": "onnxruntime",
            "version": self._ort.__version__,
            "providers": self._session.get_providers(),
            "threads": self._threads or "onnxruntime's choice",
            "streams": self.streams,
            "latency": "wall time of each call"
            + (", copies to and from the GPU included" if self._cuda is not None else ""),
        }

    def close(self) -> None:
        """See ``Engine.close``."""
        del self._session

    def _open(self, profile: Path | None = None) -> Any:
        options = self._ort.SessionOptions()
        options.log_severity_level = _FATAL_ONLY  # failures are raised anyway
        if self._threads is not None:
            options.intra_op_num_threads = self._threads
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        on_gpu = [(CUDA, {"device_id": self._cuda})] if self._cuda is not None else []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about missing providers, which are checked afterwards
                return self._ort.InferenceSession(str(self._path), options, providers=[*on_gpu, CPU])
        except Exception as error:  # as above
            raise BadInputError(f"{self._path}: onnxruntime can't load it: {_line(error)}") from error


def read_profile(events: Sequence[Any], n: int, anchor_ns: int) -> NodeTimes:
    """The last ``n`` runs of a session's profile, the first of which began at ``anchor_ns``.

    Raises:
        BadInputError: If it holds fewer runs.
    """
    timed = [event for event in events if isinstance(event, dict) and "dur" in event]
    runs = sorted((event for event in timed if event.get("name") == "model_run"), key=lambda event: event["ts"])[-n:]
    if len(runs) < n:
        raise BadInputError(f"onnxruntime's profile holds {len(runs)} runs of the model, not {n}")
    began = np.array([event["ts"] for event in runs], np.float64)
    ended = began + np.array([event["dur"] for event in runs], np.float64)
    nodes: dict[tuple[str, str], int] = {}
    known: list[Node] = []
    rows: list[tuple[int, int, float, float]] = []
    for event in timed:
        name, args = str(event["name"]), event.get("args") or {}
        where = int(np.searchsorted(began, event["ts"], side="right")) - 1
        if event.get("cat") != "Node" or not name.endswith(_KERNEL) or where < 0 or event["ts"] > ended[where]:
            continue
        node = Node(name.removesuffix(_KERNEL), str(args.get("op_name", "")), _shapes(args.get("input_type_shape")))
        key = node.name, node.op
        if key not in nodes:
            nodes[key] = len(known)
            known.append(node)
        rows.append((nodes[key], where, event["ts"], event["ts"] + event["dur"]))
    columns = np.array(rows, np.float64).reshape(-1, 4)

    def stamps(us: Floats) -> Ints:
        found: Ints = np.round((us - began[0]) * 1e3).astype(np.int64) + anchor_ns
        return found

    return NodeTimes(
        tuple(known),
        columns[:, 0].astype(np.int64),
        columns[:, 1].astype(np.int64),
        stamps(columns[:, 2]),
        stamps(columns[:, 3]),
        stamps(began),
        stamps(ended),
        starts_known=True,
    )


def _shapes(found: Any) -> str:
    """``[{"float": [1, 64]}, ...]`` as "float[1,64] ..."."""
    tensors = found if isinstance(found, list) else []
    return " ".join(
        f"{kind}[{','.join(map(str, shape))}]"
        for tensor in tensors
        if isinstance(tensor, dict)
        for kind, shape in tensor.items()
    )


def _dtype(text: str) -> np.dtype[Any] | None:
    found = re.fullmatch(r"tensor\((\w+)\)", text)
    name = _TYPES.get(found[1]) if found else None
    return np.dtype(name) if name else None


def _length(length: object) -> int | None:
    return length if isinstance(length, int) and length >= 0 else None


def _line(error: Exception) -> str:
    """The text without its leading code, which adds no information."""
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", " ".join(str(error).split()))[:400]
