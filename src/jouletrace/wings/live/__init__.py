"""Readings of a monitor, live: a page and Prometheus metrics (``monitor --serve``), and GPUs read from such a page."""

from jouletrace.public import public_names
from jouletrace.wing import Wing

WING = Wing(
    publishers={"serve": "jouletrace.wings.live.serve"},
    devices=("jouletrace.wings.live.remote",),
)

__getattr__ = public_names(
    __name__,
    {
        "remote": "RemoteGpu",
        "serve": "Address Exporter MetricsPage",
    },
)
