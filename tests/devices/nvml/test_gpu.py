"""Identity, state, energy counter, processes and MIG through a fake NVML."""

import os

import pytest

from fake_nvml import (
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    START_NS,
    FakeClock,
    FakeNvml,
    a100,
    h100,
    v100,
)
from jouletrace.devices import Device
from jouletrace.devices.nvml import Nvml, NvmlGpu, NvmlMig, Unavailable
from jouletrace.errors import BadInputError, NotPossibleError


def open_gpu(board, tick_ns=0):
    clock = FakeClock(tick_ns)
    library = FakeNvml(board, clock=clock)
    return NvmlGpu(board.uuid, Nvml(library), clock), library, clock


def source_of(gpu, channel):
    return next(s for s in gpu.sources() if any(c.name == channel for c in s.channels))


def values(samples):
    return {s.channel: float(s.value[0]) for s in samples}


def test_the_identity_is_complete():
    info = open_gpu(h100())[0].info
    assert info.id == "GPU-11111111-2222-3333-4444-555555555555"
    assert (info.name, info.kind, info.index) == ("NVIDIA H100 80GB HBM3", "gpu", 0)
    assert (info.serial, info.pci_bus, info.vbios) == ("1650523009876", "00000000:1B:00.0", "96.00.89.00.01")
    assert (info.ecc, info.persistence, info.driver) == (True, True, "580.159.04")
    assert info.power_limit_w == 700.0
    assert info.power_limits_w == {"min": 200.0, "max": 700.0, "default": 700.0}
    assert info.memory_bytes == 80 << 30
    assert info.details["architecture"] == "Hopper"
    assert info.details["compute_capability"] == "9.0"
    assert info.details["cuda_driver"] == "13.0"


def test_what_the_driver_does_not_report_of_a_gpu_is_none():
    board = h100()
    for function in ("nvmlDeviceGetSerial", "nvmlDeviceGetEccMode", "nvmlDeviceGetEnforcedPowerLimit"):
        board.errors[function] = NOT_SUPPORTED
    info = open_gpu(board)[0].info
    assert (info.serial, info.ecc, info.power_limit_w) == (None, None, None)


def test_the_state_is_read_ten_times_per_second_and_stamped_in_the_middle_of_each_call():
    gpu, _, clock = open_gpu(h100(), tick_ns=1000)
    source = source_of(gpu, "clock_sm_mhz")
    assert source.interval_s == 0.1
    before = clock.now_ns
    samples = source.poll()
    assert values(samples) == {
        "power_instant_w": 100.0,
        "power_average_w": 100.0,
        "power_memory_w": 25.0,
        "clock_sm_mhz": 1755.0,
        "clock_memory_mhz": 2619.0,
        "temperature_c": 41.0,
        "temperature_memory_c": 47.0,
        "throttle_bits": 4.0,
        "pstate": 0.0,
        "memory_used_bytes": float(1 << 30),
        "utilization_gpu_pct": 93.0,
        "utilization_memory_pct": 21.0,
    }
    # each call lies between two looks at the clock, 1 µs apart
    assert [int(s.time_ns[0]) - before for s in samples[:2]] == [1500, 3500]


def test_a_reading_that_fails_once_leaves_a_hole_in_its_channel_only():
    board = h100()
    gpu, _, _ = open_gpu(board)
    source = source_of(gpu, "clock_sm_mhz")
    board.errors["nvmlDeviceGetTemperature"] = NOT_SUPPORTED
    names = {s.channel for s in source.poll()}
    assert "temperature_c" not in names
    assert "clock_sm_mhz" in names


def test_an_old_driver_is_asked_for_throttle_reasons_by_their_old_name():
    gpu, _, _ = open_gpu(v100())
    channels = {c.name: c.source for s in gpu.sources() for c in s.channels}
    assert channels["throttle_bits"] == "nvmlDeviceGetCurrentClocksThrottleReasons"


