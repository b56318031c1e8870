"""The report in a real browser: offline, silent, and doing what its buttons say."""

import csv
import io
import re
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from compare_runs import side
from explained import USUAL, explained
from jouletrace.comparing import against_first
from jouletrace.run import Run, tables
from make_runs import GPU, START, gpu, power_channel, profile_run
from timeline_runs import timeline_run

try:
    from playwright.sync_api import expect
except ImportError:
    expect = None  # the fixture skips the tests, or fails where a browser is needed

LONG = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::Functor%d<c10::Half>, std::array<char*, 3ul> >(int)"
)
PARTS = {f"layer.{i}": 0.1 * (i + 1) for i in range(4)}
FLAME = "document.querySelector('.run:not([hidden]) figure[data-plots]').chart.flame"
EVIL = "</script><img src=x onerror=\"document.body.id='broken'\"><b>x</b>"


def kernels_run(n: int = 20_000, *, simulated: bool = False) -> Run:
    """Kernels 1 µs apart, iterations of 100 of them, power every 20 ms."""
    run = profile_run(kernels=6)
    rng = np.random.default_rng(0)
    length = rng.integers(2_000, 40_000, n)
    start = START + np.cumsum(length + 1_000) - length
    every = start[::100]
    rows = len(every)
    columns = {
        "id": pa.array(np.arange(n + rows)),
        "kind": pa.array(["kernel"] * n + ["iteration"] * rows).dictionary_encode(),
        "name": pa.array(
            [f"void gemm_{k % 9}<half, {k % 9}>" for k in range(n)] + ["iteration"] * rows
        ).dictionary_encode(),
        "device": pa.array([GPU] * (n + rows)).dictionary_encode(),
        "lane": pa.array(["stream 7"] * n + ["tracing"] * rows).dictionary_encode(),
        "start_ns": pa.array(np.concatenate([start, every])),
        "end_ns": pa.array(np.concatenate([start + length, np.append(every[1:], start[-1] + length[-1]) - 500])),
    }
    run.spans = tables.conform(pa.table(columns), "spans")
    run.devices[0].simulated = simulated
    return run


@pytest.fixture(scope="module")
def traced(opened_for_all):
    """A report with a timeline; who zooms goes back to the whole."""
    return opened_for_all(kernels_run()).drawn()


@pytest.fixture(scope="module")
def parts(opened_for_all):
    """A report with tables of 15 layers and their kernels."""
    return opened_for_all(profile_run(kernels=15)).drawn()


@pytest.mark.thorough
def test_it_opens_offline_without_a_word_or_a_request(traced):
    assert traced.said == []
    assert [url for url in traced.asked if not url.startswith(("data:", "blob:"))] == [traced.address]
    assert traced.page.evaluate(FLAME + ".spec.nodes.length") > 6


@pytest.mark.thorough
def test_a_hundred_thousand_kernels_open_with_little_work(chromium, opened):
    session = chromium.new_browser_cdp_session()

    def worked():
        # Seconds of processor, since the wall clock of a busy machine shows nothing of the page.
        processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(process["cpuTime"] for process in processes if process["type"] == "renderer")

    def work_of(kernels):
        before = worked()
        report = opened(kernels_run(kernels))
        report.page.wait_for_selector(".icicle[data-drawn]")
        return worked() - before, report

    opened(profile_run())  # the browser itself has started
    some, _ = work_of(20_000)
    many, report = work_of(100_000)
    # In proportion to the kernels, and twice that for garbage collection; in their square it would be 25 times.
    assert many < 10 * some
    expect(report.page.locator(".status")).to_contain_text("100000 kernels")


