"""``jt.profile`` and what surrounds it: models as they exist in Python."""

import subprocess
import sys

import pytest

import jouletrace as jt
from jouletrace.analysis.latency import distribution
from jouletrace.devices import one_or_several
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler import ProfileSettings, prepare
from jouletrace.profiler.backends import torch as torch_backend
from jouletrace.recording.environment import environment, versions
from jouletrace.run import DeviceInfo

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("short_passes")

QUICK = {"warmup_s": 0.3, "latency_s": 0.2, "device": "cpu"}


def model():
    torch.manual_seed(0)
    return torch.nn.Linear(64, 8), torch.randn(16, 64)


@pytest.mark.thorough
def test_a_model_and_its_inputs():
    net, inputs = model()
    run = jt.profile(net, (inputs,), **QUICK)
    assert run.workload["name"] == "Linear"
    assert run.workload["items"] == 16
    assert run.workload["weights"] == "as given"
    assert run.command == "jouletrace.profile(Linear)"
    assert run.result("throughput_per_s").value == pytest.approx(16e3 / distribution(run)["mean"])
    assert run.complete


@pytest.mark.thorough
def test_inputs_may_be_one_argument_or_named():
    net, inputs = model()
    assert jt.profile(net, inputs, name="one", **QUICK).workload["name"] == "one"
    assert jt.profile(net, {"input": inputs}, **QUICK).workload["items"] == 16


@pytest.mark.thorough
def test_any_callable_will_do():
    calls = []
    run = jt.profile(lambda: calls.append(1), **QUICK)
    assert len(calls) > 30
    assert run.result("latency_s").value > 0


@pytest.mark.thorough
def test_it_is_saved_where_wanted(tmp_path):
    net, inputs = model()
    run = jt.profile(net, inputs, save_to=tmp_path / "run", **QUICK)
    assert jt.load(tmp_path / "run").results.equals(run.results)
    packed = jt.profile(net, inputs, save_to=tmp_path / "run.zip", **QUICK)
    assert jt.load(tmp_path / "run.zip").results.equals(packed.results)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.zip"]
    assert jt.load(run.save(str(tmp_path / "again"))).results.equals(run.results)


def test_a_taken_place_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    with pytest.raises(BadInputError, match=r"exists; .*, or remove it, .* run\.save\(place, overwrite=True\)$"):
        jt.profile(lambda: pytest.fail("it ran"), save_to=tmp_path / "run", **QUICK)
    assert (tmp_path / "run" / "mine.txt").read_text() == "precious"


def test_a_named_workload_brings_its_own_inputs():
    for wrong in ({"inputs": (1,)}, {"inputs": [1]}, {"name": "x"}):
        with pytest.raises(BadInputError, match="has its own inputs"):
            jt.profile("deit-tiny", **wrong)


@pytest.mark.parametrize(("target", "said"), [(3, "a model or callable is required"), ("deti-tiny", "did you mean")])
def test_what_is_no_model_is_refused(target, said):
    with pytest.raises(BadInputError, match=said):
        jt.profile(target, **QUICK)


@pytest.mark.thorough
def test_inputs_that_do_not_fit_are_bad_input():
    net, _ = model()
    with pytest.raises(BadInputError, match="shapes cannot be multiplied"):
        jt.profile(net, torch.randn(3, 5), **QUICK)


@pytest.mark.thorough
def test_options_go_by_the_names_of_the_command_line_too():
    net, inputs = model()
    run = jt.profile(net, inputs, device="cpu", warmup=0.2, latency_s=0.1, max_time=2)
    assert (run.settings["warmup_s"], run.settings["max_time_s"]) == (0.2, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_tim": 3}, "no option 'max_tim'; did you mean 'max_time_s'"),
        ({"warmup": 1, "warmup_s": 1}, "got warmup_s twice"),
        ({"nothing_like_it": 1}, "no option 'nothing_like_it'$"),
    ],
)
def test_an_option_that_is_not_there_is_refused(options, said):
    with pytest.raises(BadInputError, match=said):
        jt.profile(lambda: None, device="cpu", **options)


@pytest.mark.thorough
def test_on_a_simulated_gpu_the_figures_say_so():
    net, _ = model()
    run = jt.profile(net.half(), torch.randn(4096, 64).half(), device="sim:h100", warmup_s=2.6, latency_s=0.2)
    assert run.simulated
    assert run.result("energy_total_j").value > 0


@pytest.mark.thorough
def test_profile_works_inside_a_running_event_loop():
    """As in a notebook."""
    import asyncio

    async def cell():
        return jt.profile(lambda: None, **QUICK)

    assert asyncio.run(cell()).complete


def test_importing_has_no_cost():
    code = "import sys, jouletrace; print([m for m in ('torch', 'numpy', 'pyarrow', 'scipy') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_only_public_names_are_listed():
    assert set(dir(jt)) == {*jt.__all__, "range", "__version__"}
    assert not hasattr(jt, "sys")
    assert not hasattr(jt, "import_module")


def test_every_public_name_is_there():
    assert {"profile", "measure", "load", "Run", "Estimate"} <= set(dir(jt))
    for name in jt.__all__:
        assert getattr(jt, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        jt.nothing  # noqa: B018


def test_a_gpu_that_cuda_does_not_show_is_not_possible(monkeypatch):
    from types import SimpleNamespace

    monkeypatch.setattr(torch_backend, "cuda_index", lambda uuid: None)
    board = SimpleNamespace(info=DeviceInfo("GPU-1", "H100"))
    with pytest.raises(NotPossibleError, match="CUDA_VISIBLE_DEVICES"):
        torch_backend.torch_device_of(board)
    monkeypatch.setattr(torch_backend, "cuda_index", lambda uuid: 3)
    assert torch_backend.torch_device_of(board) == "cuda:3"
    assert torch_backend.torch_device_of(SimpleNamespace(info=DeviceInfo("cpu", "CPU", "cpu"))) == "cpu"


def test_a_gpu_takes_every_mode():
    from types import SimpleNamespace

    board = SimpleNamespace(info=DeviceInfo("GPU-1", "H100"), spec="cuda:0")
    prepare.check(board, ProfileSettings(mode="compile", l2="cold", dtype="tf32"))


def test_versions_and_variables_that_matter_are_kept(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    assert environment()["OMP_NUM_THREADS"] == "3"
    assert "SECRET_TOKEN" not in environment()
    assert versions()["torch"] == torch.__version__.partition("+")[0] or torch.__version__ in versions()["torch"]


def test_devices_and_data_types_of_torch_are_taken_by_their_names():
    settings = ProfileSettings(device=torch.device("cuda", 1), dtype=torch.float16)
    assert (settings.device, settings.dtype) == ("cuda:1", "fp16")
    assert one_or_several("record", [torch.device("cpu"), "cuda:0"]) == ["cpu", "cuda:0"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": 0}, "device=0: must be a name, such as"),
        ({"device": None}, "device=None: must be a name, such as"),
        ({"dtype": torch.int8}, "--dtype int8: must be one of fp32"),
    ],
)
def test_what_names_no_device_or_data_type_is_refused_in_one_line(options, said):
    with pytest.raises(BadInputError, match=f"^{said}") as caught:
        jt.profile(torch.nn.Linear(2, 2), torch.zeros(1, 2), **options)
    assert not [line for line in caught.value._render_traceback_() if "<string>" in line]
