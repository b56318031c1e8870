"""Workers of pytest-xdist, forked from one process that has collected the tests: each finds its modules imported.

Collecting imports torch and 330 modules of tests, which takes each worker of a fresh clone half a minute of CPU.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from preloaded import open_streams

_WORDS = 1 << 16  # bytes of the arguments of a worker, at most


def start(specs: Iterable[Any], arguments: Iterable[str]) -> subprocess.Popen[bytes]:
    """Start the process that collects what ``arguments`` of pytest name, and let specs of execnet start from it."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, __file__, "collect", str(theirs.fileno()), *arguments]
    server = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    address = ours.recv(_WORDS).decode()
    ours.detach()  # open as long as this process lives, which is what the server waits for
    for spec in specs:
        spec.python = f"{sys.executable} {__file__} {address}"
    return server


def _collect(alive: socket.socket, arguments: list[str]) -> None:
    """Import the tests, and fork a worker for each client; in the worker this returns."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    address = f"\0jouletrace-tests-{os.getpid()}"
    listening.bind(address)
    listening.listen()
    alive.send(address[1:].encode())
    import pytest

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        failed = pytest.main(["--collect-only", "-qq", *arguments])
    if failed:  # a module that can't be imported is left half made: workers import all again, and say what is wrong
        for name in [name for name in sys.modules if name.rpartition(".")[2].startswith("test_")]:
            del sys.modules[name]
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # clients watch workers, this process needn't wait for them
    while True:
        ready, _, _ = select.select([alive, listening], [], [])
        if alive in ready:
            os._exit(0)
        client, _ = listening.accept()
        folder, descriptors, _, _ = socket.recv_fds(client, _WORDS, 3)
        assert threading.active_count() == 1, "threads don't survive a fork"
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            client.send(str(os.getpid()).encode())
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            for end in (client, listening, alive):
                end.close()
            os.chdir(folder)
            return
        client.close()
        for descriptor in descriptors:
            os.close(descriptor)


def _be_a_worker() -> None:
    """Do what execnet asks of ``python -u -c LINE``, whose module ``__main__`` has no file."""
    sys.argv = ["-c"]
    open_streams()
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    exec(eval(sys.stdin.readline()), vars(main))
    atexit._run_exitfuncs()
    os._exit(0)  # libraries would join threads that the fork left behind


def _wait(address: str) -> None:
    """Have a worker with the streams of this process, and wait for its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(f"\0{address}")
        socket.send_fds(server, [os.fsencode(Path.cwd())], [0, 1, 2])
        worker = os.pidfd_open(int(server.recv(64)))
    for number in (0, 1):  # the worker's alone, so that either end is seen
        os.close(number)
    select.select([worker], [], [])


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        _collect(socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
        _be_a_worker()
    else:
        _wait(sys.argv[1])
