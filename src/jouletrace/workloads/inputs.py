"""Random inputs for models of transformers. They are never zeros: products of zeros draw less power."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Inputs
from jouletrace.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    import torch

_IMAGE_SIZE = 224
_SEQ_LEN = 128
_TEXT = (
    "The power that a processor draws depends on what it computes. A product of two large matrices keeps every unit "
    "busy, and the clock falls when the GPU reaches its limit. A sum of two vectors waits for memory, so that most "
    "of the chip is idle while the bill goes on. Whoever wants to know where the energy of a program goes has to look "
    "at each of its parts: how long it ran, how often, and at what power. In 2024 a single reply of a large model took "
    "between one and ten kilojoules, which is as much as a lamp of 10 watts uses in two to fifteen minutes. "
)
"""Input text for language models: an ordinary paragraph of English prose."""


def random_inputs(
    model: Any, device: torch.device, dtype: torch.dtype, options: WorkloadOptions, seq_len: int | None
) -> tuple[list[Inputs], WorkloadFacts]:
    """Input sets for a model of transformers, drawn on ``device`` from torch's generator with its present seed.

    Images are normal deviates in ``dtype``, shape (batch, channels, height, width); tokens are uniform over the
    vocabulary except id 0, shape (batch, ``seq_len`` or the usual length).

    Returns:
        The input sets, and the facts about them: "batch", "seq_len" or "sample_shape", "inputs".

    Raises:
        BadInputError: If the options don't fit the model, or its kind of input is unknown.
    """
    import torch

    batch = options.batch or 1
    kind = model.main_input_name
    if kind == "pixel_values":
        shape = _sample_shape(model.config, options)
        draws = [torch.randn(batch, *shape, device=device, dtype=dtype) for _ in range(options.input_sets)]
        facts: WorkloadFacts = {"sample_shape": list(shape)}
        drawn = "normal"
    elif kind == "input_ids" and not model.config.is_encoder_decoder:
        vocabulary, length = _vocabulary(model.config), _length(model.config, options, seq_len)
        draws = [torch.randint(1, vocabulary, (batch, length), device=device) for _ in range(options.input_sets)]
        facts = {"seq_len": length}
        drawn = "uniform tokens"
    else:
        raise BadInputError(
            f"{type(model).__name__}: inputs for a model of this kind are unknown (it takes '{kind}'); "
            "give it as file.py:callable returning (model, inputs)"
        )
    sets = len(draws)
    facts |= {"batch": batch, "inputs": f"random {drawn}, seed {options.seed}, {sets} set{'s' if sets > 1 else ''}"}
    return [((), {kind: draw}) for draw in draws], facts


def text_inputs(
    model: Any, tokenizer: Any, device: torch.device, options: WorkloadOptions
) -> tuple[list[Inputs], WorkloadFacts]:
    """As ``random_inputs``, of English text: a paragraph, repeated and cut into sequences of one length.

    Raises:
        BadInputError: If the sequence is too long for the model, or tokens lie outside its vocabulary.
    """
    import torch

    sets, batch, length = options.input_sets, options.batch or 1, _length(model.config, options, None)
    tokens = list(tokenizer(_TEXT, add_special_tokens=False)["input_ids"])
    if not tokens or max(tokens) >= _vocabulary(model.config):
        raise BadInputError(
            f"{type(model).__name__}: its tokenizer yields tokens outside its vocabulary of {_vocabulary(model.config)}"
        )
    stream = (tokens * -(-sets * batch * length // len(tokens)))[: sets * batch * length]
    draws = torch.tensor(stream, device=device).view(sets, batch, length)
    said = f"English text in the model's own tokens, {sets} set{'s' if sets > 1 else ''}"
    return [((), {"input_ids": draw}) for draw in draws], {"seq_len": length, "batch": batch, "inputs": said}


def image_inputs(
    shape: tuple[int, int, int], device: torch.device, dtype: torch.dtype, options: WorkloadOptions
) -> tuple[list[Inputs], WorkloadFacts]:
    """As ``random_inputs``, for a model that takes a batch of images of one shape (channels, height, width) alone."""
    import torch

    sets, batch = options.input_sets, options.batch or 1
    draws = [torch.randn(batch, *shape, device=device, dtype=dtype) for _ in range(sets)]
    said = f"random normal, seed {options.seed}, {sets} set{'s' if sets > 1 else ''}"
    return [((draw,), {}) for draw in draws], {"sample_shape": list(shape), "batch": batch, "inputs": said}


def _sample_shape(config: Any, options: WorkloadOptions) -> tuple[int, int, int]:
    """Channels, height and width of an image."""
    if options.seq_len is not None:
        raise BadInputError(f"--seq-len {options.seq_len}: {config.model_type} takes images, which have no such length")
    size = getattr(config, "image_size", None) or _IMAGE_SIZE
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return int(getattr(config, "num_channels", 3)), int(height), int(width)


def _vocabulary(config: Any) -> int:
    size = int(config.get_text_config().vocab_size)
    if size < 2:
        raise BadInputError(f"vocab_size {size}: random tokens need at least 2")
    return size


def _length(config: Any, options: WorkloadOptions, default: int | None) -> int:
    """Tokens per sample, at most the number of the model's positions."""
    most = getattr(config.get_text_config(), "max_position_embeddings", None)
    if options.seq_len is None:
        wanted = default or _SEQ_LEN
        return wanted if most is None else min(wanted, most)
    if most is not None and options.seq_len > most:
        raise BadInputError(
            f"--seq-len {options.seq_len}: {config.model_type} takes {most} tokens at most "
            f"(--config max_position_embeddings={options.seq_len} makes room)"
        )
    return options.seq_len
