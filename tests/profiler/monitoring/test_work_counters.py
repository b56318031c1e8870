"""Counters of real work: tallies, pages of metrics, and servers that are slow, broken or gone."""

import math
import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from commands import FOREVER_S, PATIENCE_S, wait_for
from jouletrace.devices import RealClock
from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring import CounterTally, CounterTarget, WorkCounter, find
from jouletrace.web import fetch
from metric_server import Page, counter_page, serving


def test_a_tally_counts_on_across_a_reset():
    tally = CounterTally()
    for value in (1000.0, 1010.0, 4.0, 10.0):
        tally.add({"": value})
    assert (tally.done, tally.resets) == (20.0, 1)


def test_a_series_that_appears_later_counts_from_zero_and_one_that_goes_away_loses_nothing():
    tally = CounterTally()
    tally.add({"a": 5.0})
    tally.add({"a": 6.0, "b": 3.0})
    tally.add({"b": 4.0})
    tally.add({"a": 8.0, "b": 4.0, "c": float("nan")})
    assert (tally.done, tally.resets) == (7.0, 0)


def test_one_series_that_resets_is_seen_though_the_sum_grows():
    tally = CounterTally()
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
def test_a_metric_is_measured_on_a_page(name, labels, values, counts):
    target = CounterTarget("", name, labels)
    found = find(PAGE, target)
    assert list(found.values.values()) == values
    assert found.declared is bool(counts)
    assert (found.why_not(target) is None) is bool(values and counts is not False)


def test_a_target_is_url_metric_and_labels():
    target = CounterTarget.parse('http://h:8000/metrics#vllm:tokens_total{model="a, b",engine="0"}')
    assert (target.url, target.metric) == ("http://h:8000/metrics", "vllm:tokens_total")
    assert target.labels == {"model": "a, b", "engine": "0"}
    assert CounterTarget.parse(str(target)) == target


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://h/metrics", "write URL#metric"),
        ("http://h/metrics#", "write URL#metric"),
        ("file:///etc/passwd#x", "not an http:// or https:// address"),
        ("http://#x", "not an http:// or https:// address"),
        ("http://h:x/#m", "Port could not be cast"),
        ("http://u:secret@h/#m", "leave it out"),
        ("http://h/#1m", "is not a metric"),
        ('http://h/#m{a=~"b"}', "is not a metric"),
        ("http://h/#m{a}", "is not a metric"),
    ],
)
def test_a_target_that_is_none_is_refused_in_one_line(text, said):
    with pytest.raises(BadInputError, match=said) as caught:
        CounterTarget.parse(text)
    assert "secret" not in str(caught.value)


def started(page, metric="tokens_total", every_s=0.02, **options):
    counter = WorkCounter(CounterTarget.parse(f"{page.url}#{metric}"), every_s, **options)
    counter.start(RealClock())
    return counter


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (counter_page(1, "token_total"), "no metric tokens_total; did you mean token_total?"),
        (counter_page(1, kind="gauge"), "tokens_total is a gauge, not a counter"),
        ("<html>hello</html>", "isn't in Prometheus' format"),
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


def test_a_server_that_is_never_there_is_reported():
    counter = WorkCounter(CounterTarget.parse("http://127.0.0.1:9/metrics#tokens_total"), 0.02)
    counter.start(RealClock())
    assert counter.stop() == []
    ((code, message),) = counter.warnings()
    assert code == "work_never_read"
    assert "can't be reached: Connection refused" in message


@pytest.mark.parametrize(
    ("options", "timeout_s", "said"),
    [({"wait_s": FOREVER_S}, 0.1, "did not answer in 0.1 s"), ({"status": 503}, PATIENCE_S, "503")],
)
def test_slow_and_broken_servers_are_reported(options, timeout_s, said):
    with serving(Page(counter_page(1), **options)) as page:
        counter = started(page, timeout_s=timeout_s)
        assert said in counter.problem()
        counter.stop()


def test_an_answer_that_drips_is_given_up():
    with serving(Page(counter_page(1) * 1000, drip_s=0.03)) as page:
        counter = started(page, timeout_s=0.2)
        assert "did not answer in 0.2 s" in counter.problem()
        counter.stop()


def test_a_series_that_is_no_number_at_first_counts_from_its_first_number():
    tally = CounterTally()
    for values in ({"a": math.nan, "b": 1.0}, {"a": 50.0, "b": 2.0}, {"a": math.nan, "b": 3.0}, {"a": 57.0, "b": 3.0}):
        tally.add(values)
    assert (tally.done, tally.resets) == (9.0, 0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-5", "1e308"])
def test_a_counter_that_holds_no_count_is_never_read(value):
    with serving(Page(f"# TYPE work_total counter\nwork_total {value}\n")) as page:
        counter = WorkCounter(CounterTarget(page.url, "work_total"), 0.05)
        counter.start(RealClock())
        assert "not a count" in counter.problem()
        assert counter.stop() == []
        assert dict(counter.warnings())["work_never_read"].endswith("which is not a count")


@contextmanager
def raw_server(answer):
    """A server that answers each request by a function of the connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    connection.recv(1 << 16)
                    answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    finally:
        listening.close()


def test_half_an_answer_is_not_read():
    def cut(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nwork_total 12")

    with raw_server(cut) as url, pytest.raises(OSError, match="closed the connection within its answer"):
        fetch(url, PATIENCE_S)


def test_a_redirect_is_refused_and_nothing_is_asked_there():
    with serving(Page(counter_page(5))) as other, serving(Page()) as page:
        page.moved["/metrics"] = other.url
        with pytest.raises(OSError, match="answers 302") as error:
            fetch(page.url, 5.0)
        assert "\n" not in str(error.value)
        assert other.asked == 0
