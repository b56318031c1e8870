"""A collector's stand-in that parses what it is sent with opentelemetry-proto."""

import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import jouletrace as jt
from commands import done
from jouletrace.run import load
from places import REPOSITORY

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
RUN = REPOSITORY / "docs" / "results" / "runs" / "resnet50-run-h200.zip"


@pytest.fixture
def collector():
    """Its URL, what it was sent by path, and the code that it answers."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.sent.append((self.path, ExportMetricsServiceRequest.FromString(body)))
            self.send_response(server.code)
            if server.code == 307:
                self.send_header("Location", f"{server.url}/other")
            self.end_headers()
            while server.drips and not server.ended.wait(0.1):
                self.wfile.write(b".")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.sent, server.code, server.drips, server.ended = [], 200, False, threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.ended.set()
    server.shutdown()
    thread.join()
    server.server_close()


def points(request):
    """Each metric by name: its unit, its instrument, and its data points with attributes as text."""
    found = {}
    for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
        data = getattr(metric, metric.WhichOneof("data"))
        kind = "gauge" if metric.HasField("gauge") else "counter" if metric.sum.is_monotonic else "updowncounter"
        rows = [({a.key: a.value for a in point.attributes}, point) for point in data.data_points]
        found[metric.name] = (metric.unit, kind, rows)
    return found


@pytest.mark.thorough
def test_a_run_is_sent_with_its_own_figures_and_times(collector, capsys, monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=vision")
    said = done("otlp", str(RUN), collector.url)
    assert said.err == "sent NVIDIA H200\n"
    ((path, request),) = collector.sent
    assert path == "/v1/metrics"
    sent, run = points(request), load(RUN)
    assert set(sent) == {"hw.energy", "hw.power"}
    ((attributes, energy),) = sent["hw.energy"][2]
    assert energy.as_double == run.result("energy_total_j").value
    assert sent["hw.power"][2][0][1].as_double == run.result("power_w").value
    assert attributes["hw.id"].string_value == run.devices[0].id
    assert "jouletrace.simulated" not in attributes
    seconds = (energy.time_unix_nano - energy.start_time_unix_nano) / 1e9
    assert seconds == pytest.approx(run.result("time_s").value)
    assert energy.as_double / seconds == pytest.approx(run.result("power_w").value, rel=1e-3)
    resource = {a.key: a.value.string_value for a in request.resource_metrics[0].resource.attributes}
    assert resource == {"service.name": "jouletrace", "host.name": run.devices[0].host, "team": "vision"}


@pytest.mark.thorough
def test_each_gpu_of_a_run_is_a_point_and_they_add_up(collector):
    place = REPOSITORY / "docs" / "results" / "runs" / "ddp-run-h200.zip"
    done("otlp", str(place), f"{collector.url}/")
    ((_, request),) = collector.sent
    rows, run = points(request)["hw.energy"][2], load(place)
    assert {attributes["hw.id"].string_value for attributes, _ in rows} == {device.id for device in run.devices}
    assert sum(point.as_double for _, point in rows) == pytest.approx(run.result("energy_total_j").value)


@pytest.mark.thorough
def test_a_monitor_sends_as_it_runs_and_at_its_end(collector, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
    words = ["--device", "sim:h100?load=1:300", "--otlp", collector.url, "--duration", "2", "--interval", "0.2"]
    line = [sys.executable, "-m", "jouletrace", "monitor", *words, "-o", str(tmp_path / "run")]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f"sending to {collector.url} each 0.5 s" in ended.stderr
    assert len(collector.sent) >= 3
    energies = [points(request)["hw.energy"][2][0][1] for _, request in collector.sent]
    joules = [energy.as_double for energy in energies]
    assert joules == sorted(joules)
    (start,) = {energy.start_time_unix_nano for energy in energies}
    assert joules[-1] == pytest.approx(300 * (energies[-1].time_unix_nano - start) / 1e9, rel=0.05)
    last = points(collector.sent[-1][1])
    run = load(tmp_path / "run")
    assert joules[-1] == pytest.approx(run.result("energy_total_j").value, rel=0.1)
    assert last["hw.power"][2][0][1].as_double == pytest.approx(300, rel=0.05)
    assert last["hw.gpu.memory.limit"][2][0][1].as_double == 80 * 2**30
    assert last["hw.energy"][2][0][0]["jouletrace.simulated"].bool_value


@pytest.mark.thorough
def test_names_units_and_instruments_are_those_of_the_conventions(collector, tmp_path):
    semconv = pytest.importorskip("opentelemetry.semconv._incubating.metrics.hw_metrics")
    words = ["--device", "sim:h100?load=1:300", "--otlp", f"{collector.url}/v1/metrics", "--duration", "1"]
    done("monitor", *words, "-o", str(tmp_path / "run"))
    sent = points(collector.sent[-1][1])
    text = Path(semconv.__file__).read_text()
    stated = {
        name: (unit, instrument)
        for name, instrument, unit in re.findall(
            r'^HW_\w+: Final = "([\w.]+)"\n""".*?Instrument: (\w+)\nUnit: (\S+)$', text, re.MULTILINE | re.DOTALL
        )
    }
    assert len(sent) >= 5
    assert {name: (unit, kind) for name, (unit, kind, _) in sent.items()} == {name: stated[name] for name in sent}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["otlp", str(RUN), "127.0.0.1:4318"], 2, "write the URL of a collector"),
        (["otlp", str(RUN), "http://[::1"], 2, "'http://[::1': write the URL of a collector"),
        (["otlp", str(RUN), "http://me:SECRET@h:port/?token=SECRET"], 2, "'http://***@h:port/?***': write the URL"),
        (["otlp", str(REPOSITORY / "src/jouletrace/bundled/deit-b-64-graph-h100.zip"), "URL"], 2, "per iteration"),
        (["otlp", str(RUN), "URL"], 3, "did not take"),
    ],
)
def test_what_cannot_be_sent_is_a_line(collector, capsys, words, code, said):
    from jouletrace.cli import main

    collector.code = 400
    assert main.run([collector.url if word == "URL" else word for word in words]) == code
    assert said in capsys.readouterr().err