def test_names_show_as_text_and_run_nothing(opened):
    run = profile_run(kernels=3, name=EVIL)
    run.units = tables.from_rows(
        [{**row, "name": EVIL} if row["level"] == "kernel" else row for row in run.units.to_pylist()], "units"
    )
    spans = [
        {
            "id": 1,
            "kind": "kernel",
            "name": EVIL,
            "device": GPU,
            "lane": "7",
            "start_ns": START,
            "end_ns": START + 10_000,
        }
    ]
    run.spans = tables.from_rows(spans, "spans")
    report = opened(run).drawn()
    assert report.page.locator("#broken").count() == 0
    assert report.page.locator("img").count() == 0  # it became no tag, so no handler either
    assert report.page.locator(".plot b").count() == 0
    assert EVIL in report.texts("#run0-kernel td")
    report.page.click("[data-act=kernel]")
    report.page.locator(".timeline canvas").scroll_into_view_if_needed()
    box = report.page.locator(".timeline canvas").bounding_box()
    inside = report.page.evaluate(
        "document.querySelector('.run').timeline.tracks.find(t => t.item.kind === 'kernel').y + 5"
    )
    report.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + inside)
    assert EVIL in report.page.inner_text("#tip")
    assert report.said == []


def test_a_click_on_a_heading_sorts_by_the_number_not_by_its_text(parts):
    heading = "#run0-layer th[data-key=time_s]"
    place = parts.page.evaluate(f"document.querySelector('{heading}').cellIndex")

    def values():
        found = parts.page.eval_on_selector_all(
            "#run0-layer tbody tr", f"rows => rows.map(row => row.cells[{place}].dataset.v)"
        )
        return [float(value) for value in found if value is not None]

    parts.page.click(f"{heading} button")
    assert parts.page.get_attribute(heading, "aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)
    parts.page.click(f"{heading} button")
    assert parts.page.get_attribute(heading, "aria-sort") == "ascending"
    assert values() == sorted(values())
    assert len(set(values())) > 3


def test_search_leaves_the_rows_that_have_all_words(parts):
    parts.page.fill("#run0-layer input[type=search]", "encoder LAYER.7")
    shown = parts.texts("#run0-layer tbody tr:not([hidden])")
    assert len(shown) == 1
    assert "encoder.layer.7" in shown[0]
    assert parts.page.inner_text("#run0-layer .count") == "1 of 15"
    parts.page.fill("#run0-layer input[type=search]", "")
    assert len(parts.texts("#run0-layer tbody tr:not([hidden])")) == 15


def length_ns(report) -> float:
    a, b = report.page.evaluate("document.querySelector('.run:not([hidden])').timeline.view")
    return b - a


@pytest.mark.thorough
def test_the_timeline_zooms_from_the_whole_run_to_one_kernel(traced):
    whole = length_ns(traced)
    traced.page.click("[data-act=iteration]")
    iteration = length_ns(traced)
    assert iteration < whole / 50
    expect(traced.page.locator(".status")).to_contain_text(re.compile(r"\b1[01]\d kernels"))
    traced.page.click("[data-act=kernel]")
    expect(traced.page.locator(".status")).to_contain_text(re.compile(r"\b[1-3] kernel"))
    assert length_ns(traced) < 100_000
    traced.page.click("[data-act=whole]")
    assert length_ns(traced) == whole


@pytest.mark.thorough
def test_the_timeline_obeys_mouse_and_keys(traced):
    whole = length_ns(traced)
    traced.page.locator(".timeline canvas").scroll_into_view_if_needed()
    box = traced.page.locator(".timeline canvas").bounding_box()
    y = box["y"] + 60
    traced.page.mouse.move(box["x"] + 300, y)
    traced.page.mouse.down()
    traced.page.mouse.move(box["x"] + 500, y, steps=4)
    traced.page.mouse.up()
    selected = length_ns(traced)
    assert 0.1 * whole < selected < 0.2 * whole
    traced.page.focus(".timeline canvas")
    traced.page.keyboard.press("+")
    assert length_ns(traced) == pytest.approx(selected / 2)
    before = traced.page.evaluate("document.querySelector('.run').timeline.view[0]")
    traced.page.keyboard.press("ArrowRight")
    assert traced.page.evaluate("document.querySelector('.run').timeline.view[0]") > before
    traced.page.mouse.dblclick(box["x"] + 400, y)
    assert length_ns(traced) == whole


def test_what_is_drawn_of_power_reaches_its_extremes_at_every_zoom(opened):
    n = 60_000
    watts = 300.0 + np.zeros(n)
    watts[31_415] = 911.0  # one reading among sixty thousand
    rows = {
        "time_ns": pa.array(START + np.arange(n) * 20_000_000),
        "device": pa.array([GPU] * n).dictionary_encode(),
        "channel": pa.array(["power_w"] * n).dictionary_encode(),
        "value": pa.array(watts),
    }
    run = Run(kind="monitor", devices=[gpu()], channels=[power_channel()])
    run.samples = tables.conform(pa.table(rows), "samples")
    report = opened(run)
    drawing, _ = report.download(".timeline [data-act=svg]")
    path = next(e for e in ElementTree.fromstring(drawing).iter() if e.tag.endswith("path"))
    heights = [float(y) for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.attrib["d"])]
    assert len(heights) < 8000  # thinned, and yet
    assert max(heights) - min(heights) > 60


