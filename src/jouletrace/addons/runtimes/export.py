"""Export from torch to ONNX: in evaluation mode, with names, folded, and compared with the original."""

from __future__ import annotations

import io
import logging
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jouletrace.addons.runtimes import difference
from jouletrace.addons.runtimes.libraries import require
from jouletrace.addons.runtimes.onnxruntime import OnnxRuntime
from jouletrace.addons.runtimes.signature import Signature, signature
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.user_code import memory_guard, no_silent_exit, one_line

OPSET = 18
"""The version that torch's exporter writes without conversion; older ones need its older exporter."""

_ONE_FILE_BYTES = 1_500_000_000
"""Larger weights are written to a separate file: protobuf is limited to 2 GiB."""

_NO_FUNCTION = re.compile(
    r"No ONNX function found for <OpOverload\(op='([\w.]+)'|Exporting the operator '([\w:]+)' to ONNX"
)
_DTYPES = (None, "fp32", "fp16", "fp64")


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        opset: Version of ONNX's operators.
        input_names: Names of inputs in order; empty for those of the model.
        output_names: Likewise for outputs.
        fold: Fold constants and remove nodes without effect.
        tolerance: Largest difference from torch, relative to an output's largest value; None for the default
            of the number format.
    """

    opset: int = OPSET
    input_names: Sequence[str] = ()
    output_names: Sequence[str] = ()
    fold: bool = True
    tolerance: float | None = None


@dataclass(frozen=True)
class Exported:
    """An exported model and its facts.

    Attributes:
        path: The file.
        built: The original workload.
        signature: Its tensors by name.
        relative: Largest difference from torch over the output's largest value.
        tolerance: The permitted difference.
        facts: For users and JSON: opset, nodes, bytes, seconds, names.
    """

    path: Path
    built: Built
    signature: Signature
    relative: float
    tolerance: float
    facts: dict[str, Any] = field(default_factory=dict)


def export_onnx(workload: Workload, options: WorkloadOptions, path: Path, how: ExportOptions | None = None) -> Exported:
    """Build a workload on the CPU and write it as ONNX; its outputs are compared in onnxruntime.

    No file is left if the export fails or the outputs differ.

    Args:
        workload: The workload to export.
        options: Its options; inference only. fp32 if no dtype is given.
        path: The file. A model of more than 1.5 GB has its weights in ``PATH.data``.
        how: Names, opset, tolerance.

    Raises:
        BadInputError: If the file exists, or the workload can't be exported; the message names the operator.
        CheckFailedError: If the exported model differs from the original, with the difference.
        NotPossibleError: If a library or memory is missing.
    """
    how = how or ExportOptions()
    _check(workload, options, path, how)
    require("onnx")
    require("onnxscript")
    require("onnxruntime")
    built = workload.build("cpu", options)
    tolerance = how.tolerance if how.tolerance is not None else difference.TOLERANCES.get(_dtype(built), 1e-3)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        written = folder / path.name
        with memory_guard(f"{workload.name}: export"), no_silent_exit():
            parts = signature(built, how.input_names, how.output_names)
            start = time.perf_counter()
            nodes = _write(workload.name, parts, written, how)
            seconds = time.perf_counter() - start
            found = _compare(written, parts)
        difference.check(found, tolerance, path.name)
        size = sum(file.stat().st_size for file in folder.iterdir())
        for file in sorted(folder.iterdir(), reverse=True):  # the model itself last, when its weights are in place
            file.replace(path.parent / file.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    facts = {
        "opset": how.opset,
        "nodes": nodes,
        "bytes": size,
        "export_s": seconds,
        "inputs": {name: list(tensor.shape) for name, tensor in parts.inputs.items()},
        "outputs": {name: list(tensor.shape) for name, tensor in parts.outputs.items()},
        "difference": found.relative,
        "tolerance": tolerance,
        "dtype": _dtype(built),
        "weights": built.facts.get("weights"),
    }
    return Exported(path, built, parts, found.relative, tolerance, facts)


def _dtype(built: Built) -> str:
    return str(built.facts.get("dtype") or "fp32")


def _check(workload: Workload, options: WorkloadOptions, path: Path, how: ExportOptions) -> None:
    if options.task != "infer":
        raise BadInputError(f"--task {options.task}: only inference can be exported")
    if options.dtype not in _DTYPES:
        raise BadInputError(f"--dtype {options.dtype}: an exported model holds fp32, fp16 or fp64")
    if how.tolerance is not None and not 0 <= how.tolerance < float("inf"):
        raise BadInputError(f"--tolerance {how.tolerance:g}: must be 0 or more")
    onnx = require("onnx")
    latest = onnx.defs.onnx_opset_version()
    if not 7 <= how.opset <= latest:
        raise BadInputError(f"--opset {how.opset}: this onnx ({onnx.__version__}) has 7 to {latest}")
    for place in (path, Path(f"{path}.data")):
        if place.exists():
            raise BadInputError(f"{place} exists; results are never overwritten")
    if not path.parent.is_dir():
        raise BadInputError(f"cannot write {path}: folder {path.parent} doesn't exist")


def _write(name: str, parts: Signature, path: Path, how: ExportOptions) -> int:
    """Export to a file; returns its number of nodes."""
    import torch

    large = sum(p.numel() * p.element_size() for p in parts.module.state_dict().values()) > _ONE_FILE_BYTES
    try:
        with torch.no_grad(), _quiet():
            if how.opset < OPSET:
                return _by_script(parts, path, how, large)
            program = torch.onnx.export(
                parts.module,
                tuple(parts.inputs.values()),
                input_names=list(parts.inputs),
                output_names=list(parts.outputs),
                opset_version=how.opset,
                dynamo=True,
                verbose=False,
                optimize=how.fold,
            )
            assert program is not None  # with dynamo it returns one
            program.save(str(path), external_data=large)
    except Exception as error:  # the exporter has its own errors, and passes on those of the model
        raise _refused(name, error) from error
    # Where its converter fails, the exporter keeps the version that it writes, with a line on stderr.
    got = program.model.opset_imports.get("")
    if got != how.opset:
        raise BadInputError(f"--opset {how.opset}: torch's exporter can't write it for {name}; it can write {got}")
    return len(program.model.graph)


def _by_script(parts: Signature, path: Path, how: ExportOptions, large: bool) -> int:
    """Export by torch's older exporter, which alone can write the older versions."""
    import torch

    onnx = require("onnx")
    torch.onnx.export(
        parts.module,
        tuple(parts.inputs.values()),
        str(path),
        input_names=list(parts.inputs),
        output_names=list(parts.outputs),
        opset_version=how.opset,
        dynamo=False,
        do_constant_folding=how.fold,
    )
    model = onnx.load(str(path))
    if large:  # it has written a file per tensor
        for file in path.parent.iterdir():
            file.unlink()
        onnx.save(model, str(path), save_as_external_data=True, location=f"{path.name}.data")
    return len(model.graph.node)


def _refused(name: str, error: Exception) -> Exception:
    """The cause, taken from the innermost of the exporter's errors."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    missing = sorted({a or b.replace("::", ".") for one in chain for a, b in _NO_FUNCTION.findall(str(one))})
    if missing:
        return BadInputError(f"{name} can't be exported to ONNX: it has no equivalent of {', '.join(missing)}")
    if any("memory" in str(one) for one in chain):
        return NotPossibleError(f"{name}: export to ONNX ran out of memory ({one_line(chain[-1])})")
    root = next((one for one in reversed(chain) if str(one).strip()), error)
    text = str(root).strip().splitlines()[0]
    return BadInputError(f"{name} can't be exported to ONNX: {type(root).__name__}: {text[:300]}")


def _compare(path: Path, parts: Signature) -> difference.Difference:
    with closing(OnnxRuntime(path)) as engine:
        engine.bind([{name: tensor.numpy() for name, tensor in parts.inputs.items()}])
        return difference.compare({name: t.float().numpy() for name, t in parts.outputs.items()}, engine.results(0))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress output and warnings of the exporter: problems are raised, or checked afterwards."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    said = io.StringIO()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(said), redirect_stderr(said):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
