"""How a workload runs under the tracer: its operator calls, repetition in place, and the assignment of kernels."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "calls": "Call Listing UNKNOWN",
        "excitation": "variants",
    },
)
