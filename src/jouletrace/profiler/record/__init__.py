"""Recording of user programs with their own loops, on one GPU or several."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "annotations": "Annotations",
        "ranges": "Marks",
        "ranks": "merged",
        "recording": "Recording",
    },
)
