"""How fast kernel records are decoded: from raw CUPTI buffers to columns with names, in one run.

Buffers are those recorded on an H100 under CUDA 13.0 (``tests/data``), repeated to a million records and
more. Beside it a plain copy of the same buffers, by which machines can be compared.

    python benchmarks/tracing_speed.py
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.tracing.decode import Layouts, decode, layouts_for
from jouletrace.tracing.trace import Trace, from_cupti

RECORDED = Path(__file__).parent.parent / "tests" / "data" / "cupti_13_0_h100.npz"
BUFFER_BYTES = 8 * 2**20
TRIES = 7


def best(call: Callable[[], Any]) -> float:
    """Seconds of the fastest of some tries."""
    seconds = []
    for _ in range(TRIES):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def decoded(buffers: list[Any], layouts: Layouts, names: dict[int, str]) -> Trace:
    return from_cupti(decode(buffers, layouts), names)


def copied(buffers: list[Any]) -> list[Any]:
    return [buffer.copy() for buffer in buffers]


def main() -> None:
    recorded = np.load(RECORDED)
    layouts = layouts_for(int(recorded["version"]))
    names = {int(pointer): str(pointer) for pointer in recorded["pointers"]}
    print("| buffers | records | records/s, decoded | records/s, columns with names | of a plain copy's time |")
    print("|---|---|---|---|---|")
    for kind, count in (("kernels", 26), ("mixed", 8)):
        one = recorded[kind]
        buffers = [np.tile(one, BUFFER_BYTES // len(one)) for _ in range(count)]
        found = decode(buffers, layouts)
        records = sum(len(chunk) for chunks in found.values() for chunk in chunks)
        split_s = best(partial(decode, buffers, layouts))
        whole_s = best(partial(decoded, buffers, layouts, names))
        copy_s = best(partial(copied, buffers))
        print(
            f"| {kind} | {records:,} | {records / split_s / 1e6:.1f} M | {records / whole_s / 1e6:.1f} M "
            f"| {whole_s / copy_s:.1f} × |"
        )


if __name__ == "__main__":
    main()
