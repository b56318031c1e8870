"""OpenAI's protocol: addresses, bodies of requests, and the chunks of a streamed answer."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from jouletrace.errors import BadInputError
from jouletrace.known_secrets import hidden

PATHS = {"completions": "/completions", "chat": "/chat/completions"}
_WORDS = re.findall(
    r"\w+",
    "time year way day man world life hand part child eye woman place work week case point company number group problem"
    " fact water room mother area money story month lot right study book word issue side kind head house service friend"
    " father power hour game line end member law car city name team minute idea body back face others level office",
)
_POOL, _VOCABULARY = 1 << 16, 1000
"""Tokens to draw from, and above all ids of them."""

_UNIQUE = 6
"""Tokens at the beginning of each prompt that no other prompt shares: prefixes in a server's cache don't match."""


def base_url(text: str) -> str:
    """The address in front of ``/completions``, from what a user types: with or without ``/v1``.

    Raises:
        BadInputError: If it isn't an http address.
    """
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadInputError(f"{text}: {error}") from None
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", text):
        hint = (
            f"; did you mean http://{text}, or a workload on a simulated GPU (--device sim:h100)?"
            if "://" not in text and re.match(r"[\w.\[-]+", text)
            else ""
        )
        raise BadInputError(f"{text!r} is not an http:// or https:// address{hint}")
    if parts.username is not None:
        raise BadInputError(f"{host}: leave the password out of the address; a key is read from OPENAI_API_KEY")
    path = parts.path.rstrip("/")
    for known in (*sorted(PATHS.values(), key=len, reverse=True), "/models"):
        path = path.removesuffix(known)
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


@dataclass
class Dialect:
    """The form of requests that a server takes, as a first request shows.

    Attributes:
        api: A key of ``PATHS``.
        token_ids: Whether prompts are lists of token ids; else they are words.
        extra: Further fields of a body: ``ignore_eos`` and ``stream_options`` where the server takes them.
    """

    api: str = "completions"
    token_ids: bool = True
    extra: dict[str, Any] = field(default_factory=lambda: {"ignore_eos": True, **USAGE})


USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}


def dialects(api: str) -> Iterator[Dialect]:
    """The forms to try in turn, of one of ``PATHS`` or of both ("auto"); the one that says most comes first."""
    for name in PATHS if api == "auto" else (api,):
        for token_ids in (True, False) if name == "completions" else (False,):
            for extra in ({"ignore_eos": True, **USAGE}, USAGE, {}):
                yield Dialect(name, token_ids, dict(extra))


class Bodies:
    """Bodies of requests with random prompts, other ones each time: a server may have cached those of an earlier load.

    Args:
        model: Name of the model; "" for none.
        dialect: What the server takes.
    """

    def __init__(self, model: str, dialect: Dialect) -> None:
        self._chance = random.Random()
        self._ids = dialect.token_ids
        draw = [str(self._chance.randrange(10, _VOCABULARY)) for _ in range(_POOL)]
        self._pool = draw if self._ids else [_WORDS[int(one) % len(_WORDS)] for one in draw]
        fields = {**({"model": model} if model else {}), "stream": True, "temperature": 0, **dialect.extra}
        self._head = json.dumps(fields)[:-1]
        self._chat = dialect.api == "chat"

    def body(self, input_tokens: int, output_tokens: int) -> bytes:
        """A body with so many tokens (or words) of prompt, that asks for so many tokens."""
        tokens = self._chance.choices(self._pool, k=min(_UNIQUE, input_tokens))
        while len(tokens) < input_tokens:
            first = self._chance.randrange(_POOL)
            tokens += self._pool[first : first + input_tokens - len(tokens)]
        if self._ids:
            prompt = f'"prompt": [{",".join(tokens)}]'
        elif self._chat:
            prompt = f'"messages": [{{"role": "user", "content": "{" ".join(tokens)}"}}]'
        else:
            prompt = f'"prompt": "{" ".join(tokens)}"'
        return f'{self._head}, "max_tokens": {output_tokens}, {prompt}}}'.encode()


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    role: str | None = None
    tool_calls: Any = None

    @property
    def holds(self) -> bool:
        return bool(self.content or self.reasoning_content or self.reasoning or self.tool_calls)


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: Sequence[_Choice] = ()
    usage: msgspec.Raw = msgspec.Raw()
    error: Any = None


MOST_TOKENS = 1 << 31
"""Of a prompt or an answer, far beyond any model's."""

_DECODE = msgspec.json.Decoder(_Chunk)


_LEAST_BYTES, _BYTES_PER_TOKEN = 1 << 20, 8 << 10
"""Bytes of an answer that are read: so many, and so many more for each token that was asked for."""


class StreamError(Exception):
    """The stream itself reports an error, or isn't one; one line."""


class Answer:
    """A streamed answer as it comes in.

    Args:
        tokens: How many were asked for: an answer of far more bytes has no end.

    Attributes:
        chunks_ns: When chunks with a token arrived.
        input_tokens, output_tokens: By the server's usage figures; None without.
        done: Whether the stream ended as it should.
    """

    def __init__(self, tokens: int = 0) -> None:
        self.chunks_ns: list[int] = []
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.done = False
        self._rest = bytearray()
        self._left = _LEAST_BYTES + tokens * _BYTES_PER_TOKEN

    def add(self, data: bytes, now_ns: int) -> None:
        """Take bytes that arrived at ``now_ns``.

        Raises:
            StreamError: If they report an error, aren't server-sent events of this protocol, or are far too many.
        """
        self._left -= len(data)
        if self._left < 0:
            raise StreamError("an answer without end: many times the bytes of what was asked for")
        self._rest += data
        if b"\n" not in data:  # a long line comes in many parts: none is searched twice
            return
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now_ns)
            elif line.startswith(b"{") or line.startswith(b"error:"):  # an error in place of an event
                raise StreamError(error_text(line.removeprefix(b"error:")))

    def _event(self, text: bytes, now_ns: int) -> None:
        if text == b"[DONE]":
            self.done = True
            return
        try:
            chunk = _DECODE.decode(text)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            raise StreamError(
                f"an event that is no chunk of an answer: {hidden(text.decode('utf-8', 'replace'))[:80]}"
            ) from None
        if chunk.error is not None:
            raise StreamError(error_text(text))
        if bytes(chunk.usage) not in (b"", b"null"):
            self.input_tokens, self.output_tokens = _counts(bytes(chunk.usage))
        for choice in chunk.choices:
            self.done |= choice.finish_reason is not None
            if choice.delta is not None:
                token = choice.delta.holds or (choice.delta.role is None and choice.finish_reason is None)
            else:
                token = bool(choice.text) or (choice.text is not None and choice.finish_reason is None)
            if token:
                self.chunks_ns.append(now_ns)


def _counts(usage: bytes) -> tuple[int | None, int | None]:
    """Tokens of prompt and answer in the JSON of usage figures; None for what is no such count."""
    try:
        found = msgspec.json.decode(usage)
    except (ValueError, RecursionError):
        return None, None
    stated = [found.get(name) if isinstance(found, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    prompt, answer = (one if type(one) is int and 0 <= one <= MOST_TOKENS else None for one in stated)
    return prompt, answer


def error_text(body: bytes) -> str:
    """The message of an error's JSON, in one line of 1 to 200 characters; a cut leaves no part of a secret."""
    text = body.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text)
        while isinstance(found, dict):
            found = next((found[key] for key in ("error", "message", "detail") if found.get(key)), text)
        text = found if isinstance(found, str) else json.dumps(found)
    except (ValueError, RecursionError):
        pass
    return hidden(" ".join(text.split()))[:200] or "without a message"
