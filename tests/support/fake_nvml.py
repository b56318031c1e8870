"""A stand-in for pynvml: GPUs with known power, the real ring's semantics, and failures on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST, UNKNOWN = 3, 4, 6, 13, 15, 999
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 9, 12

START_NS = 1_790_000_000_000_000_000
RING_SIZE = 119
UINT, ULL = 1, 3


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"code {value}")
        self.value = value


class FakeClock:
    """Time that passes only by ``sleep``, and by a little at each look where ``tick_ns`` says so."""

    virtual = False

    def __init__(self, tick_ns: int = 0) -> None:
        self.now_ns = START_NS
        self.tick_ns = tick_ns

    def time_ns(self) -> int:
        self.now_ns += self.tick_ns
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.time_ns() - START_NS

    def ahead_ns(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@dataclass
class FakeBoard:
    """One GPU.

    Attributes:
        joules: Energy since the clock's start as a function of seconds since then; the truth.
        ring_period_us: Spacing of the ring's stamps.
        ring_since_us: The ring was empty before this time since the clock's start.
        errors: Code that a function ("nvmlDeviceGetSerial") or field ("186", "185:2") fails with.
        migs: UUIDs of its MIG instances.
    """

    uuid: str = "GPU-11111111-2222-3333-4444-555555555555"
    name: str = "NVIDIA H100 80GB HBM3"
    capability: tuple[int, int] = (9, 0)
    architecture: int = 9
    joules: Callable[[float], float] = lambda t: 100.0 * t
    ring_period_us: int = 20_000
    ring_since_us: int = -10_000_000
    ring_type: int = UINT
    errors: dict[str, int] = field(default_factory=dict)
    migs: list[str] = field(default_factory=list)
    compute: list[tuple[int, int | None]] = field(default_factory=list)
    graphics: list[tuple[int, int | None]] = field(default_factory=list)
    counter_step_us: int = 100_000

    def mean_mw(self, start_us: int, end_us: int) -> int:
        return round((self.joules(end_us / 1e6) - self.joules(start_us / 1e6)) / (end_us - start_us) * 1e9)


def h100(**changes: Any) -> FakeBoard:
    return FakeBoard(errors={"185:1": NOT_SUPPORTED, "186:2": NOT_SUPPORTED}, **changes)


def a100(**changes: Any) -> FakeBoard:
    """Its ring holds samples too far apart to be a record, and it has no power fields."""
    return FakeBoard(
        name="NVIDIA A100-SXM4-40GB",
        capability=(8, 0),
        architecture=7,
        ring_period_us=167_000,
        errors={"185": NOT_SUPPORTED, "186": NOT_SUPPORTED, "185:2": NOT_SUPPORTED, "gpm": NOT_SUPPORTED},
        **changes,
    )


def v100(**changes: Any) -> FakeBoard:
    """No ring, no fields, an old driver's names."""
    return FakeBoard(
        name="Tesla V100-SXM2-16GB",
        capability=(7, 0),
        architecture=5,
        errors={
            "nvmlDeviceGetSamples": NOT_SUPPORTED,
            "nvmlDeviceGetFieldValues": FUNCTION_NOT_FOUND,
            "nvmlDeviceGetCurrentClocksEventReasons": FUNCTION_NOT_FOUND,
            "nvmlDeviceGetMigMode": NOT_SUPPORTED,
            "gpm": FUNCTION_NOT_FOUND,
        },
        **changes,
    )


