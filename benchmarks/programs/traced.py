"""Run a program with the tracer attached before CUDA starts, or 0.5 s later: ``traced.py first|later SCRIPT``."""

import runpy
import sys
import threading
import time
from pathlib import Path

import torch

from jouletrace.tracer.in_process import InProcess

when = sys.argv[1]
sys.argv = sys.argv[2:]
sys.path[0] = str(Path(sys.argv[0]).parent)


def start_later() -> None:
    """Attach once the program has used CUDA for a while."""
    while not torch.cuda.is_initialized():
        time.sleep(0.1)
    time.sleep(0.5)
    InProcess(operators=False)


if when == "first":
    tracer = InProcess(operators=False)
else:
    threading.Thread(target=start_later, daemon=True).start()
runpy.run_path(sys.argv[0], run_name="__main__")
