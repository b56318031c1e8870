"""Secrets that this process knows, and text without them: the step that all text takes on its way out.

A server repeats the key that it was sent, a program its password. What looks like a secret is masked by
``run.masking``; here the values themselves are known, from variables, options, headers and addresses, and are masked
wherever they occur, also as addresses, JSON and base64 spell them.

A part of eight characters or more is masked, too, unless it consists of ordinary words, which may be those of any text.
So are the ends of a key that a server shortens ("sk-ab***yz").

A value that may be an ordinary word would mask half of a text. Such a value is masked only behind words that announce a
secret ("Bearer", "key: "); one of fewer than four characters isn't masked.
"""

from __future__ import annotations

import os
import re
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from json import dumps
from urllib.parse import quote, quote_plus, unquote

MASK = "***"

PREFIX = r"(?:[\w-]{0,64}[_-])?"
"""Words before the last word of a name. All lengths are bounded, so that matching takes linear time on any text."""

WORD = (
    r"(?:password|passwd|passphrase|passcode|pwd|secrets?|credentials?|auth|authorization|bearer|cookie|apikey"
    r"|(?:api|access|private|secret|signing|encryption|account|shared)[_-]?key|signature)"
)
"""The last word of the name of a secret."""

_OF_VOCABULARY = "".join(
    rf"(?<!{word}[_-])" for word in ("per", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "stop", "image", "vocab")
)
TOKEN = rf"{_OF_VOCABULARY}token"
"""Tokens of a vocabulary aren't secret; neither are counts of tokens."""

NAME = re.compile(rf"-*{PREFIX}(?:{WORD}|{TOKEN})", re.IGNORECASE)
"""Name of an option or a field that holds a secret."""

_VARIABLE = re.compile(rf"{PREFIX}(?:{WORD}|{TOKEN}|key|pass|pat)|\w*(?:api|access)key", re.IGNORECASE)
_HEADER = re.compile(r"\s*(?:(?:proxy-)?authorization|cookie|x-[\w-]{0,40}(?:key|token))\s*:\s*(.+)", re.IGNORECASE)
_OF_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://([^\s/@'\"]{1,256})@", re.IGNORECASE)
_SCHEME = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)

_SHORTEST, _SHORTEST_ANYWHERE, _LONGEST_WORDS, _SHORTEST_NUMBER = 4, 6, 16, 10
_PART = 8
_SHORTENED = re.compile(r"(?<![\w-])([\w-]{2,64})(?:(?P<stars>\*{2,4096})|\.{2,8}|…)(?P<last>[\w-]{0,64})")
_NAMES = re.compile(r"(?:[ _.:/-]|(?:[A-Z]?[a-z]+|[A-Z]+|[a-z]+\d{1,2})(?![A-Za-z\d]))+")
"""Words and names such as "resnet50": no part of a key is recognised by them."""
_UNBROKEN = re.compile(r"[A-Za-z\d]+")
_MOST = 4096
"""Characters of a value that is looked for: a certificate in a variable is no password."""

_WORDS = re.compile(r"[A-Z]?[a-z]+(?:[ _.:-][A-Z]?[a-z]+)*|[A-Z]+(?:[ _.:-][A-Z]+)*")
_PLAIN = {"true", "false", "null", "none"}
_ANNOUNCED = (
    r"(?i:(?<![a-z])(?:bearer|basic|authorization|(?:api[ _-]?)?key|password|passwd|passphrase|secret|token(?=[=:]))"
    r"(?:['\"]?[\s:=('\"]{1,4}(?:provided|is|was|bearer|basic)){0,2}['\"]?[\s:=('\"]{1,4})"
)


def take_arguments(arguments: Iterable[str]) -> None:
    """Take the secrets of a command line: of options by name, of headers, and of addresses."""
    _Known.given = tuple(_of_arguments(list(arguments)))
    refresh()


def take_vocabulary(words: Iterable[str]) -> None:
    """Take the words of our own in files and tables: a value that is one of them is masked only where announced."""
    _Known.vocabulary, _Known.looked = frozenset(words), False
    _rule.cache_clear()
    _parts.cache_clear()


def refresh() -> None:
    """Look again which secrets there are, since variables may have changed."""
    found = {*_Known.given, *_of_arguments(sys.argv[1:]), *_of_variables()}
    values = frozenset(value for value in found if _SHORTEST <= len(value) <= _MOST)
    _Known.rule, _Known.parts = _rule(values), _parts(values)
    _Known.values = frozenset(value for value in values if not _is_ordinary(value))
    _Known.looked = True


def known() -> bool:
    """True if any secret is known."""
    if not _Known.looked:
        refresh()
    return _Known.rule is not None


def hidden(text: str) -> str:
    """The text without the secrets that are known."""
    if not known() or _Known.rule is None:
        return text
    text, shown = _SHORTENED.sub(_masked_ends, _Known.rule.sub(_masked, text)), 0
    kept = []
    for begin, end in _runs_of_parts(text):
        if _is_of_names(text[begin:end]):
            continue
        kept += [text[shown:begin], MASK]
        shown = end
    return "".join([*kept, text[shown:]])


def _runs_of_parts(text: str) -> Iterator[tuple[int, int]]:
    """Beginning and end of each part of a text that consists of parts of secrets."""
    begin, end = 0, 0
    for place in range(len(text) - _PART + 1) if _Known.parts else ():
        if text[place : place + _PART] in _Known.parts:
            if place > end and end:
                yield begin, end
            begin, end = (begin if end and place <= end else place), place + _PART
    if end:
        yield begin, end


