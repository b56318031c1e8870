"""Joules per unit of real work: counters of servers, lines of commands, and what it costs."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from commands import command, gone, only_run, wait_for
from jouletrace.analysis import analyse
from jouletrace.analysis.work import ratio_of_sums
from jouletrace.devices.clock import RealClock
from jouletrace.devices.simulated import open_simulated
from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring.monitor import monitor
from jouletrace.profiler.monitoring.watch import LiveWork
from jouletrace.profiler.monitoring.work_counter import Tally
from jouletrace.profiler.monitoring.work_counter_http import PrometheusCounter, Target
from jouletrace.profiler.monitoring.work_counter_output import OutputCounter
from jouletrace.profiler.monitoring.work_counter_text import find
from jouletrace.run import load
from metric_server import Page, counter_page, serving
from records import DEVICE, channel, make_run, ns, phases, readings

EXAMPLE = Path(__file__).parent.parent / "examples" / "served_model.py"
REAL = "sim:h100?realtime=1&load=0.5:300"


# --- the figures -----------------------------------------------------------------------------------


def counted(work, *, took=0.0, resets=(), watts=300.0, seconds=42.0, **changes):
    """A recording with a counter that was read each second: ``work`` by reading, from second 1 on."""
    rows = readings(watts, seconds, noise=0.3)
    for i, done in enumerate(work):
        at = ns(1.0 + i)
        for name, value in (
            ("work_done", done),
            ("work_resets", sum(r <= i for r in resets)),
            ("work_read_s", took),
        ):
            rows.append({"time_ns": at, "device": DEVICE, "channel": name, "value": float(value)})
    channels = [channel(), *(channel(name) for name in ("work_done", "work_resets", "work_read_s"))]
    return analyse(
        make_run(rows, kind="monitor", spans=phases(("monitor", 0.5, seconds - 0.5)), channels=channels, **changes)
    )


def test_energy_per_unit_is_energy_between_readings_over_what_was_counted():
    run = counted(100.0 * np.arange(41))
    each = run.result("energy_per_work_j")
    assert each.value == pytest.approx(3.0, rel=1e-3)
    assert each.low <= 3.0 <= each.high
    assert each.half_width < 0.02
    assert each.n == 20
    assert run.result("work_done").value == 4000
    assert run.result("work_per_s").value == pytest.approx(100.0)


def test_the_interval_holds_the_ratio_when_work_comes_unevenly():
    """Power 100 W and 4 J each: in 200 recordings the interval of the ratio holds 4 J in about 95 %."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        work = rng.uniform(20, 80, 20)
        energy = 4.0 * work + rng.normal(0, 12.0, 20)
        found = ratio_of_sums(energy, work)
        held += found.low <= 4.0 <= found.high
    assert 182 <= held <= 199


def test_what_blocks_share_stays_in_the_interval():
    energy, work = np.full(20, 40.0), np.full(20, 10.0)
    assert ratio_of_sums(energy, work).half_width == pytest.approx(0.0, abs=1e-9)
    shared = ratio_of_sums(energy, work, shared_sd_j=8.0)
    assert shared.half_width == pytest.approx(1.96 * 8.0 / 200, rel=0.01)


def test_one_block_has_a_value_and_no_interval():
    found = ratio_of_sums(np.array([30.0]), np.array([10.0]))
    assert (found.value, found.low) == (3.0, None)
    run = counted([0.0, 100.0])
    assert run.result("energy_per_work_j").low is None
    assert run.result_flags("energy_per_work_j") == ["few_windows"]


def test_there_is_a_table_over_time():
    work = np.concatenate([np.arange(21) * 50.0, 1000 + np.arange(1, 21) * 150.0])
    run = counted(work)
    rows = [row for row in run.units.to_pylist() if row["level"] == "range"]
    assert len(rows) == 20
    assert [row["name"] for row in rows][:2] == ["0.0 to 2.0 s", "2.0 to 4.0 s"]
    first, last = (run.result("energy_per_work_j", rows[i]["id"]) for i in (0, -1))
    assert first.value == pytest.approx(6.0, rel=0.02)
    assert last.value == pytest.approx(2.0, rel=0.02)
    assert first.low <= 6.0 <= first.high
    each = [run.result("energy_total_j", row["id"]).value for row in rows]
    assert sum(each) == pytest.approx(300.0 * 40, rel=1e-3)


