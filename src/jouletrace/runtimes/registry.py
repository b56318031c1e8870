"""From a workload and the name of a runtime to a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.run import RunWarning
from jouletrace.run.scratch import Scratch
from jouletrace.runtimes.engine import Engine, Feed
from jouletrace.runtimes.export import ExportOptions, export_onnx
from jouletrace.runtimes.feeds import batch_of, random_feeds
from jouletrace.runtimes.libraries import require
from jouletrace.runtimes.onnxruntime import CUDA, OnnxRuntime
from jouletrace.runtimes.openvino import OpenVino
from jouletrace.runtimes.signature import tensors_of
from jouletrace.runtimes.step import RuntimeStep
from jouletrace.workloads.base import Built, Workload, WorkloadOptions
from jouletrace.workloads.model_file import ModelFile
from jouletrace.workloads.options import check_options

BACKENDS = ("onnxruntime", "openvino")

_REFUSED = {"openvino": "OpenVINO runs on the CPU here: use --device cpu"}


@dataclass(frozen=True)
class Made:
    """A workload ready to run in a runtime.

    Attributes:
        built: Its facts; ``call`` returns arrays.
        step: Runs it.
        warnings: What its data make doubtful.
    """

    built: Built
    step: RuntimeStep
    warnings: list[RunWarning]


def device_for(backend: str, device: str) -> str:
    """The device that "auto" means: the CPU, unless the runtime can use the GPU.

    Raises:
        NotPossibleError: If the runtime isn't installed.
    """
    runtime = require(backend)
    if device != "auto":
        return device
    return "auto" if backend == "onnxruntime" and CUDA in runtime.get_available_providers() else "cpu"


def make(
    workload: Workload,
    options: WorkloadOptions,
    backend: str,
    *,
    cuda: int | None = None,
    threads: int | None = None,
    streams: int = 1,
) -> Made:
    """Make a workload ready in a runtime: a model file as it is, all else by way of ONNX.

    Args:
        workload: What to run.
        options: How to build it, and its inputs.
        backend: One of ``BACKENDS``.
        cuda: Index of the GPU; None for the CPU.
        threads: None for the runtime's own choice.
        streams: Iterations at once.

    Raises:
        BadInputError: If options, model and runtime don't go together.
        CheckFailedError: If the exported model differs from the original.
        NotPossibleError: If the runtime isn't installed.
    """
    if cuda is not None and backend in _REFUSED:
        raise BadInputError(_REFUSED[backend])
    if isinstance(workload, ModelFile):
        check_options(workload.name, options)
        if options.random:
            raise BadInputError(f"--random: {workload.name} comes with its own weights")
        engine = _open(workload.path, backend, cuda, threads, streams)
        feeds = random_feeds(engine.inputs, options, workload.name)
        facts = _facts_of_file(workload, options, feeds)
        return _made(engine, feeds, streams, Built(engine.results, None, [], facts, batch_of(feeds)))
    folder = Scratch()
    try:
        exported = export_onnx(workload, options, folder.path / "model.onnx", ExportOptions())
        engine = _open(exported.path, backend, cuda, threads, streams)
        built = exported.built
        feeds = [_feed(inputs, list(exported.signature.inputs)) for inputs in built.inputs]
        facts = {**built.facts, "export": exported.facts}
        return _made(engine, feeds, streams, Built(engine.results, None, [], facts, built.items), folder)
    except BaseException:
        folder.remove()
        raise


def _open(path: Path, backend: str, cuda: int | None, threads: int | None, streams: int) -> Engine:
    if backend == "openvino":
        return OpenVino(path, threads=threads, streams=streams)
    if path.suffix.lower() == ".xml":
        raise BadInputError(f"{path}: a model of OpenVINO runs with --backend openvino")
    return OnnxRuntime(path, threads=threads, streams=streams, cuda=cuda)


def _made(
    engine: Engine,
    feeds: Sequence[Feed],
    streams: int,
    built: Built,
    folder: Scratch | None = None,
) -> Made:
    engine.bind(feeds)
    built.facts |= {"backend": engine.name, "mode": engine.name}
    warnings = []
    for number in range(len(feeds)):
        for place, output in enumerate(engine.results(number)):
            for code, kind, test in (("nan_outputs", "NaN", np.isnan), ("inf_outputs", "infinite", np.isinf)):
                if output.dtype.kind == "f" and bool(test(output).any()):
                    text = f"output {place} holds {kind} values, which draw less power than real numbers"
                    warnings.append(RunWarning(code, text, f"input set {number}"))
    return Made(built, RuntimeStep(engine, streams, folder), warnings)


def _feed(inputs: Any, names: Sequence[str]) -> Feed:
    return {name: tensor.numpy() for name, tensor in zip(names, tensors_of(inputs), strict=True)}


def _facts_of_file(workload: ModelFile, options: WorkloadOptions, feeds: Sequence[Feed]) -> dict[str, Any]:
    return {
        "name": workload.name,
        "task": "infer",
        "batch": batch_of(feeds),
        "weights": f"as in {workload.path.name}",
        "inputs": f"random, seed {options.seed}, {len(feeds)} set{'s' if len(feeds) > 1 else ''}",
        "input_shapes": {name: list(array.shape) for name, array in feeds[0].items()},
        "device": "cpu",
    }