class FakeNvml:
    """The module: pass it where ``Nvml`` takes a library.

    Attributes:
        init_error: Code that ``nvmlInit`` fails with.
        opened: ``nvmlInit`` calls less ``nvmlShutdown`` calls.
        calls: How often each function was called.
    """

    NVMLError = NVMLError
    nvmlMemory_v2 = 0x2000028

    def __init__(self, *boards: FakeBoard, clock: FakeClock | None = None, init_error: int = 0) -> None:
        self.boards = list(boards)
        self.clock = clock or FakeClock()
        self.init_error = init_error
        self.opened = 0
        self.calls: dict[str, int] = {}

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("nvml") or not callable(found):
            return found

        def call(*args: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            board = args[0] if args and isinstance(args[0], FakeBoard) else None
            code = board.errors.get(name, 0) or board.errors.get("all", 0) if board else 0
            if code:
                raise NVMLError(code)
            return found(*args)

        return call

    def now_us(self) -> int:
        return (self.clock.now_ns - START_NS) // 1000

    def nvmlInit(self) -> None:
        if self.init_error:
            raise NVMLError(self.init_error)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.159.04"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13000

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeBoard:
        board = self.boards[index]
        if "handle" in board.errors:
            raise NVMLError(board.errors["handle"])
        return board

    def nvmlDeviceGetIndex(self, board: FakeBoard) -> int:
        return self.boards.index(board)

    def nvmlDeviceGetUUID(self, handle: FakeBoard | str) -> str:
        return handle if isinstance(handle, str) else handle.uuid

    def nvmlDeviceGetName(self, handle: FakeBoard | str) -> str:
        return "NVIDIA H100 80GB HBM3 MIG 1g.10gb" if isinstance(handle, str) else handle.name

    def nvmlDeviceGetSerial(self, board: FakeBoard) -> str:
        return "1650523009876"

    def nvmlDeviceGetPciInfo(self, board: FakeBoard) -> Any:
        return SimpleNamespace(busId=b"00000000:1B:00.0")

    def nvmlDeviceGetVbiosVersion(self, board: FakeBoard) -> str:
        return "96.00.89.00.01"

    def nvmlDeviceGetEccMode(self, board: FakeBoard) -> list[int]:
        return [1, 1]

    def nvmlDeviceGetPersistenceMode(self, board: FakeBoard) -> int:
        return 1

    def nvmlDeviceGetEnforcedPowerLimit(self, board: FakeBoard) -> int:
        return 700_000

    def nvmlDeviceGetPowerManagementLimit(self, board: FakeBoard) -> int:
        return 700_000

    def nvmlDeviceGetPowerManagementLimitConstraints(self, board: FakeBoard) -> list[int]:
        return [200_000, 700_000]

    def nvmlDeviceGetPowerManagementDefaultLimit(self, board: FakeBoard) -> int:
        return 700_000

    def nvmlDeviceGetMemoryInfo(self, handle: FakeBoard | str, version: int | None = None) -> Any:
        total = 10 << 30 if isinstance(handle, str) else 80 << 30
        return SimpleNamespace(total=total, used=(1 << 30) if version else (2 << 30))

    def nvmlDeviceGetArchitecture(self, board: FakeBoard) -> int:
        return board.architecture

    def nvmlDeviceGetCudaComputeCapability(self, board: FakeBoard) -> tuple[int, int]:
        return board.capability

    def nvmlDeviceGetBoardPartNumber(self, board: FakeBoard) -> str:
        return "692-2G520-0200-000"

    def nvmlDeviceGetMaxClockInfo(self, board: FakeBoard, kind: int) -> int:
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetMigMode(self, board: FakeBoard) -> list[int]:
        return [int(bool(board.migs)), int(bool(board.migs))]

    def nvmlDeviceGetMaxMigDeviceCount(self, board: FakeBoard) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, board: FakeBoard, index: int) -> str:
        if index >= len(board.migs):
            raise NVMLError(NOT_FOUND)
        return board.migs[index]

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int:
        return 9

    def nvmlDeviceGetComputeInstanceId(self, handle: str) -> int:
        return 0

    def nvmlDeviceGetAttributes_v2(self, handle: str) -> Any:
        return SimpleNamespace(multiprocessorCount=16)

    def nvmlGpmQueryDeviceSupport(self, board: FakeBoard) -> Any:
        if "gpm" in board.errors:
            raise NVMLError(board.errors["gpm"])
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlDeviceGetSamples(self, board: FakeBoard, kind: int, after_us: int) -> tuple[int, list[Any]]:
        """As the driver: stamps on whole periods, the newest 119, NotFound if none is newer."""
        period = board.ring_period_us
        last = self.now_us() // period
        stamps = [n * period for n in range(last - RING_SIZE + 1, last + 1)]
        new = [t for t in stamps if t >= board.ring_since_us and START_NS // 1000 + t > after_us]
        if not new:
            raise NVMLError(NOT_FOUND)
        if stamps[0] < board.ring_since_us:
            new = [-START_NS // 1000, *new]  # a slot that was never written
        member = {UINT: "uiVal", ULL: "ullVal"}[board.ring_type]
        return board.ring_type, [
            SimpleNamespace(
                timeStamp=START_NS // 1000 + t,
                sampleValue=SimpleNamespace(**{member: board.mean_mw(t - period, t)}),
            )
            for t in new
        ]

    def nvmlDeviceGetFieldValues(self, board: FakeBoard, fields: list[tuple[int, int]]) -> list[Any]:
        return [self._field(board, number, scope) for number, scope in fields]

    def _field(self, board: FakeBoard, number: int, scope: int) -> Any:
        code = board.errors.get(f"{number}:{scope}" if scope else str(number), 0)
        step = self.now_us() // 100_000 * 100_000
        values = {
            (186, 0): board.mean_mw(step - 25_000, step),
            (185, 0): board.mean_mw(step - 1_000_000, step),
            (185, 2): board.mean_mw(step - 1_000_000, step) // 4,
            (82, 0): 47,
        }
        return SimpleNamespace(
            nvmlReturn=code, valueType=UINT, value=SimpleNamespace(uiVal=values.get((number, scope), 0))
        )

    def nvmlDeviceGetPowerUsage(self, board: FakeBoard) -> int:
        step = self.now_us() // 100_000 * 100_000
        window = 1_000_000 if board.capability >= (8, 6) else 25_000
        return board.mean_mw(step - window, step)

    def nvmlDeviceGetTotalEnergyConsumption(self, board: FakeBoard) -> int:
        step = self.now_us() // board.counter_step_us * board.counter_step_us
        return 5_000_000 + round(board.joules(step / 1e6) * 1e3)

    def nvmlDeviceGetClockInfo(self, board: FakeBoard, kind: int) -> int:
        return {1: 1755, 2: 2619}[kind]

    def nvmlDeviceGetTemperature(self, board: FakeBoard, kind: int) -> int:
        return 41

    def nvmlDeviceGetCurrentClocksEventReasons(self, board: FakeBoard) -> int:
        return 0x4

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, board: FakeBoard) -> int:
        return 0x4

    def nvmlDeviceGetPerformanceState(self, board: FakeBoard) -> int:
        return 0

    def nvmlDeviceGetUtilizationRates(self, board: FakeBoard) -> Any:
        return SimpleNamespace(gpu=93, memory=21)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeBoard | str) -> list[Any]:
        pairs = [] if isinstance(handle, str) else handle.compute
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in pairs]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: FakeBoard | str) -> list[Any]:
        pairs = [] if isinstance(handle, str) else handle.graphics
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in pairs]
