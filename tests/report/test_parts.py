"""Tables of parts in a terminal: one line a row, names that distinguish parts, and what is known of the rest."""

import csv
import io
import json
import re

import pytest

from commands import done
from jouletrace import report
from jouletrace.report.html.tables import of_parts as html_parts
from jouletrace.report.terminal import fitted
from jouletrace.run import Estimate, Parts, Run, load, tables
from make_runs import e, result
from places import REPOSITORY

LONG = "void at::native::vectorized_elementwise_kernel<8, at::native::%s<c10::Half>, std::array<char*, 3ul> >(int)"
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")


def graph_run(*, flagged: tuple[str, ...] = (), named: int = 3) -> Run:
    """Four matrix products of one attention with figures, and kernels of which only the trace knows."""
    rows = [result(0, "energy_total_j", e(0.229, 0.001)), result(0, "latency_s", e(7.9e-4, 1e-6))]
    units: list[dict[str, object]] = [{"id": 0, "level": "model", "name": "deit"}]
    for i, module in enumerate(MODULES, start=1):
        place = f"deit.encoder.layers.*.attention.attention.{module}"
        shapes = "f16[768] f16[198,768] f16[768,768]"
        units.append(
            {"id": i, "parent": 0, "level": "op", "name": "aten.addmm", "op": "aten.addmm", "module": place}
            | {"shapes": shapes, "count": 12}
        )
        flags = ",".join(flagged) or None if i == 1 else None
        for name, value in (("time_s", 5e-5), ("energy_total_j", 0.0165), ("energy_active_j", 0.01), ("share", 0.07)):
            rows.append(result(i, name, e(value * i, value / 20), flags))
    for i in range(named):
        units.append({"id": 20 + i, "parent": 0, "level": "kernel", "name": LONG % f"Functor{i}", "count": 12 + i})
        rows += [result(20 + i, name, Estimate.null("not_resolved")) for name in ("time_s", "energy_total_j")]
        rows.append(result(20 + i, "time_traced_s", Estimate(3e-6 * (i + 1), n=1, method="trace")))
    run = Run(kind="profile", workload={"name": "deit"})
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    return run


def lines(text: str, heading: str = "Operators and kernels") -> list[str]:
    """Lines of a section."""
    every = text.splitlines()
    start = every.index(heading)
    return every[start : every.index("", start + 1)] if "" in every[start + 1 :] else every[start:]


@pytest.mark.parametrize("width", [80, 100, 120, 160, 220])
def test_an_operator_is_one_line_with_its_interval_beside_it(width):
    found = [
        line
        for line in lines(report.render([graph_run()], detail="kernel", width=width, verbose=True))
        if "addmm" in line
    ]
    assert len(found) == len(MODULES)
    assert all(re.search(r"\d ± \d", line) for line in found)
    assert all(len(line) <= width for line in found)
    assert {module for line in found for module in MODULES if module in line} == set(MODULES)


def test_more_columns_come_with_more_room_the_most_informative_first():
    shown = [report.render([graph_run()], detail="kernel", width=width, verbose=True) for width in (80, 130, 200)]
    narrow, wide, wider = (" ".join(lines(text)) for text in shown)
    assert "active" not in narrow
    assert "active" in wide
    assert len(wider) > len(wide)


