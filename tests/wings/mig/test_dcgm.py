"""A dcgm-exporter played by a local server: well, partial, slow, down, and lying about units."""

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from commands import PATIENCE_S
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.wings.mig import DcgmExporter

BOARD = "GPU-11111111-2222-3333-4444-555555555555"
INSTANCES = {1: ("MIG-a", 20 << 30), 2: ("MIG-b", 10 << 30)}


def metric(name, value, instance=1, labels=f'gpu="0",UUID="{BOARD}",device="nvidia0",modelName="NVIDIA A100 {{x}}"'):
    part = f',GPU_I_PROFILE="3g.20gb",GPU_I_ID="{instance}"' if instance is not None else ""
    return f"{name}{{{labels}{part}}} {value}"


def page(*lines):
    head = "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.\n# TYPE x gauge\n"
    return head + "\n".join(lines) + "\n"


GOOD = page(
    metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.75),
    metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.25, 2),
    metric("DCGM_FI_PROF_DRAM_ACTIVE", 0.1),
    metric("DCGM_FI_DEV_FB_USED", 3934),
    metric("DCGM_FI_DEV_POWER_USAGE", 250.0),
    metric("DCGM_FI_DEV_POWER_USAGE", 250.0, 2),
)


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path != "/metrics":
                self.send_error(404)
                return
            server.answers.wait(PATIENCE_S)
            body = server.text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) + server.missing))
            self.end_headers()
            with suppress(BrokenPipeError):  # who asked has waited long enough
                self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.text, server.missing, server.answers = GOOD, 0, threading.Event()
    server.answers.set()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def exporter(url, **how):
    return DcgmExporter(url, BOARD, 0, INSTANCES, **how)


def said(found):
    return {(device, one.channel): float(one.value[0]) for device, one in found}


def test_activity_and_memory_go_to_their_instance_and_power_to_none(server):
    found = exporter(server.url)
    found.check()
    assert said(found.poll()) == {
        ("MIG-a", "graphics_active"): 0.75,
        ("MIG-b", "graphics_active"): 0.25,
        ("MIG-a", "memory_active"): 0.1,
        ("MIG-a", "memory_used_bytes"): 3934 * 2**20,
    }
    assert not found.problems


def test_other_gpus_and_instances_are_not_taken_for_ours(server):
    server.text = page(
        metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, labels='gpu="1",UUID="GPU-other"'),
        metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, 9),
        metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, None),
        metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, 1, 'gpu="3"'),
    )
    assert exporter(server.url).poll() == []
    with pytest.raises(NotPossibleError, match="reports no instance of"):
        exporter(server.url).check()


def test_an_exporter_without_uuids_is_recognised_by_the_gpus_number(server):
    server.text = page(metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, 1, 'gpu="0"'))
    assert said(exporter(server.url).poll()) == {("MIG-a", "graphics_active"): 0.5}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 75, "wrong_units"),  # per cent, not a share
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", -0.5, "wrong_units"),
        ("DCGM_FI_DEV_FB_USED", 3934 * 2**20, "wrong_units"),  # bytes, not MiB
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "NaN", "not_a_number"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "N/A", "not_a_number"),
    ],
)
def test_what_cannot_be_is_left_out_and_counted(server, name, value, problem):
    server.text = page(metric(name, value), metric("DCGM_FI_PROF_DRAM_ACTIVE", 0.5))
    found = exporter(server.url)
    assert said(found.poll()) == {("MIG-a", "memory_active"): 0.5}
    assert dict(found.problems) == {problem: 1}


def test_a_share_a_hair_above_1_is_1(server):
    server.text = page(metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1.004))
    assert said(exporter(server.url).poll()) == {("MIG-a", "graphics_active"): 1.0}


def test_an_exporter_that_is_down_is_reported_to_be_and_how_to_start_it():
    found = exporter("http://127.0.0.1:9")
    with pytest.raises(NotPossibleError, match="doesn't answer") as error:
        found.check()
    assert "docs/how-to/mig.md" in str(error.value)
    assert found.poll() == []
    assert dict(found.problems) == {"down": 1}


def test_a_slow_exporter_does_not_hold_up_the_others(server):
    server.answers.clear()
    found = exporter(server.url, timeout_s=0.1)
    assert found.poll() == []
    server.answers.set()
    assert dict(found.problems) == {"slow": 1}


def test_an_answer_that_breaks_off_is_no_answer(server):
    server.missing = 100
    found = exporter(server.url)
    assert found.poll() == []
    assert dict(found.problems) == {"down": 1}


def test_an_address_that_is_none_is_refused():
    for url in ("localhost:9400", "file:///etc/passwd", ""):
        with pytest.raises(BadInputError, match="http://HOST:PORT/metrics"):
            exporter(url)


def test_another_path_than_metrics_may_be_named(server):
    assert exporter(server.url + "/elsewhere").poll() == []
    assert exporter(server.url + "/metrics").poll() != []
