"""The backend of runtimes other than torch (``profiler.backends``): makes a step of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.addons.runtimes.engine import Engine, Feed
from jouletrace.addons.runtimes.export import ExportOptions, export_onnx
from jouletrace.addons.runtimes.feeds import batch_of, random_feeds
from jouletrace.addons.runtimes.libraries import require
from jouletrace.addons.runtimes.onnxruntime import CUDA, OnnxRuntime
from jouletrace.addons.runtimes.openvino import OpenVino
from jouletrace.addons.runtimes.signature import tensors_of
from jouletrace.addons.runtimes.step import RuntimeStep
from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError
from jouletrace.profiler.backends.torch import torch_device_of
from jouletrace.profiler.prepare import Prepared
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import RunWarning
from jouletrace.run.forms import WorkloadFacts
from jouletrace.run.scratch import Scratch
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.checks import check_options
from jouletrace.workloads.model_file import ModelFile
from jouletrace.workloads.options import WorkloadOptions

_REFUSED = {"openvino": "OpenVINO runs on the CPU here: use --device cpu"}


def device_for(backend: str, device: str) -> str:
    """The device for "auto": the CPU, unless the runtime can use the GPU.

    Raises:
        NotPossibleError: If the runtime isn't installed.
    """
    runtime = require(backend)
    if device != "auto":
        return device
    return "auto" if backend == "onnxruntime" and CUDA in runtime.get_available_providers() else "cpu"


def load_libraries(workload: Workload, device: Device) -> None:
    """Does nothing: ``device_for`` has loaded the runtime."""


def prepare(workload: Workload, device: Device, settings: ProfileSettings, options: WorkloadOptions) -> Prepared:
    """See ``profiler.prepare``.

    Raises:
        BadInputError: If options, model, device and runtime don't fit together.
        CheckFailedError: If the exported model differs from the original.
        NotPossibleError: If the runtime isn't installed.
    """
    backend = settings.backend
    if device.info.simulated:
        raise BadInputError(f"--backend {backend} runs on a real device, not on {device.spec}")
    on = torch_device_of(device)
    cuda = int(on.partition(":")[2]) if on != "cpu" else None
    return make(
        workload, options, backend, cuda=cuda, threads=settings.threads, streams=settings.streams, hint=settings.hint
    )


def make(
    workload: Workload,
    options: WorkloadOptions,
    backend: str,
    *,
    cuda: int | None = None,
    threads: int | None = None,
    streams: int = 1,
    hint: str | None = None,
) -> Prepared:
    """Prepare a workload in a runtime: a model file directly, anything else by way of ONNX.

    Args:
        workload: The workload.
        options: Options of the workload and its inputs.
        backend: One of ``profiler.backends.RUNTIMES``.
        cuda: Index of the GPU; None for the CPU.
        threads: None for the runtime's own choice.
        streams: Number of concurrent iterations.
        hint: The goal for which OpenVINO chooses their number; None to use ``streams``.

    Raises:
        As ``prepare``.
    """
    if cuda is not None and backend in _REFUSED:
        raise BadInputError(_REFUSED[backend])
    if isinstance(workload, ModelFile):
        check_options(workload.name, options)
        if options.random:
            raise BadInputError(f"--random: {workload.name} comes with its own weights")
        engine = _open(workload.path, backend, cuda, threads, streams, hint)
        feeds = random_feeds(engine.inputs, options, workload.name)
        of_file = _facts_of_file(workload, options, feeds)
        return _made(engine, feeds, Built(engine.results, None, [], of_file, batch_of(feeds)))
    folder = Scratch()
    try:
        exported = export_onnx(workload, options, folder.path / "model.onnx", ExportOptions())
        engine = _open(exported.path, backend, cuda, threads, streams, hint)
        built = exported.built
        feeds = [_feed(inputs, list(exported.signature.inputs)) for inputs in built.inputs]
        facts: WorkloadFacts = {**built.facts, "export": exported.facts}
        return _made(engine, feeds, Built(engine.results, None, [], facts, built.items), folder)
    except BaseException:
        folder.remove()
        raise


def _open(path: Path, backend: str, cuda: int | None, threads: int | None, streams: int, hint: str | None) -> Engine:
    if backend == "openvino":
        return OpenVino(path, threads=threads, streams=streams, hint=hint)
    if path.suffix.lower() == ".xml":
        raise BadInputError(f"{path}: a model of OpenVINO runs with --backend openvino")
    return OnnxRuntime(path, threads=threads, streams=streams, cuda=cuda)


def _made(
    engine: Engine,
    feeds: Sequence[Feed],
    built: Built,
    folder: Scratch | None = None,
) -> Prepared:
    engine.bind(feeds)
    built.facts |= {"backend": engine.name, "mode": engine.name}
    warnings = []
    for number in range(len(feeds)):
        for place, output in enumerate(engine.results(number)):
            for code, kind, test in (("nan_outputs", "NaN", np.isnan), ("inf_outputs", "infinite", np.isinf)):
                if output.dtype.kind == "f" and bool(test(output).any()):
                    text = f"output {place} holds {kind} values, which draw less power than real numbers"
                    warnings.append(RunWarning(code, text, f"input set {number}"))
    return Prepared(built, RuntimeStep(engine, engine.streams, folder), real=False, warnings=warnings)


def _feed(inputs: Any, names: Sequence[str]) -> Feed:
    return {name: tensor.numpy() for name, tensor in zip(names, tensors_of(inputs), strict=True)}


def _facts_of_file(workload: ModelFile, options: WorkloadOptions, feeds: Sequence[Feed]) -> WorkloadFacts:
    return {
        "name": workload.name,
        "task": "infer",
        "batch": batch_of(feeds),
        "weights": f"as in {workload.path.name}",
        "inputs": f"random, seed {options.seed}, {len(feeds)} set{'s' if len(feeds) > 1 else ''}",
        "input_shapes": {name: list(array.shape) for name, array in feeds[0].items()},
        "device": "cpu",
    }