def test_kernels_are_named_briefly_selected_by_their_full_names_and_saved_with_them(opened):
    run = profile_run(kernels=14)
    units = [
        {**row, "name": LONG % row["id"]} if row["level"] == "kernel" and row["id"] != 900 else row
        for row in run.units.to_pylist()
    ]
    run.units = tables.from_rows(units, "units")
    report = opened(run)
    table = report.page.locator("#run0-kernel")
    shown = table.locator("td[data-full]")
    assert shown.count() == 14
    assert shown.first.inner_text().startswith("vectorized_elementwise_kernel<8, Functor")
    assert shown.first.get_attribute("title") == shown.first.get_attribute("data-full")
    table.locator("input[type=search]").fill("c10::half char*")  # not in the short names
    assert table.locator("tbody tr:not([hidden])").count() == 14
    text, _ = report.download("#run0-kernel [data-act=csv]")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["kernel"] for row in rows} == {LONG % i for i in range(2, 30, 2)}


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1440, True)])
def test_a_comparison_opens_sorts_and_fits(opened, width, dark):
    runs = [*side(1.0, 1.002, 0.998, parts=PARTS), *side(0.9, 0.902, 0.898, parts=PARTS, mode="eager")]
    found, _ = against_first([[one] for one in runs])
    report = opened(*(run for run, _ in runs), comparisons=found, width=width, dark=dark)
    assert report.said == []
    section = report.page.locator(".compared")
    expect(section.locator("#compared0-model td.better").first).to_contain_text("✓ better")
    section.locator("summary").first.click()
    layers = section.locator("#compared0-layer")
    layers.locator("th button", has_text="change").click()
    values = [
        float(cell) for cell in layers.locator("td[data-v]:has(.bar)").evaluate_all("all => all.map(c => c.dataset.v)")
    ]
    assert values == sorted(values, reverse=True)
    assert report.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    text, _ = report.download("#compared0-model [data-act=csv]")
    energy = next(row for row in csv.DictReader(io.StringIO(text)) if row["metric"] == "energy_total_j")
    assert float(energy["change_low"]) < float(energy["change"]) < float(energy["change_high"]) < 0
    assert energy["verdict"] == "better"


def test_energy_and_time_can_be_switched(parts):
    assert parts.page.get_attribute(".icicle", "data-drawn") == "energy"
    assert "\u00a0µs" not in parts.page.evaluate(FLAME + ".spec.nodes.map((n) => n[2]).join()")
    parts.page.click("[data-by=time]")
    parts.page.wait_for_selector(".icicle[data-drawn=time]")
    assert parts.page.get_attribute("[data-by=time]", "aria-pressed") == "true"
    assert parts.page.get_attribute("[data-by=energy]", "aria-pressed") == "false"
    assert "\u00a0µs" in parts.page.evaluate(FLAME + ".spec.nodes.map((n) => n[2]).join()")


