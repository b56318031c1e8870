"""Processes that run modules of jouletrace, forked from one that has imported what these import.

Imports of NumPy, SciPy and pyarrow take most of a short process. A worker of the tests has one server, which forks its
processes. What a test needs of a start itself (``sitecustomize``, peak memory, interrupted imports) it has of Python.
Processes that need torch are forked from a copy of the worker before its first test, which has imported all there is:
importing torch takes 2 s of CPU, forking so large a process 0.05 s, of which one that needs no torch has 0.01 s.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from shipped import ABSENT

_IMPORTED = (
    "jouletrace.analysis.checks",
    "jouletrace.attribution.attribute",
    "jouletrace.cli.app",
    "jouletrace.cli.encoding",
    "jouletrace.devices.registry",
    "jouletrace.profiler.monitoring.monitor",
    "jouletrace.profiler.program.program",
    "jouletrace.profiler.program.recorded",
    *(() if "serving" in ABSENT else ("jouletrace.wings.serving.client.exchanges",)),
    "jouletrace.recording.worker",
    "jouletrace.report.console",
    "jouletrace.report.content",
    "jouletrace.report.terminal",
    "jouletrace.simulator.boards.driver",
    "jouletrace.stats.contrast",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pydantic.type_adapter",
    "rich.table",
    "typer._adapters",
)
"""Modules with what they import; none computes anything, and pandas isn't among them."""

_READY = b"ready"
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_HIGH = 500  # file descriptors from here on are free
_LONGEST = 1 << 17  # bytes of an order

_servers: dict[int, _Server] = {}
"""By process: one that a test forks has its own."""

_copies: dict[int, _Server] = {}
"""The copy of a worker, by process; a process that a test forks has none."""

_OF_TORCH = ("jouletrace.execution.steps.counting", "jouletrace.profiler.profile", "transformers.modeling_utils")
_NEED_TORCH = ("jouletrace.campaign.child",)


class Popen(subprocess.Popen[Any]):
    """A child for ``python [-P] -m MODULE ARGUMENTS`` or ``python -c CODE``, as ``subprocess.Popen``."""

    torch = False

    def _execute_child(
        self, args, _executable, _preexec, _close, pass_fds, cwd, env, _info, _flags, _shell, *pipes_and_more
    ):
        pipes, new_session = pipes_and_more[:6], pipes_and_more[11]
        ours = [own if pipe == -1 else pipe for own, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        safe, words = args[1] == "-P", args[2:] if args[1] == "-P" else args[1:]
        assert (args[0], words[0]) in ((sys.executable, "-m"), (sys.executable, "-c")), f"{args} is not of this Python"
        order = {
            "kind": words[0],
            "program": words[1],
            "arguments": words[2:],
            "safe": safe,
            "cwd": os.path.abspath(cwd or "."),
            "environment": dict(os.environ if env is None else env),
            "new_session": bool(new_session),
            "numbers": [0, 1, 2, *pass_fds],
        }
        try:
            self.pid = _of_this_process(self.torch).fork(order, [*ours, *pass_fds])
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)


class WithTorch(Popen):
    """Such a process, in which torch is imported."""

    torch = True


def start() -> None:
    """Start the server of this process, and wait until it has imported."""
    _of_this_process()


def copy_worker() -> None:
    """Keep a copy of this process, to fork processes from that need torch; before any test has changed anything."""
    _copies[os.getpid()] = _Server(copied=True)


def child(arguments: list[str], **options: Any) -> subprocess.Popen[Any]:
    """A process that ends with this one; Python starts a stand-in for a module of ours, which imports little."""
    module = arguments[5]  # see ``children.our_child``
    if module.partition(".")[0] != "jouletrace":
        return subprocess.Popen(arguments, **options)
    return (WithTorch if module in _NEED_TORCH else Popen)(arguments, **options)


