"""The child process that runs jobs on one slice: ``python -m jouletrace.addons.mig.worker``.

CUDA shows a process one MIG instance, selected by ``CUDA_VISIBLE_DEVICES`` before it starts, so every slice has
its own process. It reads one JSON object per line and answers each with one:

    {"do": "load", "job": {...}, "device": "cuda:0"}  ->  {"items": 8}
    {"do": "run", "seconds": 10, "at_ns": ...}        ->  {"latency_s": [...], "start_ns": ..., "end_ns": ...}
    {"do": "memory"}                                  ->  {"bytes": ...}

Every answer may be ``{"error": "...", "reason": "out_of_memory"}`` instead. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import IO, Any

from jouletrace.addons.mig.jobs import reason_of
from jouletrace.errors import JouletraceError

_CHUNK_S = 0.25
"""Approximate length of the chunks, back to back, in which requests are timed."""


class Worker:
    """Runs jobs on ``device``, one at a time."""

    def __init__(self) -> None:
        self._step: Any = None

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order."""
        match order["do"]:
            case "load":
                return self._load(order["job"], order["device"])
            case "run":
                return self._run(float(order["seconds"]), int(order["at_ns"]))
            case "memory":
                return {"bytes": _memory()}
        raise ValueError(f"unknown order {order['do']!r}")

    def _load(self, job: dict[str, Any], device: str) -> dict[str, Any]:
        from jouletrace.execution.steps import make_step
        from jouletrace.workloads import WorkloadOptions, resolve

        if self._step is not None:
            self._step.close()
            self._step = None
        options = WorkloadOptions(task=job["task"], batch=job["batch"], seq_len=job["seq_len"], dtype=job["dtype"])
        built = resolve(job["workload"]).build(device, options)
        self._step = make_step(built, device, job["mode"])
        return {"items": built.items}

    def _run(self, seconds: float, at_ns: int) -> dict[str, Any]:
        """Run with a common start of all slices at ``at_ns``, when every worker has received its order."""
        if self._step is None:
            raise ValueError("nothing is loaded")
        time.sleep(max(0.0, (at_ns - time.time_ns()) / 1e9))
        latencies: list[float] = []
        start_ns = time.time_ns()
        count = 1
        while not latencies or time.time_ns() - start_ns < seconds * 1e9:
            chunk = self._step.latencies(count).tolist()
            latencies += chunk
            count = max(1, round(_CHUNK_S / max(sum(chunk) / len(chunk), 1e-6)))
        return {"latency_s": latencies, "start_ns": start_ns, "end_ns": time.time_ns()}


def main(orders: IO[str], answers: IO[str]) -> None:
    """Answer orders until there are no more."""
    worker = Worker()
    for line in orders:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # any exception of the workload is an answer, not the end of the sweep
            text = str(error)
            if not isinstance(error, JouletraceError):
                text = f"{type(error).__name__}: {(text.splitlines() or [''])[0]}"
            answer = {"error": text, "reason": reason_of(error)}
        print(json.dumps(answer), file=answers, flush=True)


def _memory() -> int | None:
    """Device memory in use on the slice that CUDA shows, by the driver; None on a CPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries and models is no answer to the parent
    main(sys.stdin, answers)
