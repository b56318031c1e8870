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
        "apply": "CHANGE divide open_backend restore written_down",
        "driver": "NvmlMigBackend",
        "partition": "MigRefusedError",
        "plan": "Layout layout_of make_plan",
        "simulated": "SimulatedMig",
    },
)
