"""``monitor``: recording of GPUs while a program runs, and joules per unit of real work."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "watch": "LiveWork Reading",
        "work_counter": "CounterTally CounterTarget WorkCounter find",
    },
)