def test_a_reset_is_flagged_where_it_was_and_in_the_whole():
    run = counted(100.0 * np.arange(41), resets=[15])
    assert "work_reset" in run.result_flags("energy_per_work_j")
    marked = [
        row["name"]
        for row in run.units.to_pylist()
        if row["level"] == "range" and "work_reset" in run.result_flags("energy_per_work_j", row["id"])
    ]
    assert marked == ["14.0 to 16.0 s"]


@pytest.mark.parametrize(
    ("work", "reason"), [([], "work_never_read"), ([5.0], "work_read_once"), ([5.0] * 40, "no_work_counted")]
)
def test_without_work_the_figure_is_null_and_says_why(work, reason):
    run = counted(work)
    assert run.result("energy_per_work_j").value is None
    assert run.result("energy_per_work_j").reason == reason


def test_a_hole_in_the_record_leaves_its_blocks_out_of_energy_and_work():
    rows = readings(300.0, 42.0, noise=0.3, without=[(10.0, 15.0)])
    run = counted(100.0 * np.arange(41))
    whole = run.result("energy_per_work_j")
    run.samples = run.samples.filter(np.array([row["channel"] != "power_w" for row in run.samples.to_pylist()]))
    from jouletrace.run import tables

    run.samples = tables.from_rows(run.samples.to_pylist() + rows, "samples")
    analyse(run)
    each = run.result("energy_per_work_j")
    assert each.value == pytest.approx(3.0, rel=5e-3)
    assert each.n < whole.n
    assert "windows_left_out" in run.result_flags("energy_per_work_j")


def test_a_slow_read_widens_the_interval():
    """With two-second reads nobody knows to a fraction of a second when the count was right."""
    sharp, slow = (counted(100.0 * np.arange(41), took=took).result("energy_per_work_j") for took in (0.0, 2.0))
    assert slow.half_width > 5 * sharp.half_width
    # 300 W · 2 s / √12 at either end, over 4000 units
    assert slow.half_width > 1.96 * 300 * 2 / 12**0.5 / 4000


def test_a_device_without_power_makes_the_figure_null():
    run = counted(100.0 * np.arange(41))
    run.channels = [c for c in run.channels if c.name != "power_w"]
    analyse(run)
    assert run.result("energy_per_work_j").reason == "no_power_sensor"
    assert run.result("work_done").value == 4000


def test_cost_and_carbon_are_the_energy_times_the_factors():
    run = counted([0.0, 1.0], settings={"price_per_kwh": 0.36, "carbon_g_per_kwh": 400.0})
    energy = run.result("energy_total_j", 1)
    assert run.result("cost").value == pytest.approx(energy.value / 3.6e6 * 0.36)
    assert run.result("co2_g").value == pytest.approx(energy.value / 3.6e6 * 400)
    assert run.result("co2_g").half_width == pytest.approx(energy.half_width / 3.6e6 * 400)
    assert counted([0.0, 1.0]).result("cost").reason == "not_measured"


# --- reading a counter -----------------------------------------------------------------------------


def test_a_tally_counts_on_across_a_reset():
    tally = Tally()
    for value in (1000.0, 1010.0, 4.0, 10.0):
        tally.add({"": value})
    assert (tally.done, tally.resets) == (20.0, 1)


def test_a_series_that_appears_later_counts_from_zero_and_one_that_goes_away_loses_nothing():
    tally = Tally()
    tally.add({"a": 5.0})
    tally.add({"a": 6.0, "b": 3.0})
    tally.add({"b": 4.0})
    tally.add({"a": 8.0, "b": 4.0, "c": float("nan")})
    assert (tally.done, tally.resets) == (7.0, 0)


