"""Metadata of a Run: devices, channels and warnings.

Everything here is plain data in ``run.json``. Unknown fields of a newer minor version are ignored when read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""The integers that tables and NumPy can hold."""

SECONDS = "seconds"
"""Kind of sensor (``sensor.kinds``) of the means of seconds that a long recording holds."""

Watts = Annotated[float, Meta(ge=0, le=1e9)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Delay = Annotated[float, Meta(ge=-1e9, le=1e9)]


class PlainData:
    """Mixin of the dataclasses here: to and from plain dictionaries."""

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-ready values."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]  # a mixin of dataclasses only

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build from a dictionary, ignoring keys that this version doesn't know.

        Raises:
            msgspec.ValidationError: If a field is missing, of the wrong type or out of range.
        """
        return msgspec.convert(data, cls)


@dataclass
class DeviceInfo(PlainData):
    """A measured piece of hardware.

    Attributes:
        id: UUID of a GPU or MIG instance, else a name unique on the host ("cpu-package-0").
        name: Marketing name as the driver gives it.
        kind: "gpu", "mig", "cpu", or "meter": a sensor of power on which no workload runs.
        simulated: True for a simulated GPU; every output is then marked SIMULATED.
        index: NVML index at the time of the run; a label only, never used to select the device.
        driver: Driver version.
        power_limit_w: Enforced power limit in watts.
        power_limits_w: "min", "max" and "default" limits in watts.
        memory_bytes: Total memory in bytes.
        persistence: Whether persistence mode is on.
        details: Further facts (board part number, architecture, ...).
    """

    id: str
    name: str
    kind: str = "gpu"
    simulated: bool = False
    host: str = ""
    index: Integer | None = None
    serial: str | None = None
    pci_bus: str | None = None
    vbios: str | None = None
    ecc: bool | None = None
    driver: str | None = None
    power_limit_w: Watts | None = None
    power_limits_w: dict[str, Watts] = field(default_factory=dict)
    memory_bytes: Integer | None = None
    persistence: bool | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class ChannelInfo(PlainData):
    """One sensor quantity: its source and its behaviour in time.

    Attributes:
        device: ``DeviceInfo.id`` of its device.
        name: Name in the ``samples`` table, with its unit as suffix ("power_w").
        unit: SI unit, or "1" for a bit mask.
        source: The vendor call or field that it is read from, for example
            "nvmlDeviceGetSamples(NVML_TOTAL_POWER_SAMPLES)".
        sensor: Kind of the power sensor behind it, a name of ``sensor.kinds.KINDS``; "" if that wasn't determined.
        period_s: Seconds between updates of the sensor.
        window_s: Seconds over which one reading is an average; 0 for instantaneous.
        sampling_s: Seconds between the samples whose mean a reading is, where it isn't the mean over the whole
            window; None where unknown.
        delay_s: Mean delay in seconds of a reading's stamp behind the power that it represents, half of its
            window included.
        gapless: True when consecutive windows cover all time; None when unknown.
        gain_pct: Proportional gain error that software can't detect, in percent.
        gain: Watts drawn for each watt read, by a calibration against a meter; 1 without one.
        offset_w: Watts drawn beyond these, by the same.
        origin: "nominal" (from documentation or published work), "calibrated" (measured on
            this GPU) or "exact" (the parameters of a simulated GPU).
        response: Parameters of the calibrated response, if any (see ``sensor.calibration.response``).
    """

    device: str
    name: str
    unit: str
    source: str
    sensor: str = field(default="", kw_only=True)
    period_s: Seconds | None = None
    window_s: Seconds | None = None
    sampling_s: Seconds | None = None
    delay_s: Delay | None = None
    gapless: bool | None = None
    gain_pct: float | None = None
    gain: Annotated[float, Meta(gt=0, le=1e9)] = field(default=1.0, kw_only=True)
    offset_w: Delay = field(default=0.0, kw_only=True)
    origin: str = "nominal"
    response: dict[str, Any] = field(default_factory=dict)

    def drawn_w(self, watts: Any) -> Any:
        """Watts that were drawn when these were read, of their shape: the one place of a calibration against a meter.

        A reading of 0 W is that of a failing sensor, and stays one. Those of another unit stay as they are.
        """
        if self.unit != "W" or (self.gain == 1.0 and self.offset_w == 0.0):
            return watts
        return (self.gain * watts + self.offset_w) * (watts > 0)

    def drawn_j(self, joules: Any, seconds: Any) -> Any:
        """Joules that were drawn when its energy counter gained these in so many seconds."""
        return self.gain * joules + self.offset_w * seconds

    def of_seconds(self) -> ChannelInfo:
        """The channel whose readings are means of seconds of these."""
        if self.unit != "W":
            return self
        return replace(self, sensor=SECONDS, period_s=1.0, window_s=1.0, gapless=True, response={})


@dataclass
class RunWarning(PlainData):
    """A known problem that affects this Run.

    Attributes:
        code: Short stable name ("not_settled", "other_processes", "holes_in_record", ...).
        message: One sentence for a person.
        where: The phase, channel, file or unit concerned.
    """

    code: str
    message: str
    where: str = ""


def device_labels(devices: Sequence[DeviceInfo]) -> dict[str, str]:
    """Labels of devices by id: the name, with index, host or id where others have the same name."""
    labels = {}
    for device in devices:
        alike = [other for other in devices if other.name == device.name]
        forms: tuple[Callable[[DeviceInfo], str], ...] = (
            lambda info: info.name,
            lambda info: f"{info.name} #{info.index}",
            lambda info: f"{info.name} #{info.index} on {info.host}",
            lambda info: f"{info.name} {info.id}",
        )
        labels[device.id] = next(
            (form(device) for form in forms if len({form(other) for other in alike}) == len(alike)), device.id
        )
    return labels


def short_labels(devices: Sequence[DeviceInfo]) -> dict[str, str]:
    """The same without the name, where more follows it: "#2", "#2 on node3"."""
    labels = device_labels(devices)
    return {device.id: labels[device.id].removeprefix(f"{device.name} ") for device in devices}
