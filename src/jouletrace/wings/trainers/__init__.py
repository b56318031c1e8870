"""``jt.trainer_callback`` (transformers) and ``jt.lightning_callback``; figures in a tracker, ``jt.log_to``."""

from jouletrace.wing import Wing

WING = Wing(
    names=dict.fromkeys(("lightning_callback", "trainer_callback"), "jouletrace.wings.trainers.callbacks")
    | {"log_to": "jouletrace.wings.trainers.trackers"},
)
