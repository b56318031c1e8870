"""Child processes that end with their parent, locks of GPUs, and the watchers that clean up after a crash."""