def test_layers_lie_under_the_modules_around_them():
    run = graph_run()
    units: list[dict[str, object]] = [{"id": 0, "level": "model", "name": "llama"}]
    names = ((1, 0, "model.layers"), (2, 1, "model.layers.0"), (3, 2, "model.layers.0.mlp"), (4, 0, "head"))
    units += [{"id": id, "parent": parent, "level": "layer", "name": name, "count": 1} for id, parent, name in names]
    joules = {1: 0.1, 2: 0.1, 3: 0.08, 4: 0.1}
    rows = [result(id, "energy_total_j", e(value, 0.001)) for id, value in joules.items()]
    rows += [result(2, "energy_own_j", e(0.02, 0.001))]
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    text = lines(report.render([run], detail="layer", width=100, verbose=True), "Layers")
    found = [
        line[: len(line) - len(line.lstrip())] + line.split("  ")[(len(line) - len(line.lstrip())) // 2]
        for line in text[3:]
    ]
    assert found == ["model.layers", "  0", "    (own operators)", "    mlp", "head"]


def test_where_there_is_little_room_a_share_stands_without_its_interval():
    narrow, wide = (report.render([graph_run()], detail="kernel", width=width, verbose=True) for width in (80, 200))
    assert re.search(r"addmm .* 7\.00$", narrow, re.MULTILINE)
    assert re.search(r"7\.00 ± 0\.35", wide)


def test_what_holds_for_a_whole_row_is_marked_once():
    text = report.render([graph_run(flagged=("overlapped",))], detail="kernel", width=80, verbose=True)
    row = next(line for line in lines(text) if "q_proj" in line)
    assert row.count("[a]") == 1
    assert row.endswith("[a]")
    assert "[a] other kernels ran at the same time" in text


def test_kernels_without_figures_are_a_list_and_not_rows_of_dashes():
    text = report.render([graph_run(named=12)], detail="kernel", width=80, verbose=True)
    assert "– [" not in text
    assert "kernels not attributed: 12 names (the readings don't determine it" in text
    listed = [line for line in text.splitlines() if "vectorized_elementwise_kernel" in line]
    assert len(listed) == 12
    assert listed[0].split() == ["36", "µs", "23", "×", "vectorized_elementwise_kernel<8,", "Functor11<Half>,", "…>"]
    assert all(len(line) <= 80 for line in listed)


def test_of_many_kernels_without_figures_the_top_is_listed_and_the_rest_counted():
    text = report.render([graph_run(named=12)], detail="kernel", top=5, width=80, verbose=True)
    assert len([line for line in text.splitlines() if "vectorized_elementwise_kernel" in line]) == 5
    assert "and 7 more" in text


def test_kernels_stay_rows_where_nothing_else_is_known():
    run = graph_run()
    run.units = tables.from_rows([u for u in run.units.to_pylist() if u["level"] != "op"], "units")
    text = report.render([run], detail="kernel", width=120, verbose=True)
    assert "not attributed:" not in text
    assert text.count("– [") >= 3


def test_kernels_of_one_operator_are_distinguished_at_any_width():
    run = graph_run(named=0)
    units = run.units.to_pylist()
    rows = run.results.to_pylist()
    for i, name in enumerate(
        ("cudnn::nchwToNhwcKernel<half>", "cutlass_f16_128x128_nhwc_align8", "cudnn::nhwcToNchw<half>")
    ):
        units.append(
            {**units[1], "id": 30 + i, "parent": 1, "level": "kernel", "name": name, "phase": None, "call": None}
        )
        rows += [
            result(30 + i, name, e(value * (i + 1), value / 20))
            for name, value in (("time_s", 5e-5), ("energy_total_j", 0.01))
        ]
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    for width in (80, 120, 200):
        found = [
            line for line in lines(report.render([run], detail="kernel", width=width, verbose=True)) if "q_proj" in line
        ]
        assert len({line[:17] if width == 80 else line[:34] for line in found}) == 3
        assert all(line.startswith("addmm") for line in found)


def test_files_keep_full_names_of_every_kernel():
    run = graph_run()
    for text in (report.render([run], "json"), report.render([run], "csv", detail="kernel")):
        for i in range(3):
            assert LONG % f"Functor{i}" in text


@pytest.mark.parametrize("lost", ["middle", "start"])
def test_names_made_to_fit_stay_different_or_stay_whole(lost):
    names = [f"model.layers.{n}.attention.query" for n in range(12)]
    for width in (6, 10, 16, 24, 40):
        found = fitted(names, width, lost)
        assert len(set(found)) == len(names)
        assert all(len(short) <= width or short == name for short, name in zip(found, names, strict=True))


def test_two_names_that_would_read_alike_do_not_fold_all_others():
    """Of hundreds of rows two often do: each other name keeps to its line."""
    alike = ["first_" + "x" * 20 + middle + "x" * 40 + "_last" for middle in ("one", "two")]
    others = [f"{n}.threshold_backward_of_many" for n in range(5)]
    found = fitted([*alike, *others], 12)
    assert found[:2] == alike
    assert all(len(name) <= 12 for name in found[2:])
    assert len(set(found)) == 7


@pytest.mark.parametrize("alike", [True, False])
def test_a_remark_on_all_rows_is_reported_once_below_and_one_on_some_by_a_mark_on_each(alike):
    units: list[dict[str, object]] = [{"id": 0, "level": "model", "name": "net"}]
    rows = []
    for i, name in enumerate(("a", "b", "c"), start=1):
        units.append({"id": i, "parent": 0, "level": "layer", "name": name, "module": name, "count": 1})
        flags = "pooled" if alike or name != "b" else None
        rows += [result(i, metric, e(0.1 * i, 0.01), flags) for metric in ("time_s", "energy_total_j")]
    run = Run(kind="profile", workload={"name": "net"})
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    text = report.render([run], detail="layer", width=120, verbose=True)
    words = "known with others alone"
    assert text.count(words) == 1
    assert f"{'all rows:' if alike else '[a]'} {words}" in text
    assert text.count("[a]") == (0 if alike else 3)


def generated() -> Run:
    """A generation's phases: a prompt of 32 tokens, 8 new ones."""
    run = Run(kind="profile", workload={"name": "gpt"})
    units: list[dict[str, object]] = [{"id": 0, "level": "model", "name": "gpt"}]
    rows = [result(0, "tokens_per_s", e(200.0, 1.0)), result(0, "energy_per_token_j", e(0.6, 0.01))]
    for i, (phase, tokens) in enumerate((("prefill", 32), ("decode", 8), ("between forwards", 0)), start=1):
        units.append({"id": i, "parent": 0, "level": "phase", "name": phase, "phase": phase, "count": 1})
        rows += [result(i, "time_s", e(0.01, 1e-4)), result(i, "energy_total_j", e(1.0, 0.01))]
        if tokens:
            rows += [result(i, "tokens_per_s", e(100 * tokens, 1.0))]
            rows += [result(i, "energy_per_token_j", e(1 / tokens, 1e-3))]
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    return run


def test_phases_of_a_generation_say_which_tokens_they_are_about():
    run = generated()
    text = report.render([run], width=120, verbose=True)
    shown = {line.split("  ")[0] for line in lines(text, "Phases")}
    assert {"prefill (prompt tokens)", "decode (new tokens)", "between forwards"} <= shown
    assert "New tokens" in text
    assert "Energy per new token" in text
    assert "not measured" not in " ".join(lines(text, "Phases")), "what is between forwards is about no token"
    page = next(one for one in html_parts(run, Parts(run)) if one.id == "phase")
    assert {row[0] for row in page.rows} == {"prefill (prompt tokens)", "decode (new tokens)", "between forwards"}


def test_phases_of_training_keep_their_names():
    run = generated()
    rows = [{**row, "name": row["name"].replace("prefill", "forward")} for row in run.units.to_pylist()]
    run.units = tables.from_rows(rows, "units")
    assert any(line.startswith("forward  ") for line in lines(report.render([run], width=120, verbose=True), "Phases"))


def test_a_page_has_energy_and_share_before_other_figures():
    (table,) = html_parts(graph_run(named=0), Parts(graph_run(named=0)))
    keys = [column.key for column in table.columns]
    assert keys[keys.index("energy_total_j") :] == ["energy_total_j", "share", "time_s", "energy_active_j"]
    assert table.rows[0][keys.index("share")].value == pytest.approx(0.28)


@pytest.mark.parametrize("timed", [True, False])
def test_shares_of_time_are_marked(timed):
    """Without energies a share is of time: its column says so, in every table."""
    units = [{"id": 0, "level": "model", "name": "net"}]
    units += [{"id": 1, "parent": 0, "level": "phase", "name": "forward", "count": 1}]
    share = Estimate(0.4, n=9, method="trace") if timed else e(0.4, 0.01)
    rows = [result(1, "time_s", e(1e-3, 1e-5)), result(1, "share", share)]
    run = Run(kind="profile", units=tables.from_rows(units, "units"), results=tables.from_rows(rows, "results"))
    for verbose in (True, False):
        assert ("share of time (%)" in report.render([run], detail="phase", verbose=verbose)) == timed
    assert any("share of time" in column.name for one in html_parts(run, Parts(run)) for column in one.columns) == timed


@pytest.mark.thorough
def test_shares_of_a_run_without_energies_of_kernels_are_all_of_time(monkeypatch):
    """The energy before the first kernel is known, and its share is still one of time, in every form."""
    monkeypatch.setenv("COLUMNS", "160")
    path = str(REPOSITORY / "tests" / "frozen" / "programs" / "compiled_train.zip")
    for options in ((), ("-v",)):
        text = done("show", path, "--detail", "layer", *options).out.replace("\u00a0", " ")
        found = lines(text, next(line for line in text.splitlines() if line.startswith("Ranges and modules")))
        assert found[1].endswith("share of time (%)")
        (before,) = (line for line in found if line.startswith("before the first kernel"))
        assert re.search(r"0\.2135 ± 0\.0011 .*14\.\d*$", before)
        assert re.search(r" 69\.0$| 68\.95$", next(line for line in found if line.startswith("no kernel running")))
        assert "mostly (of the time) no kernel running 69 %" in text
    rows = json.loads(done("show", path, "--json").out)["parts"]["code"]
    assert sum(row["share"]["value"] or 0.0 for row in rows if len(row["path"]) == 1) == pytest.approx(1, abs=0.01)


@pytest.mark.thorough
def test_causes_are_those_of_the_time_where_most_of_the_energy_is_in_none_with_one():
    """Small parts whose energies are known aren't what the energy mostly went to."""
    run = load(REPOSITORY / "docs" / "results" / "runs" / "resnet50-run-h200.zip")
    tops = {row["id"] for row in run.units.to_pylist() if row["name"] in ("forward", "backward")}
    unknown = {"value": None, "low": None, "high": None, "reason": "not_resolved"}
    rows = run.results.to_pylist()
    rows = [
        row | unknown if row["unit"] in tops and row["metric"] in ("energy_total_j", "power_w", "share") else row
        for row in rows
    ]
    run.results = tables.from_rows(rows, "results")
    said = " ".join(report.render([run]).replace("\u00a0", " ").split())
    assert (
        "mostly (of the time) backward 40 %, no kernel running 24 % (80 % of it waiting for the host), forward" in said
    )


@pytest.mark.thorough
def test_a_count_that_is_not_known_is_null():
    path = str(REPOSITORY / "tests" / "data" / "runs" / "deit-run-h100.zip")
    rows = json.loads(done("show", path, "--json").out)["parts"]["code"]
    assert {row["count"] for row in rows if row["path"][-1]["kind"] == "op"} == {None}
    table = list(csv.DictReader(io.StringIO(done("show", path, "--format", "csv", "--detail", "op").out)))
    assert {row["count"] for row in table if row["op"]} == {""}
    assert {row["count"] for row in table if row["name"] == "idle"} == {"1"}