@pytest.mark.thorough
def test_a_collector_that_is_down_ends_no_monitor(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    words = ["--device", "sim:h100", "--otlp", "http://127.0.0.1:9", "--duration", "1", "-o", str(tmp_path / "run")]
    done("monitor", *words)
    assert jt.Run is type(load(tmp_path / "run"))


@pytest.mark.thorough
def test_a_token_is_sent_and_not_printed(collector, capsys, caplog):
    from jouletrace.cli import main

    with_token = collector.url.replace("//", "//me:PASSWORD@") + "/?token=TOKEN#there"
    assert main.run(["otlp", str(RUN), with_token]) == 0
    assert main.run(["otlp", str(RUN), "http://me:PASSWORD@127.0.0.1:9/?token=TOKEN"]) == 3
    assert [path for path, _ in collector.sent] == ["/v1/metrics?token=TOKEN"]
    printed = capsys.readouterr().err + caplog.text
    assert "http://***@127.0.0.1:9/?*** did not take" in printed
    assert "Failed to export" in printed
    assert "TOKEN" not in printed
    assert "PASSWORD" not in printed


@pytest.mark.thorough
def test_a_redirect_is_not_followed(collector, capsys):
    from jouletrace.cli import main

    collector.code = 307
    assert main.run(["otlp", str(RUN), collector.url]) == 3
    assert len(collector.sent) == 1


@pytest.mark.thorough
def test_a_collector_that_drips_ends(collector, capsys, monkeypatch):
    from jouletrace.cli import main

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    collector.drips = True
    assert main.run(["otlp", str(RUN), collector.url]) == 3
    assert not collector.ended.is_set()


@pytest.mark.thorough
def test_times_without_a_date_are_not_sent(collector, capsys, tmp_path):
    from jouletrace.cli import main

    rows = "".join(f"{second},300\n" for second in range(30))
    (tmp_path / "log.csv").write_text(f"time_s,power_w\n{rows}")
    jt.import_files(tmp_path / "log.csv").save(str(tmp_path / "run"))
    assert main.run(["otlp", str(tmp_path / "run"), collector.url]) == 2
    assert "its times have no date" in capsys.readouterr().err
    assert not collector.sent
