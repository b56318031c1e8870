"""The same load on many GPUs and hosts: ``jouletrace fleet``."""

from jouletrace.public import public_names
from jouletrace.wing import Wing

WING = Wing(
    commands={"fleet": "jouletrace.wings.fleet.command"},
)

__getattr__ = public_names(
    __name__,
    {
        "variance": "split",
    },
)
