"""Logs of nvidia-smi and DCGM whose structure changes within, or with lines that hold a time between blocks of rows."""

from datetime import timedelta

import numpy as np
import pytest

from import_logs import codes, left_out, read
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import recognise
from log_sections import BEGIN, DATES, GERMAN, blocks, rows, sections


def test_rows_below_headings_of_another_table_are_in_none_of_its_columns(tmp_path):
    other = "time, temp, watts\n" + "".join(f"2026-03-03 10:01:{k}, 60, 300\n" for k in range(10, 30))
    run = read(tmp_path, "nvidia_smi", sections("query", list(rows("query", 0))) + other)
    assert run.series("imported:0", "power_w")[1].tolist() == [300 + k % 3 for k in range(20)]
    assert left_out(run)["no_time"] == 20


def test_a_row_of_texts_is_no_heading(tmp_path):
    text = sections("query", list(rows("query", 0))).splitlines()
    text[7] = "[GPU is lost], [Unknown Error], [N/A]"
    run = read(tmp_path, "nvidia_smi", "\n".join(text) + "\n")
    assert len(run.series("imported:0", "power_w")[1]) == 19


@pytest.mark.parametrize("form", DATES)
@pytest.mark.parametrize("headings", [True, False])
def test_a_line_with_a_time_is_the_time_of_the_block_below(tmp_path, form, headings):
    header = "power.draw [W], utilization.gpu [%]\n"
    run = read(tmp_path, "nvidia_smi", blocks(DATES[form], header, lambda k: f"{k}.50 W, 98 %\n", headings=headings))
    time, watts = run.series("imported:0", "power_w")
    assert watts.tolist() == [k + 0.5 for k in range(20)]
    assert np.diff(time).tolist() == [5 * 10**9] * 19
    assert left_out(run) == {}
    if form != "time of day":
        assert time[0] == BEGIN.timestamp() * 1e9


BOARD = """\
| NVIDIA-SMI 550.54.15      Driver Version: 550.54.15     CUDA Version: 12.4     |
|   0  NVIDIA H100 80GB HBM3   On  |   00000000:3B:00.0 Off |                  0 |
| N/A   34C    P0    %dW /  700W |   1000MiB /  81559MiB |     50%%      Default |
"""

BLOCKS = {
    "query": ("rows of nvidia-smi --query-gpu holds", "index, power.draw [W]\n", "0, %d.00 W\n"),
    "one column": ("rows of nvidia-smi --query-gpu holds", "power.draw [W]\n", "%d.00 W\n"),
    "tables": ("tables of nvidia-smi holds", "", BOARD),
    "dmon": ("rows of nvidia-smi dmon holds", "# gpu    pwr  gtemp\n# Idx      W      C\n", "    0    %d     40\n"),
}


@pytest.mark.parametrize("form", GERMAN)
@pytest.mark.parametrize("tool", BLOCKS)
@pytest.mark.parametrize("headings", [True, False])
def test_a_time_that_cannot_be_read_is_named_with_its_line_and_tool(tmp_path, form, tool, headings):
    what, header, row = BLOCKS[tool]
    text = blocks(GERMAN[form], header, lambda k: row % (200 + k), headings=headings)
    line = 1 + next(k for k, one in enumerate(text.splitlines()) if "Di" in one)
    with pytest.raises(BadInputError, match=rf"line {line} \('.*{what} a time.*: (print|log) it") as refused:
        read(tmp_path, "nvidia_smi", text)
    assert ("LC_ALL=C date" in str(refused.value)) == (tool != "dmon")


def test_a_table_of_its_own_time_needs_no_other(tmp_path):
    def row(k):
        return f"{BEGIN + timedelta(seconds=5 * k):%a %b %e %H:%M:%S %Y}\n{BOARD % (200 + k)}"

    run = read(tmp_path, "nvidia_smi", blocks(GERMAN["date"], "", row))
    assert len(run.series("imported:0", "power_w")[1]) == 20


@pytest.mark.parametrize("form", [form for form in DATES if form not in ("epoch", "e-mail")])
def test_a_line_with_a_time_is_that_of_the_table_below(tmp_path, form):
    run = read(tmp_path, "nvidia_smi", blocks(DATES[form], "", lambda k: BOARD % (200 + k)))
    time, watts = run.series("imported:0", "power_w")
    assert watts.tolist() == list(range(200, 220))
    assert np.diff(time).tolist() == [5 * 10**9] * 19


