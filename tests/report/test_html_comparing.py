"""Comparisons in the HTML report: which Runs are compared with which, and what the page says of them."""

import re
from pathlib import Path

import pytest

import jouletrace as jt
from commands import command
from compare_runs import side, stated, thing
from explained import USUAL, Kernel, explained
from jouletrace import compare
from jouletrace.comparing import against_first, lane
from jouletrace.comparing.paired import paired
from jouletrace.comparing.pairs import Note
from jouletrace.errors import BadInputError
from jouletrace.report import difference, html, waterfall
from jouletrace.report.comparison import render
from jouletrace.report.html.page import compared
from jouletrace.report.html.timeline import timeline
from jouletrace.run import Parts, Run, save, tables
from make_runs import monitor_run, profile_run
from pages import EVIL, Page
from records import DEVICE, START, make_run, readings

LONG = "void at::native::vectorized_elementwise_kernel<8, at::native::Functor<c10::Half>, std::array<char*, 3ul> >(int)"
A, B = (1.0, 1.002, 0.998), (0.9, 0.902, 0.898)


def page(a, b) -> Page:
    found, notes = against_first([[one] for one in [*a, *b]])
    return Page(html.render([run for run, _ in [*a, *b]], found, notes))


@pytest.mark.thorough
def test_a_shown_difference_is_in_the_page_with_its_verdict_and_interval():
    text = page(side(*A), side(*B, mode="eager")).text
    assert "✓ better" in text
    assert re.search(r"−10\.0 % \(−1\d\.\d to −9\.\d+\)", text)
    assert "Of the whole: 1 better, 1 lower" in text
    assert "is not tested here" not in text


@pytest.mark.thorough
def test_a_comparison_writes_the_page_that_its_command_writes(tmp_path, capsys):
    a, b = (str(save(profile_run(scale=scale), tmp_path / name)) for name, scale in (("a", 1.0), ("b", 1.1)))
    found = jt.compare(a, b, fail_if="energy>1%")
    assert [check.text for check in found.checks] == ["energy>1%"]
    pages = found.report(tmp_path / "python.html"), tmp_path / "command.html"
    assert command(capsys, "compare", a, b, "--report", str(pages[1]), "--fail-if", "energy>1%").code == 0
    assert pages[0].read_text() == pages[1].read_text()
    with pytest.raises(BadInputError, match=r"no metric 'energy'; there is .*; did you mean 'energy_total_j'"):
        found.row("energy")


def test_bars_of_change_have_zero_in_the_middle_and_stay_within():
    found = compare(side(*A), side(*B, mode="eager"))
    rows = compared(found, 0).tables[0].rows
    bars = [cell.bar for row in rows for cell in row if cell.bar]
    assert bars
    assert all(bar[3] == 50.0 and min(bar) >= 0 and max(bar) <= 100 for bar in bars)
    energy = next(row for row in rows if row[0] == "Energy, total")
    assert energy[3].bar[1] < 50
    assert energy[3].value == pytest.approx(-0.1, abs=1e-3)


def changed_norms(by=1.0):
    """A comparison whose norms take longer, and whose B has a kernel of a hostile name besides; times all scaled."""
    norm = USUAL[-1]._replace(seconds=3e-3)
    evil = Kernel(EVIL, EVIL, EVIL, 1, 2e-3, 500.0)
    a, b = (
        explained(tuple(one._replace(seconds=by * one.seconds) for one in some), idle_s=by * 1e-3, mode=mode)
        for some, mode in ((USUAL, "eager"), ((*USUAL[:-1], norm, evil), "graph"))
    )
    return compare([(a, "a")], [(b, "b")]), [a, b]


def test_the_flame_graph_is_as_wide_as_the_difference_of_each_cause():
    found, runs = changed_norms()
    spec = difference(found)
    nodes = {name: (said, tip, wide, change) for _, name, said, tip, wide, change, _ in spec["nodes"]}
    said, tip, wide, change = nodes["bf16 norms"]
    assert (wide, change) == (pytest.approx(0.6), 1.0)
    assert said.startswith("+600 ")
    assert "model.norm" in tip
    assert "longer" in tip
    assert not any("bf16 attention" in name for name in nodes), "it didn't change"
    text = html.render(runs, [found])
    assert EVIL not in text
    assert 'id="data-compared0"' in text
    assert 'data-plots="waterfall"' in text


def test_a_flame_graph_of_millijoules_has_the_causes_of_one_of_joules():
    joules, millijoules = (difference(changed_norms(by)[0])["nodes"] for by in (1.0, 1e-3))
    assert [node[1] for node in joules] == [node[1] for node in millijoules]
    assert [1e-3 * node[4] for node in joules] == pytest.approx([node[4] for node in millijoules], rel=1e-3)


