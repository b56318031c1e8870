"""Figures of layers, operators and kernels: recordings of traced kernels, and tables by name."""
