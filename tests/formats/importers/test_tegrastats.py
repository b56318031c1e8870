"""Logs of tegrastats: rails in milliwatts, now and in the mean, on GPUs of several generations."""

import pytest

from import_logs import NANO, codes, left_out, read, tegrastats
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError

GPU = "imported:0"
TX2 = (
    "RAM 1436/7852MB (lfb 1403x4MB) SWAP 0/3926MB (cached 0MB) CPU [11%@345,off,off,5%@345] EMC_FREQ 4%@665 "
    "GR3D_FREQ {load}% APE 150 GPU@36C VDD_SYS_GPU 152/153 VDD_SYS_SOC 456/453 VDD_4V0_WIFI 0/12 VDD_IN {mw}/2396"
)
XAVIER = (
    "RAM 721/31927MB (lfb 7291x4MB) SWAP 0/15963MB CPU [2%@1190] EMC_FREQ 0%@665 GR3D_FREQ {load}%@318 APE 150 "
    "MTS fg 0% bg 0% AO@37.5C GPU@37.5C GPU {mw}/0 CPU 311/311 SOC 932/932 CV 0/0 VDDRQ 621/621 SYS5V 1482/1482"
)


def series(run, channel):
    return list(run.series(GPU, channel)[1])


def test_rails_are_read_in_milliwatts_as_they_are_now(tmp_path):
    run = read(tmp_path, "tegrastats", tegrastats([2400, 9000]))
    assert series(run, "power_vdd_gpu_soc_w") == [2.4, 9.0]
    assert series(run, "power_vdd_cpu_cv_w") == [0.4, 0.4]
    assert series(run, "power_vin_sys_5v0_w") == pytest.approx([3.244, 3.244])
    assert series(run, "memory_used_bytes") == [2265 * 2**20] * 2
    assert series(run, "utilization_gpu_pct") == [0, 1]
    assert series(run, "clock_sm_mhz") == [305, 305]
    assert series(run, "clock_memory_mhz") == [204, 204]
    assert series(run, "temperature_c") == [45.25, 45.25]
    assert series(run, "temperature_cpu_c") == [46.843, 46.843]
    assert "temperature_cv0_c" not in {channel.name for channel in run.channels}
    assert run.devices[0].memory_bytes == 30536 * 2**20


def test_stamps_have_the_month_first(tmp_path):
    run = read(tmp_path, "tegrastats", tegrastats([2400, 9000]))
    assert list(run.series(GPU, "power_w")[0]) == [1_709_553_600 * 10**9, 1_709_553_601 * 10**9]  # 4 March 2024


@pytest.mark.parametrize(
    ("line", "watts", "rails"),
    [(NANO, 1.532, ["POM_5V_IN"]), (TX2, 1.532, ["VDD_IN"]), (XAVIER, 1.532, ["GPU"])],
)
def test_energy_rests_on_the_rail_of_the_module_else_on_that_of_the_gpu(tmp_path, line, watts, rails):
    run = read(tmp_path, "tegrastats", tegrastats([1532] * 3, line, stamped=False))
    assert series(run, "power_w") == [watts] * 3
    assert run.devices[0].details["power_rails"] == rails
    assert ("rail_assumed" in codes(run)) == (rails == ["GPU"])
    assert "interval_assumed" in codes(run)


def test_the_old_form_without_units_is_in_milliwatts_too(tmp_path):
    run = read(tmp_path, "tegrastats", tegrastats([1532], NANO))
    assert series(run, "power_pom_5v_gpu_w") == [0.123]


def test_a_mapping_names_rails_and_their_sum(tmp_path):
    run = read(tmp_path, "tegrastats", tegrastats([2400, 9000]), map={"power_w": "VDD_GPU_SOC+VDD_CPU_CV"})
    assert series(run, "power_w") == pytest.approx([2.8, 9.4])
    assert "rail_assumed" not in codes(run)
    with pytest.raises(BadInputError, match=r"power_w=VDD_X.*the rails are VDD_GPU_SOC, VDD_CPU_CV"):
        read(tmp_path, "tegrastats", tegrastats([2400]), map={"power_w": "VDD_X"})


def test_a_log_comes_to_energy(tmp_path):
    run = analyse(read(tmp_path, "tegrastats", tegrastats([5000] * 30)))
    assert run.result("power_w", unit=1).value == pytest.approx(5.0)
    assert run.result("energy_total_j", unit=1).value == pytest.approx(5.0 * 29)


def test_lines_of_other_kinds_are_counted(tmp_path):
    run = read(tmp_path, "tegrastats", "hello\n" + tegrastats([2400, 9000]))
    assert left_out(run) == {"broken_rows": 1}
