"""Conversion from ONNX to the files of OpenVINO."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from jouletrace.addons.runtimes import difference
from jouletrace.addons.runtimes.export import Exported, ExportOptions, export_onnx
from jouletrace.addons.runtimes.libraries import require
from jouletrace.addons.runtimes.openvino import OpenVino
from jouletrace.errors import BadInputError
from jouletrace.workloads.base import Workload
from jouletrace.workloads.options import WorkloadOptions


def export_openvino(workload: Workload, options: WorkloadOptions, path: Path, how: ExportOptions) -> dict[str, Any]:
    """Export a workload to ONNX, and convert that to OpenVINO; the outputs of both are compared with torch's.

    Args:
        workload: The workload to export.
        options: Its options.
        path: The ``.xml`` file; weights are written to a ``.bin`` file with the same name.
        how: As for ``export_onnx``.

    Returns:
        Facts, as in ``Exported``.

    Raises:
        BadInputError, CheckFailedError, NotPossibleError: As ``export_onnx``.
    """
    require("openvino")
    check_free(path)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        exported = export_onnx(workload, options, folder / "model.onnx", how)
        written = convert(exported.path, folder / path.name)
        found = _compare(written, exported)
        difference.check(found, exported.tolerance, path.name)
        size = 0
        for file in (written.with_suffix(".bin"), written):
            size += file.stat().st_size
            file.replace(path.with_suffix(file.suffix))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**exported.facts, "bytes": size, "difference": found.relative}


def convert(onnx: Path, path: Path) -> Path:
    """Write an ``.onnx`` file as ``.xml`` and ``.bin``; weights keep their type.

    Raises:
        BadInputError: If OpenVINO can't read it, or can't write the files; no file is left then.
    """
    openvino = require("openvino")
    try:
        model = openvino.Core().read_model(str(onnx))
    except Exception as error:  # OpenVINO has no common type
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise BadInputError(f"{onnx}: OpenVINO can't convert it: {(lines or ['?'])[-1][:400]}") from error
    try:
        openvino.save_model(model, str(path), compress_to_fp16=False)
    except Exception as error:
        for end in (".xml", ".bin"):
            path.with_suffix(end).unlink(missing_ok=True)
        raise BadInputError(f"cannot write {path}: {' '.join(str(error).split())[:400]}") from None
    return path


def check_free(path: Path) -> None:
    """Refuse an existing path.

    Raises:
        BadInputError: If the ``.xml`` or the ``.bin`` exists, or the name has another suffix.
    """
    if path.suffix != ".xml":
        raise BadInputError(f"{path}: a model of OpenVINO needs a name of the form NAME.xml")
    for place in (path, path.with_suffix(".bin")):
        if place.exists():
            raise BadInputError(f"{place} exists; results are never overwritten")
    if not path.parent.is_dir():
        raise BadInputError(f"cannot write {path}: folder {path.parent} doesn't exist")


def _compare(path: Path, exported: Exported) -> difference.Difference:
    engine = OpenVino(path)
    try:
        engine.bind([{name: tensor.numpy() for name, tensor in exported.signature.inputs.items()}])
        original = {name: tensor.float().numpy() for name, tensor in exported.signature.outputs.items()}
        return difference.compare(original, engine.results(0))
    finally:
        engine.close()
