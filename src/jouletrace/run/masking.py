"""Masks values that look secret or are known to be, since the content of a Run appears in reports and is passed on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pyarrow as pa

from jouletrace.known_secrets import MASK, NAME, PREFIX, TOKEN, WORD, hidden, known, take_vocabulary
from jouletrace.run import tables
from jouletrace.run.channels import CHANNEL_UNITS
from jouletrace.run.metrics import METRICS
from jouletrace.run.model import Held, Run, held, put

_NO_NUMBER = r"(?!-?\d{1,7}(?:\.\d*)?(?:e[+-]?\d+)?(?![\w.+/=-]))"
_VALUE = r"(?!\*\*\*)(?:'[^']*'|\"[^\"]*\"|(?!//)[^\s'\"]+)"
_ANY = rf"{PREFIX}(?:{WORD}|{TOKEN})"

_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), rf"\1{MASK}\2" if pattern.endswith("(@)") else rf"\1{MASK}")
    for pattern in (
        r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@'\"]{1,256}(@)",  # user:password@ of a URL
        rf"([?&;](?:{_ANY}|sig|key|code|jwt|sid|x-amz-[\w-]{{1,40}}|x-goog-[\w-]{{1,40}})=)[^\s&#;'\"]+",
        r"(\b(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,40}(?:key|token))\s*:\s*)[^'\"\n]+",  # of headers
        r"(\b(?:bearer|basic)\s+)[\w+/.~=-]{16,}",
        rf"((?<![\w-]){PREFIX}{WORD}['\"]?\s?[=:]\s?){_VALUE}",  # --password=..., "password": "..."
        rf"((?<![\w-]){PREFIX}{TOKEN}(?:=|['\"]\s?:\s?)){_NO_NUMBER}{_VALUE}",
        rf"((?<!\S)--?{PREFIX}(?:{WORD}|{TOKEN}{_NO_NUMBER})\s)(?!-){_VALUE}",  # --password ...
        # Tokens with a well-known prefix.
        r"(\b)(?:(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|sk-|sk_live_|pypi-|npm_|nvapi-|AIza|ya29\.)"
        r"[\w-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b|eyJ[\w-]{8,2000}\.[\w-]{8,2000}\.[\w-]*)",
    )
)


take_vocabulary((*METRICS, *CHANNEL_UNITS))


def masked(text: str) -> str:
    """The text without values that look secret, in options, variables, URLs and headers, and without those known."""
    for rule, instead in _RULES:
        text = rule.sub(instead, text)
    return hidden(text)


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """The same for the arguments of a command: any value after ``--password`` is masked."""
    shown = []
    secret = False
    for argument in arguments:
        shown.append(MASK if secret and not argument.startswith("-") else masked(argument))
        secret = argument.startswith("-") and NAME.fullmatch(argument) is not None
    return shown


def masked_all(value: Any) -> Any:
    """The same for all texts in dictionaries and lists; values under the name of a secret are masked too."""
    if isinstance(value, dict):
        return {
            _key(name): MASK if isinstance(item, str) and item and NAME.fullmatch(str(name)) else masked_all(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        if all(isinstance(item, str) for item in value):  # it may be a command
            items = masked_arguments(value)
        else:
            items = [masked_all(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{entry.name: masked_all(getattr(value, entry.name)) for entry in fields(value)})
    return masked(value) if isinstance(value, str) else value


def _key(name: Any) -> Any:
    """A key of a dictionary, masked where it is a text of the user's, as an id of a device, and no name of a field."""
    return name if not isinstance(name, str) or name.isidentifier() else masked(name)


def mask(run: Run) -> Run:
    """The same Run, of which nothing is secret any more: what is shown, saved and exported follows from it."""
    for name in tables.TABLES:
        put(run, name, masked_held(held(run, name)))
    for entry in fields(run):
        if entry.name in tables.TABLES or not entry.init:
            continue
        value = getattr(run, entry.name)
        if (hidden_value := masked_all(value)) != value:
            setattr(run, entry.name, hidden_value)
    return run


def masked_held(there: Held) -> Held:
    """The table, or the file of one, without the secrets that are known; the same object if there are none in it."""
    if isinstance(there, pa.Table):
        return masked_table(there)
    return masked_table(there.table) if any(hidden(text) != text for text in there.texts()) else there


def masked_table(table: pa.Table) -> pa.Table:
    """The table without the secrets that are known; the same object if there are none in it."""
    if not known():
        return table
    for number, field in enumerate(table.schema):
        if field.name == "matrix":  # its names are ours, by which a Run is read
            continue
        chunks = table.column(number).chunks
        masked_chunks = [masked_array(chunk) for chunk in chunks]
        if any(new is not old for new, old in zip(masked_chunks, chunks, strict=True)):
            table = table.set_column(number, field, pa.chunked_array(masked_chunks, field.type))
    return table


def masked_array(array: pa.Array) -> pa.Array:
    """The same for an array; what isn't text is returned as it is."""
    if not known():
        return array
    if pa.types.is_dictionary(array.type):
        texts = masked_array(array.dictionary)
        return array if texts is array.dictionary else pa.DictionaryArray.from_arrays(array.indices, texts)
    if not pa.types.is_string(array.type):
        return array
    texts = array.to_pylist()
    instead = _changed(set(texts))
    return pa.array([instead.get(text, text) for text in texts], array.type) if instead else array


def _changed(texts: Iterable[str | None]) -> dict[str | None, str]:
    """The texts that hold a secret, each with the one that replaces it."""
    masks = {text: hidden(text) for text in texts if text is not None}
    return {text: new for text, new in masks.items() if new != text}
