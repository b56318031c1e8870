"""The part that a kernel plays in a network, and its number format, by its name and that of its operator.

Names of libraries state both: ``nvjet_tst_…``, ``cutlass_80_tensorop_f16_s16816gemm``, ``flash_fwd_kernel``.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ROLES = (
    ("collective", r"nccl|all_?reduce|all_?gather|reduce_scatter"),
    ("attention", r"flash|fmha|sdpa|attention"),
    ("softmax", r"soft_?max"),
    ("norm", r"_norm|\bnorm(?:_|\b)|layer_?norm|group_?norm|\bbn_|batch_norm|\brms|rms_?norm"),
    ("resampling", r"upsample|interpolate|pool"),
    ("convolution", r"fprop|dgrad|wgrad|conv(?!ert)|im2col|implicit"),
    ("product", r"gemm|nvjet|cutlass|wgmma|addmm|bmm|\bmm\b|matmul|linear|splitK"),
    ("activation", r"gelu|silu|relu|tanh|sigmoid"),
    ("embedding", r"embedding|gather|index"),
    ("copy", r"copy|convert|clone|transpose|memcpy|memset|nchw|nhwc|\bcat\b|catarray|permute|contiguous|\b_to\b"),
    ("optimizer", r"adam|sgd|foreach|multi_tensor"),
    ("sort", r"sort|topk"),
    ("reduction", r"reduce|cumsum|scan|\bsum\b|mean"),
    ("elementwise", r"elementwise|add|mul|pow|sub|where|div"),
)
"""Roles with a pattern of names each: the first whose pattern matches counts."""

_NVJET = {"h": "fp16", "t": "bf16", "s": "fp32", "q": "fp8", "d": "fp64"}
"""Formats by the letter with which cuBLAS names its newer products."""

_FORMATS = (
    ("tf32", r"tf32|s1688"),
    ("bf16", r"bf16|bfloat16"),
    ("fp8", r"e4m3|e5m2|fp8"),
    ("fp16", r"f16f16|half|fp16|hgemm|h884|s16816|\bf16"),
    ("fp64", r"f64|double|dgemm"),
    ("fp32", r"f32f32_f32|sgemm|ffma|float|fp32|\bf32"),
)
"""Number formats in the same way, the special before the general: a product in tf32 has fp32 inputs."""

OTHER = "other"


@lru_cache(maxsize=8192)
def role_of(kernel: str, op: str = "") -> str:
    """The role of a kernel: "attention", "product", "norm", ...; its operator's name, or "other", where none fits."""
    # a fused kernel names its operators; its operator, where known, is one of several
    text = kernel if kernel.startswith("triton") else f"{op} {kernel}"
    return _first(_ROLES, text) or op or OTHER


@lru_cache(maxsize=8192)
def format_of(kernel: str, shapes: str = "") -> str:
    """The number format in which a kernel computes: "bf16", "tf32", ...; that of its inputs or "" where unknown."""
    match = re.match(r"nvjet_(?:sm\d+_)?([a-z])[a-z]{2}_", kernel)
    return _NVJET.get(match[1], "") if match else _first(_FORMATS, kernel) or _first(_FORMATS, shapes)


PRODUCTS = ("product", "convolution", "attention")
"""Roles of kernels that multiply matrices."""


@lru_cache(maxsize=8192)
def multiplied_in(kernel: str, op: str = "", shapes: str = "") -> str:
    """The number format in which a kernel multiplies matrices; "" of others, and where unknown.

    cuBLAS's nvjet of fp32 matrices multiplies in tf32.
    """
    if role_of(kernel, op) not in PRODUCTS or role_of(kernel) not in (*PRODUCTS, OTHER):
        return ""
    number_format = format_of(kernel, shapes)
    return "tf32" if number_format == "fp32" and kernel.startswith("nvjet") else number_format


@lru_cache(maxsize=8192)
def in_fp32(kernel: str) -> bool:
    """True of products by whose own names, not inputs, they compute in fp32."""
    return role_of(kernel) in PRODUCTS and multiplied_in(kernel) == "fp32"


def _first(table: tuple[tuple[str, str], ...], text: str) -> str:
    return next((name for name, pattern in table if re.search(pattern, text, re.IGNORECASE)), "")
