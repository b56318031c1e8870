"""The backend of runtimes other than torch (``profiler.backends``): makes a step of a workload, and runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, BrokenOffError
from jouletrace.execution.steps.base import Interval, NodeTimes
from jouletrace.profiler.backends.torch import torch_device_of
from jouletrace.profiler.prepare import Prepared
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import RunWarning
from jouletrace.run.forms import WorkloadFacts
from jouletrace.run.scratch import Scratch
from jouletrace.wings.runtimes.engine import Feed, RuntimeModel, batch_of, random_feeds, require
from jouletrace.wings.runtimes.export import export_onnx
from jouletrace.wings.runtimes.onnxruntime import CUDA, OnnxRuntime
from jouletrace.wings.runtimes.openvino import OpenVino
from jouletrace.wings.runtimes.signature import tensors_of
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions, check_consistent
from jouletrace.workloads.saved_models import ModelFile


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

    ``cuda`` is the GPU's index, None for the CPU; ``threads`` None is the runtime's own choice. With a ``hint``
    OpenVINO chooses the number of concurrent iterations, else it is ``streams``. Raises as ``prepare``.
    """

    def opened(path: Path) -> RuntimeModel:
        if backend == "openvino":
            return OpenVino(path, threads=threads, streams=streams, hint=hint)
        if path.suffix.lower() == ".xml":
            raise BadInputError(f"{path}: a model of OpenVINO runs with --backend openvino")
        return OnnxRuntime(path, threads=threads, streams=streams, cuda=cuda)

    if cuda is not None and backend == "openvino":
        raise BadInputError("OpenVINO runs on the CPU here: use --device cpu")
    if isinstance(workload, ModelFile):
        check_consistent(workload.name, options)
        if options.random:
            raise BadInputError(f"--random: {workload.name} comes with its own weights")
        engine = opened(workload.path)
        feeds = random_feeds(engine.inputs, options, workload.name)
        return _made(engine, feeds, _facts_of_file(workload, options, feeds), batch_of(feeds))
    folder = Scratch()
    try:
        exported = export_onnx(workload, options, folder.path / "model.onnx")
        engine = opened(exported.path)
        names, built = exported.signature.inputs, exported.built
        feeds = [dict(zip(names, (t.numpy() for t in tensors_of(one)), strict=True)) for one in built.inputs]
        return _made(engine, feeds, {**built.facts, "export": exported.facts}, built.items, folder)
    except BaseException:
        folder.remove()
        raise


def _made(
    engine: RuntimeModel, feeds: Sequence[Feed], facts: WorkloadFacts, items: int, folder: Scratch | None = None
) -> Prepared:
    """The bound engine as a step, with warnings of outputs that aren't numbers."""
    engine.bind(feeds)
    built = Built(engine.results, None, [], {**facts, "backend": engine.name, "mode": engine.name}, items)
    warnings = []
    for number in range(len(feeds)):
        for place, output in enumerate(engine.results(number)):
            for code, kind, test in (("nan_outputs", "NaN", np.isnan), ("inf_outputs", "infinite", np.isinf)):
                if output.dtype.kind == "f" and bool(test(output).any()):
                    text = f"output {place} holds {kind} values, which draw less power than real numbers"
                    warnings.append(RunWarning(code, text, f"input set {number}"))
    return Prepared(built, RuntimeStep(engine, engine.streams, folder), real=False, warnings=warnings)


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


class RuntimeStep:
    """A bound model called in a runtime, one or several (``streams``) at a time; see ``Step``.

    ``mode`` is the name of the runtime. ``folder``, in which its file is, is removed at the end.
    """

    def __init__(self, engine: RuntimeModel, streams: int = 1, folder: Scratch | None = None) -> None:
        self.mode = engine.name
        self.streams = streams
        self._engine = engine
        self._folder = folder
        self._next = 0
        self._pool = ThreadPoolExecutor(streams, "jouletrace-stream") if streams > 1 else None

    def replay(self, n: int) -> Interval:
        """See ``Step.replay``."""
        start = time.time_ns()
        self._run(n, self._engine.infer)
        return Interval(start, time.time_ns())

    def latencies(self, n: int) -> Floats:
        """Seconds of each call by the monotonic clock, shape (n,); with several streams, by their starts."""
        taken, first = np.empty(n, dtype=np.int64), self._next

        def timed(stream: int, number: int) -> None:
            start = time.perf_counter_ns()
            self._engine.infer(stream, number)
            taken[number - first] = time.perf_counter_ns() - start

        self._run(n, timed)
        return taken / 1e9

    def node_times(self, n: int) -> NodeTimes:
        """See ``KnowsNodes``."""
        return self._engine.node_times(n)

    def describe(self) -> dict[str, Any]:
        """See ``RuntimeModel.describe``."""
        return {"mode": self.mode, **self._engine.describe()}

    def close(self) -> None:
        """Release the model."""
        if self._pool is not None:
            self._pool.shutdown()
        self._engine.close()
        if self._folder is not None:
            self._folder.remove()

    def _run(self, n: int, call: Callable[[int, int], None]) -> None:
        """Run the next iterations; a stream takes the next number once it is free. Input sets rotate across calls."""
        numbers = iter(range(self._next, self._next + n))
        self._next += n
        try:
            if self._pool is None:
                _work(0, numbers, call)
            else:
                for worker in [self._pool.submit(_work, stream, numbers, call) for stream in range(self.streams)]:
                    worker.result()
        except Exception as error:
            said = " ".join(str(error).split())[:300]
            raise BrokenOffError(f"{self._engine.name} failed in the middle of a pass: {said}") from error


def _work(stream: int, numbers: Iterator[int], call: Callable[[int, int], None]) -> None:
    for number in numbers:
        call(stream, number)
