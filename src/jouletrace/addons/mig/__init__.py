"""Partitioning of a GPU (MIG): planning, changing and restoring it, and workloads on its slices."""
