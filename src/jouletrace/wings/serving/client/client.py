"""The client process: ``python -m jouletrace.wings.serving.client.client``, run as a ``processes.children.Child``.

Standard input takes a "start" with the server, answered by "ready" with what it takes or by "failed"; then one "level"
at a time, answered by "rows" of requests and "done". The end of input ends the process.

In an open loop each request is sent at its own time, whatever others do: nothing waits for an answer, and there is no
limit of connections. What the client itself is late by is in the rows, as sent against scheduled.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import resource
import sys
import time
from contextlib import nullcontext, suppress
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.web import UnreachableError, UnreadableError, page
from jouletrace.wings.serving.client.exchanges import Exchanges
from jouletrace.wings.serving.client.few_events import event_loop
from jouletrace.wings.serving.client.priority import RealTime
from jouletrace.wings.serving.client.protocol import PATHS, Answer, Bodies, dialects, error_text

KEY = "OPENAI_API_KEY"
_MISSING = 127
ALL_FAILED = 30
"""Requests that fail one after another, from the first or after the last answer, before a level is given up."""

_REPORT_S = 0.5

Row = list[Any]
"""id, level, scheduled_ns, sent_ns, first_ns, last_ns, input_tokens, output_tokens, chunks, status, error; and when its
chunks arrived, nanoseconds after it was sent."""


def key_header() -> dict[str, str]:
    """The header with the server's key, which is read from the environment; empty without a key.

    Raises:
        BadInputError: If no header can carry the key.
    """
    key = os.environ.get(KEY, "").strip()
    if not key.isascii() or not key.isprintable():
        raise BadInputError(f"{KEY} holds characters that no header can carry")
    return {"Authorization": f"Bearer {key}"} if key else {}


class Client:
    """Sends requests to one server.

    Args:
        base: Address, as of ``protocol.base_url``.
        model: Name of the model; "" for the only one.
        timeout_s: Seconds within which an answer must end.
    """

    def __init__(self, base: str, model: str, timeout_s: float) -> None:
        self._base, self._model, self._timeout_s = base, model, timeout_s
        try:
            self._headers = key_header()
        except BadInputError as error:
            raise _RefusedError(str(error)) from None
        self._exchanges = Exchanges(base, self._headers, timeout_s, self.now_ns)
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._bodies: Bodies | None = None
        self._url = ""
        self.rows: list[Row] = []
        self.priority = RealTime()
        self.without_usage = self.short = self.over = self.failed_in_row = self.answered = 0

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch, on a clock that doesn't step within a level."""
        return time.monotonic_ns() + self._offset_ns

    async def close(self) -> None:
        """Close all connections."""
        await self._exchanges.close()

    async def find_out(self, api: str) -> dict[str, Any]:
        """Which model there is and what the server takes.

        Raises:
            _RefusedError: With one line, if it can't be used.
        """
        names = await self._models()
        if names is not None and self._model and self._model not in names:
            raise _RefusedError(f"no model {self._model!r}; it serves {', '.join(names) or 'none'}")
        if names and not self._model:
            if len(names) > 1:
                raise _RefusedError(f"it serves {', '.join(names)}: choose one with --model")
            self._model = names[0]
        error = ""
        for one in dialects(api):
            self._bodies, self._url = Bodies(self._model, one), f"{self._base}{PATHS[one.api]}"
            row = await self._ask(-1, -1, self.now_ns(), 4, 2)
            if row[9] == "ok":
                self.rows.clear()
                taken = {"ignore_eos": "ignore_eos" in one.extra, "usage": "stream_options" in one.extra}
                return {"model": self._model, "api": one.api, "token_ids": one.token_ids, **taken}
            error = row[10]
            if not error.startswith("HTTP") or error.startswith(("HTTP 401", "HTTP 403", "HTTP 429")):
                break
        if error.startswith(("HTTP 401", "HTTP 403")):
            error += f": set {KEY}"
        raise _RefusedError(error)

    async def _models(self) -> list[str] | None:
        """Names of the models; None if the server has no list of them."""
        try:
            found = await asyncio.to_thread(page, f"{self._base}/models", self._timeout_s, self._headers)
        except UnreachableError as error:
            raise _RefusedError(f"cannot connect: {error.why}") from None
        except UnreadableError as error:
            raise _RefusedError(self._exchanges.said(error)) from None
        if found.status in (401, 403):
            raise _RefusedError(f"HTTP {found.status}: {error_text(found.body)}: set {KEY}")
        try:
            return [str(one["id"]) for one in json.loads(found.body)["data"]] if found.status == 200 else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    async def _ask(self, id: int, level: int, scheduled_ns: int, input_tokens: int, output_tokens: int) -> Row:
        """Send one request and read its answer; its row."""
        assert self._bodies is not None
        answer = Answer(output_tokens)
        body = self._bodies.body(input_tokens, output_tokens)
        sent_ns = self.now_ns()
        try:
            error = await self._exchanges.ask(self._url, body, answer)
        except asyncio.CancelledError:
            error = f"no end within {self._timeout_s:g} s after the last request"
        status = "failed" if error else "ok"
        arrived = answer.chunks_ns
        last_ns = arrived[-1] if status == "ok" else self.now_ns()
        counted = answer.output_tokens
        if status == "ok":
            self.failed_in_row, self.answered = 0, self.answered + 1
            self.without_usage += counted is None
            tokens = len(arrived) if counted is None else counted
            self.short += tokens < output_tokens
            self.over += tokens > output_tokens
        else:
            self.failed_in_row += 1
        row = [
            *(id, level, scheduled_ns, sent_ns, arrived[0] if arrived else None, last_ns),
            input_tokens if answer.input_tokens is None else answer.input_tokens,
            len(arrived) if counted is None else counted,
            *(len(arrived), status, error or None, [at_ns - sent_ns for at_ns in arrived]),
        ]
        self.rows.append(row)
        return row

    async def level(self, number: int, plan: dict[str, Any]) -> dict[str, Any]:
        """Send the requests of a level and wait for their answers.

        Args:
            number: Of the level.
            plan: ``kind``, ``seconds``, ``concurrency``, and ``requests``: rows of seconds, input and output tokens.

        Returns:
            Facts of the level: the client's CPU time, why it was given up, counts.
        """
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self.without_usage = self.short = self.over = self.failed_in_row = self.answered = 0
        self._exchanges.sent_again = 0
        cpu, wall = time.process_time(), time.monotonic()
        send = self._open if plan["kind"] == "open" else self._closed
        with self.priority if plan["kind"] == "open" else nullcontext():
            start_ns = self.now_ns()
            given_up = await send(number, plan, start_ns)
            real_time = self.priority.on
        return {
            "start_ns": start_ns,
            "client_cpu_s": time.process_time() - cpu,
            "client_wall_s": time.monotonic() - wall,
            "client_real_time": real_time,
            "without_usage": self.without_usage,
            "short": self.short,
            "over": self.over,
            "sent_again": self._exchanges.sent_again,
            "given_up": given_up,
        }

    async def _open(self, number: int, plan: dict[str, Any], start_ns: int) -> bool:
        """Send each request at its time; whether the rest was given up."""
        loop, requests = asyncio.get_running_loop(), plan["requests"]
        begin_s = (start_ns - self._offset_ns) / 1e9  # on the loop's monotonic clock
        running: set[asyncio.Task[Row]] = set()
        sent = loop.create_future()
        place = itertools.count()

        def send() -> None:
            """Send what is due, and come back for the next."""
            while (id := next(place)) < len(requests) and self.failed_in_row < ALL_FAILED:
                at_s, input_tokens, output_tokens = requests[id]
                task = loop.create_task(
                    self._ask(id, number, start_ns + round(at_s * 1e9), input_tokens, output_tokens)
                )
                running.add(task)
                task.add_done_callback(running.discard)
                if id + 1 < len(requests) and (due := begin_s + requests[id + 1][0]) > loop.time():
                    loop.call_at(due, send)
                    return
            if not sent.done():
                sent.set_result(id < len(requests))

        loop.call_at(begin_s + requests[0][0], send)
        given_up = bool(await sent)
        await self._drain(running)
        return given_up

    async def _closed(self, number: int, plan: dict[str, Any], start_ns: int) -> bool:
        """Keep so many requests open until the time is over; whether the rest was given up."""
        requests, end_ns = plan["requests"], start_ns + round(plan["seconds"] * 1e9)
        ids = itertools.count()

        async def one_after_another() -> None:
            while (now := self.now_ns()) < end_ns and self.failed_in_row < ALL_FAILED:
                id = next(ids)
                _, input_tokens, output_tokens = requests[id % len(requests)]
                await self._ask(id, number, now, input_tokens, output_tokens)

        running = {asyncio.create_task(one_after_another()) for _ in range(plan["concurrency"])}
        await asyncio.wait(running, timeout=plan["seconds"])
        await self._drain(running)
        return self.failed_in_row >= ALL_FAILED

    async def _drain(self, running: set[asyncio.Task[Any]]) -> None:
        """Wait for the answers that are still open, but not for ever."""
        if running:
            _, late = await asyncio.wait(set(running), timeout=self._timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class _RefusedError(Exception):
    """The server can't be used; one line."""


async def serve() -> None:
    """Carry out the parent's orders until the end of input."""
    orders: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    rest = b""

    def heard() -> None:
        nonlocal rest
        data = os.read(0, 1 << 20)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            orders.put_nowait(json.loads(line))
        if not data:
            os._exit(0)  # the parent has ended, or doesn't want the answers any more

    asyncio.get_running_loop().add_reader(0, heard)
    client: Client | None = None
    while (order := await orders.get()) is not None:
        if start := order.get("start"):
            try:
                client = Client(start["base"], start["model"], start["timeout_s"])
                _say(ready=await client.find_out(start["api"]))
            except _RefusedError as error:
                _say(failed=str(error))
        elif client is not None:
            reporter = asyncio.create_task(_report(client))
            facts = await client.level(order["number"], order["level"])
            reporter.cancel()
            _hand_over(client)
            _say(done=facts)


async def _report(client: Client) -> None:
    while True:
        await asyncio.sleep(_REPORT_S)
        client.priority.check()
        _hand_over(client)


def _hand_over(client: Client) -> None:
    rows, client.rows = client.rows, []
    for at in range(0, len(rows), 500):
        _say(rows=rows[at : at + 500])


def _say(**event: Any) -> None:
    data = json.dumps(event).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def main() -> int:
    """Entry point."""
    try:
        import aiohttp  # noqa: F401  # the parent names what to install
    except ImportError:
        return _MISSING
    with suppress(ValueError, OSError):  # each open stream takes a file descriptor
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.disable()  # a collection holds requests up by 10 ms and more, and requests leave no cycles to collect
    loop = event_loop()
    with suppress(KeyboardInterrupt):
        loop.run_until_complete(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
