"""Compute and graphics processes that use a GPU, as the driver lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jouletrace.devices.base import Process
from jouletrace.devices.nvml.api import Nvml


def list_processes(nvml: Nvml, handle: Any) -> list[Process]:
    """Processes on a GPU or MIG instance, each once, by pid.

    The pids are those of this namespace where the driver can translate them; the name of a process outside
    this namespace is "".

    Raises:
        NotPossibleError: If the GPU is gone.
    """
    memory: dict[int, int | None] = {}
    for function in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        for process in nvml.get(function, handle) or []:
            used = process.usedGpuMemory
            # A process with compute and graphics work is in both lists with the same memory.
            if memory.get(process.pid) is None:
                memory[process.pid] = None if used is None else int(used)
    return [Process(pid, process_name(pid), used) for pid, used in sorted(memory.items())]


def process_name(pid: int, proc: Path = Path("/proc")) -> str:
    """Command name of a process, or "" if it can't be seen."""
    try:
        return (proc / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""
