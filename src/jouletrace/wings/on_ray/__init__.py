"""Campaigns on the nodes of a Ray cluster: ``--on ray``."""

from jouletrace.wing import Wing

WING = Wing(
    clusters={"ray": "jouletrace.wings.on_ray.engine"},
    libraries={"ray": "campaigns on several hosts (pip install 'jouletrace[ray]')"},
)