def test_one_series_that_resets_is_seen_though_the_sum_grows():
    tally = Tally()
    tally.add({"a": 5.0, "b": 100.0})
    tally.add({"a": 1.0, "b": 200.0})
    assert (tally.done, tally.resets) == (101.0, 1)


PAGE = """# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model_name="a \\"b\\", {c}",engine="0"} 1.5e3
vllm:generation_tokens_total{model_name="d",engine="1"} 20 1700000000000
# TYPE requests counter
requests_total 3 # {trace_id="x"} 1
# TYPE latency_seconds histogram
latency_seconds_bucket{le="+Inf"} 7
latency_seconds_count 7
# TYPE queue gauge
queue 4
plain 1
not a line at all {
"""


@pytest.mark.parametrize(
    ("name", "labels", "values", "counts"),
    [
        ("vllm:generation_tokens_total", {}, [1500.0, 20.0], True),
        ("vllm:generation_tokens_total", {"model_name": 'a "b", {c}'}, [1500.0], True),
        ("vllm:generation_tokens_total", {"engine": "1", "model_name": "d"}, [20.0], True),
        ("vllm:generation_tokens_total", {"engine": "2"}, [], True),
        ("requests_total", {}, [3.0], True),
        ("latency_seconds_count", {}, [7.0], True),
        ("queue", {}, [4.0], False),
        ("plain", {}, [1.0], None),
        ("absent", {}, [], None),
    ],
)
def test_a_metric_is_found_on_a_page(name, labels, values, counts):
    found = find(PAGE, name, labels)
    assert list(found.values.values()) == values
    assert found.counts is counts


def test_a_target_is_url_metric_and_labels():
    target = Target.parse('http://h:8000/metrics#vllm:tokens_total{model="a, b",engine=0}')
    assert (target.url, target.metric) == ("http://h:8000/metrics", "vllm:tokens_total")
    assert target.labels == {"model": "a, b", "engine": "0"}
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://h/metrics", "write URL#metric"),
        ("http://h/metrics#", "write URL#metric"),
        ("file:///etc/passwd#x", "no http:// or https:// address"),
        ("http://#x", "no http:// or https:// address"),
        ("http://h:x/#m", "Port could not be cast"),
        ("http://u:secret@h/#m", "leave it out"),
        ("http://h/#1m", "is no metric"),
        ('http://h/#m{a=~"b"}', "select series by label="),
        ("http://h/#m{a}", "select series by label="),
    ],
)
def test_a_target_that_is_none_is_refused_in_one_line(text, said):
    with pytest.raises(BadInputError, match=said) as caught:
        Target.parse(text)
    assert "secret" not in str(caught.value)


def started(page, metric="tokens_total", every_s=0.02, **options):
    counter = PrometheusCounter(Target.parse(f"{page.url}#{metric}"), every_s, **options)
    counter.start(RealClock())
    return counter


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (counter_page(1, "token_total"), "no metric tokens_total; did you mean token_total?"),
        (counter_page(1, kind="gauge"), "tokens_total is a gauge, not a counter"),
        ("<html>hello</html>", "not in Prometheus' format"),
        ('# TYPE tokens_total counter\ntokens_total{m="a"} 1\n', "no series of tokens_total has these labels"),
    ],
)
def test_a_page_without_such_a_counter_is_refused_at_once(text, said):
    metric = 'tokens_total{m="b"}' if "m=" in text else "tokens_total"
    with serving(Page(text)) as page, pytest.raises(BadInputError, match=said):
        started(page, metric)


def test_a_declared_counter_without_series_counts_from_zero():
    with serving(Page("# TYPE tokens_total counter\n")) as page:
        counter = started(page)
        page.text = '# TYPE tokens_total counter\ntokens_total{m="a"} 4\n'
        last = counter.stop()[-1]
    assert last.done == 4.0


