"""Loads on servers, with joules per request and token, and bills: ``jouletrace bench`` and ``jouletrace bill``."""

from jouletrace.wing import Wing

WING = Wing(
    kinds={"serving": "jouletrace.wings.serving.kind"},
)
