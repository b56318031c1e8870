"""``run``: where the energy of any program goes, unchanged."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "gpus": "gpus_of waits_of",
        "timeline": "rows_of steps_of",
    },
)
