"""Weights in 8 bits: the linear layers of a model, replaced by ones that compute as a scheme states.

Scales are symmetric and come from the largest magnitude, without calibration data. Embeddings, the output head of a
language model, attention and everything else keep their type. Imports torch inside functions: ``--help`` does without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.environment import short_name
from jouletrace.workloads.options import QUANTIZATIONS
from jouletrace.workloads.placement import holds_values

if TYPE_CHECKING:
    import torch

_INT8, _FP8 = 127.0, 448.0
"""Largest magnitudes of int8, used symmetrically, and of float8 E4M3."""

_LEAST_ROWS = 32
"""Rows to which few tokens are padded on a GPU: its product of int8 takes more than 16."""


@dataclass(frozen=True)
class _Scheme:
    """How a linear layer computes.

    Attributes:
        words: What is computed, for the Run; ``{}`` stands for the type of the activations.
        multiple: Number of which both widths of a layer on a GPU must be multiples.
        fp8: Whether weights are float8, else int8.
        product: Whether the product is computed in 8 bits, else of dequantised weights.
    """

    words: str
    multiple: int
    fp8: bool
    product: bool


_SCHEMES = {
    "int8": _Scheme(
        "products of int8 weights (a scale per output) and activations quantised per token, in int32 (torch._int_mm)",
        8,
        fp8=False,
        product=True,
    ),
    "fp8": _Scheme(
        "products of float8 E4M3 weights and activations, a scale per tensor (torch._scaled_mm)",
        16,
        fp8=True,
        product=True,
    ),
    "int8wo": _Scheme(
        "int8 weights (a scale per output), dequantised to {} before each product", 1, fp8=False, product=False
    ),
    "fp8wo": _Scheme(
        "float8 E4M3 weights (one scale), dequantised to {} before each product", 1, fp8=True, product=False
    ),
}
assert tuple(_SCHEMES) == QUANTIZATIONS


def quantize(model: torch.nn.Module | None, name: str | None, device: torch.device, workload: str) -> WorkloadFacts:
    """Replace the linear layers of ``model`` in place; returns facts about it.

    Args:
        model: The model, on its device and in the type in which everything else computes; None for a callable.
        name: A scheme of ``QUANTIZATIONS``; None leaves everything as it is.
        device: Its device; for a simulated GPU the one that holds its fake tensors.
        workload: Its name in messages.

    Raises:
        BadInputError: If it has no linear layer, or widths that the product doesn't take.
        NotPossibleError: If torch or the device can't compute it.
    """
    if name is None:
        return {}
    scheme = _SCHEMES[name]
    _check_device(name, scheme, device)
    found = list(_linear_layers(model)) if model is not None else []
    if model is None or not found:
        raise BadInputError(f"--quantization {name}: {workload} has no linear layers within it")
    like = next(model.parameters())
    before = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    for path, layer, weight in found:
        odd = [width for width in weight.shape if width % scheme.multiple]
        if odd and (device.type == "cuda" or not holds_values(device)):
            text = f"{path} is {odd[0]} wide, and the product takes multiples of {scheme.multiple}"
            raise BadInputError(f"--quantization {name}: {text}; use --quantization {name}wo")
        parent, _, last = path.rpartition(".")
        setattr(model.get_submodule(parent), last, _quantized_layer()(scheme, weight, layer.bias))
    after = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return {
        "quantization": name,
        "quantized": {
            "computes": scheme.words.format(short_name(like.dtype)),
            "layers": len(found),
            "bytes_before": before,
            "bytes": after,
        },
    }


def _check_device(name: str, scheme: _Scheme, device: torch.device) -> None:
    import torch

    if not scheme.fp8 or not scheme.product:
        return
    if device.type == "cpu" and holds_values(device):
        raise NotPossibleError(
            f"--quantization {name}: a CPU has no products of float8; use fp8wo (weights alone in float8) or int8"
        )
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        gpu = torch.cuda.get_device_name(device)
        raise NotPossibleError(f"--quantization {name}: {gpu} has no products of float8; Ada, Hopper and later have")


def _linear_layers(model: Any) -> Iterator[tuple[str, Any, torch.Tensor]]:
    """Path, layer and weight (outputs, inputs) of each linear layer but the output head of a language model."""
    import torch

    head = None
    if callable(getattr(model, "can_generate", None)) and model.can_generate():
        head = model.get_output_embeddings()
    for path, layer in list(model.named_modules()):
        if layer is head or not path:
            continue
        if type(layer) is torch.nn.Linear:
            yield path, layer, layer.weight
        elif type(layer).__name__ == "Conv1D" and type(layer).__module__.startswith("transformers"):
            yield path, layer, layer.weight.t()  # GPT-2's linear layer, whose weight is transposed


@cache
def _quantized_layer() -> Callable[..., torch.nn.Module]:
    """The class of the replaced layers; made on request, since its base is torch's."""
    import torch

    class QuantizedLinear(torch.nn.Module):
        """A linear layer with weights of 8 bits; ``weight`` has shape (outputs, inputs)."""

        def __init__(self, scheme: _Scheme, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__()
            numbers = weight.detach().float()
            per = numbers.abs().amax() if scheme.fp8 else numbers.abs().amax(dim=1, keepdim=True)
            scale = per.clamp(min=1e-12) / (_FP8 if scheme.fp8 else _INT8)
            stored = _stored(numbers / scale, scheme.fp8).contiguous()
            self.weight = torch.nn.Parameter(stored, requires_grad=False)
            self.scale: torch.Tensor
            self.register_buffer("scale", scale if scheme.fp8 else scale.t().contiguous())
            self.bias = bias
            compute = _multiply_fp8 if scheme.fp8 else _multiply_int8
            self._compute = compute if scheme.product else _dequantised

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            """Outputs in the type of the inputs."""
            rows = inputs.reshape(-1, inputs.shape[-1])
            found = self._compute(rows, self.weight, self.scale)
            if self.bias is not None:
                found = found + self.bias
            return found.reshape(*inputs.shape[:-1], -1)

    return QuantizedLinear


def _stored(scaled: torch.Tensor, fp8: bool) -> torch.Tensor:
    import torch

    return scaled.to(torch.float8_e4m3fn) if fp8 else scaled.round().to(torch.int8)


def _dequantised(rows: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Product with the weights in the type of the activations; ``scale`` is one, or one per output."""
    import torch

    full = weight.to(rows.dtype) * (scale if scale.dim() == 0 else scale.t()).to(rows.dtype)
    return torch.nn.functional.linear(rows, full)


def _multiply_int8(rows: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Product in int8, with a scale per token and per output; sums of int8 fit into int32, not into fp16."""
    import torch

    own = (rows.abs().amax(dim=1, keepdim=True).float() / _INT8).clamp(min=1e-12)
    stored = (rows / own).round().to(torch.int8)
    count = rows.shape[0]
    on_gpu = rows.device.type == "cuda" or not holds_values(rows.device)
    if on_gpu and count < _LEAST_ROWS:
        stored = torch.nn.functional.pad(stored, (0, 0, 0, _LEAST_ROWS - count))
    sums = torch._int_mm(stored, weight.t())[:count]
    return (sums * own * scale).to(rows.dtype)


def _multiply_fp8(rows: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Product in float8, with one scale for the activations, taken from them, and one for the weights."""
    import torch

    own = (rows.abs().amax().float() / _FP8).clamp(min=1e-12)
    stored = (rows / own).to(torch.float8_e4m3fn)
    return torch._scaled_mm(stored, weight.t(), scale_a=own, scale_b=scale, out_dtype=rows.dtype)
