"""jouletrace: how much time, power and energy a deep-learning workload takes on a GPU, and where it goes."""

__version__ = "0.1.0"
