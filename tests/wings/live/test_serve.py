"""The monitor's page for Prometheus, asked over HTTP as Prometheus does."""

import http.client
import json
import re
import socket
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from commands import PATIENCE_S, command, start, wait_for
from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring import CounterTarget, LiveWork, Reading, find
from jouletrace.run import DeviceInfo
from jouletrace.wings.live import Address, Exporter, MetricsPage
from places import REPOSITORY

REAL = "sim:h100?realtime=1&load=0.5:300"
SAMPLE = re.compile(r'[a-zA-Z_:][\w:]*(?:\{(?:\w+="(?:[^"\\\n]|\\.)*",?)*\})? -?[0-9.e+-]+')


def reading(id="GPU-1", **values):
    info = DeviceInfo(id, 'GPU "A"\\\n', index=3, simulated=True, power_limit_w=700.0)
    return Reading(id, info.name, info, 1_763_676_000_500_000_000, {"power_w": 310.5, **values}, 1234.5)


def render(readings, work):
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsPage(readings, work))
    return generate_latest(registry).decode()


def check(page):
    """Compare a page with the rules of the text format, version 0.0.4; returns names by type."""
    assert page.endswith("\n")
    types, helped, named = {}, set(), []
    for line in page.splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name not in helped, "one HELP a metric"
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name in helped
            assert name not in types, "one TYPE a metric, before its samples"
            types[name] = kind
        else:
            assert SAMPLE.fullmatch(line), line
            name = re.split("[{ ]", line)[0]
            assert name in types
            if not named or named[-1] != name:
                named.append(name)
    assert len(named) == len(set(named)), "all lines of a metric stand together"
    for name, kind in types.items():
        assert name.endswith("_total") == (kind == "counter")
    return types


def value(page, metric, **labels):
    return next(iter(find(page, CounterTarget("", metric, labels)).values.values()), None)


def test_the_page_is_valid_and_says_energy_and_power_of_each_device():
    page = render([reading(), reading("GPU-2", power_w=99.0)], None)
    types = check(page)
    assert types["jouletrace_energy_joules_total"] == "counter"
    assert types["jouletrace_power_watts"] == "gauge"
    assert value(page, "jouletrace_power_watts", uuid="GPU-2") == 99.0
    labels = {"gpu": "3", "uuid": "GPU-1", "name": 'GPU "A"\\\n', "simulated": "true"}
    assert value(page, "jouletrace_energy_joules_total", **labels) == 1234.5
    assert value(page, "jouletrace_last_reading_timestamp_seconds", uuid="GPU-1") == 1_763_676_000.5


def test_each_query_of_the_dashboard_names_a_metric_and_labels_that_are_exported():
    values = ["utilization_gpu_pct", "clock_sm_mhz", "temperature_c", "memory_used_bytes"]
    pod = {"namespace": "ml", "pod": "train-0", "container": "main"}
    shown = reading(**dict.fromkeys(values, 1.0))
    shown.energies = [(pod, 1.0)]
    page = render([shown], LiveWork("tokens", 1.0, 1.0, 1.0, 1.0))
    panels = json.loads((REPOSITORY / "examples" / "grafana" / "dashboard.json").read_text())["panels"]
    targets = [target for panel in panels for target in panel["targets"]]
    assert len(targets) >= 8
    for target in targets:
        (metric,) = re.findall(r"jouletrace_\w+", target["expr"])
        (labels,) = re.findall(rf"^{metric}\{{(.+)\}} ", page, re.MULTILINE)
        assert {f"{name}=" for name in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])} <= set(
            re.findall(r"\w+=", labels)
        ), target


def test_units_are_base_units():
    page = render([reading(clock_sm_mhz=1980.0, utilization_gpu_pct=50.0, memory_used_bytes=1.0)], None)
    check(page)
    assert value(page, "jouletrace_sm_clock_hertz") == 1.98e9
    assert value(page, "jouletrace_utilization_ratio") == 0.5


def test_what_is_not_known_is_left_out_and_never_zero():
    bare = Reading("cpu", "CPU", DeviceInfo("cpu", "CPU", "cpu"))
    page = render([bare], None)
    check(page)
    assert "power" not in page
    assert "energy" not in page


def test_a_scrape_shows_one_update_though_the_next_comes_within_it():
    page = MetricsPage([reading(), reading("GPU-2")], LiveWork("tokens_total", 12.0))
    metrics = page.collect()
    next(metrics)
    page.shown = [reading("GPU-3")], None
    rest = list(metrics)
    uuids = {sample.labels["uuid"] for metric in rest for sample in metric.samples if "uuid" in sample.labels}
    assert uuids == {"GPU-1", "GPU-2"}
    assert any(metric.name == "jouletrace_work" for metric in rest)


def test_work_is_a_counter_of_its_own():
    page = render([reading()], LiveWork("tokens_total", 12.0, 3.0, 0.25, 0.5))
    types = check(page)
    assert types["jouletrace_work_total"] == "counter"
    assert value(page, "jouletrace_work_total", counter="tokens_total", simulated="true") == 12.0
    assert value(page, "jouletrace_energy_per_work_joules") == 0.25
    assert "energy_per_work" not in render([reading()], LiveWork("tokens_total", 12.0))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9400", "127.0.0.1", 9400),
        ("9400", "127.0.0.1", 9400),
        (":9400", "127.0.0.1", 9400),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("[::1]:1", "::1", 1),
    ],
)
def test_an_address_without_a_host_is_of_this_machine_only(text, host, port):
    assert Address.parse(text) == Address(host, port)


