"""``monitor --pods`` beside a kubelet on a real socket: its page for Prometheus, its lines, its Run."""

import os
import socket
import sys
import time
from _thread import interrupt_main
from threading import Thread
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import jouletrace as jt
from commands import PATIENCE_S, command, start
from kubelet_stub import kubelet

GPU, OTHER = "SIM-h100-80-0", "SIM-h100-80-1"
A, B, ODD = ("default", "train-0", "main"), ("team", "serve", "web"), ("team", 'a"b\\c\nd', "main")
HELD = "jouletrace_pod_energy_joules_total"

pytestmark = pytest.mark.thorough


def labels(*pods):
    """Labels of those that hold a GPU."""
    return {name: ",".join(pod[k] for pod in pods) for k, name in enumerate(("namespace", "pod", "container"))}


class Page:
    """The monitor's page for Prometheus."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/metrics"

    def values(self, metric, uuid=GPU):
        """Labels of pods, and the value, of each series of a GPU."""
        with urlopen(self.url, timeout=10) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        series = [one for family in families for one in family.samples if one.name == metric]
        return [
            ({name: one.labels.get(name) for name in ("namespace", "pod", "container")}, one.value)
            for one in series
            if one.labels["uuid"] == uuid
        ]

    def joules(self, *pods, uuid=GPU):
        """Of the counter of pods; None if there is none."""
        return next((joules for held, joules in self.values(HELD, uuid) if held == labels(*pods)), None)

    def wait_for(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except OSError:  # it doesn't serve yet
                pass
            assert time.monotonic() < end, "it never came"
            time.sleep(0.1)


@pytest.fixture
def watching(tmp_path, monkeypatch, workspace, capsys):
    """Monitors simulated GPUs of 300 W until a script has ended, which steers the kubelet from a thread.

    Returns what is printed and the Run; what fails in the script fails the test.
    """
    monkeypatch.setattr("jouletrace.wings.pods.watch.EVERY_S", 0.3)

    def run(script, pods, devices=1):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        specs = [word for k in range(devices) for word in ("-d", f"sim:h100?realtime=1&seed={k}&load=1:300")]
        failed = []

        def steer():
            try:
                script(stub, Page(port))
            except BaseException as error:
                failed.append(error)
            interrupt_main()  # as Ctrl-C, which ends a monitor

        with kubelet(tmp_path / "kubelet.sock", pods) as stub:
            thread = Thread(target=steer)
            thread.start()
            words = ["--serve", str(port), "--pods", str(stub.socket), "--interval", "0.2", "-f", "csv"]
            said = command(capsys, "monitor", *specs, *words, "-o", "run")
            thread.join()
        if failed:
            raise failed[0]
        assert said.code == 0, said.err
        return said, jt.load("run")

    return run


def rows(run):
    return {row["name"]: row["id"] for row in run.units.to_pylist() if row["level"] == "range"}


def test_pods_come_and_go_with_counters_of_their_own(watching):
    held_s = {}

    def script(stub, page):
        page.wait_for(lambda: (page.joules(A) or 0) > 300)
        assert page.values("jouletrace_power_watts")[0][0] == labels(A)
        assert page.values("jouletrace_energy_joules_total")[0][0] == {
            "namespace": None,
            "pod": None,
            "container": None,
        }
        stub.pods = {ODD: [GPU]}
        changed = time.time()
        page.wait_for(lambda: (page.joules(ODD) or 0) > 300)
        of_a, whole = page.joules(A), sum(joules for _, joules in page.values(HELD))
        assert page.joules(ODD) < 300 * (time.time() - changed + 1)  # nothing of what was before it
        stub.pods = {}
        held_s["odd"] = time.time() - changed
        page.wait_for(lambda: page.values("jouletrace_power_watts")[0][0] == labels())
        page.wait_for(lambda: sum(joules for _, joules in page.values(HELD)) > whole + 300)
        assert page.joules(A) == of_a

    said, run = watching(script, {A: [GPU]})
    each = rows(run)
    assert set(each) == {"default/train-0/main", "/".join(ODD), "no pod known"}
    odd = run.result("energy_total_j", each["/".join(ODD)])
    watts = run.result("power_w", 1).value
    assert odd.low <= watts * held_s["odd"] <= odd.high
    shown = [line for line in said.err.splitlines() if 'a"b' in line]
    assert any('a"b\\c\\nd' in line for line in shown), "a name's newline is escaped"


def test_two_pods_on_one_gpu_are_named_together(watching):
    def script(stub, page):
        page.wait_for(lambda: (page.joules(A) or 0) > 100)
        stub.pods[B] = [f"{GPU}::1", "nic-7"]
        page.wait_for(lambda: (page.joules(A, B) or 0) > 300)
        assert page.joules(B) is None
        assert page.values("jouletrace_power_watts")[0][0] == labels(A, B)
        del stub.pods[A]
        page.wait_for(lambda: (page.joules(B) or 0) > 100)

    said, run = watching(script, {A: [f"{GPU}::0"]})
    assert {"default/train-0/main + team/serve/web", "team/serve/web"} <= set(rows(run))
    assert "nic-7" not in said.err


def test_a_kubelet_that_ends_and_returns_costs_two_lines_and_no_energy(watching):
    def script(stub, page):
        page.wait_for(lambda: (page.joules(A) or 0) > 100)
        stub.stop()
        page.wait_for(lambda: page.values("jouletrace_power_watts")[0][0] == labels())
        before, whole = page.joules(A), page.values("jouletrace_energy_joules_total")[0][1]
        page.wait_for(lambda: page.values("jouletrace_energy_joules_total")[0][1] > whole + 600)
        assert page.joules(A) == pytest.approx(before, abs=100), "what isn't known isn't counted yet"
        stub.start()
        page.wait_for(lambda: page.joules(A) > before + 600)

    said, run = watching(script, {A: [GPU]})
    lines = [line for line in said.err.splitlines() if "--pods" in line]
    assert len(lines) == 2
    assert "there is no socket" in lines[0]
    assert lines[1] == "--pods: the kubelet answers"
    assert [warning.code for warning in run.warnings if warning.code.startswith("pods")] == ["pods_unknown"]
    (name,) = set(rows(run)) - {"no pod known"}
    assert run.result("energy_total_j", rows(run)[name]).low > 0.8 * run.result("energy_total_j", 1).value


def test_several_gpus_of_a_pod_are_added_up_and_others_are_named(watching):
    def script(stub, page):
        page.wait_for(lambda: (page.joules(A, uuid=OTHER) or 0) > 100)
        stub.pods["ns", "dynamic", "main"] = "gpus"
        page.wait_for(lambda: page.joules(A, uuid=GPU) > 900)

    said, run = watching(script, {A: [GPU, OTHER, "GPU-404"]}, devices=2)
    (name,) = (name for name in rows(run) if name.startswith("default"))
    pod, devices = (run.result("energy_total_j", unit).value for unit in (rows(run)[name], 0))
    assert pod == pytest.approx(devices, rel=0.2)
    for held in ("default/train-0/main holds GPU-404", "ns/dynamic/main holds claim ns/gpus"):
        assert said.err.count(f"--pods: {held}, which names no recorded GPU") == 1
    assert [warning.code for warning in run.warnings if warning.code.startswith("pods")] == ["pods_elsewhere"] * 2


@pytest.mark.parametrize("words", [("--pods", "--duration", "1"), ("--duration", "1", "--pods")])
def test_without_a_kubelet_the_usual_socket_is_named_and_recording_goes_on(words, capsys, workspace):
    said = command(capsys, "monitor", "-d", "sim:h100?realtime=1", *words, "-f", "json")
    assert said.code == 0
    (line,) = (line for line in said.err.splitlines() if "--pods" in line)
    assert line.startswith("--pods: there is no socket /var/lib/kubelet/pod-resources/kubelet.sock: is this a node")


def test_options_of_the_program_are_its_own(capsys, workspace):
    program = ["--", sys.executable, "-c", "import sys; assert sys.argv[1:] == ['--pods']", "--pods"]
    assert command(capsys, "monitor", "-d", "sim:h100?realtime=1", "--pods", "nowhere", *program).code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any socket")
def test_a_socket_that_may_not_be_read_is_named(tmp_path, capsys, workspace):
    with kubelet(tmp_path / "kubelet.sock") as stub:
        stub.socket.chmod(0)
        said = command(capsys, "monitor", "-d", "sim:h100?realtime=1", "--pods", str(stub.socket), "--duration", "1")
    assert "kubelet.sock may not be read: run as root" in said.err


def test_what_answers_and_is_no_kubelet_is_one_line(tmp_path, capsys, workspace):
    place = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place))
        other.listen()
        other.close()
    said = command(
        capsys, "monitor", "-d", "sim:h100?realtime=1", "--pods", str(place), "--duration", "1", "-f", "json"
    )
    (line,) = (line for line in said.err.splitlines() if "--pods" in line)
    assert f"no answer from {place}" in line


def test_without_grpc_its_extra_is_named(monkeypatch, capsys, workspace):
    monkeypatch.setitem(sys.modules, "grpc", None)
    said = command(capsys, "monitor", "-d", "sim:h100?realtime=1", "--pods", "--duration", "1")
    assert said.complaint == "jouletrace: --pods needs gRPC: pip install 'jouletrace[pods]'"
    assert not (workspace / "runs").exists()


def test_a_kubelet_that_hangs_holds_nothing_up(tmp_path, workspace):
    place = tmp_path / "hanging.sock"
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(place))
        hanging.listen()
        process = start("monitor", "-d", "sim:h100", "--pods", str(place), "-f", "csv", cwd=workspace)
        for _ in range(3):  # the heading, and two lines of readings
            process.stdout.readline()
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert f"--pods: no answer from {place}" in err
