"""One's own model: modules that are called several times, named inputs, a dictionary for an output.

    python examples/my_own_model.py --device sim:h100     # a first try without a GPU: ten seconds
    python examples/my_own_model.py [--device auto|cpu]   # a CPU takes minutes

Run it in a clone of the repository: it imports ``options.py``, which stands beside it.

The same from the command line, where the callable below makes the model:

    jouletrace profile examples/my_own_model.py:make --detail layer
"""

import torch
from options import parse
from torch import nn

import jouletrace as jt


class Encoder(nn.Module):
    """One block whose weights serve every layer, as in ALBERT."""

    def __init__(self, width: int = 768, layers: int = 3) -> None:
        super().__init__()
        self.layers = layers
        self.block = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.head = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        """Hidden states, and logits of the first token."""
        for _ in range(self.layers):
            x = x + scale * self.block(x)
        return {"states": x, "logits": self.head(x[:, 0])}


def make(batch: int = 64) -> tuple[nn.Module, dict[str, object]]:
    """The model and its inputs."""
    torch.manual_seed(0)
    return Encoder(), {"x": torch.randn(batch, 197, 768), "scale": 0.5}


def main() -> None:
    """Profile it, and ask the Run for more."""
    arguments = parse(__doc__)
    model, inputs = make(arguments.batch or 64)
    profiler = jt.LayerProfiler(model, arguments.device, mode=arguments.mode)
    profiler.profile(inputs, runs=arguments.runs, **arguments.times)
    print(profiler.summary())
    print()
    for row in profiler.rows()[-1]:  # each call of a module that is called several times
        time = row.time.scaled(1e6)
        print(f"{row.name:20} {row.part:24} {time.value:9.1f} µs  {row.energy.value or float('nan'):.4g} J")
    closure = profiler.run.result("closure_layers")
    print(f"\nlayers and gaps / the untouched step: {closure.value or closure.reason}")
    if arguments.output:
        print("written:", *profiler.to_csv(arguments.output))


if __name__ == "__main__":
    main()