class _Known:
    """The secrets that this process knows."""

    given: tuple[str, ...] = ()
    vocabulary: frozenset[str] = frozenset()
    rule: re.Pattern[str] | None = None
    values: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()
    looked = False


def _masked(found: re.Match[str]) -> str:
    return (found["announced"] or "") + MASK


def _masked_ends(found: re.Match[str]) -> str:
    """The mask for the two ends of a secret; dots behind the beginning of a word may shorten any."""
    if not found["stars"] and not found["last"] and (_is_ordinary(found[1]) or _is_of_names(found[1])):
        return found[0]
    return MASK if any(one.startswith(found[1]) and one.endswith(found["last"]) for one in _Known.values) else found[0]


@lru_cache(maxsize=8)
def _rule(values: frozenset[str]) -> re.Pattern[str] | None:
    """Matches all of them; None without any."""
    anywhere, words, numbers = set[str](), set[str](), set[str]()
    for value in values:
        if value.isdecimal() and len(value) >= _SHORTEST_NUMBER:
            numbers.add(value)
        elif _is_ordinary(value):
            words.update({value} - _PLAIN)
        else:
            anywhere.update(_spelt(value))
    parts = []
    if anywhere:
        parts.append(_any(anywhere))
    if numbers:
        parts.append(rf"(?<![\w.]){_any(numbers)}(?![\w.])")
    announced = rf"(?P<announced>{_ANNOUNCED}){_any(words)}(?!\w)" if words else r"(?P<announced>(?!))"
    return re.compile("|".join([*parts, announced])) if parts or words else None


@lru_cache(maxsize=8)
def _parts(values: frozenset[str]) -> frozenset[str]:
    """All parts of ``_PART`` characters of what is masked anywhere, unless a word of our own holds them."""
    spelt = {one for value in values if not value.isdecimal() and not _is_ordinary(value) for one in _spelt(value)}
    parts = {one[place : place + _PART] for one in spelt for place in range(len(one) - _PART + 1)}
    own = "\n".join(_Known.vocabulary)
    return frozenset(part for part in parts if part not in own)


def _any(values: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, sorted(values, key=lambda value: (-len(value), value))))})"


def _is_ordinary(value: str) -> bool:
    """True if a value may be a part of any text: short, a word or a few, a number."""
    if len(value) < _SHORTEST_ANYWHERE or (len(value) < _LONGEST_WORDS and _WORDS.fullmatch(value)):
        return not value.startswith(("sk-", "hf_"))
    if re.fullmatch(r"[\d.,:+-]+(?:[eE][+-]?\d+)?", value):
        return True
    return re.fullmatch(r"[a-z0-9]+(?:_[a-z0-9]+)+", value) is not None and value in _Known.vocabulary


def _is_of_names(part: str) -> bool:
    """True if a part of a value may be one of any text, as the value itself isn't, nor a piece of a long word of it."""
    if len(part) >= _LONGEST_WORDS or not _NAMES.fullmatch(part):
        return False
    pieces = [piece for piece in _UNBROKEN.findall(part) if len(piece) >= _PART]
    words = (word for value in _Known.values for word in _UNBROKEN.findall(value) if len(word) >= _LONGEST_WORDS)
    return not any(piece in word for word in words for piece in pieces)


def _spelt(value: str) -> Iterator[str]:
    """A value as it is, in addresses, in JSON, with spaces folded, and within base64."""
    spelt = {value, " ".join(value.split()), dumps(value)[1:-1], dumps(value, ensure_ascii=False)[1:-1]}
    for coded in (quote(value, safe=""), quote(value), quote_plus(value)):
        spelt |= {coded, re.sub("%..", lambda part: part[0].lower(), coded)}
    yield from spelt
    data = value.encode("utf-8", "surrogateescape")
    for before in range(3):  # base64 depends on the place within three bytes: the whole groups are the same
        begin, end = (before + 2) // 3 * 3 - before, (len(data) + before) // 3 * 3 - before
        if end - begin >= _SHORTEST_ANYWHERE:
            yield from (b64encode(data[begin:end]).decode(), urlsafe_b64encode(data[begin:end]).decode())


def _of_variables() -> Iterator[str]:
    """Secrets in the environment."""
    for name, value in os.environ.items():
        if "@" in value:
            yield from _of_text(value)
        if name != "PWD" and _is_variable(name) and not (value.startswith(("/", "~", ".")) and os.path.exists(value)):
            yield value.strip()


@lru_cache(maxsize=1024)
def _is_variable(name: str) -> bool:
    return _VARIABLE.fullmatch(name) is not None


def _of_arguments(arguments: Sequence[str]) -> Iterator[str]:
    secret = False
    for argument in arguments:
        if secret and not argument.startswith("-"):
            yield argument.strip()
        yield from _of_text(argument)
        name, equals, value = argument.partition("=")
        secret = not equals and name.startswith("-") and NAME.fullmatch(name) is not None
        if equals and NAME.fullmatch(name):
            yield value.strip()


def _of_text(text: str) -> Iterator[str]:
    """Secrets of a header and of addresses."""
    if header := _HEADER.match(text):
        yield header[1].strip()
        yield _SCHEME.sub("", header[1].strip())
    for user in _OF_ADDRESS.findall(text):
        name, colon, password = user.partition(":")
        yield user
        yield from (password, unquote(password)) if colon else (name,)
        if colon:
            yield b64encode(unquote(user).encode()).decode()
