"""Kinds of power sensors: one module each, which states what it recognises, its response and its model."""

from __future__ import annotations

from importlib import import_module

from jouletrace.run import ChannelInfo
from jouletrace.sensor.kinds.base import Kind, Sensor
from jouletrace.sensor.windows.response import Response

KINDS: dict[str, Kind] = {
    name: import_module(f"{__name__}.{name}").KIND
    for name in (
        "average_1s",
        "counter",
        "hopper",
        "volta",
        "ampere_datacenter",
    )
}
"""In the order in which they are asked about a channel; the last recognises any."""


def kind_of(channel: ChannelInfo) -> Kind:
    """The kind of sensor behind a power channel."""
    return next(kind for kind in KINDS.values() if kind.recognises(channel))


def response_of(channel: ChannelInfo) -> Response:
    """The sensor's response: as calibrated, else that of its kind."""
    return Response.from_dict(channel.response) if channel.response else kind_of(channel).response_of(channel)


def samples(channel: ChannelInfo) -> bool:
    """Whether a power record is taken for one of momentary samples; readings decide in the end."""
    return isinstance(kind_of(channel).model, Sensor)
