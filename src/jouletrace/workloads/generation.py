"""Generating tokens as an iteration: a prompt is processed (prefill), then tokens follow one by one (decode).

The whole iteration is transformers' ``generate``, or a loop of ours where that can't run: in a CUDA graph, and
with tensors that hold no values. Its pieces also run separately: the forward of the prompt, forwards of
one token at several lengths of the cache, and the work between forwards. Imports torch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import BETWEEN, DECODE, PREFILL, TOGETHER, Call, Generation, Inputs, Segment
from jouletrace.workloads.environment import require_transformers
from jouletrace.workloads.kv_cache import GrownCache, Held, PlacedCache, allocate, cache_name, first
from jouletrace.workloads.options import NEW_TOKENS, WorkloadOptions
from jouletrace.workloads.placement import holds_values

LENGTHS = 3
"""Number of cache lengths at which a decoding forward runs separately; others are interpolated."""


def make_generation(
    model: Any,
    inputs: Sequence[Inputs],
    settings: Callable[[], AbstractContextManager[None]],
    options: WorkloadOptions,
    name: str,
) -> tuple[Call, Generation, WorkloadFacts]:
    """The call of an iteration of a model of transformers, its pieces, and facts about it. Generates once.

    ``inputs`` is one set: ``input_ids`` of shape (batch, tokens), and optionally ``attention_mask``. ``settings`` makes
    the context of one iteration.

    Raises:
        BadInputError: If the model can't generate, or the sequence is too long for it.
        NotPossibleError: If its cache doesn't hold the keys and values of all tokens.
    """
    _check_model(model, name)
    ids, mask = _prompt(inputs, name)
    wanted = options.max_new_tokens or NEW_TOKENS
    _check_length(model, int(ids.shape[1]), wanted, name)
    contexts = _check_contexts(model, mask, options.context, name)
    loop = Loop(model, ids, mask, settings, wanted, own=options.own_loop)
    pieces = [
        replace(segment, weight=0.0, context=tokens)
        for tokens in contexts
        for segment in Loop(model, _repeated(ids, tokens), None, settings, 2, own=options.own_loop)
        .generation()
        .segments
        if segment.phase != BETWEEN
    ]
    generation = replace(loop.generation(), contexts=tuple(pieces))
    facts: WorkloadFacts = {
        "seq_len": generation.prompt,
        "new_tokens": generation.steps,
        "tokens": generation.tokens,
        "cache": generation.cache,
        "generated_by": "transformers' generate" if options.own_loop is None else "a loop of jouletrace's own",
        "sampling": "greedy",
    }
    return loop.whole(), generation, facts


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


def _check_contexts(model: Any, mask: torch.Tensor | None, contexts: tuple[int, ...], name: str) -> tuple[int, ...]:
    if contexts and mask is not None and bool((mask == 0).any()):
        raise BadInputError(f"--context {contexts[0]}: {name} has a padded prompt; give one without padding")
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if contexts and most is not None and contexts[-1] + 1 > most:
        raise BadInputError(f"--context {contexts[-1]}: with a new token that is more than {name} takes, {most} tokens")
    return contexts


def _repeated(ids: torch.Tensor, tokens: int) -> torch.Tensor:
    """A prompt of so many tokens per sample: ``ids`` as often as is necessary."""
    return ids.repeat(1, -(-tokens // ids.shape[1]))[:, :tokens].contiguous()


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


class Loop:
    """Prompt, model and cache of one workload; generates once on construction.

    Args:
        model: The model, on its device.
        ids: The prompt, shape (batch, tokens).
        mask: 0 at padding, of the same shape; None without padding.
        settings: Makes the context of one iteration.
        wanted: Number of new tokens.
        own: Kind of cache for our own loop; None for transformers' ``generate``.
    """

    def __init__(
        self,
        model: Any,
        ids: torch.Tensor,
        mask: torch.Tensor | None,
        settings: Callable[[], AbstractContextManager[None]],
        wanted: int,
        *,
        own: str | None,
    ) -> None:
        self._model, self._ids, self._settings = model, ids, settings
        self._batch, self._prompt = (int(size) for size in ids.shape)
        self._plain, self._cache = own is None, own or "dynamic"
        self._mask = torch.ones_like(ids) if mask is None else mask
        self._padded = bool((self._mask == 0).any())
        takes = inspect.signature(model.forward).parameters
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._takes_cache = cache_name(takes) or "past_key_values"
        with settings():
            known = torch.cat([self._mask, self._mask.new_ones(self._batch, wanted)], dim=1)
            self._seen, self._places = known, (known.long().cumsum(-1) - 1).clamp(min=0)
            self._passed = self._passed_by_generate() if self._plain else frozenset()
            self._steps = wanted
            self._record()

    def whole(self) -> Call:
        """An iteration."""
        return self._call(lambda: self._run(self._steps))

    def generation(self) -> Generation:
        """The pieces of an iteration."""
        begin, end = self._prompt + 1, self._prompt + self._steps - 1
        at = knots(begin, end)
        times = 1 if self._plain or not holds_values(self._ids.device) else TOGETHER
        decode = [
            Segment(DECODE, weight, self._alone(functools.partial(self._decode, length), times), times, length)
            for length, weight in zip(at, weights(begin, end, at), strict=True)
        ]
        return Generation(
            prompt=self._prompt,
            steps=self._steps,
            tokens=self._steps * self._batch,
            cache=self._cache,
            segments=(
                Segment(PREFILL, 1.0, self._alone(self._prefill), length=self._prompt),
                *decode,
                Segment(BETWEEN, 1.0, self._between(times), times),
            ),
            first_token=self._call(lambda: self._run(1)),
        )

    def _call(self, run: Callable[[], Any]) -> Call:
        def call(_: int) -> Any:
            with self._settings():
                return run()

        return call

    def _record(self) -> None:
        """Generate once by our own forwards, and keep the token and the cache of each length to be measured."""
        begin, end = self._prompt + 1, self._prompt + self._steps - 1
        cache = GrownCache({}, keep=True)
        outputs = self._forward(self._ids, cache)
        self._outputs: type = type(outputs)
        self._logits = outputs.logits[:, -1:].clone()
        at = knots(begin, end)
        self._fed: dict[int, torch.Tensor] = {}
        token = self._next(self._logits)
        for length in range(begin, end + 1):
            if length in at:
                self._fed[length] = token
            if not holds_values(self._ids.device) and length < end:
                continue  # tensors have no values: the shapes of the last forward give the others
            if not holds_values(self._ids.device):
                cache = GrownCache(allocate(cache.held, length - 1), keep=True)
            token = self._next(self._forward(token, cache).logits)
        if self._cache == "static":
            self._memory = allocate(cache.held, self._prompt + self._steps)
        else:
            self._held: dict[int, Held] = {length: first(cache.held, length - 1) for length in at}

    def _forward(self, tokens: torch.Tensor, cache: Any, *, alone: bool = False) -> Any:
        """A forward with the arguments that ``generate`` would pass; ``cache`` holds the preceding tokens.

        Where it runs ``alone`` it may read values: a mask without padding is recognised as such on the host.
        """
        given: dict[str, Any] = dict(self._options)
        held = cache.get_seq_length()
        end = held + tokens.shape[1]
        if self._padded or "position_ids" in self._passed:
            given["position_ids"] = self._places[:, held:end]
        if self._padded or (alone and "attention_mask" in self._passed):
            given["attention_mask"] = self._seen[:, :end]
        given[self._takes_cache] = cache
        return self._model(input_ids=tokens, use_cache=True, return_dict=True, **given)

    def _passed_by_generate(self) -> frozenset[str]:
        """Arguments that transformers' loop passes to a forward, which depend on the version."""
        found: set[str] = set()
        forward = self._model.forward

        def spy(*args: Any, **keywords: Any) -> Any:
            found.update(name for name, value in keywords.items() if value is not None)
            return forward(*args, **keywords)

        with self._instead(spy):
            self._generate(1)
        return frozenset(found)

    @staticmethod
    def _next(logits: torch.Tensor) -> torch.Tensor:
        """The most likely token of each sequence, shape (batch, 1)."""
        return logits[:, -1].argmax(-1, keepdim=True)

    def _prefill(self, *, alone: bool = False) -> Any:
        cache = PlacedCache(self._memory, 0) if self._cache == "static" else GrownCache({}, keep=True)
        return self._forward(self._ids, cache, alone=alone).logits

    def _decode(self, length: int, *, alone: bool = False) -> Any:
        static = self._cache == "static"
        cache = PlacedCache(self._memory, length - 1) if static else GrownCache(self._held[length], keep=False)
        return self._forward(self._fed[length], cache, alone=alone).logits

    def _alone(self, forward: Callable[..., Any], times: int = 1) -> Call:
        """A forward as a separate call.

        The call doesn't wait for the device, although ``generate`` waits for each token: the host work of that loop
        overlaps the end of the forward and would be counted twice.
        """

        def run() -> Any:
            for _ in range(times):
                logits = forward(alone=self._plain)
            return logits

        return self._call(run)

    def _run(self, steps: int) -> Any:
        return self._generate(steps) if self._plain else self._own(steps)

    def _generate(self, steps: int) -> Any:
        """Transformers' own loop, which always produces ``steps`` tokens."""
        ends = self._model.generation_config.eos_token_id
        pad = self._model.generation_config.pad_token_id
        return self._model.generate(
            input_ids=self._ids,
            attention_mask=self._mask,
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
            num_beams=1,
            use_cache=True,
            **({"pad_token_id": ends[0] if isinstance(ends, list | tuple) else ends} if pad is None and ends else {}),
        )

    def _own(self, steps: int, forward: Callable[[torch.Tensor, Any], Any] | None = None) -> Any:
        """Our own loop: it reads no value from the device, so it can be captured, or run without values."""
        forward = forward or (lambda tokens, cache: self._forward(tokens, cache).logits)
        grown = GrownCache({}, keep=True)
        tokens, found = self._ids, []
        for step in range(steps):
            held = 0 if step == 0 else self._prompt + step - 1
            cache = PlacedCache(self._memory, held) if self._cache == "static" else grown
            tokens = self._next(forward(tokens, cache))
            found.append(tokens)
        return torch.cat([self._ids, *found], dim=1)

    def _between(self, times: int) -> Call:
        """The whole iteration with forwards that only return the logits of an earlier forward."""
        returned = cache_name(field.name for field in fields(self._outputs)) or self._takes_cache

        def stub(*_: Any, **given: Any) -> Any:
            return self._outputs(logits=self._logits, **{returned: given.get(self._takes_cache)})

        def run() -> Any:
            if not self._plain:
                return [self._own(self._steps, lambda *_: self._logits) for _ in range(times)][-1]
            with self._instead(stub):
                return [self._generate(self._steps) for _ in range(times)][-1]

        return self._call(run)

    @contextmanager
    def _instead(self, forward: Callable[..., Any]) -> Iterator[None]:
        """Replace the model's forward inside the block."""

        @functools.wraps(self._model.forward)  # generate reads its signature
        def call(*args: Any, **keywords: Any) -> Any:
            return forward(*args, **keywords)

        before = vars(self._model).get("forward")
        self._model.forward = call
        try:
            yield
        finally:
            if before is None:
                del self._model.forward
            else:
                self._model.forward = before


def knots(first: int, last: int) -> list[int]:
    """Lengths at which to measure: evenly spaced, including both ends; none where nothing is decoded."""
    if last < first:
        return []
    return sorted({first + round((last - first) * i / (LENGTHS - 1)) for i in range(LENGTHS)})


def weights(first: int, last: int, at: Sequence[int]) -> list[float]:
    """Weight of each length of ``at`` when every length from ``first`` to ``last`` occurs once.

    Other lengths are interpolated linearly: each is apportioned to its two neighbours in ``at``.
    ``at`` ascends from ``first`` to ``last``.
    """
    lengths = np.arange(first, last + 1)
    return [float(np.interp(lengths, at, np.eye(len(at))[i]).sum()) for i in range(len(at))]
