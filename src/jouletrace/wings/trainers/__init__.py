"""Callbacks of trainers: ``jt.trainer_callback`` (transformers) and ``jt.lightning_callback``."""

from jouletrace.wing import Wing

WING = Wing(
    names=dict.fromkeys(("lightning_callback", "trainer_callback"), "jouletrace.wings.trainers.callbacks"),
)
