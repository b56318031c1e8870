"""Further facts that can change a result: versions of software, and environment variables."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from importlib import metadata

from jouletrace.version import __version__

GIT_S = 2.0
"""Longest wait for an answer of git, which reads each file of a large folder."""

_PACKAGES = ("torch", "transformers", "numpy", "scipy", "pyarrow", "nvidia-ml-py", "triton", "onnxruntime", "openvino")
_NAMES = """
    ACCELERATE_USE_DEEPSPEED ACCELERATE_USE_FSDP CUBLASLT_WORKSPACE_SIZE CUBLAS_WORKSPACE_CONFIG CUDA_AUTO_BOOST
    CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER
    CUDA_DISABLE_PTX_JIT CUDA_FORCE_PTX_JIT CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT CUDA_SCALE_LAUNCH_QUEUES
    CUDA_VISIBLE_DEVICES CUDNN_CONV_WSCAP_DBG CUDNN_LOGINFO_DBG GOMP_SPINCOUNT KMP_AFFINITY KMP_BLOCKTIME
    KMP_SETTINGS LOCAL_RANK LOCAL_WORLD_SIZE MKL_DYNAMIC MKL_ENABLE_INSTRUCTIONS MKL_NUM_THREADS
    MKL_THREADING_LAYER NCCL_ALGO NCCL_BUFFSIZE NCCL_COLLNET_ENABLE NCCL_CROSS_NIC NCCL_CUMEM_ENABLE NCCL_DEBUG
    NCCL_GRAPH_REGISTER NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_HCA NCCL_IB_TIMEOUT NCCL_LAUNCH_MODE
    NCCL_MAX_CTAS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS NCCL_MIN_NCHANNELS NCCL_NET_GDR_LEVEL NCCL_NTHREADS
    NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_PROTO NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME
    NCCL_SOCKET_NTHREADS NVIDIA_TF32_OVERRIDE NVIDIA_VISIBLE_DEVICES OMP_DYNAMIC OMP_NUM_THREADS OMP_PLACES
    OMP_PROC_BIND OMP_SCHEDULE OMP_WAIT_POLICY OPENBLAS_NUM_THREADS PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
    PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NVML_BASED_CUDA_CHECK RANK TORCHDYNAMO_DISABLE
    TORCHINDUCTOR_COORDINATE_DESCENT_TUNING TORCHINDUCTOR_CUDAGRAPHS TORCHINDUCTOR_FREEZING
    TORCHINDUCTOR_MAX_AUTOTUNE TORCHINDUCTOR_MAX_AUTOTUNE_GEMM TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE
    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_BLAS_PREFER_CUBLASLT TORCH_COMPILE_DISABLE
    TORCH_CUDNN_V8_API_DISABLED TORCH_LOGS TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_AVOID_RECORD_STREAMS
    TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_HIGH_PRIORITY TRITON_ALWAYS_COMPILE TRITON_DEBUG TRITON_F32_DEFAULT
    TRITON_INTERPRET TRITON_PRINT_AUTOTUNING VECLIB_MAXIMUM_THREADS WORLD_SIZE __PREFETCH
"""
"""Variables that change what runs, where or how fast. No others are recorded, since values may be private."""


def versions() -> dict[str, str]:
    """Versions of jouletrace, Python, the system and the relevant packages, where installed."""
    texts = {
        "jouletrace": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
    }
    texts |= {package: version for package in _PACKAGES if (version := version_of(package)) is not None}
    built = sys.modules.get("torch.version")
    if built is not None:
        texts["cuda"] = str(getattr(built, "cuda", None) or "none")
    return texts


@cache
def version_of(package: str) -> str | None:
    """The version of a package, which takes some milliseconds to look up; None if it isn't installed as a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment() -> dict[str, str]:
    """Environment variables that change what runs, where or how fast; values that contain paths are left out."""
    variables = ((name, os.environ.get(name, "")) for name in sorted(_NAMES.split()))
    return {name: value for name, value in variables if value and "/" not in value}


def commit() -> str:
    """The git commit of the working folder, as "3f2a91c" or "3f2a91c, changed files"; "" if git doesn't answer."""
    number = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no") if number else None
    return "" if changed is None else f"{number}, changed files" if changed else f"{number}"


def _git(*arguments: str) -> str | None:
    """An answer of git about the working folder, in which nothing is written or started; None without one."""
    words = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    try:
        asked = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.decode(errors="replace").strip()