def test_the_waterfall_goes_from_a_to_b():
    found, _ = changed_norms()
    bars = waterfall(found)["data"][0]
    assert bars["y"][0] == "A"
    assert bars["y"][-1] == "B"
    assert bars["x"][0] + sum(bars["x"][1:-1]) == pytest.approx(bars["x"][-1], rel=1e-5)
    assert bars["x"][-1] == pytest.approx(found.whole["energy_total_j"].b.value, rel=1e-5)
    assert EVIL not in str(bars)


@pytest.mark.parametrize(
    "sides", [(side(*A), side(*B)), ([(explained(), "a")], [(explained(), "b")])], ids=["no kernels", "equal"]
)
def test_a_comparison_without_causes_has_neither(sides):
    found = compare(*sides)
    assert difference(found) is None
    assert waterfall(found) is None


@pytest.mark.thorough
def test_compare_writes_the_report_of_both_sides(workspace, capsys):
    for name, factor in (("a1", 1.0), ("a2", 1.001), ("b1", 1.3), ("b2", 1.301)):
        thing(factor, parts={"up": 0.2 * factor, "down": 0.3 * factor}).save(workspace / name)
    said = command(capsys, "compare", "a1,a2", "b1,b2", "--report", "page.html")
    assert "wrote page.html" in said.err
    text = (workspace / "page.html").read_text()
    assert text.count('class="compared"') == 1
    assert "A: 2 runs" in text


def test_runs_of_one_thing_are_one_side_against_another_thing():
    found, _ = against_first([[one] for one in [*side(*A), *side(*B, mode="eager")]])
    assert [(one.a.count, one.b.count) for one in found] == [(3, 3)]


def test_runs_that_are_all_of_one_thing_are_compared_with_the_first_each():
    found, _ = against_first([[one] for one in side(1.0, 0.95, 0.9)])
    assert [(one.a.count, one.b.count) for one in found] == [(1, 1), (1, 1)]
    assert all(row.verdict in ("inconclusive", "no difference shown") for one in found for row in one.rows)


def test_what_cannot_be_compared_is_reported_and_the_rest_is():
    runs = [*side(1.0), (monitor_run(), "watch/monitor"), *side(0.9, mode="eager")]
    found, notes = against_first([[one] for one in runs])
    assert len(found) == 1
    assert len(notes) == 1
    assert "monitor is not compared: A is a profile" in Page(html.render([run for run, _ in runs], found, notes)).text


def test_of_many_things_the_first_are_compared_and_the_rest_is_counted():
    runs = [one for batch in range(1, 15) for one in side(1.0, batch=batch)]
    found, notes = against_first([[one] for one in runs])
    assert len(found) == 8
    text = Page(html.render([run for run, _ in runs[:2]], found, notes)).text
    assert "5 more are not compared with the first: see jouletrace compare" in text


def test_kernels_are_named_briefly_and_stored_in_full():
    runs = [
        [thing(factor, parts={LONG: 0.4, "gemm": 0.4}, level="kernel", mode=mode)]
        for factor, mode in ((1.0, "graph"), (0.9, "eager"))
    ]
    found = compare([(runs[0][0], "a")], [(runs[1][0], "b")])
    cells = [row[0] for table in compared(found, 0).tables[1:] for row in table.rows]
    assert {(cell, cell.full) for cell in cells} == {
        ("vectorized_elementwise_kernel<8, Functor<Half>, …>", LONG),
        ("gemm", ""),
    }


def test_names_in_comparisons_stay_text():
    runs = [(thing(f, parts={EVIL: 0.4}, mode=mode), mode) for f, mode in ((1.0, "graph"), (0.9, "eager"))]
    found, notes = against_first([[one] for one in runs])
    parsed = Page(html.render([run for run, _ in runs], found, [*notes, Note("warned", ("", (), EVIL))]))
    assert not [attrs for tag, attrs in parsed.tags if tag == "img" or "onerror" in attrs]
    assert "<img src=x" in parsed.text


@pytest.mark.thorough
def test_the_command_compares_the_runs_it_is_given(tmp_path: Path, capsys):
    for name, factor, mode in (("a", 1.0, "graph"), ("b", 0.9, "eager")):
        thing(factor, mode=mode).save(str(tmp_path / name))
    done = command(capsys, "report", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "r.html"))
    assert done.code == 0, done.err
    text = Page((tmp_path / "r.html").read_text()).text
    assert "mode graph" in text or "graph → B" in text
    assert "inconclusive" in text
    assert "one run per side doesn't show the scatter" in text