class _Server:
    """The server of this process, from this side."""

    def __init__(self, copied: bool = False) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LONGEST)
        self._lock = threading.Lock()
        self.parent = os.getpid()
        self._pid = _copied(theirs) if copied else _started(theirs)
        theirs.close()
        atexit.register(self._end)
        assert self._socket.recv(64) == _READY  # a recording that waited for imports would begin late

    def fork(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """A process that becomes a child of this one; returns its id."""
        text = json.dumps(order).encode("utf-8", "surrogateescape")
        assert len(text) < _LONGEST, f"an order of {len(text)} bytes"
        control = ctypes.CDLL(None).prctl
        with self._lock:
            control(_SUBREAPER, 1, 0, 0, 0)  # the process between, which forks it, ends at once
            try:
                socket.send_fds(self._socket, [text], descriptors)
                return int(self._socket.recv(64))
            finally:
                control(_SUBREAPER, 0, 0, 0, 0)

    def _end(self) -> None:
        if os.getpid() == self.parent:
            os.kill(self._pid, signal.SIGKILL)  # a process that a test forked may hold the socket still
            os.waitpid(self._pid, 0)


def _started(orders: socket.socket) -> int:
    """Start a server that imports what processes need that need no torch."""
    from jouletrace.processes.children import python_path  # of the source that is tested

    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # threads don't survive a fork
    environment = {**os.environ, **alone, "PYTHONPATH": python_path()}
    process = subprocess.Popen(
        [sys.executable, __file__, str(orders.fileno())], pass_fds=[orders.fileno()], env=environment
    )
    process.returncode = 0  # whoever ends it waits for it
    return process.pid


def _copied(orders: socket.socket) -> int:
    """Start a server that is a copy of this process."""
    pid = os.fork()
    if pid:
        return pid
    try:
        atexit._clear()
        sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
        threading.excepthook = threading.__excepthook__
        warnings.resetwarnings()
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        _servers.clear()
        code = 0
        order, descriptors = _serve(orders, _OF_TORCH)
        _become(order, descriptors)
        _run(order)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _of_this_process(torch: bool = False) -> _Server:
    pid = os.getpid()
    if torch and pid in _copies:
        return _copies[pid]
    if pid not in _servers:
        _servers[pid] = _Server()
    return _servers[pid]


def _serve(orders: socket.socket, imported: Sequence[str] = ()) -> tuple[dict[str, Any], list[int]]:
    """Fork for each order; in the process that is to run it returns the order and its file descriptors.

    Modules that aren't imported yet are with the first order.
    """
    adopter = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the terminal of the tests is theirs
    orders.send(_READY)
    while True:
        text, descriptors, _, _ = socket.recv_fds(orders, _LONGEST, 64)
        if not text:
            os._exit(0)
        for name in imported:
            with suppress(ImportError):
                importlib.import_module(name)
        assert threading.active_count() == 1, "threads don't survive a fork"
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            while (parent := os.getppid()) != adopter:
                if parent == 1:  # whoever asked has ended
                    os._exit(1)
                os.sched_yield()
            orders.send(str(os.getpid()).encode())
            orders.close()
            return json.loads(text), descriptors
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _become(order: dict[str, Any], descriptors: list[int]) -> None:
    """Be as Python begins with ``-m``: streams, folder, environment and paths."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order["new_session"]:
        os.setsid()
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH) for descriptor in descriptors]
    os.closerange(3, _HIGH)
    for descriptor, number in zip(moved, order["numbers"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    first = [] if order["safe"] else [order["cwd"]]
    sys.path[:1] = first + [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.argv = sys.orig_argv = [order["kind"], *order["arguments"]]
    open_streams()


def open_streams() -> None:
    """Open the three streams as Python does at its start."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors = "backslashreplace" if name == "stderr" else "strict"
        lines = -1 if number == 0 or (number == 1 and not os.isatty(1)) else 1
        stream = open(number, "w" if number else "r", lines, errors=errors, closefd=False)  # noqa: SIM115 - they stay
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(order: dict[str, Any]) -> None:
    if order["kind"] == "-c":
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(order["program"], "<string>", "exec"), vars(main))
        return
    sys.modules.pop(order["program"], None)  # it runs as __main__, and whoever needs it imports it again
    try:
        runpy.run_module(order["program"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if order["safe"]:  # no command: clearing the modules at its end takes as long as importing them
            sys.stdout.flush()
            os._exit(int(ended.code or 0))
        raise


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    with suppress(ImportError):
        importlib.import_module("aiohttp")  # of the client of servers
    assert "pandas" not in sys.modules
    order, descriptors = _serve(socket.socket(fileno=int(sys.argv[1])))
    _become(order, descriptors)
    _run(order)
