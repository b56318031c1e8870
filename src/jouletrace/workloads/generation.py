"""Generating tokens as an iteration: a prompt is processed (prefill), then tokens follow one by one (decode).

The iteration is transformers' ``generate``, or a loop of ours where that can't run: in a CUDA graph, and with tensors
that hold no values. Its phases are those of the operators that it calls (``execution.steps.module_names``). Imports
torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Call, Inputs
from jouletrace.workloads.environment import require_transformers
from jouletrace.workloads.kv_cache import Held, PlacedCache, cache_name
from jouletrace.workloads.options import NEW_TOKENS, WorkloadOptions


def make_generation(
    model: Any,
    inputs: Sequence[Inputs],
    settings: Callable[[], AbstractContextManager[None]],
    options: WorkloadOptions,
    name: str,
) -> tuple[Call, Callable[[int], Call], WorkloadFacts]:
    """The call of an iteration of a model of transformers, what makes one of other tokens, and facts about it.

    ``inputs`` is one set: ``input_ids`` of shape (batch, tokens), and optionally ``attention_mask``. ``settings`` makes
    the context of one iteration.

    Raises:
        BadInputError: If the model can't generate, or the sequence is too long for it.
        NotPossibleError: If its cache doesn't hold the keys and values of all tokens.
    """
    _check_model(model, name)
    ids, mask = _prompt(inputs, name)
    (batch, prompt), wanted = map(int, ids.shape), options.max_new_tokens or NEW_TOKENS
    _check_length(model, prompt, wanted, name)
    run = (
        partial(_generate, model, ids, mask)
        if options.own_loop is None
        else _own_loop(model, ids, mask, wanted, options.own_loop)
    )

    def call(steps: int) -> Call:
        def iteration(_: int) -> Any:
            with settings():
                return run(steps)

        return iteration

    facts: WorkloadFacts = {
        "seq_len": prompt,
        "new_tokens": wanted,
        "tokens": wanted * batch,
        "cache": options.own_loop or "dynamic",
        "generated_by": "transformers' generate" if options.own_loop is None else "a loop of jouletrace's own",
        "sampling": "greedy",
    }
    return call(wanted), call, facts


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


def _prompt(inputs: Sequence[Inputs], name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, and a mask that is 0 at padding, by name or as the only argument."""
    args, keywords = inputs[0]
    given = {**dict(zip(("input_ids", "attention_mask"), args, strict=False)), **keywords}
    others = sorted(set(given) - {"input_ids", "attention_mask"})
    ids = given.get("input_ids")
    if others or len(args) > 2 or ids is None or getattr(ids, "ndim", 0) != 2 or ids.is_floating_point():
        said = f"got {', '.join(others)}" if others else "got none of shape (batch, tokens)"
        raise BadInputError(f"--task generate: {name} must be given input_ids and, if need be, attention_mask; {said}")
    mask = given.get("attention_mask")
    return ids, torch.ones_like(ids) if mask is None else mask


def _generate(model: Any, ids: torch.Tensor, mask: torch.Tensor, steps: int) -> Any:
    """Transformers' own loop, which always produces ``steps`` tokens."""
    ends = model.generation_config.eos_token_id
    pad = model.generation_config.pad_token_id
    return model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=steps,
        min_new_tokens=steps,
        do_sample=False,
        num_beams=1,
        use_cache=True,
        **({"pad_token_id": ends[0] if isinstance(ends, list | tuple) else ends} if pad is None and ends else {}),
    )


def _own_loop(model: Any, ids: torch.Tensor, mask: torch.Tensor, wanted: int, kind: str) -> Callable[[int], Any]:
    """A loop of ours with a "dynamic" or "static" cache, for up to ``wanted`` tokens.

    It reads no value from the device, so it can be captured, or run without values.
    """
    takes = inspect.signature(model.forward).parameters
    usual: dict[str, Any] = {"use_cache": True, "return_dict": True}
    usual |= {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
    held_in, prompt = cache_name(takes) or "past_key_values", int(ids.shape[1])
    memory: Held = {}
    padded = bool((mask == 0).any())
    seen = torch.cat([mask, mask.new_ones(len(ids), wanted)], dim=1)
    places = (seen.long().cumsum(-1) - 1).clamp(min=0)

    def run(steps: int) -> Any:
        tokens, made, cache = ids, [], DynamicCache()
        for step in range(steps):
            begin = prompt + step - 1 if step else 0
            end = prompt + step
            if kind == "static":
                cache = PlacedCache(memory, begin, prompt + wanted)
            masked = {"position_ids": places[:, begin:end], "attention_mask": seen[:, :end]} if padded else {}
            outputs = model(input_ids=tokens, **usual, **masked, **{held_in: cache})
            tokens = outputs.logits[:, -1].argmax(-1, keepdim=True)
            made.append(tokens)
        return torch.cat([ids, *made], dim=1)

    return run
