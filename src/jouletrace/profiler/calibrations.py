"""Giving a Run the stored calibration of its board."""

from __future__ import annotations

from typing import Any

from jouletrace.devices.base import Device
from jouletrace.profiler import board_store
from jouletrace.run import ChannelInfo, Run

KEY = "calibration"


def stored_calibration(device: Device) -> dict[str, Any] | None:
    """What ``calibrate`` found for this board under this driver: "time_ns", "driver", "channels"."""
    stored = board_store.recall(_board(device)).get(KEY)
    if not isinstance(stored, dict) or stored.get("driver") != device.info.driver:
        return None
    return stored


def store_calibration(device: Device, calibration: dict[str, Any]) -> bool:
    """Keep a calibration for later runs; False if it can't be written."""
    return board_store.remember(_board(device), **{KEY: {**calibration, "driver": device.info.driver}})


def _board(device: Device) -> str:
    """What tells a board from others: its id, and of a simulated one what its sensor was asked to be."""
    if not device.info.simulated:
        return device.info.id
    asked = device.spec.partition("?")[2].split("&")
    return "-".join([device.info.id, *sorted(part for part in asked if part.startswith(("sensor=", "gain=")))])


def attach(run: Run, device: Device) -> None:
    """Put the board's stored calibration into a Run, and what it says of each channel into its ``channels``."""
    calibration = stored_calibration(device)
    if calibration is None:
        return
    run.calibration[device.info.id] = calibration
    for channel in run.channels:
        response = calibration.get("channels", {}).get(channel.name)
        if channel.device == device.info.id and response:
            describe(channel, response)


def describe(channel: ChannelInfo, response: dict[str, Any]) -> None:
    """Replace what documentation says of a channel by what was measured on this board."""
    channel.period_s = response["period_s"]
    channel.window_s = response["window_s"]
    channel.delay_s = response["delay_s"]
    channel.gapless = response["gapless"]
    channel.origin = "calibrated"
    channel.response = response
