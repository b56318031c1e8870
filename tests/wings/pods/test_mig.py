"""Pods on MIG instances of a GPU that is recorded as a whole."""

import time
from types import SimpleNamespace

from fake_nvml import FakeNvml, h100
from jouletrace.devices import open_devices
from jouletrace.devices.nvml import api
from jouletrace.profiler.monitoring import Reading
from jouletrace.run import Run
from jouletrace.wing import modules
from kubelet_stub import kubelet

GPU = "GPU-11111111-0000-0000-0000-000000000001"
ONE, TWO = (f"MIG-22222222-0000-0000-0000-00000000000{k}" for k in (1, 2))


def test_instances_of_pods_are_of_their_gpu(monkeypatch, tmp_path, capsys):
    library = FakeNvml(h100(uuid=GPU))
    library.boards[0].migs = [ONE, TWO]
    monkeypatch.setattr(api, "_library", lambda: library)
    (device,) = open_devices([GPU])
    spans, clock = [], SimpleNamespace(time_ns=time.time_ns)
    session = SimpleNamespace(devices=[device], clock=clock, run=Run(), add_span=lambda *span: spans.append(span))
    pods = {("ns", "a", "main"): {"nvidia.com/mig-1g.10gb": [ONE]}, ("ns", "b", "main"): {"nvidia.com/mig-2g": [TWO]}}
    with kubelet(tmp_path / "kubelet.sock", pods) as stub:
        observer = modules("observers")["pods"].observe(str(stub.socket))
        observer.start(session)
        reading, end = Reading(GPU, "GPU 0", device.info), time.time() + 20  # without a power record
        while reading.labels.get("pod") != "a,b" and time.time() < end:
            time.sleep(0.05)
            observer.show([reading], None)
        observer.finish()
    assert reading.labels == {"namespace": "ns,ns", "pod": "a,b", "container": "main,main"}
    assert list(reading.energies) == []
    assert [(name, id) for _, name, _, _, _, id in spans] == [("ns/a/main + ns/b/main", GPU)]
    assert session.run.warnings == []
    assert capsys.readouterr().err == ""
