"""Child processes that end with their parent, locks of GPUs, and the watchers that clean up after a crash."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "locks": "alone_at hold journal_of shared_folder",
    },
)
