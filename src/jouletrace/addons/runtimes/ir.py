"""From ONNX to the files of OpenVINO."""

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
    """Export a workload to ONNX, and from there to OpenVINO; the outputs of both are compared with torch's.

    Args:
        workload: What to export.
        options: How it is built.
        path: The ``.xml``; weights go into the ``.bin`` beside it.
        how: As of ``export_onnx``.

    Returns:
        Facts, as of ``Exported``.

    Raises:
        BadInputError, CheckFailedError, NotPossibleError: As of ``export_onnx``.
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
        BadInputError: If OpenVINO can't read it, or can't write the files; none is left then.
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
    """Refuse a place that is taken.

    Raises:
        BadInputError: If the ``.xml`` or the ``.bin`` is there, or the name ends otherwise.
    """
    if path.suffix != ".xml":
        raise BadInputError(f"{path}: a model of OpenVINO is called NAME.xml")
    for place in (path, path.with_suffix(".bin")):
        if place.exists():
            raise BadInputError(f"{place} exists; results never go over older ones")
    if not path.parent.is_dir():
        raise BadInputError(f"cannot write {path}: there is no folder {path.parent}")


def _compare(path: Path, exported: Exported) -> difference.Difference:
    engine = OpenVino(path)
    try:
        engine.bind([{name: tensor.numpy() for name, tensor in exported.signature.inputs.items()}])
        original = {name: tensor.float().numpy() for name, tensor in exported.signature.outputs.items()}
        return difference.compare(original, engine.results(0))
    finally:
        engine.close()
