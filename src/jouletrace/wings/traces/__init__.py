"""Timelines, counters and statistics of other profilers: Kineto, nsys, ncu, nvprof, trtexec, torch.utils.benchmark."""

from jouletrace.public import public_names
from jouletrace.wing import Wing

_OF_NVPROF = "nvprof --import-profile {file} --csv --print-gpu-trace"

WING = Wing(
    formats={
        name: f"jouletrace.wings.traces.{name}"
        for name in ("nsys", "ncu", "kineto", "nvprof", "trtexec", "torch_benchmark", "trace_tables")
    },
    converted_by={
        ".nsys-rep": "nsys export --type sqlite {file}",
        ".qdrep": "nsys export --type sqlite {file}",
        ".ncu-rep": "ncu --import {file} --csv --page raw",
        ".nvvp": _OF_NVPROF,
        ".nvprof": _OF_NVPROF,
    },
)

__getattr__ = public_names(
    __name__,
    {
        "ncu_match": "match_launches",
    },
)
