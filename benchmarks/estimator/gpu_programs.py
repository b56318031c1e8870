"""Programs for ``gpu.py`` whose power differs in kind, each a call of one iteration; all data are random.

Those of ``SHORT`` take some milliseconds; those of ``LARGE`` draw what the power limit allows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[1]))
from canary import captured, swing

Step = Callable[[], object]

SWING_S = 0.0208


class Replay:
    """A CUDA graph of a call, with all that it reads."""

    def __init__(self, call: Step) -> None:
        self._call = call
        self._graph = captured(torch, call)

    def __call__(self) -> None:
        self._graph.replay()


def encoder_graph(batch: int) -> Step:
    """DeiT-B in fp16 as a CUDA graph."""
    return Replay(encoder_eager(batch))


def encoder_eager(batch: int) -> Step:
    """DeiT-B in fp16, launched kernel by kernel."""
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig(), add_pooling_layer=False).cuda().half().eval()
    images = torch.randn(batch, 3, 224, 224, device="cuda").half()

    @torch.inference_mode()
    def step() -> None:
        model(pixel_values=images)

    return step


def convolutions(layers: list[int], batch: int, half: bool) -> Step:
    """A training step of a residual network of bottlenecks, [3, 4, 6, 3] for ResNet-50."""
    from torchvision.models.resnet import Bottleneck, ResNet

    layout = torch.channels_last if half else torch.contiguous_format
    model = ResNet(Bottleneck, layers).cuda().to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
    labels = torch.randint(1000, (batch,), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def recurrent() -> Step:
    """An LSTM in fp16 over 64 steps."""
    model = nn.LSTM(2048, 2048).cuda().half()
    sequence = torch.randn(64, 512, 2048, device="cuda").half()

    @torch.inference_mode()
    def step() -> None:
        model(sequence)

    return step


def decoder() -> Step:
    """Four layers of GPT-2 at batch 1, launched kernel by kernel: the host can hardly keep up."""
    from transformers import GPT2Config, GPT2Model

    model = GPT2Model(GPT2Config(n_layer=4)).cuda().half().eval()
    tokens = torch.randint(50257, (1, 128), device="cuda")

    @torch.inference_mode()
    def step() -> None:
        model(input_ids=tokens, use_cache=False)

    return step


def alternation() -> Step:
    """Products, then copies of memory, as a CUDA graph of one period."""
    return Replay(swing(torch, SWING_S))


def products() -> Step:
    """Two large fp16 products with layer norms between them."""
    weights = [torch.randn(8192, 8192, device="cuda").half() / 90 for _ in range(2)]
    rows = torch.randn(8192, 8192, device="cuda").half()

    @torch.inference_mode()
    def step() -> None:
        found = rows
        for weight in weights:
            found = functional.layer_norm(found @ weight, (8192,))

    return step


def encoder_training() -> Step:
    """A training step of a transformer encoder in bf16."""
    layer = nn.TransformerEncoderLayer(2048, 16, 8192, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    tokens = torch.randn(32, 512, 2048, device="cuda").bfloat16()

    def step() -> None:
        optimizer.zero_grad()
        (model(tokens) - tokens).pow(2).mean().backward()
        optimizer.step()

    return step


SHORT: dict[str, Callable[[], Step]] = {
    "encoder": lambda: encoder_graph(64),
    "convolutions": lambda: convolutions([1, 1, 1, 1], 32, half=False),
    "recurrent": recurrent,
    "decoder": decoder,
    "alternation": alternation,
}

LARGE: dict[str, Callable[[], Step]] = {
    "encoder": lambda: encoder_graph(256),
    "products": products,
    "convolutions": lambda: convolutions([3, 4, 6, 3], 256, half=True),
    "encoder training": encoder_training,
}
