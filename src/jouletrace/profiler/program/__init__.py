"""``run``: where the energy of any program goes, unchanged."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "timeline": "gpus_of rows_of steps_of",
        "waiting": "waits_of",
    },
)
