"""Energy of the host of GPUs from its record: coverage of intervals, profiles, Runs of older versions."""

import numpy as np
import pyarrow as pa
import pytest

import jouletrace as jt
from jouletrace.analysis import analyse
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from jouletrace.run.metrics import ENERGY_CPU, ENERGY_MEMORY, ENERGY_SERVER, GPUS_AND_HOST
from jouletrace.sensor.kinds import nominal

S = 10**9
SINCE = 1_790_000_000 * S


def recorded(run, device, channel, unit, seconds, values, **more):
    """Add a channel and its readings, at seconds since the start."""
    run.channels.append(ChannelInfo(device, channel, unit, "test", **more))
    time = SINCE + np.round(np.asarray(seconds) * S).astype(np.int64)
    columns = {"time_ns": time, "device": [device] * len(time), "channel": [channel] * len(time), "value": values}
    run.samples = tables.concat([run.samples, tables.conform(pa.table(columns), "samples")], "samples")


def watched(kind, start_s, end_s, devices=(("GPU-a", "gpu"),)):
    run = Run(kind=kind, devices=[DeviceInfo(id, id, of) for id, of in devices])
    span = {
        "id": 0,
        "kind": "phase",
        "name": "program" if kind == "program" else "monitor",
        "lane": "",
        "device": "GPU-a",
    }
    edges = {"start_ns": SINCE + round(start_s * S), "end_ns": SINCE + round(end_s * S)}
    run.spans = tables.from_rows([{**span, **edges}], "spans")
    return run


class Load:
    """A machine at rest, and from one second to another under a load that swings; its energy is known.

    If it ``falls``, the machine draws less than before meanwhile.
    """

    def __init__(self, rng, start_s, end_s, step_s, falls=False):
        rest, load, period_s = rng.uniform(50, 400), rng.uniform(100, 1500), rng.uniform(0.1, 3)
        rest, load = (rest + 1.5 * load, -load) if falls else (rest, load)
        self.grid = np.arange(-20, end_s + 20, step_s)
        swing = 1 + 0.3 * np.sign(np.sin(2 * np.pi * self.grid / period_s))
        watts = np.where((self.grid >= start_s) & (self.grid < end_s), rest + load * swing, rest)
        self.counted = np.append(0.0, np.cumsum(watts * step_s))[:-1]

    def joules(self, seconds):
        return np.interp(seconds, self.grid, self.counted)


@pytest.mark.parametrize("seed", range(20))
def test_a_counter_bounds_energy_however_late_it_is_read(seed):
    rng = np.random.default_rng(seed)
    start_s, end_s = 3 + rng.uniform(), 6 + rng.uniform(0, 3)
    load = Load(rng, start_s, end_s, 1e-3, falls=seed % 2 == 1)
    reads = np.cumsum(rng.choice([0.05, 0.05, 0.05, 0.4], 400))
    reads = reads[(reads > 1) & (reads < end_s + 0.5)]
    run = watched("monitor", start_s, end_s)
    recorded(run, "host:a", "energy_counter_cpu_j", "J", reads, load.joules(reads))
    found = analyse(run).result(ENERGY_CPU)
    truth = load.joules(end_s) - load.joules(start_s)
    assert found.low - 1e-6 <= truth <= found.high + 1e-6
    assert found.half_width < truth


@pytest.mark.parametrize(
    ("average_s", "lasts_s"),
    [pytest.param(1.0, 5.0, marks=pytest.mark.slow), pytest.param(1.0, 20.0, marks=pytest.mark.slow), (5.0, 60.0)],
)
def test_intervals_by_a_meter_of_unknown_age_hold(average_s, lasts_s):
    """Of 12 loads, by chance an interval of 95 % misses more than 3 in one of 500 trials."""
    held = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        start_s = average_s * rng.uniform(3, 4)
        load = Load(rng, start_s, start_s + lasts_s, average_s / 500)
        reads = np.arange(0, start_s + lasts_s + 0.3, max(average_s / 4, 0.1))
        phase, age = rng.uniform(0, average_s, 2)
        until = np.floor((reads - phase) / average_s) * average_s + phase - age
        means = np.round((load.joules(until) - load.joules(until - average_s)) / average_s)
        run = watched("monitor", start_s, start_s + lasts_s)
        response = nominal(average_s, average_s, average_s / 12**0.5, average_s / 10, lag_s=average_s / 2)
        about = {"period_s": average_s, "window_s": average_s, "response": response.to_dict()}
        recorded(run, "host:a", "power_server_w", "W", reads, means, delay_s=response.delay_s, **about)
        found = analyse(run).result(ENERGY_SERVER)
        held += found.low <= load.joules(start_s + lasts_s) - load.joules(start_s) <= found.high
        assert found.half_width < 0.5 * found.value
    assert held >= 9