def test_an_undeclared_counter_is_taken_for_one_and_said():
    with serving(Page("tokens_total 4\n")) as page:
        counter = started(page)
        counter.stop()
    assert [code for code, _ in counter.warnings()] == ["work_untyped"]


def test_a_server_that_is_down_for_a_while_is_asked_on():
    page = Page(counter_page(10))
    with serving(page) as first:
        port = int(first.url.rsplit(":", 1)[1].split("/")[0])
        counter = started(page)
    wait_for(lambda: counter.problem() is not None)
    assert counter.problem(), "unreachable, or cut off while it answered: whichever came first"
    page.text = counter_page(3)  # it has started again
    with serving(page, port):
        wait_for(lambda: counter.problem() is None)
        readings = counter.stop()
    assert (readings[-1].done, readings[-1].resets) == (3.0, 1)
    assert [code for code, _ in counter.warnings()] == ["work_not_read", "work_reset"]


def test_a_server_that_is_never_there_is_said():
    counter = PrometheusCounter(Target.parse("http://127.0.0.1:9/metrics#tokens_total"), 0.02)
    counter.start(RealClock())
    assert counter.stop() == []
    ((code, message),) = counter.warnings()
    assert code == "work_never_read"
    assert "can't be reached: Connection refused" in message


@pytest.mark.parametrize(("options", "said"), [({"wait_s": 1.0}, "did not answer in 0.1 s"), ({"status": 503}, "503")])
def test_slow_and_broken_servers_are_said(options, said):
    with serving(Page(counter_page(1), **options)) as page:
        counter = started(page, timeout_s=0.1)
        assert said in counter.problem()
        counter.stop()


def test_an_answer_that_drips_is_given_up():
    with serving(Page(counter_page(1) * 100, drip_s=0.03)) as page:
        began = time.monotonic()
        counter = started(page, timeout_s=0.2)
        assert time.monotonic() - began < 1.0
        assert "did not answer in 0.2 s" in counter.problem()
        counter.stop()


# --- a monitor that counts -------------------------------------------------------------------------


class Seen:
    """A display that keeps what it is shown."""

    def __init__(self):
        self.works: list[LiveWork] = []
        self.at: list[float] = []
        self.energies: list[float | None] = []

    def show(self, readings, work):
        self.works.append(work)
        self.at.append(time.monotonic())
        self.energies.append(readings[0].energy_j)


def watched(counter, **options):
    device = open_simulated(REAL)
    seen = Seen()
    facts = {"interval_s": 0.2, "duration_s": 2.2, **options}
    run, _ = monitor([device], counter=counter, displays=[seen], **facts)
    return run, seen


def test_a_running_server_has_its_joules_per_token_live_and_in_the_run(tmp_path):
    began = time.monotonic()
    with serving(Page(lambda: counter_page(round(1e5 + 1000 * (time.monotonic() - began))))) as page:
        counter = PrometheusCounter(Target.parse(f"{page.url}#tokens_total"), 0.2)
        run, seen = watched(counter, folder=tmp_path / "run")
    each = run.result("energy_per_work_j")
    assert each.value == pytest.approx(0.3, rel=0.1)
    assert run.result("work_per_s").value == pytest.approx(1000, rel=0.05)
    live = [work.j_each for work in seen.works if work.j_each is not None]
    assert np.median(live) == pytest.approx(0.3, rel=0.15)
    assert seen.works[-1].j_each_mean == pytest.approx(0.3, rel=0.15)
    assert seen.energies[-1] == pytest.approx(300 * 2.2, rel=0.2)
    assert [w.code for w in run.warnings] == []
    saved = load(tmp_path / "run")
    assert saved.samples.equals(run.samples)
    assert analyse(saved).results.equals(run.results), "the figures come from what is stored alone"


def test_a_url_that_is_down_keeps_measuring_and_says_so():
    run, seen = watched(PrometheusCounter(Target.parse("http://127.0.0.1:9/#tokens_total"), 0.2), duration_s=0.8)
    assert run.result("energy_per_work_j").reason == "work_never_read"
    assert "work_never_read" in [w.code for w in run.warnings]
    assert run.result("energy_total_j", 1).value > 0
    assert "can't be reached" in seen.works[-1].problem


