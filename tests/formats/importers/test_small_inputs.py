"""The smallest files that showed faults of imports: what the command line says of each; ``show`` opens their Runs."""

import pytest

from commands import command
from jouletrace.formats.importers import formats
from places import DATA

FAULTS = DATA / "faults"

SAID = {
    "A1_far_stamp.csv": "1 row has a time that is years from the others",
    "A2_dcgm_blank_limit.prom": "150.00 ± 0.83 W on average",
    "B1_kineto_ts0.json": "4 of 8 kernels and copies have impossible times",
    "C1_kineto_overflow.json": "1 of 8 kernels and copies has impossible times",
    "D1_counter_alone.csv": "in 10 s, 200 ± 17 W on average, by the energy counter",
    "D2_counter_stuck.csv": "the energy counter stood still for 10 s",
    "D3_counter_half.csv": "2 times the energy that the energy counter gained",
    "E1_one_of_two_na.csv": "1 of 2 devices",
    "E2_all_na.csv": "energy unknown: no reading of power trust: no",
    "F1_zero_watts.csv": "energy unknown: its sensor reads 0 W at times, though the device is on trust: no",
    "F3_dcgm_all_zero.prom": "150.0 ± 6.4 W on average, by the energy counter",
    "F4_dcgm_blank_clock.prom": "150.00 ± 0.64 W on average",
    "G1_rack_kw.csv": "6010.0 ± 4.3 W on average ± is of this run; the sensor's gain is not known, and not in it",
    "G2_rack_map.csv": "6001.00 ± 0.72 W on average ± is of this run",
    "H1_quoted.csv": "in 9 s, 100.93 ± 0.76 W on average",
    "I1_table_mig.log": "in 5 s, 167.00 ± 0.72 W on average",
    "J1_brake_reason.csv": "trust: yes",
    "K1_am_pm.csv": "in 9 s, 200.00 ± 0.66 W on average",
    "L1_dst.csv": "2160.0 ± 6.6 kJ (0.600 kWh) in 10800 s",
    "M1_rows_twice.csv": "3.900 ± 0.012 kJ in 19.5 s, 200.00 ± 0.59 W on average",
    "N1_unequal_spans.csv": "in 20 s and 15 s, 200.00 ± 0.84 W on average, 2 devices together, each over its own time",
    "P1_emissions.csv": "stated by codecarbon",
    "Q1_trtexec_dump.log": "4.4 ms",
    "R1_ncu_alone.csv": "3 kernels",
    "S1_phantom_device.json": "8 kernels",
    "U1_tegrastats.log": "49.92 ± 0.66 J in 9 s, 5.546 ± 0.074 W on average",
    "U2_smi_q.xml": "1 sample over 0 s",
    "U3_dcgmi_dmon.txt": "4.5028 ± 0.0040 kJ (± 5.1 % absolute) in 9 s",
    "U4_rocprof_kernel_trace.csv": "450 µs, busy 55.6 % of it (250 µs): 5 kernels",
    "U5_prometheus_range.json": "52.500 ± 0.092 kJ (± 5.1 % absolute) in 105 s, 500.00 ± 0.88 W on average, 2 devices",
    "U6_mlperf_spl.txt": "21.4461 ± 0.0031 kJ in 9 s, 2382.90 ± 0.34 W on average",
    "kilowatts.csv": "300.00 ± 0.58 W on average",
    "smi.csv": "300.00 ± 0.58 W on average",
    "smi_extra.csv": "a reading may be a mean over up to 1 s",
    "trex_oneline.json": "21 figures",
}
"""A part of what ``import`` prints."""

REFUSED = {
    "O1_two_gpus_no_index.csv": "2 GPUs without an index?",
    "twogpus.csv": "each time has 2 readings of power",
    "twopower.csv": "are both power_w of one device",
}
"""A part of the complaint."""

OF_WINGS = {
    **dict.fromkeys(("A2_dcgm_blank_limit.prom", "F3_dcgm_all_zero.prom", "F4_dcgm_blank_clock.prom"), "dcgm"),
    **dict.fromkeys(("B1_kineto_ts0.json", "C1_kineto_overflow.json", "S1_phantom_device.json"), "kineto"),
    **dict.fromkeys(("I1_table_mig.log", "smi_extra.csv"), "nvidia_smi"),
    **dict.fromkeys(("Q1_trtexec_dump.log", "trex_oneline.json"), "trtexec"),
    "P1_emissions.csv": "codecarbon",
    "U4_rocprof_kernel_trace.csv": "trace_tables",
    "R1_ncu_alone.csv": "ncu",
    **dict.fromkeys(("U3_dcgmi_dmon.txt", "U5_prometheus_range.json"), "dcgm"),
    **dict.fromkeys(("U1_tegrastats.log", "U2_smi_q.xml", "U6_mlperf_spl.txt"), "printed"),
}
"""The format that a wing reads, by file; all others are tables, or can be read as such."""

OPTIONS = {"G2_rack_map.csv": ("--map", "power_w=p"), "L1_dst.csv": ("--time-zone", "Europe/Berlin")}


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in SAID if OF_WINGS.get(name, "table") in formats()])
def test_a_small_input_is_read_as_it_is_meant(workspace, capsys, name):
    said = command(capsys, "import", str(FAULTS / name), *OPTIONS.get(name, ()), "-o", "run")
    assert said.code == 0
    assert SAID[name] in " ".join(said.out.split())
    assert command(capsys, "show", "run", "-v").code == 0
    assert command(capsys, "verify", "run").code == 0


@pytest.mark.parametrize("name", REFUSED)
def test_a_small_input_is_refused_with_what_to_do(workspace, capsys, name):
    said = command(capsys, "import", str(FAULTS / name), "-o", "run")
    assert said.code == 2
    assert REFUSED[name] in said.complaint


def test_every_small_input_is_tried():
    assert {path.name for path in FAULTS.iterdir()} == {*SAID, *REFUSED}


@pytest.mark.thorough
def test_an_unknown_gain_is_in_no_budget(workspace, capsys):
    for name in ("N1_unequal_spans.csv", "M1_rows_twice.csv"):
        assert "gain is not known" in command(capsys, "import", str(FAULTS / name), "-o", name[:2]).out
        said = " ".join(command(capsys, "show", name[:2], "--budget").out.split())
        assert "gain of the sensor, ±" not in said
        assert "without the gain and offset" in said


def test_what_a_file_lacks_is_not_checked(workspace, capsys):
    command(capsys, "import", str(FAULTS / "D1_counter_alone.csv"), "-o", "d")
    said = command(capsys, "show", "d", "-v").out
    assert "Passed  stamps" in said
    assert "--budget" not in said
