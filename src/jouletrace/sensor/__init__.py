"""Readings of power sensors: when each was taken, and of which moments it is an average."""
