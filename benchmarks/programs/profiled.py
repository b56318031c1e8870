"""Run a program under torch's profiler, from its first line to its last: ``profiled.py SCRIPT [ARGS...]``."""

import runpy
import sys
from pathlib import Path

import torch

sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).parent)
with torch.profiler.profile():
    runpy.run_path(sys.argv[0], run_name="__main__")
