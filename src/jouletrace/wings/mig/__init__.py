"""A GPU divided into slices, and workloads and servers on them: ``jouletrace mig``."""

from jouletrace.public import public_names
from jouletrace.wing import Wing

WING = Wing(
    commands={"mig": "jouletrace.wings.mig.command"},
    divisions={"slice": "jouletrace.wings.mig.divide"},
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
