"""The one reader of pages by HTTP, and the policy that the client of a load shares.

A server is believed nothing: an answer has a time until its last byte, a size before and after it is unpacked, and
comes from the server that was named. Bounds hold for headers and the lines between chunks too, since they are of the
bytes that arrive. Nothing is asked by way of a proxy, which would resolve loopback addresses on its own host.
"""

from __future__ import annotations

import io
import socket
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from http.client import HTTPResponse

MOST_PAGE = 16 << 20
"""Bytes of a page, packed and unpacked."""

MOST_HEADERS = 1 << 20
"""Bytes that may come with a page: headers, and lines between chunks."""

MOST_HOPS = 3
"""Redirects that are followed, on the server itself."""

SENT_AGAIN = 1
"""Times that a request is sent again whose connection was closed before any of its answer came.

Pages are safe to ask for twice. So are prompts, but on a kept connection only: the server closed it as it was used
again and saw nothing of the request. On a new one the request itself may be what ended the server."""

PIECE = 1 << 16
"""Bytes that are read or unpacked at a time."""

KEPT_METHOD = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)
REDIRECTS = (HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND, HTTPStatus.SEE_OTHER, *KEPT_METHOD)
"""Statuses that name another place; a request with a body is sent on by those of ``KEPT_METHOD`` alone."""

_PORTS = {"http": 80, "https": 443}


class UnreadableError(OSError):
    """A page that can't be read, in one line."""


class UnreachableError(UnreadableError):
    """A server to which there is no connection.

    Attributes:
        why: What the system says.
    """

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"{url} can't be reached: {why}")
        self.why = why


class SlowError(UnreadableError, TimeoutError):
    """A page whose last byte didn't come in time."""


@dataclass(frozen=True)
class Page:
    """The answer of a server.

    Attributes:
        status, reason: Of HTTP.
        body: Unpacked.
    """

    status: int
    reason: str
    body: bytes


def fetch(url: str, timeout_s: float) -> str:
    """The text of a page.

    Raises:
        UnreadableError: As of ``page``; also if its status isn't 200.
    """
    found = page(url, timeout_s)
    if found.status != HTTPStatus.OK:
        raise UnreadableError(f"{url} answers {found.status} {found.reason}")
    return found.body.decode("utf-8", "replace")


def page(url: str, timeout_s: float, headers: Mapping[str, str] | None = None) -> Page:
    """A page with any status.

    Args:
        url: An http or https address.
        timeout_s: Seconds within which its last byte must come, redirects included.
        headers: To send beside the usual ones.

    Raises:
        SlowError: If it didn't come in time.
        UnreadableError: If there is no answer, it breaks off or is too large, or it leads to another server.
    """
    from http.client import HTTPException  # slow to import, and every name of a device leads through this module

    deadline, asked = time.monotonic() + timeout_s, url
    try:
        for _ in range(MOST_HOPS + 1):
            found = _read(url, headers or {}, deadline)
            if not isinstance(found, str):
                return found
            url = found
    except UnreadableError:
        raise
    except TimeoutError:
        raise SlowError(f"{asked} did not answer in {timeout_s:g} s") from None
    except (ConnectionResetError, BrokenPipeError):
        raise UnreadableError(f"{asked} closed the connection before its answer") from None
    except OSError as error:
        raise UnreachableError(asked, error.strerror or str(error)) from None
    except (HTTPException, ValueError) as error:  # their text may repeat headers that were sent
        raise UnreadableError(f"{asked} does not speak HTTP ({type(error).__name__})") from None
    raise UnreadableError(f"{asked} redirects more than {MOST_HOPS} times")


def followed(url: str, status: int, location: str | None) -> str:
    """Where a redirect leads, on the same server.

    Raises:
        UnreadableError: If it leads to another server than the user named, or nowhere.
    """
    try:
        there = urljoin(url, location or "")
        leads = _origin(there)
    except ValueError:
        location = None
    if not location:
        raise UnreadableError(f"{url} answers {status}, a redirect that leads nowhere")
    if leads != _origin(url):
        scheme, host, port = leads
        name = f"[{host}]" if ":" in host else host
        raise UnreadableError(
            f"{url} answers {status}: it redirects to another server, {scheme}://{name[:100]}:{port}; give that "
            "address if you mean it"
        )
    return there


def _origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what makes a server another one."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)


