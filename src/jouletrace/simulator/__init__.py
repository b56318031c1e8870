"""Simulated GPUs with known truth, and sensors that sample it. Shares no code with the packages that estimate."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "sensors": "Power SamplingSensor",
    },
)
