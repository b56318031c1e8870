"""Masks values that look secret, since the content of a Run appears in reports and is passed on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

MASK = "***"

_PREFIX = r"(?:[\w-]{0,64}[_-])?"
"""Words before the last word of a name. All lengths are bounded, so that matching takes linear time on any text."""

_WORD = (
    r"(?:password|passwd|passphrase|passcode|pwd|secrets?|credentials?|auth|authorization|bearer|cookie|apikey"
    r"|(?:api|access|private|secret|signing|encryption|account|shared)[_-]?key|signature)"
)
"""The last word of the name of a secret."""

_OF_VOCABULARY = "".join(
    rf"(?<!{word}[_-])" for word in ("per", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "stop", "image", "vocab")
)
_TOKEN = rf"{_OF_VOCABULARY}token"
"""Tokens of a vocabulary aren't secret; neither are counts of tokens."""

_NO_NUMBER = r"(?!-?\d{1,7}(?:\.\d*)?(?:e[+-]?\d+)?(?![\w.+/=-]))"
_VALUE = r"(?!\*\*\*)(?:'[^']*'|\"[^\"]*\"|(?!//)[^\s'\"]+)"
_ANY = rf"{_PREFIX}(?:{_WORD}|{_TOKEN})"
_NAME = re.compile(rf"-*{_ANY}", re.IGNORECASE)

_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), rf"\1{MASK}\2" if pattern.endswith("(@)") else rf"\1{MASK}")
    for pattern in (
        r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@'\"]{1,256}(@)",  # user:password@ of a URL
        rf"([?&;](?:{_ANY}|sig|key|code|jwt|sid|x-amz-[\w-]{{1,40}}|x-goog-[\w-]{{1,40}})=)[^\s&#;'\"]+",
        r"(\b(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,40}(?:key|token))\s*:\s*)[^'\"\n]+",  # of headers
        r"(\b(?:bearer|basic)\s+)[\w+/.~=-]{16,}",
        rf"((?<![\w-]){_PREFIX}{_WORD}['\"]?\s?[=:]\s?){_VALUE}",  # --password=..., "password": "..."
        rf"((?<![\w-]){_PREFIX}{_TOKEN}(?:=|['\"]\s?:\s?)){_NO_NUMBER}{_VALUE}",
        rf"((?<!\S)--?{_PREFIX}(?:{_WORD}|{_TOKEN}{_NO_NUMBER})\s)(?!-){_VALUE}",  # --password ...
        # Tokens with a well-known prefix.
        r"(\b)(?:(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|sk-|sk_live_|pypi-|npm_|nvapi-|AIza|ya29\.)"
        r"[\w-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b|eyJ[\w-]{8,2000}\.[\w-]{8,2000}\.[\w-]*)",
    )
)


def masked(text: str) -> str:
    """The text without values that look secret: in options, variables, URLs and headers."""
    for rule, instead in _RULES:
        text = rule.sub(instead, text)
    return text


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """The same for the arguments of a command: any value after ``--password`` is masked."""
    found = []
    secret = False
    for argument in arguments:
        found.append(MASK if secret and not argument.startswith("-") else masked(argument))
        secret = argument.startswith("-") and _NAME.fullmatch(argument) is not None
    return found


def masked_all(value: Any) -> Any:
    """The same for all texts in dictionaries and lists; values under the name of a secret are masked too."""
    if isinstance(value, dict):
        return {
            name: MASK if isinstance(item, str) and item and _NAME.fullmatch(str(name)) else masked_all(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        if all(isinstance(item, str) for item in value):  # it may be a command
            return masked_arguments(value)
        return [masked_all(item) for item in value]
    return masked(value) if isinstance(value, str) else value
