"""Workloads in processes of their own: repeats, a grid of points."""