def test_the_energy_counter_is_read_in_a_burst_until_it_steps_and_then_left_alone():
    gpu, library, clock = open_gpu(h100())
    source = source_of(gpu, "energy_counter_j")
    clock.sleep(0.04)
    library.calls.clear()
    readings = []
    while source.interval_s < 1.0:
        readings += source.poll()
        clock.sleep(0.025)
    joules = [float(s.value[0]) for s in readings]
    assert joules[-1] - joules[-2] == pytest.approx(10.0)  # 100 W in a step of 0.1 s
    assert len(set(joules[:-1])) == 1
    assert readings[-1].time_ns[0] - readings[-2].time_ns[0] == 25_000_000
    assert source.interval_s == 5.0
    assert library.calls["nvmlDeviceGetTotalEnergyConsumption"] == len(readings) <= 5


def test_a_read_of_the_counter_in_which_the_host_was_away_is_left_out():
    """40 ms pass in one read of a burst, which may have been of any moment of them."""
    gpu, library, clock = open_gpu(h100(), tick_ns=3_000_000)
    source = source_of(gpu, "energy_counter_j")
    read, readings, taken_s = library.nvmlDeviceGetTotalEnergyConsumption, [], []

    def call(board):
        clock.sleep(0.04 if len(taken_s) == 1 else 0.0)
        taken_s.append(clock.now_ns / 1e9)
        return read(board)

    library.nvmlDeviceGetTotalEnergyConsumption = call
    while source.interval_s < 1.0:
        readings.append(source.poll())
        clock.sleep(0.025)
    assert [len(each) for each in readings] == [1, 0, *[1] * (len(readings) - 2)]
    for moment_s, each in zip(taken_s, readings, strict=True):
        assert all(abs(samples.time_ns[0] / 1e9 - moment_s) < 0.005 for samples in each)


def test_a_counter_that_stands_still_is_not_read_for_ever():
    gpu, _, clock = open_gpu(h100(counter_step_us=60_000_000))
    source = source_of(gpu, "energy_counter_j")
    polls = 0
    while source.interval_s < 1.0:
        source.poll()
        clock.sleep(0.025)
        polls += 1
    assert polls == 10


def test_a_poll_of_the_counter_at_rest_begins_a_burst_again():
    gpu, _, clock = open_gpu(h100(counter_step_us=10_000))
    source = source_of(gpu, "energy_counter_j")
    for _ in range(2):
        source.poll()
        clock.sleep(0.025)
    assert source.interval_s == 5.0
    source.poll()
    assert source.interval_s < 0.1


def test_processes_are_listed_once_with_name_and_memory():
    board = h100(compute=[(os.getpid(), 5 << 30), (4_000_000, None)], graphics=[(os.getpid(), 5 << 30)])
    gpu, _, _ = open_gpu(board)
    me, other = gpu.processes()
    assert (me.pid, me.memory_bytes) == (os.getpid(), 5 << 30)
    assert me.name
    assert (other.pid, other.name, other.memory_bytes) == (4_000_000, "", None)


def test_capabilities_say_what_works_how_well_and_why_not():
    board = a100()
    board.errors["nvmlDeviceGetTotalEnergyConsumption"] = NO_PERMISSION
    gpu, _, _ = open_gpu(board)
    found = {c.name: c for c in gpu.capabilities()}
    assert not found["power, record of the driver"].available
    assert "167 ms apart" in found["power, record of the driver"].note
    assert found["power, polled"].available
    assert "not gapless" in found["power, polled"].note
    assert found["SM clock"].cost_s is not None
    assert "needs root" in found["energy counter"].note
    assert "not supported" in found["power of the memory"].note
    assert found["power limit"].note == "700 W"
    assert not found["activity counters (GPM)"].available