def test_a_slow_server_delays_neither_ticks_nor_samples():
    page = Page()

    def slower_and_slower():
        page.wait_s = 2.0 if page.asked > 1 else 0.0
        return counter_page(1)

    page.text = slower_and_slower
    with serving(page):
        counter = PrometheusCounter(Target.parse(f"{page.url}#tokens_total"), 0.2, timeout_s=0.5)
        run, seen = watched(counter, duration_s=1.4)
    assert page.asked > 2
    assert len(seen.at) >= 4, "a reading is given up after half a second: waited for, they leave time for two ticks"
    assert not [w for w in run.warnings if w.code.startswith("record")]
    assert "did not answer" in next(w.message for w in run.warnings if w.code == "work_not_read")


LINES = (
    "import time\nfor i in range(10):\n    print('step', i, '2.5 tok', flush=True); time.sleep(0.1)\nprint('\\xe9nd')"
)


@pytest.mark.parametrize(("pattern", "done"), [("^step", 10.0), (r"([\d.]+) tok", 25.0)])
def test_lines_of_a_command_are_counted_and_passed_on_unchanged(capfd, pattern, done):
    run, _ = watched(OutputCounter(pattern), command=[sys.executable, "-X", "utf8", "-c", LINES], duration_s=None)
    out = capfd.readouterr().out
    assert out == "".join(f"step {i} 2.5 tok\n" for i in range(10)) + "énd\n"
    assert run.result("work_done").value == done
    seconds = done / run.result("work_per_s").value
    assert run.result("energy_per_work_j").value == pytest.approx(300 * seconds / done, rel=0.1)


def passed(data, pattern="x"):
    """What comes out of a counter that ``data`` went into, and the counter."""
    counter = OutputCounter(pattern)
    counter.start(RealClock())
    source, sink = os.pipe(), os.pipe()
    counter.watch(source[0], sink[1])
    for part in data:
        os.write(source[1], part)
    os.close(source[1])
    readings = counter.stop()
    os.close(sink[1])
    with os.fdopen(sink[0], "rb") as file:
        return file.read(), readings[-1].done, counter


def test_output_is_passed_on_byte_by_byte_whatever_it_is():
    parts = [b"half x", b" line\r", b"\xff\x00x\r\n", b"no end x"]
    out, done, _ = passed(parts)
    assert out == b"".join(parts)
    assert done == 3.0


def test_what_is_captured_and_no_number_counts_nothing_and_is_said():
    _, done, counter = passed([b"n=5\nn=-3\nn=many\nn=1,000\n"], r"n=(\S+)")
    assert done == 1005.0
    ((code, message),) = counter.warnings()
    assert code == "work_no_number"
    assert message.startswith("2 of 4")


@pytest.mark.parametrize(("pattern", "said"), [("(", "no regular expression"), ("(a)(b)", "2 groups")])
def test_a_pattern_that_is_none_is_refused(pattern, said):
    with pytest.raises(BadInputError, match=said):
        OutputCounter(pattern)


def test_a_child_that_outlives_the_command_keeps_nobody_waiting(capfd, monkeypatch):
    monkeypatch.setattr("jouletrace.profiler.monitoring.work_counter_output._JOIN_S", 0.2)
    body = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(8)']); print('x')"
    began = time.monotonic()
    run, _ = watched(OutputCounter("x"), command=[sys.executable, "-c", body], duration_s=None)
    assert time.monotonic() - began < 6
    assert run.result("work_done").value in (1.0, None)


def test_a_process_is_followed_to_its_end():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.8)"])
    began = time.monotonic()
    run, _ = watched(None, pid=process.pid, duration_s=None, interval_s=5.0)
    assert time.monotonic() - began < 4.5, "its end is noticed, not looked for every five seconds"
    assert gone(process.pid), "and it is not waited for by its parent"
    process.wait()
    (span,) = [row for row in run.spans.to_pylist() if row["kind"] == "range"]
    assert str(process.pid) in span["name"]
    assert (span["end_ns"] - span["start_ns"]) / 1e9 < 1.5


