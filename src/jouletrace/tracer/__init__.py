"""The native tracer: what any program runs on GPUs, and whose it is."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "labels": "labels_of",
        "process_trace": "Launched ProcessTrace",
        "reader": "read",
    },
)
