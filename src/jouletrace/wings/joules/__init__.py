"""The fixture ``joules`` of pytest, by the entry point ``pytest11``: energy beside time in a test suite."""

from jouletrace.wing import Wing

WING = Wing()
