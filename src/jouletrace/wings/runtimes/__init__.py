"""Workloads in ONNX Runtime and OpenVINO: ``--backend``."""

from jouletrace.wing import Wing

WING = Wing(
    backends=dict.fromkeys(("onnxruntime", "openvino"), "jouletrace.wings.runtimes.backend"),
)
