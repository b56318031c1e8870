"""An event loop whose timers are not delayed by many ready sockets."""

import asyncio
import socket
import sys

import pytest

from jouletrace.wings.serving.client.few_events import AT_ONCE, event_loop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")


@pytest.fixture
def loop():
    found = event_loop()
    yield found
    found.close()


def test_a_timer_comes_after_a_few_sockets_not_after_all(loop):
    pairs = [socket.socketpair() for _ in range(200)]
    seen = []

    def read(ours):
        ours.recv(1)
        seen.append(ours)
        if len(seen) == 1:
            loop.call_soon(lambda: loop.call_later(0, lambda: seen.append("timer")))
        if len(seen) > len(pairs):
            loop.stop()

    for ours, theirs in pairs:
        loop.add_reader(ours, read, ours)
        theirs.send(b"x")
    loop.run_forever()
    assert seen.index("timer") <= 4 * AT_ONCE
    assert set(seen) == {ours for ours, _ in pairs} | {"timer"}  # and none is left out
    for pair in pairs:
        for one in pair:
            loop.remove_reader(one)
            one.close()


def test_streams_are_read_and_written_to_their_end(loop):
    async def both():
        async def answer(reader, writer):
            data = await reader.readexactly(1 << 20)
            writer.write(data)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def ask(n):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(bytes([n]) * (1 << 20))
            data = await reader.read(-1)
            writer.close()
            return data == bytes([n]) * (1 << 20)

        found = await asyncio.gather(*map(ask, range(20)))
        server.close()
        return found

    assert all(loop.run_until_complete(asyncio.wait_for(both(), 60)))


def test_waits_without_sockets_end(loop):
    assert loop.run_until_complete(asyncio.sleep(0.01, "done")) == "done"
