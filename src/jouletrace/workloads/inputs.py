"""Random inputs for models of transformers. Never zeros: products of zeros draw less power."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.workloads.base import WorkloadOptions
from jouletrace.workloads.iteration import Inputs

if TYPE_CHECKING:
    import torch

_IMAGE_SIZE = 224
_SEQ_LEN = 128


def random_inputs(
    model: Any, device: torch.device, dtype: torch.dtype, options: WorkloadOptions, seq_len: int | None
) -> tuple[list[Inputs], dict[str, Any]]:
    """Input sets for ``model``, drawn on ``device`` from torch's generator as it is seeded now.

    Images are normal deviates, shape (batch, channels, height, width); tokens are uniform over the
    vocabulary but for id 0, shape (batch, seq_len).

    Args:
        model: A model of transformers; its ``main_input_name`` and ``config`` say what it takes.
        device: Where to draw.
        dtype: Type of images.
        options: Batch, sequence length and number of sets.
        seq_len: Default sequence length; None for the usual one.

    Returns:
        The input sets, and the facts about them: "batch", "seq_len" or "sample_shape", "inputs".

    Raises:
        BadInputError: If the options don't fit the model, or nothing is known to feed it with.
    """
    import torch

    batch = options.batch or 1
    kind = model.main_input_name
    if kind == "pixel_values":
        shape = _sample_shape(model.config, options)
        draws = [torch.randn(batch, *shape, device=device, dtype=dtype) for _ in range(options.input_sets)]
        facts: dict[str, Any] = {"sample_shape": list(shape)}
        drawn = "normal"
    elif kind == "input_ids" and not model.config.is_encoder_decoder:
        vocabulary, length = _vocabulary(model.config), _length(model.config, options, seq_len)
        draws = [torch.randint(1, vocabulary, (batch, length), device=device) for _ in range(options.input_sets)]
        facts = {"seq_len": length}
        drawn = "uniform tokens"
    else:
        raise BadInputError(
            f"{type(model).__name__}: no inputs known for a model of this kind (it takes '{kind}'); "
            "give it as file.py:callable returning (model, inputs)"
        )
    sets = len(draws)
    facts |= {"batch": batch, "inputs": f"random {drawn}, seed {options.seed}, {sets} set{'s' if sets > 1 else ''}"}
    return [((), {kind: draw}) for draw in draws], facts


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
    """Tokens per sample, within the positions that the model knows."""
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
