"""Logs of power and activity: nvidia-smi, DCGM, Prometheus, CodeCarbon, and of MIG profilers beside their results."""

from jouletrace.wing import Wing

WING = Wing(
    formats={
        name: f"jouletrace.wings.logs.{name}"
        for name in ("nvidia_smi", "dcgm", "codecarbon", "mig_folder", "printed", "results")
    },
    tables={"logs": "jouletrace.wings.logs"},
)
