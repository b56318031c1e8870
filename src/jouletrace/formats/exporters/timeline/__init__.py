"""The layout of a Run in trace viewers: tracks of spans with their args and arrows, and counters."""
