"""The GPU's energy counter, polled by a process of its own, for scripts that need its steps as truth."""

import select
import sys
import time

import numpy as np

POLL_S = 0.002


def poll(target: str, uuid: str) -> None:
    """Read the counter of a GPU until stdin closes; write the reads beside its changes: ns before, mJ, ns after.

    ``reads`` of the file ``target`` has the last read before each change and the first after it, shape (n, 3).
    """
    import pynvml

    pynvml.nvmlInit()
    gpu, rows = pynvml.nvmlDeviceGetHandleByUUID(uuid), []
    print("polling", flush=True)
    while not select.select([sys.stdin], [], [], POLL_S)[0]:
        before = time.time_ns()
        millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
        rows.append((before, millijoules, time.time_ns()))
    reads = np.array(rows, np.int64)
    changes = np.flatnonzero(np.diff(reads[:, 1]))
    np.savez_compressed(target, reads=reads[np.unique(np.concatenate([changes, changes + 1]))])
