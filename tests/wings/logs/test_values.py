"""The meaning of cells in logs of nvidia-smi and DCGM: blanks of drivers, two powers of one GPU."""

import pytest

from import_logs import boxes, codes, left_out, read
from logged_cells import imported, refused, scrapes


@pytest.mark.thorough
@pytest.mark.parametrize("blank", ["140737488355328.000000", "9223372036854775794", "1e300", "0"])
def test_a_power_limit_that_is_none_is_no_limit(capsys, tmp_path, blank):
    rows = [[str(1786553852 + k), "150", "50", "1410", "97", "512", f"{1000 + 150 * k}", blank] for k in range(6)]
    run, said = imported(capsys, tmp_path, scrapes(rows)[0], name="page.prom")
    assert run.devices[0].power_limit_w is None
    assert "150.00 ± 0.73 W" in said


@pytest.mark.thorough
def test_blanks_of_dcgm_are_neither_clocks_nor_temperatures(capsys, tmp_path):
    rows = [
        [str(1786553852 + k), "150", *(("50", "1410") if k % 2 else ("9223372036854775794",) * 2), "97", "512", "", ""]
        for k in range(12)
    ]
    run, _ = imported(capsys, tmp_path, scrapes(rows)[0], name="page.prom")
    assert set(run.series("GPU-1", "clock_sm_mhz")[1]) == {1410}
    assert set(run.series("GPU-1", "temperature_c")[1]) == {50}


@pytest.mark.thorough
def test_two_powers_of_one_gpu_in_a_row_of_a_tool_are_asked_about(capsys, tmp_path):
    rows = "".join(f"{1786553852 + k},0,300,100\n" for k in range(12))
    assert "two powers" in refused(capsys, tmp_path, "TimeStamp,EntityId,POWER,DCGM_FI_DEV_POWER_USAGE\n" + rows)
    same, _ = imported(capsys, tmp_path, "TimeStamp,EntityId,POWER,POWER\n" + rows.replace("300,100", "300,300"))
    assert len(same.series("imported:0", "power_w")[1]) == 12


@pytest.mark.thorough
def test_tables_of_nvidia_smi_with_mig_on_hold_the_power(capsys, tmp_path):
    text = boxes([167] * 6).replace("4MiB / 40960MiB |      7% ", "N/A |     N/A ")
    run, _ = imported(capsys, tmp_path, text, name="table.log")
    assert list(run.series("imported:0", "power_w")[1]) == [167] * 6
    assert run.series("imported:0", "temperature_c")[1][0] == 31
    assert not len(run.series("imported:0", "memory_used_bytes")[1])
    assert run.devices[0].power_limit_w == 400


def test_a_cell_without_a_value_is_no_column_without_a_reading(tmp_path):
    """Also where the column counts as another: power.draw.instant as the power."""
    rows = [f"2026/11/25 20:30:{k:02d}.000, {'[N/A]' if k == 5 else f'{200 + k} W'}" for k in range(40)]
    run = read(tmp_path, "nvidia_smi", "\n".join(["timestamp, power.draw.instant [W]", *rows]) + "\n")
    assert "no_reading" not in codes(run)
    assert left_out(run)["missing_cells"] == 1
