"""Advice in words: the joules at stake, why, and what to try."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jouletrace.analysis.advice import Advice
from jouletrace.run import Estimate
from jouletrace.words.reasons import printed
from jouletrace.words.scale import NBSP, figure

WAYS = {
    "host": "the GPU waits for the host: try CUDA graphs, torch.compile, a larger batch",
    "data_loader": "the GPU waits for the data loader: try more workers, pinned memory, data prepared beforehand",
    "synchronisation": "no kernel runs after the host waited for the GPU: try fewer .item(), .cpu(), synchronize()",
    "ranks": "GPUs wait for other ranks, most often for {where}: try an even load",
    "rank_at_cap": "GPUs wait most often for {where}, which its power cap holds: try an equal cap, or less load there",
    "math_attention": "attention runs as products and softmax: try scaled_dot_product_attention with flash or cuDNN",
    "fp32_attention": "attention in fp32: try bf16",
    "fp32": "products in fp32: try tf32 (torch.set_float32_matmul_precision) or bf16",
    "layout": "layouts are converted (NCHW, NHWC): try channels_last",
    "host_copies": "copies between GPU and host: try fewer .cpu() and .to(), or pinned memory with non_blocking=True",
    "far_from_best": "{where}: try a larger batch, sizes that are multiples of 64, or torch.compile",
    "copies": "copies and casts: try fewer .to(), .contiguous(), cat, or torch.compile",
}
"""Cause and remedy of each rule, by its code."""

_OF_PROFILES = {"host": "the GPU waits for the host: try --mode graph, or a larger --batch"}
"""The same of a profile, where the command has options for it."""


def lines(advised: Sequence[Advice], kind: str, whose: str = "") -> list[str]:
    """A line each: "338.95 ± 0.48 mJ at stake (90 %), the GPU waits for the host: try ..."; ``whose`` stands before."""
    return [
        f"{whose}{figure(advice.energy, 'J')} at stake ({100 * advice.share:.0f}{NBSP}%), {_way(advice, kind)}"
        for advice in advised
    ]


def _way(advice: Advice, kind: str) -> str:
    ways = WAYS | _OF_PROFILES if kind == "profile" else WAYS
    way = ways[advice.code]
    if advice.where and "{where}" not in way:
        cause, _, remedy = way.partition(": ")
        return f"{cause}, most in {printed(advice.where)}: {remedy}"
    return way.format(where=printed(advice.where))


def to_list(advised: Sequence[Advice], kind: str, stated: Callable[[Estimate], dict[str, Any]]) -> list[dict[str, Any]]:
    """The list "advice" of JSON, energies as ``stated`` writes them."""
    return [
        {"code": advice.code, "energy_j": stated(advice.energy), "share": advice.share, "says": _way(advice, kind)}
        for advice in advised
    ]
