"""The same load on many GPUs and hosts: ``jouletrace fleet``."""

from jouletrace.wing import Wing

WING = Wing(
    commands={"fleet": "jouletrace.wings.fleet.command"},
)
