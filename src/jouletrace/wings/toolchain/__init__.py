"""Tools of others that are started: ``jouletrace trace`` (nsys, ncu), ``jouletrace convert``, trtexec."""

from jouletrace.wing import Wing

WING = Wing(
    commands={
        "convert": "jouletrace.wings.toolchain.commands.convert",
        "trace": "jouletrace.wings.toolchain.commands.trace",
    },
    engines={"trtexec": "jouletrace.wings.toolchain.trtexec"},
    tools={
        "nsys": "Nsight Systems: timelines of other programs",
        "ncu": "Nsight Compute: hardware counters of kernels",
        "trtexec": "TensorRT engines",
    },
)
