"""Workloads in processes of their own: repeats, a grid of points."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "child": "main",
        "limits": "parse_limits",
        "race": "Candidate Race ShareLimit Visit",
        "repeats": "merge",
        "sweep": "SweepGrid run_sweep",
        "targets": "parse_over",
        "tune": "run_tune target_of",
        "worker": "Worker listen",
    },
)
