"""Comparison of Runs: which figures differ, by how much, and whether chance can explain it."""
