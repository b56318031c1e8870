"""Least squares and what follows from it: no word of GPUs."""
