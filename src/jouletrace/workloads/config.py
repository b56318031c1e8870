"""``--config key=value``: overrides of a model's configuration, typed by the value they replace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.workloads.nearest import nearest

_BOOL = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
# Names of settings that are counts or widths; others (token ids, positions of layers) may be negative.
_FIRST_WORDS = {"num", "n"}
_LAST_WORDS = {"layers", "depth", "depths", "heads", "channels", "experts", "positions", "embeddings", "stride"}
_LAST_WORDS |= {"size", "sizes", "dim", "dims", "width", "widths", "embd"}
# Settable although a configuration doesn't list them among its fields.
_HIDDEN = {"num_labels": 0, "attn_implementation": "sdpa"}


def typed_overrides(config: Any, overrides: Mapping[str, str], name: str) -> dict[str, Any]:
    """Values for the keyword arguments of ``config``'s class.

    Args:
        config: The configuration (of transformers) without the overrides.
        overrides: Key and text, as on the command line.
        name: The model, for messages.

    Raises:
        BadInputError: If a key is unknown, a text can't be read as the type of the present value, or a count is
            below 0.
    """
    alternative: dict[str, str] = getattr(config, "attribute_map", {})
    present = {**_HIDDEN, **config.to_dict()}
    typed = {}
    for key, text in overrides.items():
        field = alternative.get(key, key)
        if field not in present:
            raise BadInputError(f"--config {key}: {name} has no such setting{nearest(key, [*present, *alternative])}")
        value = typed[field] = _typed(key, text, present[field])
        if _counts(field) and _below_0(value) and not _below_0(present[field]):
            raise BadInputError(f"--config {key}={text}: a count can't be below 0")
    return typed


def _counts(field: str) -> bool:
    """Whether a setting is a count, by its name."""
    words = field.split("_")
    return words[0] in _FIRST_WORDS or words[-1] in _LAST_WORDS


def _below_0(value: Any) -> bool:
    """Whether a number, or one of several, is negative."""
    numbers = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(number, int | float) and number < 0 for number in numbers)


def _typed(key: str, text: str, present: Any) -> Any:
    """``text`` as the type of ``present``; JSON for lists, mappings and settings that are unset."""
    if isinstance(present, str):
        return text
    try:
        if isinstance(present, bool):
            return _BOOL[text.lower()]
        if isinstance(present, (int, float)):
            return type(present)(text)
        if isinstance(present, (list, tuple)):
            return list(json.loads(text if text.startswith("[") else f"[{text}]"))
        return _json_or_text(text) if present is None else dict(json.loads(text))
    except (KeyError, ValueError, TypeError):
        kind = type(present).__name__
        raise BadInputError(f"--config {key}={text}: must read as {kind}, such as {present!r}") from None


def _json_or_text(text: str) -> Any:
    """The value of an unset setting, which has no type: JSON where the text is JSON, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
