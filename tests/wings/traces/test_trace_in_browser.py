"""A Chrome trace in a real browser: what its own parser makes of the file, and names that stay text."""

import json

import pytest

from jouletrace.analysis import analyse
from jouletrace.formats.exporters import export
from jouletrace.formats.importers import read_files
from jouletrace.run import tables
from places import DATA

PAGES = [DATA / "ncu_h100_details.csv.gz", DATA / "ncu_h100_raw.csv.gz"]
EVIL = "</script><img src=x onerror=\"document.title='broken'\"><b>x</b>"

CHECK = r"""(text) => {
    const document = JSON.parse(text), events = document.traceEvents, wrong = [];
    const of = (...phases) => events.filter((e) => phases.includes(e.ph));
    const grouped = (list, key) => {
        const groups = new Map();
        for (const e of list) groups.set(key(e), [...(groups.get(key(e)) ?? []), e]);
        return groups;
    };
    const named = new Set(of("M").filter((e) => e.args.name).map((e) => `${e.name} ${e.pid} ${e.tid ?? ""}`));
    for (const e of of("X", "C")) {
        if (!named.has(`process_name ${e.pid} `)) wrong.push(`process ${e.pid} has no name`);
        if (!(typeof e.name === "string" && e.name && Number.isFinite(e.ts))) wrong.push(`no name or time: ${e.name}`);
    }
    // In whole nanoseconds: as doubles, microseconds that are equal may differ in their last digit.
    const tracks = grouped(of("X"), (e) => `${e.pid} ${e.tid}`), ns = (us) => Math.round(us * 1000);
    for (const [track, slices] of tracks) {
        if (!named.has(`thread_name ${track}`)) wrong.push(`track ${track} has no name`);
        let before = -Infinity;
        const open = [];
        for (const e of slices) {
            const start = ns(e.ts), end = start + ns(e.dur);
            if (!(start >= before) || !(e.dur >= 0)) wrong.push(`track ${track} is not in order at ${e.ts}`);
            before = start;
            while (open.length && open.at(-1) <= start) open.pop();
            if (open.length && (end > open.at(-1) || e.cat === "kernel")) wrong.push(`${e.name} overlaps another`);
            open.push(end);
        }
    }
    const counters = grouped(of("C"), (e) => `${e.pid} ${e.name}`);
    for (const [counter, line] of counters) {
        let before = -Infinity;
        for (const e of line) {
            if (!(e.ts > before)) wrong.push(`counter ${counter} is not in order at ${e.ts}`);
            before = e.ts;
            const values = Object.values(e.args);
            if (values.length !== 1 || !Number.isFinite(values[0])) wrong.push(`counter ${counter} holds no number`);
        }
    }
    return {
        wrong,
        kernels: of("X").filter((e) => e.cat === "kernel"),
        tracks: of("M").filter((e) => e.name === "thread_name").map((e) => e.args.name),
        counters: [...new Set(of("C").map((e) => e.name))],
        points: of("C").length,
    };
}"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """The recorded Run with both pages, one of its kernels by an evil name."""
    run = read_files([DATA / "ncu_h100_live.zip", *PAGES])
    rows = run.spans.to_pylist()
    last = max((row for row in rows if row["kind"] == "kernel"), key=lambda row: row["start_ns"])
    last["name"] = EVIL
    run.spans = tables.from_rows(rows, "spans")
    return export(analyse(run), "chrome", tmp_path_factory.mktemp("trace") / "trace.json")


@pytest.fixture
def page(chromium):
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.said = []
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("dialog", lambda dialog: page.said.append(dialog.message))
    yield page
    context.close()


@pytest.mark.thorough
def test_the_browser_finds_a_whole_trace_in_the_file(page, trace):
    page.goto(trace.as_uri())
    found = page.evaluate(CHECK, page.evaluate("document.body.innerText"))
    assert found["wrong"] == []
    assert len(found["kernels"]) == 6
    assert found["tracks"] == ["Iterations, tracing", "Kernels, stream 7"]
    lines = ("Power (W)", "Energy so far (J)", "Memory (%)", "Compute (%)", "Theoretical occupancy (%)")
    assert found["counters"] == [*lines, "Achieved occupancy (%)", "SM clock (MHz)", "Temperature (°C)"]
    assert found["points"] > 100


def test_the_browser_reads_energy_launch_and_counters_of_a_kernel(page, trace):
    page.goto(trace.as_uri())
    kernel = page.evaluate(CHECK, page.evaluate("document.body.innerText"))["kernels"][0]
    assert (kernel["args"]["grid"], kernel["args"]["block"]) == ([7, 6, 1], [8, 8, 1])
    figure = {"value": None, "low": None, "high": None, "n": 0, "method": "timeline", "flags": []}
    assert kernel["args"]["energy_each_j"] == {**figure, "reason": "sensor_too_slow"}
    assert kernel["args"]["Memory Throughput (%)"] == 5.61
    assert kernel["args"]["sm__throughput.avg.pct_of_peak_sustained_elapsed (%)"] == 3.67


def test_an_evil_name_stays_text_in_the_file_and_in_a_page_around_it(page, trace, tmp_path):
    page.goto(trace.as_uri())
    assert page.locator("img, b").count() == 0
    around = tmp_path / "around.html"
    around.write_text(f"<!doctype html><title>whole</title><script>const trace = {trace.read_text()};</script>")
    page.goto(around.as_uri())
    assert page.evaluate("trace.traceEvents.filter((e) => e.ph === 'X').at(-1).name") == EVIL
    assert page.locator("img, b").count() == 0
    assert (page.title(), page.said) == ("whole", [])


def spoil(events, what):
    kernels = [event for event in events if event.get("cat") == "kernel"]
    if what == "overlaps another":
        kernels[0]["dur"] = 1e6
    elif what == "is not in order":
        kernels[1]["ts"], kernels[2]["ts"] = kernels[2]["ts"], kernels[1]["ts"]
    elif what == "holds no number":
        next(event for event in events if event["ph"] == "C")["args"] = {"Power (W)": "97"}
    else:
        events[:] = [event for event in events if event["name"] != "thread_name"]


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["overlaps another", "is not in order", "holds no number", "has no name"])
def test_the_check_finds_what_is_wrong(page, trace, what):
    document = json.loads(trace.read_text())
    spoil(document["traceEvents"], what)
    page.goto("about:blank")
    assert any(what in one for one in page.evaluate(CHECK, json.dumps(document))["wrong"])
