"""Requests to one server and their answers, by aiohttp, in the bounds and by the policy of ``jouletrace.web``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from jouletrace.known_secrets import hidden
from jouletrace.web import KEPT_METHOD, MOST_HOPS, REDIRECTS, Unpacker, UnreadableError, followed
from jouletrace.wings.serving.client.protocol import Answer, StreamError, error_text

if TYPE_CHECKING:
    import aiohttp

_ERROR_S, _ERROR_BYTES = 1.0, 1 << 16
"""The text of an error is read for so long, and so much of it."""

_KEEP_S = 4.0
"""Idle connections are dropped before servers close them, after 5 s: a request on a closing one would fail."""


class Exchanges:
    """Sends requests to one server and reads their answers.

    Args:
        base: Address, as of ``protocol.base_url``.
        headers: To send with each.
        timeout_s: Seconds within which an answer must end, its headers and redirects included.
        now_ns: The clock by which parts of answers arrive.

    Attributes:
        sent_again: Requests that were sent twice.
    """

    def __init__(self, base: str, headers: Mapping[str, str], timeout_s: float, now_ns: Callable[[], int]) -> None:
        import aiohttp

        self._http = aiohttp
        self._base, self._headers, self._timeout_s, self._now_ns = base, headers, timeout_s, now_ns
        self._session, self._anew = self._opened(keepalive_timeout=_KEEP_S), self._opened(force_close=True)
        self.sent_again = 0

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._anew.close()

    async def ask(self, url: str, body: bytes, answer: Answer) -> str:
        """Send a request and read its answer; why it failed, "" if it didn't."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(url, body, answer)
        except (self._http.ClientError, OSError, StreamError) as failure:
            return self.said(failure)

    def _opened(self, **connections: Any) -> aiohttp.ClientSession:
        """A session; answers come as they are packed, since ``Unpacker`` bounds what comes out of them."""
        trace = self._http.TraceConfig()
        trace.on_connection_reuseconn.append(_note_kept)
        return self._http.ClientSession(
            connector=self._http.TCPConnector(limit=0, ttl_dns_cache=3600, **connections),
            timeout=self._http.ClientTimeout(total=None),  # of a whole exchange: see ``ask``
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **self._headers},
            auto_decompress=False,
            trace_configs=[trace],
        )

    async def _exchange(self, url: str, body: bytes, answer: Answer) -> str:
        """Send a request and read its answer; why it failed, "" if it didn't."""
        for _ in range(MOST_HOPS + 1):
            response = await self._post(url, body)
            try:
                if response.status in REDIRECTS:
                    url = followed(url, response.status, response.headers.get("Location"))
                    if response.status in KEPT_METHOD:
                        continue
                    return f"HTTP {response.status}: it redirects, and drops the request's body"
                if response.status != HTTPStatus.OK:
                    return f"HTTP {response.status}: {error_text(await self._head(response))}"
                unpacker = Unpacker(response.headers.get("Content-Encoding"))
                async for piece in _pieces(response, unpacker):
                    answer.add(piece, self._now_ns())
                if not answer.chunks_ns:
                    return "the answer holds no token"
                return "" if answer.done and unpacker.whole else "the stream ended before its end was announced"
            finally:
                response.close()
        return f"HTTP {response.status}: more than {MOST_HOPS} redirects"

    async def _post(self, url: str, body: bytes) -> aiohttp.ClientResponse:
        """The head of an answer.

        A server may close a connection that it has kept just as it is used again. Such a request is sent once more,
        on a connection of its own, and counted.
        """
        kept: list[bool] = []
        order: Any = {"data": body, "allow_redirects": False, "trace_request_ctx": kept}
        try:
            return await self._session.post(url, **order)
        except (self._http.ClientOSError, self._http.ServerDisconnectedError, ConnectionError):
            if not kept:  # the request itself may be what ended the connection
                raise
        self.sent_again += 1
        return await self._anew.post(url, **order)

    async def _head(self, response: aiohttp.ClientResponse) -> bytes:
        """The text of an error, as far as it comes at once."""
        found, unpacker = bytearray(), Unpacker(response.headers.get("Content-Encoding"))
        with suppress(TimeoutError, self._http.ClientError):
            async with asyncio.timeout(_ERROR_S):
                async for piece in _pieces(response, unpacker):
                    found += piece
                    if len(found) > _ERROR_BYTES:
                        break
        return bytes(found)

    def said(self, error: BaseException) -> str:
        """An exception in one line for users."""
        http = self._http
        if isinstance(error, StreamError):
            return f"error in the stream: {error}"
        if isinstance(error, TimeoutError):
            return f"no end within {self._timeout_s:g} s"
        if isinstance(error, http.ClientConnectorError):
            number = error.os_error.errno
            return f"cannot connect: {os.strerror(number) if number and number > 0 else error.os_error}"
        if isinstance(error, http.ServerDisconnectedError | http.ClientPayloadError | ConnectionError):
            return "the server closed the connection before the end of the answer"
        if isinstance(error, UnreadableError):
            return hidden(str(error).removeprefix(self._base))[:300]
        return hidden(f"{type(error).__name__}: {error}")[:200]


async def _pieces(response: aiohttp.ClientResponse, unpacker: Unpacker) -> AsyncIterator[bytes]:
    """The body as it arrives, unpacked."""
    async for data in response.content.iter_any():
        for piece in unpacker.pieces(data):
            yield piece


async def _note_kept(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    """Called when a request goes on a connection that was kept."""
    context.trace_request_ctx.append(True)
