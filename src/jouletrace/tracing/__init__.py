"""Kernel traces: records and names from the CUDA profiling interface."""
