"""Workloads in ONNX Runtime and OpenVINO: ``--backend``."""

from jouletrace.public import public_names
from jouletrace.wing import Wing

WING = Wing(
    backends=dict.fromkeys(("onnxruntime", "openvino"), "jouletrace.wings.runtimes.backend"),
    model_files={".onnx": "onnxruntime", ".xml": "openvino"},
    libraries={
        "onnxruntime": "models in ONNX (pip install 'jouletrace[onnx]')",
        "openvino": "models in OpenVINO (pip install 'jouletrace[openvino]')",
    },
)

__getattr__ = public_names(
    __name__,
    {
        "backend": "RuntimeStep make",
        "export": "ExportOptions export_onnx",
    },
)
