"""Figures of layers, operators and kernels: experiments recorded, kernels traced, tables by name."""