def test_the_flame_graph_is_looked_into_searched_and_saved(opened):
    report = opened(profile_run(kernels=15)).drawn()
    canvas = report.page.locator(".icicle canvas")
    box = canvas.bounding_box()
    nodes = report.page.evaluate(FLAME + ".spec.nodes")
    part = max((row[4], number) for number, row in enumerate(nodes) if row[0] == 0)[1]
    left, width = report.page.evaluate(f"{FLAME}.box({part}, {box['width']})")
    canvas.click(position={"x": left + width / 2, "y": 36})
    assert report.page.evaluate(FLAME + ".focus") == part
    assert report.page.evaluate(f"{FLAME}.box({part}, 1000)") == [0, 1000]
    canvas.hover(position={"x": 10, "y": 36})
    assert "energy" in report.page.inner_text("#tip")
    canvas.press("Escape")
    assert report.page.evaluate(FLAME + ".focus") == 0
    name = nodes[part][1]
    report.page.fill("figure input[type=search]", name)
    assert re.fullmatch(r"[0-9.]+ % of the energy", report.page.inner_text("figure .count"))
    text, saved = report.download("figure [data-act=svg]")
    assert saved == "energy.svg"
    assert name in "".join(ElementTree.fromstring(text).itertext())
    assert report.said == []


def test_sections_have_addresses(opened, tmp_path):
    report = opened(profile_run(batch=1, scale=0.1), profile_run(kernels=3))
    report.page.goto(f"{report.address}#run1-parts")
    report.page.wait_for_selector("#run1[data-ready]")
    assert report.page.locator("#run1").is_visible()
    assert not report.page.locator("#run0").is_visible()
    assert report.page.get_attribute("[data-section=checks]", "href") == "#run1-checks"


@pytest.mark.thorough
def test_tabs_switch_between_runs(opened):
    report = opened(profile_run(batch=1, scale=0.1), kernels_run())
    assert report.page.locator("#run0").is_visible()
    assert not report.page.locator("#run1").is_visible()
    report.page.click("#tab-run1")
    report.page.wait_for_selector("#run1[data-ready]")
    assert not report.page.locator("#run0").is_visible()
    expect(report.page.locator("#run1 .status")).to_contain_text("20000 kernels")
    report.page.keyboard.press("ArrowLeft")
    assert report.page.locator("#run0").is_visible()
    assert report.said == []


@pytest.mark.parametrize("system", [False, True], ids=["a light system", "a dark system"])
def test_dark_and_light_follow_the_system_and_the_switch(opened, system):
    report = opened(kernels_run(), dark=system).drawn()

    def looks():
        corner = """[...document.querySelector('.timeline canvas').getContext('2d').getImageData(5, 5, 1, 1).data]
            .slice(0, 3)"""
        page = report.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", page)[:3])), sum(report.page.evaluate(corner))

    for dark in (system, not system):
        if dark is not system:
            report.page.click("#theme")
            report.page.wait_for_timeout(300)
        body, canvas = looks()
        assert (body < 200) is dark
        assert (canvas < 200) is dark


def test_tables_are_saved_as_csv_in_si_units_with_intervals(parts):
    text, name = parts.download("#run0-kernel [data-act=csv]")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert name == "run0-kernel.csv"
    assert [row["operator"] for row in rows] == ["aten::addmm"] * 15 + ["gaps"]
    for row in rows:
        if row["energy_total_j"]:
            assert float(row["energy_total_j_low"]) < float(row["energy_total_j"]) < float(row["energy_total_j_high"])
    assert "SIMULATED" not in rows[0]