@pytest.mark.parametrize("text", ["", "x", "1.2.3.4:", "::1:9400", "h:70000", "h:1:2", "http://h:1"])
def test_an_address_that_is_none_is_refused(text):
    with pytest.raises(BadInputError, match=r"write 127\.0\.0\.1:PORT"):
        Address.parse(text)


def test_a_port_that_is_taken_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInputError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use"):
            Exporter(Address("127.0.0.1", port))


def test_it_answers_real_requests_and_stops_with_its_block():
    with Exporter(Address("127.0.0.1", 0)) as exporter:
        assert exporter.url.startswith("http://127.0.0.1:")
        with urlopen(f"{exporter.url}metrics", timeout=PATIENCE_S) as answer:
            check(answer.read().decode())  # before the first reading too
        exporter.show([reading()], None)
        connection = http.client.HTTPConnection(exporter.url.split("/")[2], timeout=PATIENCE_S)
        connection.request("GET", "/metrics?x=1")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        assert value(answer.read().decode(), "jouletrace_power_watts") == 310.5
        connection.close()
    with pytest.raises(OSError, match="refused"):
        urlopen(exporter.url, timeout=PATIENCE_S)


def test_a_client_that_asks_nothing_keeps_no_one_waiting():
    with Exporter(Address("127.0.0.1", 0)) as exporter:
        host, port = exporter.url.split("/")[2].split(":")
        with socket.create_connection((host, int(port))), urlopen(exporter.url, timeout=PATIENCE_S) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("path", ["/", "/history", "/metrics"])
def test_a_name_of_another_site_that_leads_here_reads_nothing(path):
    with Exporter(Address("127.0.0.1", 0)) as exporter:
        exporter.show([reading()], None)
        for name, status in {"evil.example": 403, "[::1]": 200, "LOCALHOST": 200, "127.0.0.1": 200}.items():
            connection = http.client.HTTPConnection(exporter.url.split("/")[2], timeout=PATIENCE_S)
            connection.request("GET", path, headers={"Host": f"{name}:{exporter.url.rpartition(':')[2][:-1]}"})
            answer = connection.getresponse()
            assert answer.status == status, name
            assert ("GPU-1" in answer.read().decode()) == (status == 200 and path != "/")
            connection.close()


@pytest.mark.thorough
def test_a_monitor_serves_what_it_reads(workspace):
    process = start("monitor", "-d", REAL, "--interval", "0.2", "--serve", "127.0.0.1:0", "-f", "csv", cwd=workspace)
    try:
        url = process.stderr.readline().split()[-1]
        pages = []

        def energy():
            with urlopen(url, timeout=PATIENCE_S) as answer:
                pages.append(answer.read().decode())
            return value(pages[-1], "jouletrace_energy_joules_total", simulated="true") or 0.0

        def read_at():
            return value(pages[-1], "jouletrace_last_reading_timestamp_seconds", simulated="true")

        wait_for(lambda: energy() > 60)
        first, at = energy(), read_at()
        wait_for(lambda: energy() > first + 300)
        check(pages[-1])
        assert (energy() - first) / (read_at() - at) == pytest.approx(300, rel=0.35)
        assert value(pages[-1], "jouletrace_power_watts") == pytest.approx(300, rel=0.1)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@pytest.mark.thorough
def test_a_taken_port_is_refused_before_anything_is_recorded(capsys, workspace):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = command(capsys, "monitor", "-d", REAL, "--serve", str(taken.getsockname()[1]))
    assert said.code == 2
    assert "Address already in use" in said.complaint
    assert not (workspace / "runs").exists()


def test_clients_that_say_nothing_keep_no_one_out():
    with Exporter(Address("127.0.0.1", 0)) as exporter:
        at = ("127.0.0.1", int(exporter.url.rpartition(":")[2].partition("/")[0]))
        silent = [socket.create_connection(at, timeout=PATIENCE_S) for _ in range(20)]
        for one in silent:
            one.sendall(b"GET /met")
        with urlopen(exporter.url, timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        for one in silent:
            one.close()


@pytest.mark.parametrize(("host", "others"), [("127.0.0.1", False), ("0.0.0.0", True), ("localhost", False)])
def test_an_address_that_other_machines_can_ask_is_known_as_one(host, others):
    with Exporter(Address(host, 0)) as exporter:
        assert exporter.open_to_others is others


@pytest.mark.thorough
def test_serving_to_other_machines_is_reported(capsys, workspace):
    done = command(capsys, "monitor", "-d", REAL, "--duration", "0.3", "--serve", "0.0.0.0:0")
    assert ", open to other machines without a password" in done.err
    done = command(capsys, "monitor", "-d", REAL, "--duration", "0.3", "--serve", "0")
    assert "other machines" not in done.err
