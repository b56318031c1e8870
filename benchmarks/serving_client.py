"""How punctual the load generator of ``jouletrace bench`` is: 200 requests/s with 1,000 open streams.

    PYTHONPATH=src python benchmarks/serving_client.py [--rate 200] [--open 1000] [--seconds 30] [--step-ms 100]

A server in another process generates for all streams in step, as servers with continuous batching do, so that all
streams get a chunk in the same moment. It stamps the arrival of each request: the client's own stamps are compared with
the schedule, and with the server's. A process that only sleeps until the same times shows what the machine allows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import ClassVar

import numpy as np

from jouletrace.processes.children import Child
from jouletrace.profiler.serving.load import Lengths, open_levels

CHUNK = (
    b'data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" word","finish_reason":null}]}\n\n'
)
LAST = (
    b'data: {"choices":[{"index":0,"text":" end","finish_reason":"length"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":16,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
)
NAMES = ("p50", "p90", "p99", "p99.9", "max")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(data: bytes) -> bytes:
    """A chunk of HTTP's chunked encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class Stream(asyncio.Protocol):
    """A connection of the server."""

    open: ClassVar[dict[Stream, int]] = {}
    arrivals: ClassVar[list[int]] = []
    most = 0

    def connection_made(self, transport):
        self.transport, self.buffer, self.tokens = transport, b"", 0

    def connection_lost(self, error):
        Stream.open.pop(self, None)

    def data_received(self, data):
        now = time.time_ns()
        self.buffer += data
        head, separator, body = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        if head.startswith(b"GET"):
            body = b'{"data":[{"id":"fast"}]}'
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.buffer = b""
            return
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        size = int(lower[at:].split(b"\r\n", 1)[0])
        if len(body) < size:
            return
        self.buffer = b""
        self.tokens = json.loads(body)["max_tokens"]
        Stream.arrivals.append(now)
        self.transport.write(HEAD)
        Stream.open[self] = self.tokens
        Stream.most = max(Stream.most, len(Stream.open))


async def step(seconds: float) -> None:
    """Generate a token for every stream at each step."""
    whole, due = chunked(CHUNK), time.monotonic()
    while True:
        due += seconds
        await asyncio.sleep(max(due - time.monotonic(), 0.0))
        for n, (stream, left) in enumerate(list(Stream.open.items())):
            if n % 8 == 0:  # requests that arrive meanwhile are stamped at once
                await asyncio.sleep(0)
            if stream not in Stream.open:
                continue
            if left > 1:
                stream.transport.write(whole)
                Stream.open[stream] = left - 1
            else:
                stream.transport.write(chunked(LAST % stream.tokens) + b"0\r\n\r\n")
                del Stream.open[stream]


def serve(pipe: Connection, step_s: float) -> None:
    """The server's process."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Stream, "127.0.0.1", 0, backlog=4096)
        pipe.send(server.sockets[0].getsockname()[1])
        stepping = loop.create_task(step(step_s))
        while not pipe.poll():
            await asyncio.sleep(0.1)
        stepping.cancel()
        pipe.send((Stream.arrivals, Stream.most, time.process_time()))

    asyncio.run(main())


def sleeps(pipe: Connection, at_s: list[float]) -> None:
    """Sleep until each time, as a process that does nothing else; how late it woke, s."""
    begin, late = time.monotonic(), []
    for one in at_s:
        while (left := begin + one - time.monotonic()) > 0:
            time.sleep(left)
        late.append(time.monotonic() - begin - one)
    pipe.send(late)


def main() -> None:
    """Run the load and print how late requests were."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--open", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--step-ms", type=float, default=100.0, help="Time of a token.")
    options = parser.parse_args()
    tokens = max(round(options.open / options.rate / (options.step_ms / 1e3)), 1)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs, options.step_ms / 1e3), daemon=True)
    server.start()
    base = f"http://127.0.0.1:{ours.recv()}/v1"
    (level,) = open_levels(
        [options.rate], "poisson", options.seconds, 1, (Lengths(16, 16), Lengths(tokens, tokens)), seed=1
    )
    child = Child("jouletrace.profiler.serving.client")
    child.tell({"start": {"base": base, "model": "", "timeout_s": 60.0, "api": "auto"}})
    requests = [[one.at_s, one.input_tokens, one.output_tokens] for one in level.requests]
    bare, of_bare = multiprocessing.Pipe()
    multiprocessing.Process(target=sleeps, args=(of_bare, [one.at_s for one in level.requests]), daemon=True).start()
    child.tell({"number": 0, "level": {"kind": "open", "seconds": level.seconds, "requests": requests}})
    rows, done = [], None
    while done is None:
        heard = child.hear()
        if heard is None:
            raise SystemExit(f"the client {child.how_it_ended()}")
        for event in heard:
            if "failed" in event:
                raise SystemExit(event["failed"])
            rows += event.get("rows", ())
            done = event.get("done", done)
    child.close()
    ours.send("end")
    arrivals, most, cpu_s = ours.recv()
    settled = 2 * options.open / options.rate  # until then connections are opened
    table = np.array([[row[2], row[3]] for row in rows if row[0] >= 0], np.int64)
    late = (table[:, 1] - table[:, 0]) / 1e6
    arrived = np.sort(np.array(arrivals)[-len(table) :]) - np.sort(table[:, 0])
    steady = np.sort(table[:, 0]) > table[:, 0].min() + settled * 1e9
    print(
        f"load average {os.getloadavg()[0]:.2f}; {len(rows)} requests, at most {most} streams open, "
        f"{sum(row[9] != 'ok' for row in rows)} failed"
    )
    priority = "real-time" if done["client_real_time"] else "normal"
    share = done["client_cpu_s"] / done["client_wall_s"]
    print(f"client {share:.0%} of a core at {priority} priority, server {cpu_s / options.seconds:.0%}")
    for name, values in (
        ("a bare sleep beside it, ms", 1e3 * np.array(bare.recv())),
        ("sent after schedule, ms", late),
        ("received after schedule, ms", arrived / 1e6),
        ("received after schedule, ms, steady", arrived[steady] / 1e6),
    ):
        quantiles = np.quantile(values, [0.5, 0.9, 0.99, 0.999, 1.0])
        print(f"{name}: " + "  ".join(f"{n} {v:.2f}" for n, v in zip(NAMES, quantiles, strict=True)))


if __name__ == "__main__":
    main()
