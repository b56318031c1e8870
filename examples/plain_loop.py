"""A training loop of one's own: energy of its steps, its phases and its epochs, while it runs and afterwards.

    python examples/plain_loop.py                                     (the GPU that CUDA shows, else the CPU)
    python examples/plain_loop.py --device 'sim:h100?realtime=1&load=0.5:300' --seconds 5

With several GPUs: ``torchrun --nproc_per_node 2 examples/plain_loop.py --save-to runs/mine``. Each rank
records its own, and the first one merges them.
"""

from __future__ import annotations

import argparse
import time

import torch
from ranges import print_ranges

import jouletrace as jt


def main() -> None:
    """Train a small model for some seconds, recorded."""
    options = argparse.ArgumentParser(description="A recorded training loop")
    options.add_argument("--device", default="visible", help="as --device of the command line takes them")
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--save-to", default=None, help="folder or .zip for the Run")
    chosen = options.parse_args()

    on = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    width = 4096 if on.type == "cuda" else 256
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 10)).to(on)
    optimizer = torch.optim.AdamW(model.parameters())

    with jt.record(
        "plain loop", device=chosen.device, save_to=chosen.save_to, on_update=print, update_s=2.0
    ) as recording:
        for _ in range(2):
            with jt.range("epoch", sync=True):
                end = time.monotonic() + chosen.seconds / 2
                while time.monotonic() < end:
                    with jt.range("data"):
                        inputs = torch.randn(128, width).to(on)
                        labels = torch.randint(10, (128,)).to(on)
                    with torch.profiler.record_function("forward"):  # ranges of other profilers count too
                        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                    with jt.range("backward"):
                        loss.backward()
                    with jt.range("optimizer"):
                        optimizer.step()
                        optimizer.zero_grad()
                    jt.step()
    print_ranges(recording.run)


if __name__ == "__main__":
    main()
