"""A GPU divided into slices, and workloads and servers on them: ``jouletrace mig``."""

from jouletrace.wing import Wing

WING = Wing(
    commands={"mig": "jouletrace.wings.mig.command"},
    divisions={"slice": "jouletrace.wings.mig.divide"},
    devices=("jouletrace.wings.mig.vendor",),
)
