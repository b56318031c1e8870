"""Formats for people: every one shows every Run truly, whatever its names hold."""

import csv
import io
import json
import re
import subprocess
import sys

import pytest
from rich.cells import cell_len

from jouletrace import report
from jouletrace.errors import BadInputError
from jouletrace.levels import SHOW, taken
from jouletrace.report import content, to_json_object
from jouletrace.run import Estimate, Run, tables
from make_runs import ODD, all_runs, cpu_run, gpu, monitor_run, profile_run, result, simulated_run

RUNS = all_runs()
TEXT = ("table", "markdown", "latex")


def words(text):
    """Text without line breaks, so that wrapped sentences match."""
    return re.sub(r"\s+", " ", text)


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("form", report.FORMATS)
@pytest.mark.parametrize("detail", taken(SHOW))
def test_every_format_renders_every_run_at_every_detail(name, form, detail):
    text = report.render([RUNS[name]], form, detail=detail, top=2, verbose=True)
    assert text.endswith("\n")
    assert "nan" not in text.replace("unnamed", "")


@pytest.mark.parametrize("form", report.FORMATS)
def test_every_format_says_simulated(form):
    assert "simulated" in report.render([simulated_run()], form, verbose=True).lower()
    assert "simulated" in report.render([profile_run(), simulated_run()], form, verbose=True).lower()
    if form in TEXT:
        assert "SIMULATED" in report.render([simulated_run()], form, verbose=True)
        assert "SIMULATED" not in report.render([profile_run()], form, verbose=True)


@pytest.mark.parametrize("form", TEXT)
def test_every_text_says_what_on_what_and_that_weights_were_random(form):
    text = words(report.render([profile_run()], form, verbose=True))
    for said in ("deit-base", "batch 64", "fp16", "graph", "H100 80GB HBM3", "580.159.04", "random, seed 0"):
        assert said in text, said


@pytest.mark.parametrize("form", TEXT)
def test_the_sensor_and_its_gain_error_are_stated_apart(form):
    text = words(report.render([profile_run()], form, verbose=True)).replace("\\_", "_").replace("~", " ")
    assert "nvmlDeviceGetSamples(NVML_TOTAL_POWER_SAMPLES)" in text
    assert "every 20 ms" in text
    assert "gapless" in text
    assert "not in the intervals" in text
    assert "5 %" in text.replace("\\%", "%")


@pytest.mark.parametrize("form", TEXT)
def test_a_missing_figure_is_a_dash_with_the_reason_in_words(form):
    text = words(report.render([cpu_run()], form, verbose=True))
    assert "no power sensor here" in text
    assert "no_power_sensor" not in text
    assert not re.search(r"\b0(\.0+)? (m?J|W)\b", text)


@pytest.mark.parametrize("form", TEXT)
def test_what_a_missing_sensor_needs_is_reported_in_one_line(form):
    assert "CPU energy can't be read: its counters are for root only; run" in words(
        report.render([cpu_run()], form, verbose=True)
    )


def test_an_unknown_code_is_printed_as_it_is():
    run = profile_run()
    rows = [*run.results.to_pylist(), result(0, "new_thing_j", Estimate.null("brand_new_reason"))]
    rows.append(result(0, "other_thing_w", Estimate(3.0, 2.9, 3.1, 5, "magic"), "odd_flag"))
    run.results = tables.from_rows(rows, "results")
    text = report.render([run], verbose=True)
    for said in ("New thing", "brand_new_reason", "Other thing", "3.00 ± 0.10 W", "magic", "odd_flag"):
        assert said in text, said


def test_flags_are_explained_below():
    text = report.render([profile_run()], verbose=True)
    assert re.search(r"Baseline, deep idle +72.00 ± 0.40 W .*\[a\]", text)
    assert "[a] from an earlier measurement of the same GPU" in text


@pytest.mark.parametrize("form", TEXT)
def test_warnings_and_interruption_are_shown(form):
    run = profile_run()
    run.warn("not_settled", "power was still changing after 6 s", "warm-up")
    assert "power was still changing after 6 s (warm-up)" in words(report.render([run], form, verbose=True))
    assert "did not end by itself" in words(report.render([RUNS["incomplete"]], form, verbose=True))