def test_charts_are_saved_as_svg_and_simulated_ones_say_so(opened):
    report = opened(kernels_run(simulated=True)).drawn()
    for selector in (".timeline [data-act=svg]", "figure.wide [data-act=svg]"):
        text, name = report.download(selector)
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert name.startswith("SIMULATED-")
        assert "SIMULATED" in text
    table, name = report.download("#run0-kernel [data-act=csv]")
    assert {row["SIMULATED"] for row in csv.DictReader(io.StringIO(table))} == {"true"}


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("kind", ["profile", "trace"])
def test_nothing_sticks_out_of_the_page(opened, width, kind):
    run = kernels_run() if kind == "profile" else timeline_run()
    report = opened(run, width=width).drawn()
    assert report.page.evaluate("document.documentElement.scrollWidth") <= width
    assert report.said == []


@pytest.mark.thorough
def test_on_paper_it_is_light_and_has_all_runs(opened):
    report = opened(kernels_run(), profile_run(batch=1), dark=True).drawn()
    report.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    report.page.emulate_media(media="print")
    assert report.page.locator("#run1").is_visible()
    assert not report.page.locator("header.top").is_visible()
    report.page.set_viewport_size({"width": 794, "height": 1123})  # A4
    assert report.page.evaluate("document.documentElement.scrollWidth") <= 794
    assert report.page.evaluate("document.documentElement.dataset.theme") == "light"
    report.page.emulate_media(media="screen")
    report.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not report.page.locator("#run1").is_visible()
    assert report.page.evaluate("document.documentElement.dataset.theme ?? 'none'") == "none"


@pytest.mark.thorough
def test_everything_that_can_be_clicked_has_a_name_and_can_be_reached(traced):
    nameless = traced.page.evaluate("""
        [...document.querySelectorAll('button, input, canvas, [role=img], [role=region]')]
        .filter(e => !(e.getAttribute('aria-label') || e.textContent).trim()).length""")
    assert nameless == 0
    assert traced.page.evaluate("document.querySelectorAll('h1').length") == 1
    assert traced.page.get_attribute("html", "lang") == "en"
    small = traced.page.evaluate(
        "[...document.querySelectorAll('.tools button')].filter(e => e.offsetHeight && e.offsetHeight < 24).length"
    )
    assert small == 0


def test_on_a_phone_the_icicle_fits_and_a_tap_says_what_a_second_one_looks_into(opened):
    report = opened(kernels_run(2_000), width=360, height=780, touch=True).drawn()
    canvas = report.page.locator(".icicle canvas")
    canvas.scroll_into_view_if_needed()
    report.page.wait_for_timeout(200)  # a scroll hides the tip
    assert canvas.bounding_box()["width"] <= 360
    place = {"x": 60, "y": 36}
    canvas.tap(position=place)
    assert "energy" in report.page.inner_text("#tip")
    assert report.page.evaluate(FLAME + ".focus") == 0
    canvas.tap(position=place)
    assert report.page.evaluate(FLAME + ".focus") > 0
    assert not report.page.locator("#tip").is_visible()
    assert report.page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.thorough
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_change_and_verdict_are_in_sight_and_on_the_flame_graph(opened, dark):
    longer = USUAL[-1]._replace(seconds=3e-3)
    runs = [(explained(), "a"), (explained((*USUAL[:-1], longer), mode="graph"), "b")]
    found, _ = against_first([[one] for one in runs])
    report = opened(*(run for run, _ in runs), comparisons=found, width=360, height=780, touch=True, dark=dark).drawn()
    canvas = report.page.locator(".compared canvas")
    canvas.scroll_into_view_if_needed()
    report.page.wait_for_timeout(200)
    canvas.tap(position={"x": 60, "y": 60})
    tip = report.page.inner_text("#tip").replace("\u00a0", " ")
    assert tip.startswith("bf16 norms")
    assert "+600" in tip
    assert "longer" in tip
    red, _, blue, _ = report.page.evaluate(
        "[...document.querySelector('.compared canvas').getContext('2d').getImageData(60, 51, 1, 1).data]"
    )
    assert red > blue + 50
    assert report.said == []
    for cell in report.page.locator("#compared0-model td:has(.bar), #compared0-model td.better").all():
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
