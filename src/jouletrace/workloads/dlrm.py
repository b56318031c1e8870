"""A recommendation model (DLRM): tables of embeddings that are looked up and summed, and small dense layers."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built, Inputs
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.kernels import whole
from jouletrace.workloads.options import WorkloadOptions, check_consistent, over_defaults
from jouletrace.workloads.placement import placed_random
from jouletrace.workloads.transformers_models import build_model

if TYPE_CHECKING:
    import torch

_BATCH, _DENSE, _MOST_INDICES = 2048, 13, 20
_MOST_TABLES, _MOST_NUMBERS = 10_000, 10**12

_SIZES = {"tables": "26", "rows": "100000", "dim": "128"}
_BOTTOM, _TOP = (512, 256), (1024, 1024, 512, 256, 1)
_NOTE = "1 to 20 uniform indices per table and sample, summed; dense gradients of the tables"


class Dlrm:
    """Bottom layers on 13 numbers, a sum of embeddings from each table, dot products of all pairs, top layers.

    Its settings (``--config``): ``tables``, ``rows`` of each, and ``dim``, the width of an embedding.

    Attributes:
        name: "dlrm".
    """

    name = "dlrm"

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``."""
        check_consistent(self.name, options)
        require_device(device)
        if options.seq_len is not None:
            raise BadInputError(f"--seq-len {options.seq_len}: {self.name} has no such length")
        config = over_defaults(self.name, options, _SIZES)
        sizes = {key: whole(self.name, key, text) for key, text in config.items()}
        if (numbers := math.prod(sizes.values())) > _MOST_NUMBERS or sizes["tables"] > _MOST_TABLES:
            said = " x ".join(f"{key}={value}" for key, value in sizes.items())
            most = f"at most {_MOST_TABLES} tables and {_MOST_NUMBERS:.0e} numbers fit any GPU"
            raise BadInputError(f"{self.name}: --config {said} are {numbers:.3g} numbers; {most}")
        options = replace(options, batch=options.batch or _BATCH)

        def make(on: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
            return placed_random(lambda: _model(**sizes), on, dtype, options.seed)

        def draw(_: Any, on: torch.device, dtype: torch.dtype) -> tuple[list[Inputs], WorkloadFacts]:
            return _inputs(sizes, on, dtype, options)

        changed = {key: sizes[key] for key in options.config}
        facts: WorkloadFacts = {"name": self.name, "config": changed, "note": _NOTE}
        return build_model(make, device, options, facts=facts, draw=draw, classes=lambda _: 2)


def _model(tables: int, rows: int, dim: int) -> torch.nn.Module:
    import torch
    from torch import nn

    class DLRM(nn.Module):
        """The model, with one logit per sample."""

        def __init__(self) -> None:
            super().__init__()
            self.bottom = _layers(_DENSE, *_BOTTOM, dim)
            self.tables = nn.ModuleList(nn.EmbeddingBag(rows, dim, mode="sum") for _ in range(tables))
            vectors = tables + 1
            pairs = torch.tril_indices(vectors, vectors, offset=-1)
            self.pairs: torch.Tensor
            self.register_buffer("pairs", pairs[0] * vectors + pairs[1])
            self.top = _layers(dim + vectors * (vectors - 1) // 2, *_TOP)

        def forward(self, dense: torch.Tensor, indices: list[torch.Tensor], offsets: list[torch.Tensor]) -> Any:
            """Logits, shape (batch, 1), of dense features (batch, 13) and, for each table, indices and offsets."""
            bottom = self.bottom(dense)
            looked_up = [table(*bag) for table, *bag in zip(self.tables, indices, offsets, strict=True)]
            vectors = torch.stack([bottom, *looked_up], dim=1)
            products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
            return self.top(torch.cat([bottom, products.index_select(1, self.pairs)], dim=1))

    return DLRM()


def _layers(*widths: int) -> torch.nn.Module:
    """Linear layers, each followed by ReLU, except a last one of width 1, which gives the logit."""
    from torch import nn

    layers: list[nn.Module] = []
    for width, after in pairwise(widths):
        layers += [nn.Linear(width, after)] + [nn.ReLU()] * (after > 1)
    return nn.Sequential(*layers)


def _inputs(
    sizes: dict[str, int], on: torch.device, dtype: torch.dtype, options: WorkloadOptions
) -> tuple[list[Inputs], WorkloadFacts]:
    """Random features, and indices of each table; their numbers are drawn on the host, since shapes depend on them."""
    import torch

    rng, batch, sets = np.random.default_rng(options.seed), options.batch or _BATCH, options.input_sets
    inputs: list[Inputs] = []
    for _ in range(sets):
        counts = rng.integers(1, _MOST_INDICES, (sizes["tables"], batch), endpoint=True)
        offsets = [torch.tensor(of.cumsum() - of, device=on) for of in counts]
        indices = [torch.randint(sizes["rows"], (int(of.sum()),), device=on) for of in counts]
        inputs.append(((torch.randn(batch, _DENSE, device=on, dtype=dtype), indices, offsets), {}))
    said = f"random, seed {options.seed}, {sets} set{'s' if sets > 1 else ''}"
    return inputs, {"batch": batch, "inputs": said}
