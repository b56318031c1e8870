"""A workload made ready to run again and again: the seam of every experiment."""