class Unpacker:
    """Unpacks an answer in pieces of a bounded size, however far it expands.

    Raises:
        UnreadableError: If its encoding isn't known.
    """

    def __init__(self, encoding: str | None) -> None:
        name = (encoding or "identity").strip().lower()
        bits = {"identity": 0, "gzip": 31, "x-gzip": 31, "deflate": 15}.get(name)
        if bits is None:
            raise UnreadableError(f"an answer in an encoding that wasn't asked for ({name[:40]})")
        self._unpack = zlib.decompressobj(bits) if bits else None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The content of the next bytes, at most ``PIECE`` bytes at a time.

        Raises:
            UnreadableError: If they aren't packed as stated.
        """
        if self._unpack is None:
            yield data
            return
        try:
            while piece := self._unpack.decompress(data, PIECE):
                data = self._unpack.unconsumed_tail
                yield piece
        except zlib.error:
            raise UnreadableError("an answer that isn't packed as it states") from None

    @property
    def whole(self) -> bool:
        """True if nothing is missing at the end."""
        return self._unpack is None or self._unpack.eof


def _read(url: str, headers: Mapping[str, str], deadline: float) -> Page | str:
    """The page, or where it redirects to."""
    for again in range(SENT_AGAIN + 1):
        with closing(_Connection(url, deadline)) as connection:
            try:
                answer = connection.asked(headers)
            except ConnectionError:  # before anything of the answer came
                if again == SENT_AGAIN:
                    raise
                continue
            if answer.status in REDIRECTS:
                return followed(url, answer.status, answer.getheader("Location"))
            return Page(answer.status, answer.reason, _body(url, answer))
    raise AssertionError  # pragma: no cover  # the loop returns or raises


def _body(url: str, answer: HTTPResponse) -> bytes:
    unpacker, body = Unpacker(answer.getheader("Content-Encoding")), bytearray()
    while data := answer.read1(PIECE):
        for piece in unpacker.pieces(data):
            body += piece
            if len(body) > MOST_PAGE:
                raise UnreadableError(f"{url} answers with more than {MOST_PAGE >> 20} MiB")
    if answer.length or not unpacker.whole:  # a truncated number would look like a reset
        raise UnreadableError(f"{url} closed the connection within its answer")
    return bytes(body)


class _Connection:
    """A connection whose bytes have a deadline and a limit."""

    def __init__(self, url: str, deadline: float) -> None:
        import http.client

        parts = urlsplit(url)
        host = parts.hostname or ""
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        self._http = kind(host, parts.port)
        self._socket = _connected(host, self._http.port, deadline)
        if parts.scheme == "https":
            import ssl

            try:
                self._socket.settimeout(_left(deadline))
                self._socket = ssl.create_default_context().wrap_socket(self._socket, server_hostname=host)
            except OSError:
                self._socket.close()
                raise
        self._http.sock = _Bounded(self._socket, deadline)

    def asked(self, headers: Mapping[str, str]) -> HTTPResponse:
        """The head of the answer to a GET."""
        usual = {"User-Agent": "jouletrace", "Accept-Encoding": "identity", "Connection": "close"}
        self._http.request("GET", self._path, headers={**usual, **headers})
        return self._http.getresponse()

    def close(self) -> None:
        """Close it."""
        self._http.close()
        self._socket.close()


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """A socket to the first address of a host that takes one; the deadline is that of all of them."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        found = socket.socket(family, kind, protocol)
        try:
            found.settimeout(_left(deadline))
            found.connect(address)
        except OSError as error:
            found.close()
            failure = error
        else:
            return found
    raise failure or OSError("no address")


def _left(deadline: float) -> float:
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left


class _Bounded(io.RawIOBase):
    """The socket that ``http.client`` uses: the whole exchange has one deadline, and its answer a size."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket, self._deadline, self._most = connection, deadline, MOST_PAGE + MOST_HEADERS

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        self._socket.settimeout(_left(self._deadline))
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """A file to read the answer from."""
        return io.BufferedReader(self, PIECE)

    def close(self) -> None:
        """Leave it open: an answer is read after ``http.client`` has closed its connection."""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer, in the stubs
        """Bytes that arrive; 0 at the end."""
        self._socket.settimeout(_left(self._deadline))
        count = self._socket.recv_into(buffer)
        self._most -= count
        if self._most < 0:
            raise UnreadableError("a server answers without an end")
        return count
