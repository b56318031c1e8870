"""Export from torch to ONNX and OpenVINO, compared with the original."""

from __future__ import annotations

import io
import logging
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run.files import beside
from jouletrace.wings.runtimes.engine import RuntimeModel, require
from jouletrace.wings.runtimes.onnxruntime import OnnxRuntime
from jouletrace.wings.runtimes.openvino import OpenVino, last_line
from jouletrace.wings.runtimes.signature import (
    TOLERANCES,
    Difference,
    Signature,
    check_difference,
    compare_outputs,
    signature,
)
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
        input_names, output_names: Names in order; empty for those of the model.
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
    """An exported file, the original workload, and its tensors by name.

    Its ``facts`` are for users and JSON: opset, nodes, bytes, seconds, names; "difference" from torch over the
    output's largest value, and "tolerance", the permitted one.
    """

    path: Path
    built: Built
    signature: Signature
    facts: dict[str, Any]


def export_onnx(workload: Workload, options: WorkloadOptions, path: Path, how: ExportOptions | None = None) -> Exported:
    """Build a workload on the CPU and write it as ONNX; its outputs are compared in onnxruntime.

    Weights of more than 1.5 GB are written to ``PATH.data``. No file is left if the export fails or the outputs differ.

    Raises:
        BadInputError: If the file exists, or the workload can't be exported; the message names the operator.
        CheckFailedError: If the exported model differs from the original, with the difference.
        NotPossibleError: If a library or memory is missing.
    """
    how = how or ExportOptions()
    _check(workload, options, path, how)
    for library in ("onnx", "onnxscript", "onnxruntime"):
        require(library)
    built = workload.build("cpu", options)
    dtype = str(built.facts.get("dtype") or "fp32")
    tolerance = how.tolerance if how.tolerance is not None else TOLERANCES.get(dtype, 1e-3)
    with beside(path, is_folder=True) as folder:
        written = folder / path.name
        with memory_guard(f"{workload.name}: export"), no_silent_exit():
            parts = signature(built, how.input_names, how.output_names)
            start = time.perf_counter()
            nodes = _write(workload.name, parts, written, how)
            seconds = time.perf_counter() - start
            found = _difference(OnnxRuntime(written), parts)
        check_difference(found, tolerance, path.name)
        size = sum(file.stat().st_size for file in folder.iterdir())
        for file in sorted(folder.iterdir(), reverse=True):  # the model itself last, when its weights are in place
            file.replace(path.parent / file.name)
    facts = {
        "opset": how.opset,
        "nodes": nodes,
        "bytes": size,
        "export_s": seconds,
        "inputs": {name: list(tensor.shape) for name, tensor in parts.inputs.items()},
        "outputs": {name: list(tensor.shape) for name, tensor in parts.outputs.items()},
        "difference": found.relative,
        "tolerance": tolerance,
        "dtype": dtype,
        "weights": built.facts.get("weights"),
    }
    return Exported(path, built, parts, facts)


def export_openvino(workload: Workload, options: WorkloadOptions, path: Path, how: ExportOptions) -> dict[str, Any]:
    """Export to ONNX, and convert that to ``.xml`` and ``.bin``; the outputs of both are compared with torch's.

    Returns facts as in ``Exported``, and raises as ``export_onnx``.
    """
    require("openvino")
    check_openvino_path(path)
    with beside(path, is_folder=True) as folder:
        exported = export_onnx(workload, options, folder / "model.onnx", how)
        written = folder / path.name
        convert_onnx(exported.path, written)
        found = _difference(OpenVino(written), exported.signature)
        check_difference(found, exported.facts["tolerance"], path.name)
        size = 0
        for file in (written.with_suffix(".bin"), written):
            size += file.stat().st_size
            file.replace(path.with_suffix(file.suffix))
    return {**exported.facts, "bytes": size, "difference": found.relative}


def convert_onnx(onnx: Path, path: Path) -> None:
    """Write an ``.onnx`` file as OpenVINO's ``.xml`` and ``.bin``; weights keep their type.

    Raises:
        BadInputError: If OpenVINO can't read it, or can't write the files; no file is left then.
    """
    openvino = require("openvino")
    try:
        model = openvino.Core().read_model(str(onnx))
    except Exception as error:  # OpenVINO has no common type
        raise BadInputError(f"{onnx}: OpenVINO can't convert it: {last_line(error)}") from error
    try:
        openvino.save_model(model, str(path), compress_to_fp16=False)
    except Exception as error:
        for end in (".xml", ".bin"):
            path.with_suffix(end).unlink(missing_ok=True)
        raise BadInputError(f"cannot write {path}: {' '.join(str(error).split())[:400]}") from None


def check_openvino_path(path: Path) -> None:
    """Refuse a path to which OpenVINO can't write a model.

    Raises:
        BadInputError: If the ``.xml`` or the ``.bin`` exists, or the name has another suffix.
    """
    if path.suffix != ".xml":
        raise BadInputError(f"{path}: a model of OpenVINO needs a name of the form NAME.xml")
    _refuse_existing(path, path.with_suffix(".bin"))


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
    _refuse_existing(path, Path(f"{path}.data"))


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


def _difference(engine: RuntimeModel, parts: Signature) -> Difference:
    """The difference of a written model from the original, on the inputs of the latter."""
    with closing(engine):
        engine.bind([{name: tensor.numpy() for name, tensor in parts.inputs.items()}])
        original = {name: tensor.float().numpy() for name, tensor in parts.outputs.items()}
        return compare_outputs(original, engine.results(0))


def _refuse_existing(*places: Path) -> None:
    for place in places:
        if place.exists():
            raise BadInputError(f"{place} exists; results are never overwritten")
    folder = places[0].parent
    if not folder.is_dir():
        raise BadInputError(f"cannot write {places[0]}: folder {folder} doesn't exist")


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
