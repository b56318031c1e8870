"""Eight large operators, each too large for the cache: the same kernels in any order, or each alone."""

import torch

OPERATORS = ("mul", "sgemm", "softmax", "hgemm", "gelu", "cumsum", "conv", "norm")


class Chain:
    """The operators and what they work on, random, on the current GPU."""

    OPS = OPERATORS

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = False
        half = {"device": "cuda", "dtype": torch.half}
        self._large = torch.randn(1 << 14, 1 << 14, device="cuda")
        self._halves = torch.randn(1 << 14, 1 << 14, **half)
        self._floats = torch.randn(4096, 4096, device="cuda")
        self._square = torch.nn.Linear(4096, 4096, bias=False, device="cuda")
        self._narrow = torch.randn(2048, 8192, **half)
        self._wide = torch.nn.Linear(8192, 8192, bias=False, **half)
        self._images = torch.randn(64, 64, 112, 112, **half)
        self._conv = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False, **half)

    def op(self, name: str) -> torch.Tensor:
        """Run one of ``OPERATORS``."""
        return {
            "mul": lambda: self._large * 1.5,
            "sgemm": lambda: self._square(self._floats),
            "softmax": lambda: torch.softmax(self._halves, -1),
            "hgemm": lambda: self._wide(self._narrow),
            "gelu": lambda: torch.nn.functional.gelu(self._halves),
            "cumsum": lambda: torch.cumsum(self._large, 1),
            "conv": lambda: self._conv(self._images),
            "norm": lambda: torch.nn.functional.layer_norm(self._large, (1 << 14,)),
        }[name]()
