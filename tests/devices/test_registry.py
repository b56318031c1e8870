"""From names to devices, with fake drivers."""

import uuid

import pytest

from fake_nvml import LIBRARY_NOT_FOUND, FakeNvml, h100
from jouletrace.devices import cuda_order, list_devices, open_device, open_devices
from jouletrace.devices.cuda_order import cuda_index, cuda_uuids
from jouletrace.devices.nvml import api
from jouletrace.devices.nvml.vendor import no_gpu_reason
from jouletrace.errors import BadInputError, NotPossibleError

ONE = "GPU-11111111-0000-0000-0000-000000000001"
TWO = "GPU-11111111-0000-0000-0000-000000000002"
MIG = "MIG-22222222-0000-0000-0000-000000000003"


class FakeCuda:
    """libcuda's calls; ``GPUs`` are pairs of the GPU's UUID and the device's own."""

    def __init__(self, *boards, init=0, old=False):
        self.boards = boards
        self.init = init
        if not old:
            self.cuDeviceGetUuid_v2 = lambda out, device: self._put(out, self.boards[device.value][1])

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, out):
        out._obj.value = len(self.boards)
        return 0

    def cuDeviceGet(self, out, index):
        out._obj.value = index
        return 0

    def cuDeviceGetUuid(self, out, device):
        return self._put(out, self.boards[device.value][0])

    @staticmethod
    def _put(out, name):
        out._obj.bytes[:] = uuid.UUID(name[4:]).bytes
        return 0


def whole(name):
    return (name, name)


@pytest.fixture
def machine(monkeypatch):
    """Two GPUs in NVML's order ONE, TWO and in CUDA's order TWO, ONE."""
    library = FakeNvml(h100(uuid=ONE), h100(uuid=TWO))
    monkeypatch.setattr(api, "_library", lambda: library)
    monkeypatch.setattr(cuda_order, "_load", lambda: FakeCuda(whole(TWO), whole(ONE)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return library


@pytest.fixture
def no_driver(monkeypatch):
    monkeypatch.setattr(api, "_library", lambda: FakeNvml(init_error=LIBRARY_NOT_FOUND))
    monkeypatch.setattr(cuda_order, "_load", lambda: None)


def test_cudas_order_is_asked_of_cuda():
    cuda = FakeCuda(whole(TWO), whole(ONE))
    assert cuda_uuids(cuda) == [TWO, ONE]
    assert cuda_index(ONE, cuda) == 1
    assert cuda_index(MIG, cuda) is None


def test_a_mig_instance_is_distinguished_from_its_gpu():
    assert cuda_uuids(FakeCuda((ONE, MIG))) == [MIG]
    assert cuda_uuids(FakeCuda((ONE, MIG), old=True)) == [ONE]


def test_no_visible_device_is_not_the_same_as_no_cuda(monkeypatch):
    assert cuda_uuids(FakeCuda(init=100)) == []
    assert cuda_uuids(FakeCuda(init=999)) is None
    monkeypatch.setattr(cuda_order, "_LIBRARY", "libno-such-thing.so.1")
    assert cuda_uuids() is None


def test_cuda_n_is_the_gpu_that_cuda_means(machine):
    assert open_device("cuda:0").info.id == TWO
    assert open_device("cuda:1").info.id == ONE
    assert open_device("cuda").info.id == TWO


def test_auto_is_the_first_gpu_that_cuda_shows(machine):
    assert open_device("auto").info.id == TWO


def test_auto_is_the_cpu_where_cuda_shows_nothing_and_says_why(machine, monkeypatch):
    monkeypatch.setattr(cuda_order, "_load", lambda: FakeCuda(init=100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    device = open_device("auto")
    assert device.info.kind == "cpu"
    assert "CUDA_VISIBLE_DEVICES=''" in device.info.details["no_gpu"]


def test_auto_is_the_cpu_without_a_driver_and_says_why(no_driver):
    device = open_device("auto")
    assert device.info.kind == "cpu"
    assert "driver is not installed" in device.info.details["no_gpu"]


def test_auto_watches_the_first_gpu_where_there_is_no_cuda_to_ask(machine, monkeypatch):
    monkeypatch.setattr(cuda_order, "_load", lambda: None)
    assert open_device("auto").info.id == ONE
    with pytest.raises(NotPossibleError, match=f"(?s)libcuda.*{ONE}"):
        open_device("cuda:0")


def test_the_beginning_of_a_uuid_is_enough_if_no_other_has_it(machine):
    assert open_device(TWO).spec == TWO
    machine.boards[0].uuid = "GPU-99999999-0000-0000-0000-000000000001"
    assert open_device("gpu-9").info.id.startswith("GPU-9")
    machine.boards[0].uuid = ONE
    with pytest.raises(BadInputError, match=f"several: {ONE}.*{TWO}"):
        open_device("GPU-1111")


def test_a_mig_instance_is_opened_by_its_uuid(machine):
    machine.boards[1].migs = [MIG]
    device = open_device("MIG-2222")
    assert (device.info.id, device.info.details["parent"]) == (MIG, TWO)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cuda:7", f"no cuda:7: CUDA shows cuda:0 \\({TWO}\\), cuda:1 \\({ONE}\\)"),
        ("GPU-404", f"no GPU or MIG instance GPU-404; here are {ONE}"),
        ("gpu0", f"unknown device 'gpu0'.*cuda:N.*{ONE}"),
        ("all", "all may mean several"),
        ("", "unknown device ''"),
    ],
)
def test_a_device_that_is_not_there_is_bad_input_that_names_what_is(machine, spec, message):
    with pytest.raises(BadInputError, match=message):
        open_device(spec)
    assert machine.opened == 0


def test_a_gpu_without_a_driver_is_not_possible_and_says_what_is_missing(no_driver):
    for spec in ("cuda:0", "GPU-1"):
        with pytest.raises(NotPossibleError, match=r"driver is not installed.*; --device sim:h100 .*--device cpu"):
            open_device(spec)


def test_all_is_every_gpu_and_visible_is_what_cuda_shows(machine, monkeypatch):
    assert [d.info.id for d in open_devices(["all"])] == [ONE, TWO]
    monkeypatch.setattr(cuda_order, "_load", lambda: FakeCuda(whole(TWO)))
    assert [d.info.id for d in open_devices(["visible"])] == [TWO]


def test_all_and_visible_are_the_cpu_where_there_is_no_gpu(no_driver):
    for spec in ("all", "visible"):
        (device,) = open_devices([spec])
        assert device.info.kind == "cpu"
        assert device.info.details["no_gpu"]


def test_a_device_named_twice_is_opened_once(machine):
    devices = open_devices(["cuda:0", TWO, "cpu"])
    assert [d.info.id for d in devices] == [TWO, "cpu"]
    assert machine.opened == 1


def test_what_was_opened_is_closed_when_a_later_name_is_wrong(machine):
    with pytest.raises(BadInputError):
        open_devices(["cuda:0", "cuda:9"])
    assert machine.opened == 0
    with pytest.raises(BadInputError, match="no device is named"):
        open_devices([])


def test_what_is_here_is_listed_with_slices_after_their_gpu(machine):
    machine.boards[0].migs = [MIG]
    assert [(i.id, i.kind) for i in list_devices()] == [(ONE, "gpu"), (MIG, "mig"), (TWO, "gpu"), ("cpu", "cpu")]
    assert machine.opened == 0
    assert no_gpu_reason() is None


def test_the_reason_for_no_gpu_is_reported(no_driver):
    assert "driver is not installed" in no_gpu_reason()
    assert [i.kind for i in list_devices()] == ["cpu"]
