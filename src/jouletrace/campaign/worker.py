"""Processes of a campaign, as their parent sees them."""

from __future__ import annotations

import errno
import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError, BrokenOffError, JouletraceError, NotPossibleError, RecorderDiedError
from jouletrace.processes.children import Child
from jouletrace.profiler.settings import ProfileSettings

MODULE = "jouletrace.campaign.child"

INTERRUPTED = 130
"""Exit code of a process that was interrupted."""

VANISHED, TIMED_OUT = "vanished", "timed_out"
"""Reasons of failures that the process doesn't report itself."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error codes of a full disk; most errors reach us as text."""

_LOST = ("GPU is lost", "fallen off the bus", "uncorrectable ECC error")
"""Texts with which the driver and CUDA report a lost GPU."""


class Worker(Child):
    """A ``campaign.child``.

    Attributes:
        name: What it runs on, for messages: "the process on NAME was killed by signal 9".
        said: Its last message but progress, since the last order; {} before.
    """

    def __init__(self, name: str, visible: str | None = None) -> None:
        """Start it; CUDA shows it the device with the UUID ``visible``, or what it shows to us for None."""
        super().__init__(MODULE, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
        self.name = name
        self.said: dict[str, Any] = {}

    def begin(self, order: Mapping[str, Any]) -> None:
        """Give it an order; ``listen`` waits for the answer."""
        self.said = {}
        self.tell(order)

    @property
    def over(self) -> bool:
        """True if it has carried out its order, or failed."""
        return self.said.get("is") in ("done", "failed")

    def hear(self) -> list[dict[str, Any]]:
        """See ``processes.children.Child``; its end counts as a failure."""
        heard = super().hear()
        if heard is None:
            if not self.over:
                self.fail(VANISHED, f"the process on {self.name} {self.how_it_ended()}")
            return [self.said]
        for message in heard:
            if message.get("is") != "phase":
                self.said = message
        return heard

    def fail(self, reason: str, text: str) -> None:
        """Take it for failed."""
        self.said = {"is": "failed", "reason": reason, "text": text}


Hear = Callable[[Worker, dict[str, Any]], None]
"""Receives each message of a worker."""


def listen(
    workers: Sequence[Worker], until: str = "done", limit_s: float | None = None, hear: Hear | None = None
) -> None:
    """Wait until each worker has said ``until``, or is over; one that takes more than ``limit_s`` is ended."""
    end = None if limit_s is None else time.monotonic() + limit_s
    waiting = [worker for worker in workers if not worker.over and worker.said.get("is") != until]
    with selectors.DefaultSelector() as selector:
        for worker in waiting:
            selector.register(worker.output, selectors.EVENT_READ, worker)
        while waiting:
            ready = selector.select(None if end is None else max(0.0, end - time.monotonic()))
            for key, _ in ready:
                worker = key.data
                for message in worker.hear():
                    if hear is not None:
                        hear(worker, message)
                if worker.over or worker.said.get("is") == until:
                    selector.unregister(worker.output)
                    waiting.remove(worker)
            if not ready and waiting:
                for late in waiting:
                    late.fail(TIMED_OUT, f"{late.name}: no result after {limit_s:g} s")
                    late.close(now=True)
                    if hear is not None:
                        hear(late, late.said)
                return


def profile_in_child(
    workload: str, settings: ProfileSettings, folder: Path, limit_s: float | None = None, command: str = ""
) -> None:
    """Profile in a process of its own; ``folder`` receives the Run, with the ``command`` that asked for it.

    Raises:
        BadInputError, NotPossibleError: With the message of the process.
        RecorderDiedError: If a signal killed it.
        BrokenOffError: If the workload ended it, whatever its exit code.
        TimeoutError: If it took more than ``limit_s`` seconds; it has been ended.
        RuntimeError: If it failed with an unexpected exception, with its traceback.
    """
    worker = Worker(workload)
    try:
        order = {"do": "profile", "workload": workload, "settings": asdict(settings), "folder": str(folder)}
        worker.begin({**order, "command": command})
        listen([worker], limit_s=limit_s)
    except BaseException:
        worker.interrupt()  # it saves what it has recorded
        raise
    finally:
        worker.close()
    check_done(worker, workload, folder)


def check_done(worker: Worker, workload: str, folder: Path) -> None:
    """Raise what ``profile_in_child`` raises if the worker's last order failed."""
    if worker.said["is"] == "failed":
        raise _error_of(worker, workload, folder)


def _error_of(worker: Worker, workload: str, folder: Path) -> BaseException:
    said, ended = worker.said, worker.code or 0
    if said["reason"] == VANISHED and ended < 0:
        return RecorderDiedError(f"a run was killed by signal {-ended}; the data written so far is kept in {folder}")
    if said["reason"] == VANISHED:
        return BrokenOffError(f"{workload} ended its process with exit code {ended} before it was measured")
    kinds: dict[object, type[BaseException]] = {
        BadInputError.exit_code: BadInputError,
        NotPossibleError.exit_code: NotPossibleError,
        INTERRUPTED: KeyboardInterrupt,
        TIMED_OUT: TimeoutError,
    }
    kind = kinds.get(said.get("code", said["reason"]))
    return kind(said["text"]) if kind is not None else RuntimeError(f"a run failed:\n{said['trace']}")


def last_line(error: BaseException) -> str:
    """The last line of an error's message: of a child's traceback, what was raised."""
    return (str(error).strip().splitlines() or ["it failed without a message"])[-1]


def reason_of(error: BaseException) -> str:
    """A short code for the cause of a failure."""
    text = str(error)
    if isinstance(error, JouletraceError | OSError) and any(os.strerror(code) in text for code in _FULL):
        return "disk_full"
    if any(words in text for words in _LOST):
        return "lost_gpu"
    if "out of memory" in text.lower():
        return "out_of_memory"
    kinds: dict[type[BaseException], str] = {
        NotPossibleError: "not_possible",
        BadInputError: "bad_input",
        TimeoutError: TIMED_OUT,
        RecorderDiedError: VANISHED,
        BrokenOffError: VANISHED,
    }
    return kinds.get(type(error), "failed")
