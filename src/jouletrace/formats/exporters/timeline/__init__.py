"""The layout of a Run in trace viewers: tracks of spans, what is said of each, and counters."""
