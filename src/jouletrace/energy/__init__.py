"""Integration, baselines, intervals, attribution: pure functions on arrays. No I/O, no torch, no pynvml."""
