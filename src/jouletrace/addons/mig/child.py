"""One worker process, from its parent's side."""

from __future__ import annotations

import time
from typing import Any

from jouletrace.addons.mig.bench import JobFailedError
from jouletrace.processes import children


class Child(children.Child):
    """A ``addons.mig.worker`` with one slice in its ``CUDA_VISIBLE_DEVICES``.

    Args:
        name: Its name in messages.
        visible: UUID of the slice; None leaves the variable unchanged.
    """

    def __init__(self, name: str, visible: str | None) -> None:
        super().__init__("jouletrace.addons.mig.worker", None if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
        self._name = name
        self._answers: list[dict[str, Any]] = []

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Its next answer.

        Raises:
            JobFailedError: If it reports an error, has ended, or doesn't answer in time (it is ended then).
        """
        end = time.monotonic() + timeout_s
        while not self._answers:
            if not self.speaks(end - time.monotonic()):
                self.close(now=True)
                raise JobFailedError("failed", f"{self._name}: no answer for {timeout_s:g} s")
            heard = self.hear()
            if heard is None:
                raise JobFailedError(
                    "vanished", f"{self._name}: its process {self.how_it_ended()}; the slice may be gone"
                )
            self._answers += heard
        answer = self._answers.pop(0)
        if "error" in answer:
            raise JobFailedError(answer["reason"], f"{self._name}: {answer['error']}")
        return answer

    def ask(self, order: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """``tell`` and ``receive``."""
        self.tell(order)
        return self.receive(timeout_s)
