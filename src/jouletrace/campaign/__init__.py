"""Workloads in processes of their own: repeats, a grid of points, GPUs of a host, slices of a GPU."""
