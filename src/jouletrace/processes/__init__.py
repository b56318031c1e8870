"""Processes of our own, and what they hold: children that end with their parent, locks of GPUs, watchers."""
