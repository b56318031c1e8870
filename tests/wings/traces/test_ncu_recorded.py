"""Both pages of ncu as an H100 gave them, cut to six launches, and the live Run of the same program."""

import csv
import gzip
import json
import re

import pytest

import check_trace
from jouletrace.analysis import analyse
from jouletrace.formats.exporters import export
from jouletrace.formats.importers import ImportOptions, read_files
from jouletrace.run import load
from jouletrace.wings.traces import ncu
from places import DATA

LIVE, DETAILS, RAW, RAW_SI = (
    DATA / f"ncu_h100_{name}" for name in ("live.zip", "details.csv.gz", "raw.csv.gz", "raw_units.csv.gz")
)

SAME = {
    "Memory Throughput": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Duration": "gpu__time_duration.sum",
    "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
    "DRAM Frequency": "dram__cycles_elapsed.avg.per_second",
    "Elapsed Cycles": "gpc__cycles_elapsed.max",
}
"""Readings that differ from run to run, as each page calls them."""

EQUAL = {
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Theoretical Active Warps per SM": "sm__maximum_warps_avg_per_active_cycle",
    "Registers Per Thread": "launch__registers_per_thread",
    "Threads": "launch__thread_count",
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Shared Memory Configuration Size": "launch__shared_mem_config_size",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Waves Per SM": "launch__waves_per_multiprocessor",
}
"""Readings that follow from the launch."""

BELOW_ZERO = (
    2,
    "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.min.pct_of_peak_sustained_elapsed",
)
"""The page in base units says -0.51 %, the one in default units 0."""

PERCENT = ("Memory", "Compute", "Theoretical occupancy", "Achieved occupancy")


def read(path):
    return ncu.read(path, ImportOptions())


def readings(run):
    return {
        (row["span"], row["metric"]): (row["value"], row["value_unit"])
        for row in run.counters.to_pylist()
        if row["value_unit"] != "B/s"
    }


def cells(path):
    with gzip.open(path, "rt") as file:
        return list(csv.reader(file))


def test_base_and_default_units_come_to_the_same_numbers():
    base, default = (readings(read(path)) for path in (RAW, RAW_SI))
    assert base.keys() == default.keys()
    assert len(base) == 6 * 471
    assert [key for key, (value, _) in base.items() if value is None] == [BELOW_ZERO]
    del base[BELOW_ZERO]
    for key, (value, unit) in base.items():
        other, other_unit = default[key]
        assert unit == other_unit, key
        # Base units are printed with two digits behind the point, default units with six.
        assert value == pytest.approx(other, rel=6e-6, abs=0.00501 if unit != "s" else 0), key


def test_the_raw_page_agrees_with_a_plain_count():
    head, units, *rows = cells(RAW)
    found = readings(read(RAW))
    checked = 0
    for launch, row in enumerate(rows):
        for name, unit, cell in zip(head, units, row, strict=True):
            if unit in ("%", "cycle", "warp") and (launch, name) in found:
                value = None if cell.startswith("-") else float(cell.replace(",", ""))
                assert found[launch, name] == (value, unit)
                checked += 1
    assert checked > 6 * 380


@pytest.mark.parametrize("path", [RAW, RAW_SI])
def test_what_isnt_a_reading_of_a_launch_is_no_counter(path):
    run = read(path)
    metrics = set(run.counters["metric"].to_pylist())
    assert not [name for name in metrics if name.startswith(("device__", "nvlink__", "numa__", "c2clink__"))]
    assert not [name for name in metrics if re.search("occupancy_per_", name)]
    about = run.settings["imported"][0]
    impossible = {"below_zero": 1} if path == RAW else {}
    assert about["left_out"] == {"curves": 6 * 9, "text_metrics": 6 * 3} | impossible
    (device,) = run.devices
    assert device.name == "NVIDIA H100 80GB HBM3"
    assert device.details["attributes"]["device__attribute_multiprocessor_count"] == "132"
    named = metrics | set(device.details["attributes"]) | {head for head in cells(path)[0] if "occupancy_per_" in head}
    texts = {"launch__cluster_scheduling_policy", "launch__func_cache_config", "launch__tpc_enabled"}
    empty = {"launch__kernel_name"}
    assert set(cells(path)[0][11:]) == named | texts | empty  # no column is lost without a word