def test_a_followed_process_goes_on_after_the_monitor():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        watched(None, pid=process.pid, duration_s=0.4)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_not_there_is_refused():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    for pid in (process.pid, 0, -1):
        with pytest.raises(BadInputError, match="no such process"):
            watched(None, pid=pid)
    # One that has ended and waits for its parent has ended.
    process = subprocess.Popen([sys.executable, "-c", ""])
    wait_for(lambda: gone(process.pid))
    with pytest.raises(BadInputError, match="has ended"):
        watched(None, pid=process.pid)
    process.wait()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"counter": OutputCounter("x")}, "write it behind --"),
        ({"pid": 1, "command": ["true"]}, "ask for one of them"),
    ],
)
def test_what_does_not_go_together_is_refused(options, said):
    with pytest.raises(BadInputError, match=said):
        watched(options.pop("counter", None), **options)


def test_virtual_time_and_a_real_counter_do_not_go_together():
    counter = PrometheusCounter(Target.parse("http://127.0.0.1:9/#x"))
    with pytest.raises(BadInputError, match="a counter takes real time"):
        monitor([open_simulated("sim:h100")], duration_s=1.0, counter=counter)


# --- the command line, with the example ------------------------------------------------------------


def test_the_example_is_measured_from_the_command_line(capsys, workspace):
    arguments = [sys.executable, str(EXAMPLE), "--port", "0", "--requests-per-s", "50", "--seconds", "30"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as served:
        try:
            target = served.stdout.readline().strip() + '{kind="generation"}'
            options = ("-d", REAL, "--duration", "2.2", "--interval", "0.5", "--price", "0.3", "--carbon", "380")
            said = command(capsys, "monitor", "--per", target, *options)
        finally:
            served.kill()
    assert said.code == 0, said.err
    for words in ("SIMULATED", "Energy for one unit of work", "Cost", "CO2", "0.0 to"):
        assert words in said.out
    assert "served_tokens_total: " in said.err
    assert " J each" in said.err
    run = load(only_run(workspace))
    assert run.result("energy_per_work_j").value > 0
    assert run.workload["work"] == "served_tokens_total"


def test_the_stream_has_columns_for_the_work(capfd, workspace):
    options = ("-d", REAL, "--interval", "0.3", "-f", "csv", "--per-command", "^step")
    said = command(capfd, "monitor", *options, "--", sys.executable, "-c", LINES.splitlines()[0] + "\ntime.sleep(1)")
    rows = [line.split(",") for line in said.out.splitlines()]
    assert rows[0][-2:] == ["work", "J_per_work"]
    assert rows[-1][-2:] == ["0", "-"]


def test_work_that_never_came_is_null_in_the_json_object(capfd, workspace):
    options = ("-d", REAL, "--json", "--per-command", "^never")
    said = command(capfd, "monitor", *options, "--", sys.executable, "-c", LINES)
    found = json.loads(said.out[said.out.index("{") :])
    assert found["model"]["other"]["work_done"]["value"] == 0
    assert found["model"]["other"]["energy_per_work_j"]["reason"] == "no_work_counted"
    assert [warning["code"] for warning in found["warnings"]] == ["work_never_counted"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--per", "http://h/"), "write URL#metric"),
        (("--per", "http://h/#m", "--per-command", "x"), "ask for one of them"),
        (("--price", "-1"), "--price -1: must be 0 or more"),
        (("--carbon", "nan"), "--carbon nan: must be 0 or more"),
        (("--per-command", "x"), "write it behind --"),
    ],
)
def test_wrong_options_are_refused_in_one_line(capsys, workspace, options, said):
    found = command(capsys, "monitor", "-d", REAL, *options)
    assert found.code == 2
    assert said in found.complaint
