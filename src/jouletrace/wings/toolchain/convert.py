"""``convert``: a workload as ONNX, as a model of OpenVINO, or as a TensorRT engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jouletrace import workloads
from jouletrace.errors import BadInputError
from jouletrace.processes.locks import alone_at
from jouletrace.run.files import beside
from jouletrace.run.places import check_free
from jouletrace.wings.runtimes.export import (
    ExportOptions,
    check_openvino_path,
    convert_onnx,
    export_onnx,
    export_openvino,
)
from jouletrace.wings.toolchain import trtexec
from jouletrace.workloads.base import Workload
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.saved_models import ModelFile

ENDINGS = {"onnx": ".onnx", "openvino": ".xml", "tensorrt": ".engine"}
"""Suffix of the file by format."""


@dataclass(frozen=True)
class ConvertSettings:
    """Options of a conversion.

    Attributes:
        to: One of ``ENDINGS``.
        built: Options of the workload. For an engine, ``dtype`` is a type that TensorRT may compute in.
        exported: Options of the export to ONNX.
        workspace_mib: Memory in MiB that TensorRT may use to build; None for its own choice.
        more: Further options for trtexec, passed on unchanged.
        limit_s: Seconds after which trtexec is ended.

    Raises:
        BadInputError: If an option is invalid.
    """

    to: str
    built: WorkloadOptions = field(default_factory=WorkloadOptions)
    exported: ExportOptions = field(default_factory=ExportOptions)
    workspace_mib: int | None = None
    more: tuple[str, ...] = ()
    limit_s: float = 3600.0

    def __post_init__(self) -> None:
        if self.to not in ENDINGS:
            raise BadInputError(f"--to {self.to}: must be one of {', '.join(ENDINGS)}")
        if self.to != "tensorrt" and (self.more or self.workspace_mib is not None):
            asked = f"-- {' '.join(self.more)}" if self.more else "--workspace"
            raise BadInputError(f"{asked}: only trtexec takes it, with --to tensorrt")
        if self.workspace_mib is not None and self.workspace_mib < 1:
            raise BadInputError(f"--workspace {self.workspace_mib}: must be at least 1 MiB")
        if not 0 < self.limit_s < math.inf:
            raise BadInputError(f"--time-limit {self.limit_s:g}: must be more than 0 s")
        if self.to == "tensorrt" and self.built.dtype not in (None, "fp32", "fp16"):
            raise BadInputError(f"--dtype {self.built.dtype}: must be fp32 or fp16; pass others to trtexec after --")


def convert(
    workload: str, how: ConvertSettings, output: Path | None = None, say: Callable[[str], None] = lambda text: None
) -> tuple[Path, dict[str, Any]]:
    """Convert a workload, or for OpenVINO and TensorRT an ``.onnx`` file, and compare the result with the original.

    ``say`` is called with the exact command before a program runs. Returns the file, by default named after the
    workload in the current folder, and facts about it.

    Raises:
        BadInputError: If a file exists or can't be written, or the export fails; the message names the operator.
        CheckFailedError: If the result differs from the original.
        NotPossibleError: If a library or program is missing, or didn't end in time.
    """
    program = trtexec.TRTEXEC.find() if how.to == "tensorrt" else ""
    found = workloads.resolve(workload)
    if isinstance(found, ModelFile) and (how.to == "onnx" or found.path.suffix.lower() != ".onnx"):
        raise BadInputError(f"{workload}: only a .onnx file is converted further, to openvino or tensorrt")
    path = check_free(output or Path(_stem(found.name) + ENDINGS[how.to]))
    if path.is_dir():
        raise BadInputError(f"{path} is a folder: name a file")
    if not path.absolute().parent.is_dir():
        raise BadInputError(f"cannot write {path}: folder {path.parent} doesn't exist")
    try:
        # a Python workload may change the current folder
        where = path if isinstance(found, ModelFile) else path.absolute()
        with alone_at(path, "writing"):
            check_free(path)  # another process may have been the first to lock it
            return path, _written(found, how, where, program, say)
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror or error}") from None


def _written(
    found: Workload, how: ConvertSettings, path: Path, program: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Write the file; returns facts about it."""
    if how.to == "onnx":
        return export_onnx(found, how.built, path, how.exported).facts
    if how.to == "openvino":
        if not isinstance(found, ModelFile):
            return export_openvino(found, how.built, path, how.exported)
        check_openvino_path(path)
        convert_onnx(found.path, path)
        return {"bytes": sum(path.with_suffix(end).stat().st_size for end in (".xml", ".bin"))}

    def engine(onnx: Path) -> dict[str, Any]:
        return trtexec.build(
            program,
            onnx,
            path,
            fp16=how.built.dtype == "fp16",
            workspace_mib=how.workspace_mib,
            more=how.more,
            limit_s=how.limit_s,
            say=say,
        )

    if isinstance(found, ModelFile):
        return engine(found.path)
    with beside(path.absolute(), is_folder=True) as folder:
        options = replace(how.built, dtype="fp32")  # TensorRT converts what it can to fp16
        exported = export_onnx(found, options, folder / f"{path.stem}.onnx", how.exported)
        facts = {name: exported.facts[name] for name in ("inputs", "outputs", "opset", "weights")}
        return {**facts, **engine(exported.path)}


def _stem(name: str) -> str:
    """A file name for a workload: ``make`` for ``model.py:make``."""
    last = name.rpartition(":")[2].rstrip("/").rpartition("/")[2]
    return last.removesuffix(".onnx") or "model"
