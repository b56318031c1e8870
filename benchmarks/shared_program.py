"""One of two training programs that share a GPU, with random data in bf16: docs/results/shared-gpus.md.

    jouletrace run -o mlp -- python benchmarks/shared_program.py mlp 12
    jouletrace run -o encoder -- python benchmarks/shared_program.py encoder 12
    jouletrace run -o both -- sh -c "python benchmarks/shared_program.py mlp 16 &
                                     python benchmarks/shared_program.py encoder 16; wait"

For MPS start ``nvidia-cuda-mps-control -d`` before the last. Prints the steps that were done in so many seconds.
"""

import sys
import time

import torch
from torch import nn


def model_of(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A model and its batch on the GPU: six linear layers of 4096, or six layers of a transformer's encoder."""
    torch.manual_seed(0)
    if name == "mlp":
        model: nn.Module = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(4096, 4096), nn.GELU())))
        shape: tuple[int, ...] = (4096, 4096)
    else:
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6)
        shape = (64, 256, 512)
    return model.cuda().bfloat16(), torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def main() -> None:
    """Train for some seconds."""
    name, seconds = sys.argv[1], float(sys.argv[2])
    model, batch = model_of(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    begin, steps = time.time(), 0
    while time.time() - begin < seconds:
        for _ in range(5):
            optimizer.zero_grad()
            model(batch).float().square().mean().backward()
            optimizer.step()
            steps += 1
        torch.cuda.synchronize()
    print(f"{steps} steps of {name} in {time.time() - begin:.2f} s")


if __name__ == "__main__":
    main()
