"""A chain of large operators, none of which fits the L2: each looped alone has its energy by the counter.

jouletrace profile benchmarks/programs/chain.py:make --mode eager --detail kernel
"""

import torch
from torch import nn
from torch.nn import functional


def _fixed(values: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)


class Chain(nn.Module):
    """Eight operators one after the other, on inputs of a quarter to one GiB."""

    def __init__(self) -> None:
        super().__init__()
        self.large = _fixed(torch.randn(1 << 14, 1 << 14))
        self.product = nn.Linear(4096, 4096, bias=False)
        self.wide = nn.Linear(8192, 8192, bias=False).half()
        self.conv = nn.Conv2d(64, 64, 3, padding=1, bias=False).half()
        self.operators = {
            "mul": lambda x: self.large * 1.5,
            "mm fp32": lambda x: self.product(x["square"]),
            "softmax": lambda x: torch.softmax(x["half"], -1),
            "mm fp16": lambda x: self.wide(x["wide"]),
            "gelu": lambda x: functional.gelu(x["half"]),
            "cumsum": lambda x: torch.cumsum(self.large, 1),
            "convolution": lambda x: self.conv(x["image"]),
            "layer norm": lambda x: functional.layer_norm(self.large, (1 << 14,)),
        }

    def forward(self, x: dict[str, torch.Tensor]) -> torch.Tensor:
        """A value that depends on each operator, so that none can be left out."""
        total = torch.zeros(8, device=self.large.device)
        for operator in self.operators.values():
            total = total + operator(x).reshape(-1)[:8].float()
        return total


def make() -> tuple[Chain, tuple[dict[str, torch.Tensor]]]:
    """The chain on the GPU, and its inputs; products of fp32 in IEEE arithmetic."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    chain = Chain().cuda().eval()

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda")

    return chain, (
        {
            "square": random(4096, 4096),
            "half": random(1 << 14, 1 << 14).half(),
            "wide": random(2048, 8192).half(),
            "image": random(64, 64, 112, 112).half(),
        },
    )
