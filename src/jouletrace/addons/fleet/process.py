"""Child processes from the parent's side: started, synchronised, and read concurrently."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jouletrace.addons.fleet.plan import FleetGpu
from jouletrace.processes import children

MODULE = "jouletrace.addons.fleet.child"

Hear = Callable[[FleetGpu, dict[str, Any]], None]
"""Receives a child's reports of progress."""


class Child(children.Child):
    """One ``jouletrace.addons.fleet.child``.

    Args:
        gpu: The GPU that CUDA shows to it.
        order: Its order.

    Attributes:
        gpu: As given.
        said: Its last message other than progress; {} before the first.
    """

    def __init__(self, gpu: FleetGpu, order: Mapping[str, Any]) -> None:
        # this GPU only, by UUID, whatever the order
        super().__init__(MODULE, {"CUDA_VISIBLE_DEVICES": gpu.id} if gpu.id.startswith("GPU-") else {})
        self.gpu = gpu
        self.said: dict[str, Any] = {}
        self.tell(order)

    @property
    def over(self) -> bool:
        """Whether it has sent its last message."""
        return self.said.get("is") in ("done", "failed")

    def hear(self) -> list[dict[str, Any]]:
        """See ``processes.children.Child``; its end counts as a message too."""
        heard = super().hear()
        if heard is None:
            if not self.over:
                text = f"the process on {self.gpu} {self.how_it_ended()}"
                self.said = {"is": "failed", "reason": "vanished", "text": text}
            return [self.said]
        for message in heard:
            if message.get("is") != "phase":
                self.said = message
        return heard

    def fail(self, reason: str, text: str) -> None:
        """End it and note the reason."""
        self.said = {"is": "failed", "reason": reason, "text": text}
        self.close(now=True)


def listen(children: Sequence[Child], until: tuple[str, ...], limit_s: float, hear: Hear) -> None:
    """Wait until every child has sent one of ``until``, or is over; a child that is late has failed.

    Args:
        children: The children, which are read concurrently.
        until: "ready" or "done"; "failed" always counts.
        limit_s: Seconds for all.
        hear: Receives every message.
    """
    end = time.monotonic() + limit_s
    waiting = [child for child in children if not child.over and child.said.get("is") not in until]
    with selectors.DefaultSelector() as selector:
        for child in waiting:
            selector.register(child.output, selectors.EVENT_READ, child)
        while waiting:
            ready = selector.select(max(0.0, end - time.monotonic()))
            for key, _ in ready:
                heard: Child = key.data
                for message in heard.hear():
                    hear(heard.gpu, message)
                if heard.over or heard.said.get("is") in until:
                    selector.unregister(heard.output)
                    waiting.remove(heard)
            if not ready and waiting:
                for late in waiting:
                    late.fail("timed_out", f"{late.gpu}: no result after {limit_s:g} s")
                    hear(late.gpu, late.said)
                return