@pytest.mark.parametrize("form", TEXT)
def test_how_a_run_ended_that_was_interrupted_stands_before_its_figures(form):
    run = profile_run()
    run.warn("not_settled", "power was still changing", "warm-up")
    run.warn("interrupted", "the run ended early (KeyboardInterrupt); what was recorded until then is kept")
    assert "INCOMPLETE" not in report.render([run], form, verbose=True), "it is whole"
    run.complete = False
    said = "INCOMPLETE: the run ended early (KeyboardInterrupt); what was recorded until then is kept"
    text = words(report.render([run], form, verbose=True))
    assert 0 <= text.index(said) < text.index("Latency")
    assert text.count("what was recorded until then is kept") == (
        2 if form == "latex" else 1
    )  # there in a comment, too
    both = words(report.render([run, RUNS["incomplete"]], form, verbose=True))
    before = both[: both.index("Sensor")]
    assert "until then is kept" in before
    assert "did not end by itself" in before


def test_the_json_begins_its_warnings_with_how_an_interrupted_run_ended():
    run = profile_run()
    run.warn("not_settled", "power was still changing", "warm-up")
    whole = [warning["code"] for warning in to_json_object(run)["warnings"]]
    run.warn("interrupted", "the run ended early")
    run.complete = False
    found = to_json_object(run)
    assert [warning["code"] for warning in found["warnings"]] == ["interrupted", *whole]
    assert not found["complete"]
    assert [warning["code"] for warning in to_json_object(RUNS["incomplete"])["warnings"]] == ["incomplete"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("name", ["full", "monitor", "cpu", "odd_names"])
def test_a_table_fits_its_terminal(width, name):
    for line in report.render([RUNS[name]], detail="kernel", width=width, verbose=True).splitlines():
        assert cell_len(line) <= width, line
        assert line == line.rstrip()


@pytest.mark.parametrize("width", [80, 120])
def test_figures_and_labels_of_the_model_stay_whole_at_usual_widths(width):
    text = report.render([profile_run(kernels=4)], detail="kernel", width=width, verbose=True)
    for whole in ("  active over context idle", "6.7120 ± 0.0041 ms", "9535.2 ± 5.0 samples/s", "1.003 ± 0.011"):
        assert whole in text, whole


def test_a_table_has_no_escape_codes():
    assert "\x1b" not in report.render([RUNS["full"]], verbose=True)


@pytest.mark.parametrize("form", report.FORMATS)
def test_names_cannot_steer_a_terminal_or_break_a_line(form):
    run = profile_run()
    run.workload["name"] = "evil\x1b[31m\r\nname\u202e\ud800"
    run.devices = [gpu(name="a\tb\x07")]
    text = report.render([run], form, verbose=True)
    text.encode()
    assert not re.search("[\x1b\r\x07\u202e]", text)
    assert "evil" in text


def test_the_table_shows_odd_names_without_reading_markup_into_them():
    assert "[red]i[/red]" in report.render([RUNS["odd_names"]], width=200, verbose=True)


def test_kernels_are_ranked_and_the_rest_is_summed():
    text = words(report.render([profile_run(kernels=4)], detail="kernel", top=2, width=300, verbose=True))
    assert text.index("warpgroupsize3") < text.index("warpgroupsize2")
    assert "warpgroupsize1" not in text
    assert re.search(r"2 more, together +2\.517 .* 0\.965 ± 0\.023", text), "by the stored powers, 500 and 300 W"
    assert re.search(r"gaps +0\.01342 +–", text), "without an energy, in no sum of energies"


def test_layers_keep_their_order_unless_the_top_is_asked_for():
    run = profile_run(kernels=3)
    text = report.render([run], detail="layer", verbose=True)
    assert text.index("encoder.layer.0") < text.index("encoder.layer.2")
    text = report.render([run], detail="layer", top=3, verbose=True)
    assert text.index("encoder.layer.2") < text.index("encoder.layer.0")


def test_a_detail_that_was_not_measured_is_reported():
    assert words("Operators and kernels none: not measured at that detail") in words(
        report.render([profile_run()], detail="kernel", verbose=True)
    )


def test_a_detail_that_there_was_no_time_for_is_reported():
    run = profile_run()
    run.settings["detail"] = "kernel"
    text = words(report.render([run], detail="kernel", verbose=True))
    assert words("Operators and kernels none: --detail-time was too short for any") in text


def test_a_monitor_run_is_a_row_a_device():
    text = report.render([monitor_run()], width=140, verbose=True)
    rows = [line for line in text.splitlines() if re.match("NVIDIA H100 80GB HBM3 #[01]", line)]
    assert len(rows) == 2
    assert "73.00 ± 0.70" in rows[1]
    assert "14.160 ± 0.012" in rows[1]
    assert re.search(r"– \[a\]", rows[0])
    assert "Energy, total" not in text


def test_devices_of_one_name_are_distinguished_even_in_a_narrow_terminal():
    text = report.render([monitor_run()], width=80, verbose=True)
    assert re.findall(r"^NVIDIA H100.*\n.*#([01])", text, re.M) == ["0", "1"]


def test_several_monitor_runs_are_a_row_a_device():
    text = report.render([monitor_run(), monitor_run()], width=160, verbose=True)
    assert len(re.findall(r"^NVIDIA.* #[01] .* 400.00 ± 0.70 ", text, re.M)) == 4


def test_several_runs_are_a_row_each_and_say_once_what_they_share():
    text = report.render(
        [profile_run(), profile_run(batch=1, scale=0.1), profile_run(name="bert-large")], width=140, verbose=True
    )
    assert len(re.findall(r"^(?:deit-base|bert-large) ", text, re.M)) == 3
    assert text.count("H100 80GB HBM3") == 1
    assert "dtype fp16 · mode graph" in text


def test_several_runs_with_detail_are_also_shown_one_by_one():
    text = report.render(
        [profile_run(kernels=2), profile_run(kernels=2, name="bert-large")], detail="layer", verbose=True
    )
    assert text.count("encoder.layer.1") == 2


def test_equal_runs_are_still_named_as_what_they_are():
    assert (
        len(re.findall(r"^deit-base ", report.render([profile_run(), profile_run()], width=160, verbose=True), re.M))
        == 2
    )


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_methods_say_how_from_the_facts_of_the_run(form):
    text = (
        words(report.render([profile_run()], form, verbose=True))
        .replace("~", " ")
        .replace("\\%", "%")
        .replace("$\\pm$", "±")
    )
    for said in (
        "jouletrace 0.1.0 on NVIDIA H100 80GB HBM3 (driver 580.159.04, power limit 700 W)",
        "median of 200 iterations",
        "mean over 12 windows (1200 iterations in 8.054 s)",
        "t-intervals over window means",
        "one reading every 20 ms, each a mean over 25 ms, gapless, response calibrated on this GPU",
        "125.00 ± 0.80 W (context idle)",
        "deep idle, stored from an earlier measurement",
        "weights were random, seed 0",
    ):
        assert said in text, said


def test_a_sensor_that_smooths_is_never_said_to_see_only_its_window():
    run = profile_run()
    run.channels[0].window_s = 0.003
    run.channels[0].response["rise_s"] = 0.0125
    assert "mean over 3 ms, time constant 12.5 ms" in words(report.render([run], width=200, verbose=True))
    assert "each a mean over 3 ms, time constant 12.5 ms" in words("\n".join(content.document(run).methods))


def test_methods_claim_nothing_that_was_not_measured():
    text = "\n".join(content.document(cpu_run()).methods)
    assert "Energy was not measured: no power sensor here." in text
    assert "baseline" not in text
    assert "gain" not in text
    assert "\n".join(content.document(Run()).methods).count(".") == 1 + "0.1.0".count(".")


def test_markdown_tables_have_as_many_cells_in_every_row():
    for name in RUNS:
        for block in report.render([RUNS[name]], "markdown", detail="kernel").split("\n\n"):
            if block.startswith("|"):
                counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
                assert len(counts) == 1, block


def test_latex_rows_and_braces_balance_and_specials_are_escaped():
    for name in RUNS:
        text = report.render([RUNS[name]], "latex", detail="kernel")
        body = re.sub(r"^%.*$", "", text, flags=re.M)
        unescaped = re.sub(r"\\[\\{}$&#%_]", "", body)
        assert unescaped.count("{") == unescaped.count("}")
        assert unescaped.count("$") % 2 == 0
        assert not re.search(r"[#^]", unescaped.replace(r"$^\circ$", "")), name
        assert set(re.findall(r"[^\x00-\x7f]", body)) <= {"é"}
        for environment in ("table", "tabular"):
            assert text.count(f"\\begin{{{environment}}}") == text.count(f"\\end{{{environment}}}")
        for tabular in re.findall(r"\\begin{tabular}{([^\n]+)}\n(.*?)\\end{tabular}", body, re.S):
            columns = len(re.sub(r"p{[^}]*}", "l", tabular[0]))
            for row in re.findall(r"^ +(.*) \\\\$", tabular[1], re.M):
                assert len(re.findall(r"(?<!\\)&", row)) == columns - 1, row


def test_latex_cells_cannot_be_taken_for_commands():
    text = report.render([RUNS["odd_names"]], "latex", detail="layer")
    body = text.split("\\begin{table}[htbp]", 1)[1].replace("\\begin{table}[htbp]", "")
    assert not re.search(r"(?<!{)\[|\](?!})|[|<>`\"]", body)
    assert r"\{f\}\$ \#g\% \textasciitilde{}h\textasciicircum{}" in text
    assert r"\texttt{U+4E2D}" in text
    assert "é" in text
    assert "--" not in report.render([profile_run(name="a--b")], "latex").split("\\caption")[1].split("\n")[0]


def test_csv_is_a_row_a_unit_with_units_in_the_headings():
    rows = list(csv.DictReader(io.StringIO(report.render([profile_run(kernels=2)], "csv", detail="kernel"))))
    assert [row["level"] for row in rows] == ["model", "kernel", "kernel", "kernel"]
    assert float(rows[0]["energy_total_j"]) == 4.652
    assert float(rows[0]["energy_total_j_high"]) == 4.652 + 0.021
    assert rows[1]["shapes"] == "f16[12608,768] f16[768,768]"
    assert rows[2]["notes"] == "time_s: split; energy_total_j: split; share: split"
    assert rows[3]["energy_total_j"] == ""
    assert rows[3]["notes"] == "energy_total_j: too_short"
    assert all(row["simulated"] == "false" and row["workload"] == "deit-base" for row in rows)


def test_csv_of_several_runs_is_one_table():
    rows = list(csv.DictReader(io.StringIO(report.render([profile_run(), cpu_run(), monitor_run()], "csv"))))
    assert [row["level"] for row in rows] == ["model", "model", "model", "device", "device"]
    assert rows[1]["energy_total_j"] == ""
    assert "energy_total_j: no_power_sensor" in rows[1]["notes"]
    assert float(rows[4]["power_idle_w"]) == 73.0


def test_csv_quotes_whatever_names_hold():
    (row, *_) = csv.DictReader(io.StringIO(report.render([RUNS["odd_names"]], "csv")))
    assert row["workload"] == ODD.replace("\n", "\\n").replace("\u200b", "\\u200b")


def test_json_of_several_runs_is_a_list():
    found = json.loads(report.render([profile_run(), cpu_run()], "json"))
    assert [run["simulated"] for run in found] == [False, False]
    assert json.loads(report.render([profile_run()], "json"))["schema"] == 3


def test_an_unknown_format_offers_the_nearest():
    with pytest.raises(BadInputError, match="did you mean markdown"):
        report.render([Run()], "markdwn")


@pytest.mark.parametrize("wrong", [{"detail": "layers"}, {"top": 0}, {"top": -1}])
def test_a_wrong_option_is_refused(wrong):
    with pytest.raises(BadInputError):
        report.render([Run()], **wrong)


def test_no_run_is_refused():
    with pytest.raises(BadInputError):
        report.render([], verbose=True)


def test_listing_the_formats_imports_nothing_heavy():
    code = (
        "import sys, jouletrace.report, jouletrace.formats.exporters\n"
        "assert not {'pyarrow', 'rich', 'numpy', 'scipy'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_footnotes_go_on_after_z():
    notes = report.content.Footnotes()
    marks = [notes.mark(str(i)) for i in range(28)]
    assert marks[25:] == ["[z]", "[aa]", "[ab]"]
    assert notes.mark("0") == "[a]"


def test_runs_that_differ_much_are_set_as_blocks_where_a_table_is_too_wide():
    runs = [profile_run(), simulated_run(), monitor_run()]
    text = report.render(runs, width=80, verbose=True)
    assert max(map(len, text.splitlines())) <= 80
    headings = [n for n, line in enumerate(text.splitlines()) if line.startswith("deit-base · ")]
    assert len(headings) >= 2
    energies = [line for line in text.splitlines() if line.startswith("  energy (")]
    assert len(energies) == 5, "the monitor watched two devices, of which the first row is the total"
    assert "SIMULATED" in text
    assert "──" not in text
    assert "──" in report.render(runs, width=200, verbose=True)
