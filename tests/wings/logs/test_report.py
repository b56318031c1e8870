"""How logs of nvidia-smi are shown, whose sensor is known."""

import re
from pathlib import Path

import pytest

from commands import command
from import_logs import night
from jouletrace.run import load


@pytest.mark.thorough
def test_a_log_is_imported_with_its_energy_and_one_of_a_single_reading_is_not_trusted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"2026/11/23 08:00:{k:02}.000, {watts}.00 W" for k, watts in enumerate(10 * [70] + 30 * [310] + 10 * [70])]
    for name, lines in (("log.csv", rows), ("one.csv", rows[:1])):
        Path(name).write_text("\n".join(["timestamp, power.draw [W]", *lines]) + "\n")
    printed = command(capsys, "import", "log.csv").out
    assert re.search(r"kJ \(± [\d.]+ % absolute\) in", printed)
    assert "jouletrace calibrate" not in printed  # of a GPU that is elsewhere
    assert max(map(len, printed.splitlines())) <= 80
    printed = command(capsys, "import", "one.csv").out
    assert printed.startswith("1 sample over")
    assert "trust: no" in printed


@pytest.mark.thorough
@pytest.mark.parametrize("step_ms", [50, 100, 1000])
def test_no_part_of_a_log_is_left_out_without_a_word(workspace, capsys, step_ms):
    n, rows = 3600 // min(step_ms, 100) + 1, ["timestamp, power.draw [W]"]
    for k in range(n):
        ms = k * step_ms
        rows.append(
            f"2026/11/23 08:{ms // 60000:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}, {60 + 30 * (k > n // 4)}.00 W"
        )
    Path("log.csv").write_text("\n".join(rows) + "\n")
    words = command(capsys, "import", "log.csv", "-v", "-o", "run").out
    seconds = (n - 1) * step_ms / 1000
    run = load("run")
    device = next(row["id"] for row in run.units.to_pylist() if row["level"] == "device")
    time = run.result("time_s", device).value
    if step_ms >= 100:  # the sensor's own readings
        assert time == pytest.approx(seconds)
        assert "at its ends" not in words
    else:  # polled, so that the ages of the first and the last reading are unknown
        assert seconds - 0.2 < time <= seconds
        assert f"{seconds - time:.3g} s of {seconds:.3g} s, at its ends, is in no figure" in words


def test_a_log_has_kilowatt_hours_and_a_price(workspace, capsys):
    night(workspace)
    words = " ".join(
        command(capsys, "import", "smi.csv", "--device", "NVIDIA H100", "--price", "0.25EUR/kWh").out.split()
    )
    assert "(2.40 kWh, ± 5 % absolute) in" in words
    assert "≈ 2.40 kWh, 0.599 ± 0.03" in words
