"""A softmax in Triton whose block and warps come from the environment, for ``jouletrace tune`` and ``jt.ab``.

    jouletrace tune --over BLOCK=256,512,1024 --over WARPS=4,8 -- python examples/triton_blocks.py

Each setting runs this program as a whole, so it does the same work in all of them: ``ROUNDS`` softmaxes of a matrix of
``ROWS`` x ``COLUMNS``. Its start, of some seconds, is part of the energy that is compared; a larger ``ROUNDS`` in the
environment makes the share of the kernel larger. To see 1 % and less, compare two configurations in one process:

    import jouletrace as jt
    from triton_blocks import softmaxes

    print(jt.ab(softmaxes(256, 4), softmaxes(1024, 8)))

Needs a GPU and Triton, which comes with torch on Linux.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

ROWS, COLUMNS = 8192, 8192


class Blocks(NamedTuple):
    """A configuration: columns that a program of the kernel reads at a time, its warps, and repeats of the whole."""

    block: int = 1024
    warps: int = 4
    rounds: int = 50_000


def of_environment() -> Blocks:
    """The configuration that ``BLOCK``, ``WARPS`` and ``ROUNDS`` state; defaults for those that aren't set.

    Raises:
        SystemExit: If a value is no power of two, but for rounds, which are a number above 0.
    """
    read = {}
    for name, usual in Blocks()._asdict().items():
        text = os.environ.get(name.upper(), str(usual))
        number = int(text) if text.isdecimal() else 0
        if number < 1 or (name != "rounds" and number & (number - 1)):
            sys.exit(f"{name.upper()}={text}: must be a {'number above 0' if name == 'rounds' else 'power of two'}")
        read[name] = number
    return Blocks(**read)


def kernel() -> Any:
    """The kernel: each of its programs makes a row of the output in two passes over that of the input."""
    import triton
    import triton.language as tl

    globals()["tl"] = tl  # Triton looks names of a kernel up among those of its module

    @triton.jit
    def softmax(out, given, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64) * columns
        lanes = tl.arange(0, BLOCK)
        largest = tl.full((BLOCK,), -float("inf"), tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            at = start + lanes
            x = tl.load(given + row + at, mask=at < columns, other=-float("inf")).to(tl.float32)
            larger = tl.maximum(largest, x)
            seen = larger > -float("inf")
            total = tl.where(seen, total * tl.exp(largest - larger) + tl.exp(x - larger), total)
            largest = larger
        top = tl.max(largest, 0)
        norm = tl.sum(total * tl.exp(largest - top), 0)
        for start in range(0, columns, BLOCK):
            at = start + lanes
            x = tl.load(given + row + at, mask=at < columns).to(tl.float32)
            tl.store(out + row + at, (tl.exp(x - top) / norm).to(out.dtype.element_ty), mask=at < columns)

    return softmax


def softmaxes(block: int, warps: int) -> Callable[[], torch.Tensor]:
    """A callable that computes the softmax of one matrix in fp16, once its result has been compared with torch's.

    Raises:
        SystemExit: If there is no GPU.
    """
    if not torch.cuda.is_available():
        sys.exit("triton_blocks.py needs a GPU: torch sees none (torch.cuda.is_available() is False)")
    softmax, given = kernel(), torch.randn(ROWS, COLUMNS, device="cuda", dtype=torch.float16)
    out = torch.empty_like(given)

    def call() -> torch.Tensor:
        softmax[(ROWS,)](out, given, COLUMNS, BLOCK=block, num_warps=warps)
        return out

    torch.testing.assert_close(call(), given.softmax(1), atol=1e-4, rtol=1e-2)
    return call


def main() -> None:
    """Run the configuration of the environment."""
    blocks = of_environment()
    call = softmaxes(blocks.block, blocks.warps)
    for _ in range(blocks.rounds):
        call()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