@pytest.mark.parametrize("form", [None, "C", "ISO", "in a frame"])
@pytest.mark.parametrize("least", [1_100_000_000, 1_700_000_000, 1_786_000_000_000])
def test_numbers_in_the_only_column_are_readings_however_large(tmp_path, form, least):
    def row(k):
        return f"{least + 350_000 * k}\n"

    header = "total_energy_consumption [mJ]\n"
    text = header + "".join(map(row, range(20))) if form is None else blocks(DATES[form], header, row)
    run = read(tmp_path, "nvidia_smi", text)
    time, joules = run.series("imported:0", "energy_counter_j")
    assert joules.tolist() == [(least + 350_000 * k) / 1000 for k in range(20)]
    assert np.diff(time).tolist() == [10**9 * (1 if form is None else 5)] * 19


def test_seconds_above_a_power_alone_are_its_time(tmp_path):
    run = read(tmp_path, "nvidia_smi", blocks(DATES["epoch"], "power.draw [W]\n", lambda k: f"{k}.50\n"))
    time, watts = run.series("imported:0", "power_w")
    assert watts.tolist() == [k + 0.5 for k in range(20)]
    assert np.diff(time).tolist() == [5 * 10**9] * 19


@pytest.mark.parametrize("gpus", [2, 8])
def test_the_place_in_a_block_is_the_gpu(tmp_path, gpus):
    def row(k):
        return "".join(f"{100 * gpu + k}.50 W\n" for gpu in range(gpus if k < 19 else 1))  # the last is cut off

    run = read(tmp_path, "nvidia_smi", blocks(DATES["C"], "power.draw [W]\n", row))
    assert [device.index for device in run.devices] == list(range(gpus))
    for gpu in range(gpus):
        time, watts = run.series(f"imported:{gpu}", "power_w")
        assert watts[:19].tolist() == [100 * gpu + k + 0.5 for k in range(19)]
        assert np.diff(time[:19]).tolist() == [5 * 10**9] * 18


def test_an_index_counts_before_the_place(tmp_path):
    text = blocks(DATES["ISO"], "index, power.draw [W]\n", lambda k: f"1, {k}.00 W\n" + "0, 50.00 W\n" * (k % 2))
    run = read(tmp_path, "nvidia_smi", text)
    assert run.series("imported:1", "power_w")[1].tolist() == list(range(20))
    assert run.series("imported:0", "power_w")[1].tolist() == [50] * 10


def test_blocks_of_different_sizes_are_asked_about(tmp_path):
    text = blocks(DATES["ISO"], "power.draw [W]\n", lambda k: "50.00 W\n" * (1 + k % 2))
    with pytest.raises(BadInputError, match=r"between 1 and 2 rows are below each time: .* Log the index: nvidia-smi"):
        read(tmp_path, "nvidia_smi", text)


def test_a_tool_that_was_called_again_has_no_interval(tmp_path):
    with pytest.raises(BadInputError, match="was called 20 times, as its headings say, and nothing says when: log the"):
        read(tmp_path, "nvidia_smi", "power.draw [W]\n50.00 W\n" * 20)


@pytest.mark.parametrize("above", ["", "Tue Mar  3 10:00:00 UTC 2026\n"])
def test_no_interval_is_the_default_of_a_query(tmp_path, above):
    run = read(tmp_path, "nvidia_smi", above + "power.draw [W]\n" + "50.00 W\n" * 20)
    said = next(one.message for one in run.warnings if one.code == "interval_assumed")
    assert said.startswith(
        "the rows have no times: an interval of 1 s is assumed, though nvidia-smi --query-gpu has no"
    )


@pytest.mark.parametrize("headings", [True, False])
def test_a_time_alone_among_rows_with_times_is_a_row_that_was_cut_off(tmp_path, headings):
    text = sections("query", ["timestamp", "power.draw [W]"]).splitlines()[0 if headings else 1 :]
    text[7] = text[7].split(",")[0]
    run = read(tmp_path, "nvidia_smi", "\n".join(text) + "\n")
    assert left_out(run) == {"broken_rows": 1}


def test_times_between_rows_of_dcgm_are_theirs(tmp_path):
    text = blocks(DATES["C"], "EntityId,POWER\n", lambda k: f"0,{k}.5\n1,{k}.5\n", headings=False)
    run = read(tmp_path, "dcgm", text)
    assert np.diff(run.series("imported:1", "power_w")[0]).tolist() == [5 * 10**9] * 19
    assert "interval_assumed" not in codes(run)


@pytest.mark.parametrize("stamp", [DATES["C"], GERMAN["date"], GERMAN["in a frame"]])
@pytest.mark.parametrize("row", ["%d.00 W\n", "0, %d.00 W, 98 %%\n1, 50.00 W, 9 %%\n"])
def test_readings_without_headings_below_times_are_named(tmp_path, stamp, row):
    (tmp_path / "a.log").write_text(blocks(stamp, "", lambda k: row % (200 + k)))
    with pytest.raises(BadInputError, match=r"this is a log of `nvidia-smi --query-gpu` without headings.*noheader"):
        recognise(tmp_path / "a.log")