@pytest.fixture
def two_sides() -> Run:
    """A Run of ``ab``: B takes half the time at the same power."""
    windows, spans = [], []
    for place, name in enumerate("abbaabbaabba"):
        begin = START + (1 + place) * 10**9
        row = {"variant": name, "block": place // 4, "order": place, "replays": 100 * (1 + (name == "b"))}
        windows.append({**row, "start_ns": begin, "end_ns": begin + 10**9})
        edges = {"start_ns": begin, "end_ns": begin + (10_000_000 if name == "a" else 5_000_000)}
        span = {"id": place, "kind": "iteration", "name": "iteration", "device": DEVICE, **edges}
        spans.append({**span, "lane": lane(name, place // 4)})
    run = make_run(readings(lambda t: 300.0 + 0 * t, 15), spans=spans, window_rows=windows)
    run.kind = "ab"
    run.workload = {"name": "x against x", "a": {"name": "x", "mode": "eager"}, "b": {"name": "x", "mode": "graph"}}
    run.settings = {"margin": 0.02}
    return run


@pytest.mark.thorough
def test_a_run_of_ab_shows_how_its_sides_compare(tmp_path: Path, capsys, two_sides):
    two_sides.save(str(tmp_path / "ab"))
    done = command(capsys, "report", str(tmp_path / "ab"), "-o", str(tmp_path / "r.html"))
    assert done.code == 0, done.err
    found = Page((tmp_path / "r.html").read_text())
    assert "A: x · eager → B: x · graph" in found.text
    assert "−50.0 %" in found.text
    assert "2.00 %: less counts as no difference" in found.text, "the margin that it was measured for"
    assert "Where it goes" not in found.text, "two sides are no parts of a whole"
    assert "No headline figures" not in found.text
    assert [tag for tag, _ in found.tags].count("h1") == 1


@pytest.mark.thorough
def test_several_runs_of_ab_each_say_their_own(tmp_path: Path, capsys, two_sides):
    for name in ("one", "two"):
        two_sides.workload["a"]["name"] = two_sides.workload["b"]["name"] = name
        two_sides.save(str(tmp_path / name))
    done = command(capsys, "report", str(tmp_path / "one"), str(tmp_path / "two"), "-o", str(tmp_path / "r.html"))
    assert done.code == 0, done.err
    text = Page((tmp_path / "r.html").read_text()).text
    assert "A: one · eager → B: one · graph" in text
    assert "A: two · eager → B: two · graph" in text
    assert "inconclusive" not in text


def test_files_of_the_same_name_are_distinguished_by_their_folders(two_sides):
    for (a, b), said in {
        ("/work/f.py:math", "/work/f.py:flash"): ("f.py:math · eager", "f.py:flash · graph"),
        ("one/f.py:go", "two/f.py:go"): ("one/f.py:go · eager", "two/f.py:go · graph"),
    }.items():
        two_sides.workload["a"]["name"], two_sides.workload["b"]["name"] = a, b
        found = paired(two_sides)
        assert tuple(stated(found)[side]["title"] for side in "ab") == said


def test_timed_iterations_of_ab_have_a_lane_for_each_side(two_sides):
    drawn = timeline(two_sides, Parts(two_sides))
    assert sorted(lane["title"] for lane in drawn["lanes"] if lane["kind"] == "iteration") == [
        "iteration · latency a",
        "iteration · latency b",
    ]
    assert [lane["n"] for lane in drawn["lanes"] if lane["kind"] == "iteration"] == [6, 6]


def test_a_run_without_figures_is_left_out_with_its_reason():
    empty = thing(1.0, mode="eager")
    empty.kind = "import"
    empty.results = tables.empty("results")
    found, notes = against_first([[(thing(1.0), "a")], [(empty, "b")]])
    assert found == []
    assert "holds figures" in Page(html.render([thing(1.0), empty], found, notes)).text


def test_rows_without_a_figure_on_either_side_are_counted_and_kept_in_files():
    sides = []
    for mode in ("graph", "eager"):
        run = thing(1.0, parts={LONG: 0.4, "gemm": 0.4}, level="kernel", mode=mode)
        rows = [
            {**row, "value": None, "low": None, "high": None, "reason": "no_operator"} if row["unit"] == 1 else row
            for row in run.results.to_pylist()
        ]
        run.results = tables.from_rows(rows, "results")
        sides.append([(run, mode)])
    found = compare(*sides)
    text = render(found, verbose=True)
    assert "2 rows without a figure on either side" in " ".join(text.split())
    assert "vectorized_elementwise_kernel" not in text
    assert LONG in render(found, "json")
    assert LONG in render(found, "csv")
