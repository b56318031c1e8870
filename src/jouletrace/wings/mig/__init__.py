"""A GPU divided into slices, and workloads on them: ``jouletrace mig``."""

from jouletrace.wing import Wing

WING = Wing(
    commands={"mig": "jouletrace.wings.mig.command"},
    devices=("jouletrace.wings.mig.vendor",),
)
