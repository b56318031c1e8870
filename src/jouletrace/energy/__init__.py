"""Integration, responses, baselines, intervals: pure functions on arrays. No I/O, no torch, no pynvml."""