def test_a_record_of_some_of_the_time_leaves_the_rest_open():
    run = watched("monitor", 0, 10)
    reads = np.arange(1, 11, 0.05)
    recorded(run, "host:a", "energy_counter_cpu_j", "J", reads, 100 * reads)
    found = analyse(run).result(ENERGY_CPU)
    assert found.value == pytest.approx(1000, rel=1e-3)
    assert found.low == pytest.approx(900, rel=0.01)
    assert found.high == pytest.approx(1100, rel=0.01)
    run = watched("monitor", 0, 30)
    recorded(run, "host:a", "energy_counter_cpu_j", "J", reads, 100 * reads)
    assert analyse(run).result(ENERGY_CPU).reason == "outside_record"


def test_a_counter_that_restarted_within_the_time_states_no_energy_and_is_in_no_sum():
    run = watched("monitor", 1, 9)
    reads = np.arange(0, 10, 0.05)
    recorded(run, "host:a", "energy_counter_cpu_j", "J", reads, np.where(reads < 5, 1000, 0) + 100 * reads)
    recorded(run, "GPU-a", "power_w", "W", reads, np.full(len(reads), 300.0), period_s=0.05, window_s=0.05)
    analyse(run)
    assert run.result(ENERGY_CPU).reason == "hole_in_record"
    assert GPUS_AND_HOST not in run.results["metric"].to_pylist()


def test_a_counter_that_never_counts_states_no_energy():
    run = watched("monitor", 1, 9)
    reads = np.arange(0, 10, 0.05)
    recorded(run, "host:a", "energy_counter_cpu_j", "J", reads, np.full(len(reads), 12.0))
    assert analyse(run).result(ENERGY_CPU).reason == "counter_stuck"


def test_hosts_of_several_machines_are_added_up():
    run = watched("record", 1, 9)
    reads = np.arange(0, 10, 0.05)
    for host, watts in (("host:a", 100), ("host:b", 150)):
        recorded(run, host, "energy_counter_cpu_j", "J", reads, watts * reads)
    assert analyse(run).result(ENERGY_CPU).value == pytest.approx(2000, rel=1e-6)


def test_a_program_of_an_older_version_has_its_host_as_today():
    run = watched("program", 0, 10, [("GPU-a", "gpu"), ("cpu", "cpu"), ("dram", "cpu")])
    reads = np.arange(-2, 13, 0.05)
    about = {"period_s": 0.05, "window_s": 0.05, "gapless": True, "delay_s": 0.025}
    for device, watts in (("GPU-a", 300.0), ("cpu", 80.0), ("dram", 20.0)):
        recorded(run, device, "power_w", "W", reads, np.full(len(reads), watts), **about)
        if device != "GPU-a":
            recorded(run, device, "energy_counter_j", "J", reads, watts * (reads + 2), period_s=0.001, window_s=0.0)
    analyse(run)
    values = [run.result(metric).value for metric in ("energy_total_j", ENERGY_CPU, ENERGY_MEMORY, GPUS_AND_HOST)]
    assert values == pytest.approx([3000, 800, 200, 4000], rel=0.01)


def test_a_profile_states_the_host_per_iteration():
    run = jt.profile("deit-tiny", device="sim:h100", max_time=20, detail="model", progress=False)
    time = run.result("iteration_time_s").value
    stamps = run.samples["time_ns"].to_numpy()
    reads = np.arange(stamps.min() - S, stamps.max() + S, S // 20)
    recorded(run, "host:a", "energy_counter_cpu_j", "J", (reads - SINCE) / S, 100 * (reads - reads[0]) / S)
    analyse(run)
    found = run.result(ENERGY_CPU)
    assert found.value == pytest.approx(100 * time, rel=0.02)
    assert found.low <= 100 * time * 1.02
    assert run.result(GPUS_AND_HOST).value == pytest.approx(run.result("energy_total_j").value + found.value)
    assert " with the GPU per iteration" in " ".join(str(run).split())
