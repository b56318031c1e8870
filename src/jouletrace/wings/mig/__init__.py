"""A GPU divided into slices, and workloads on them: ``jouletrace mig``."""

from jouletrace.public import public_names
from jouletrace.wing import Wing

WING = Wing(
    commands={"mig": "jouletrace.wings.mig.command"},
    devices=("jouletrace.wings.mig.vendor",),
)

__getattr__ = public_names(
    __name__,
    {
        "activity": "DcgmExporter",
        "driver": "NvmlMigBackend",
        "plan": "make_plan",
        "simulated": "SimulatedMig",
    },
)
