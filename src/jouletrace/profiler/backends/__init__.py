"""Backends that run a workload: torch on a device, a simulated GPU (see ``profiler.prepare``)."""