def test_units_are_those_of_si():
    assert {row["value_unit"] for row in read(RAW).counters.to_pylist()} == {
        *("%", "1", "B", "B/block", "Hz", "SM", "block", "cluster", "cycle", "inst/cycle", "pass", "register/thread"),
        *("s", "thread", "warp"),
    }


def test_both_pages_say_the_same_of_each_launch():
    # Two runs of the program under ncu, on one kind of GPU: readings may differ by some percent.
    details, raw = (readings(read(path)) for path in (DETAILS, RAW))
    for launch in range(6):
        for heading, metric in EQUAL.items():
            assert details[launch, heading] == raw[launch, metric], heading
        for heading, metric in SAME.items():
            value, unit = details[launch, heading]
            assert raw[launch, metric] == (pytest.approx(value, rel=0.15), unit), heading


@pytest.mark.parametrize("pages", [(DETAILS,), (RAW,), (RAW_SI,), (DETAILS, RAW)])
def test_every_launch_is_matched_to_the_live_run(pages):
    run = read_files([LIVE, *pages])
    for about in run.settings["imported"][1:]:
        assert about["match"] == {"launches": 6, "matched": 6, "rate": 1.0, "ambiguous": 0, "unknown": 0}
    kernels = {row["id"] for row in run.spans.to_pylist() if row["kind"] == "kernel"}
    assert set(run.counters["span"].to_pylist()) == kernels
    (device,) = run.devices
    assert (device.id, device.driver) == ("GPU-0", "580.159.04")
    assert ("attributes" in device.details) == (pages != (DETAILS,))


def lines(run, path):
    """Times and values of each counter of a trace."""
    found = {}
    for event in json.loads(export(run, "chrome", path).read_text())["traceEvents"]:
        if event["ph"] == "C":
            times, values = found.setdefault(event["name"], ([], []))
            times.append(event["ts"])
            values += event["args"].values()
    return found


@pytest.mark.thorough
def test_either_page_gives_the_lines_and_both_dont_give_them_twice(tmp_path):
    pages = {"details": (DETAILS,), "raw": (RAW,), "both": (DETAILS, RAW)}
    details, raw, both = (lines(read_files([LIVE, *found]), tmp_path / name) for name, found in pages.items())
    assert details.keys() == raw.keys() == both.keys()
    for name in (f"{name} (%)" for name in PERCENT):
        times, values = details[name]
        assert len(times) == 12  # six kernels apart from each other
        assert times == raw[name][0]
        assert values == pytest.approx(raw[name][1], rel=0.15)
        assert both[name] == details[name]


@pytest.mark.thorough
def test_a_trace_of_both_holds_kernels_counters_and_power(tmp_path):
    run = analyse(read_files([LIVE, DETAILS, RAW]))
    export(run, "chrome", tmp_path / "chrome")
    trace = check_trace.read(tmp_path / "chrome")
    assert check_trace.problems(trace) == []
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    assert len(kernels) == 6
    for event in kernels:
        args = event["args"]
        assert {"grid", "block", "registers", "Memory Throughput (%)", f"{SAME['Memory Throughput']} (%)"} <= set(args)
        # One kernel of 3 µs is nothing that a reading every 20 ms can resolve.
        assert (args["energy_each_j"]["value"], args["energy_each_j"]["reason"]) == (None, "sensor_too_slow")
        assert args["unit"] == "all 1 of this name"
    drawn = {event["name"] for event in trace["traceEvents"] if event["ph"] == "C"}
    assert {"Power (W)", "SM clock (MHz)", "Temperature (°C)", *(f"{name} (%)" for name in PERCENT)} <= drawn


def test_samples_name_no_machine():
    run = load(LIVE)
    assert [device.host for device in run.devices] == [""]
    assert not run.environment
    for path in (DETAILS, RAW, RAW_SI):
        text = gzip.decompress(path.read_bytes()).decode()
        assert not re.search(r"/(?:usr|home|work|tmp|opt|root)\b", text)