def test_capabilities_show_the_observed_period_where_power_changes():
    gpu, _, _ = open_gpu(h100(joules=lambda t: 100.0 * t + 40.0 * t * t))
    found = {c.name: c for c in gpu.capabilities()}
    assert found["power, record of the driver"].period_s == 0.02
    assert found["power, short window"].period_s == pytest.approx(0.1, abs=0.006)
    assert found["activity counters (GPM)"].available


def test_errors_of_the_driver_are_one_line_that_says_what_is_missing():
    with pytest.raises(NotPossibleError, match="driver is not installed"):
        Nvml(FakeNvml(init_error=LIBRARY_NOT_FOUND))
    with pytest.raises(NotPossibleError, match="not permitted"):
        Nvml(FakeNvml(init_error=NO_PERMISSION))


def test_a_function_that_the_binding_lacks_is_a_missing_capability():
    nvml = Nvml(FakeNvml(h100()))
    with pytest.raises(Unavailable, match="nvidia-ml-py is too old"):
        nvml.call("nvmlDeviceGetSomethingOf2030")


def test_an_error_inside_the_binding_is_not_taken_for_a_missing_function():
    library = FakeNvml(h100())
    library.nvmlDeviceGetName = lambda handle: handle.no_such_thing
    with pytest.raises(AttributeError):
        Nvml(library).call("nvmlDeviceGetName", library.boards[0])


def test_the_library_is_released_once():
    gpu, library, _ = open_gpu(h100())
    assert library.opened == 1
    gpu.close()
    gpu.close()
    assert library.opened == 0


def test_a_gpu_that_is_not_there_is_bad_input_and_releases_the_library():
    library = FakeNvml(h100())
    with pytest.raises(BadInputError, match="no GPU GPU-404"):
        NvmlGpu("GPU-404", Nvml(library))
    assert library.opened == 0


def test_a_lost_gpu_does_not_hide_the_others():
    lost, well = h100(uuid="GPU-lost"), h100(uuid="GPU-well")
    lost.errors["handle"] = GPU_IS_LOST
    assert NvmlGpu("GPU-well", Nvml(FakeNvml(lost, well))).info.id == "GPU-well"
    with pytest.raises(BadInputError, match="GPU 0: the GPU is lost"):
        NvmlGpu("GPU-lost", Nvml(FakeNvml(lost, well)))


def test_a_mig_instance_records_its_parent_under_the_parents_name():
    board = h100(migs=["MIG-aaaa", "MIG-bbbb"])
    clock = FakeClock()
    mig = NvmlMig("MIG-bbbb", Nvml(FakeNvml(board, clock=clock)), clock)
    assert isinstance(mig, Device)
    assert (mig.info.id, mig.info.kind, mig.parent) == ("MIG-bbbb", "mig", board.uuid)
    assert mig.info.memory_bytes == 10 << 30
    assert mig.info.power_limit_w is None
    assert mig.info.details["no_power"] == "mig_no_power"
    assert mig.info.details["parent"] == board.uuid
    assert mig.info.details["multiprocessors"] == 16
    assert {c.device for s in mig.sources() for c in s.channels} == {board.uuid}
    assert not mig.capabilities()[0].available
    assert board.uuid in mig.capabilities()[0].note


def test_a_mig_instance_that_is_not_there_is_bad_input():
    with pytest.raises(BadInputError, match="no MIG instance MIG-x"):
        NvmlMig("MIG-x", Nvml(FakeNvml(h100())))


def test_the_fake_agrees_with_itself():
    """The counter and the ring must be two readings of one truth, or the tests above prove nothing."""
    library = FakeNvml(h100(joules=lambda t: 50 * t + 10 * t * t), clock=FakeClock())
    library.clock.sleep(2.0)
    _, ring = library.nvmlDeviceGetSamples(library.boards[0], 0, START_NS // 1000)
    ring_j = sum(s.sampleValue.uiVal * 20e-6 for s in ring)
    counter_j = library.nvmlDeviceGetTotalEnergyConsumption(library.boards[0]) / 1e3 - 5000
    assert ring_j == pytest.approx(counter_j, abs=2e-3)
