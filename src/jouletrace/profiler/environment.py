"""What else can change a result: versions of what took part, and environment variables."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

import jouletrace

_PACKAGES = ("torch", "transformers", "numpy", "scipy", "pyarrow", "nvidia-ml-py", "triton", "onnxruntime", "openvino")
_PREFIXES = ("CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "TORCH", "PYTORCH_", "OMP_", "MKL_", "KMP_", "TRITON_")

_NAMES = ("NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES")


def versions() -> dict[str, str]:
    """Versions of jouletrace, Python, the system and the packages that matter, where installed."""
    found = {
        "jouletrace": jouletrace.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    torch = sys.modules.get("torch")
    if torch is not None:
        found["cuda"] = str(torch.version.cuda or "none")
    return found


def environment() -> dict[str, str]:
    """Environment variables that change what runs, or where, or how fast. Those that name files are left out."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_PREFIXES) or name in _NAMES
        if "/" not in value
    }
