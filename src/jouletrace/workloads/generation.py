"""Generating tokens as an iteration: a prompt is processed (prefill), then tokens follow one by one (decode).

The whole iteration is transformers' ``generate``, or a loop of ours where that can't run: in a CUDA graph, and
with tensors that hold no values. Its pieces also run separately: the forward of the prompt, forwards of
one token at several lengths of the cache, and the work between forwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Call, Generation, Inputs
from jouletrace.workloads.environment import require_transformers
from jouletrace.workloads.kv_cache import KINDS
from jouletrace.workloads.options import WorkloadOptions

if TYPE_CHECKING:
    import torch

NEW_TOKENS = 64
"""Tokens to generate by default."""

PROMPT = 128
"""Largest default number of tokens of a prompt."""


def make_generation(
    model: Any,
    inputs: Sequence[Inputs],
    settings: Callable[[], AbstractContextManager[None]],
    options: WorkloadOptions,
    name: str,
) -> tuple[Call, Generation, WorkloadFacts]:
    """The call of an iteration, its pieces, and facts about it. Generates once.

    Args:
        model: A model of transformers with a head that generates, on its device.
        inputs: One set: ``input_ids`` of shape (batch, tokens), and optionally ``attention_mask``.
        settings: Makes the context of one iteration.
        options: Already checked.
        name: Name of the workload, for messages.

    Raises:
        BadInputError: If the model can't generate, or the sequence is too long for it.
        NotPossibleError: If its cache doesn't hold the keys and values of all tokens.
    """
    from jouletrace.workloads.generation_loop import Loop  # imports torch

    _check_model(model, name)
    ids, mask = _prompt(inputs, name)
    wanted = options.max_new_tokens or NEW_TOKENS
    _check_length(model, int(ids.shape[1]), wanted, name)
    loop = Loop(model, ids, mask, settings, wanted, own=options.own_loop)
    generation = loop.generation()
    facts: WorkloadFacts = {
        "seq_len": generation.prompt,
        "new_tokens": generation.steps,
        "tokens": generation.tokens,
        "cache": generation.cache,
        "generated_by": "transformers' generate" if options.own_loop is None else "a loop of jouletrace's own",
        "sampling": "greedy",
    }
    return loop.whole(), generation, facts


def check_generation(name: str, options: WorkloadOptions) -> None:
    """Refuse options of generation that make no sense.

    Raises:
        BadInputError: With the option.
    """
    if options.task != "generate":
        if options.max_new_tokens is not None:
            raise BadInputError(f"{name}: --max-new-tokens is for --task generate")
        return
    if options.max_new_tokens is not None and options.max_new_tokens < 1:
        raise BadInputError(f"--max-new-tokens {options.max_new_tokens}: must be at least 1")
    if options.input_sets != 1:
        raise BadInputError(f"--input-sets {options.input_sets}: --task generate takes one prompt")
    assert options.own_loop in (None, *KINDS)


def _check_model(model: Any, name: str) -> None:
    kind = type(model).__name__
    can = isinstance(model, require_transformers().GenerationMixin) and model.can_generate()
    if not can:
        raise BadInputError(f"--task generate: {name} ({kind}) isn't a transformers model with a head that generates")
    if model.config.is_encoder_decoder:
        raise BadInputError(f"--task generate: {name} ({kind}) has an encoder; only decoders are supported")
    asked = getattr(model.generation_config, "cache_implementation", None)
    if asked not in (None, "dynamic"):
        raise NotPossibleError(
            f"--task generate: {name} requires a cache of kind '{asked}'; only dynamic ones are supported"
        )
    config = model.config.get_text_config()
    others = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if others or getattr(model, "_is_stateful", False):
        what = ", ".join(sorted(others)) or "a state"
        raise NotPossibleError(
            f"--task generate: {name} ({kind}) has layers of {what}; a cache of all keys and values is needed"
        )


def _check_length(model: Any, prompt: int, new: int, name: str) -> None:
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if most is not None and prompt + new > most:
        raise BadInputError(
            f"--max-new-tokens {new}: with a prompt of {prompt} that is {prompt + new} tokens, and {name} takes {most}"
        )


def _prompt(inputs: Sequence[Inputs], name: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Tokens and mask, by name or as the only argument."""
    args, keywords = inputs[0]
    given = {**dict(zip(("input_ids", "attention_mask"), args, strict=False)), **keywords}
    others = sorted(set(given) - {"input_ids", "attention_mask"})
    ids = given.get("input_ids")
    if others or len(args) > 2 or ids is None or getattr(ids, "ndim", 0) != 2 or ids.is_floating_point():
        said = f"got {', '.join(others)}" if others else "got none of shape (batch, tokens)"
        raise BadInputError(f"--task generate: {name} must be given input_ids and, if need be, attention_mask; {said}")
    return ids, given.get("attention_mask")
