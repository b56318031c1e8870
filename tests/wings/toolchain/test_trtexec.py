"""trtexec driven through stand-ins that know what its versions know, and print what they printed."""

import pytest

import jouletrace as jt
from commands import command, only_run
from import_logs import TRTEXEC_LOG, TRTEXEC_PROFILE
from jouletrace.errors import BadInputError
from jouletrace.profiler import ProfileSettings
from jouletrace.run import load
from stand_ins import called, install, limit_once_it_hangs

OLD = (
    "  --onnx=<file>\n  --saveEngine=<file>\n  --batch=N\n  --fp16\n  --workspace=N\n  --nvtxMode=mode\n  --buildOnly\n"
)
NEW = """  --onnx=<file>
  --saveEngine=<file>
  --fp16
  --memPoolSize=poolspec
  --profilingVerbosity=mode
  --skipInference
  --percentile=P1,P2
  --separateProfileRun
"""
BODY = """
if "--help" in arguments:
    print(HELP)
    sys.exit(0)
(here / "trtexec.called").write_text("\\n".join(arguments))
if option("--saveEngine"):
    pathlib.Path(option("--saveEngine")).write_bytes(b"engine")
if option("--exportTimes"):
    pathlib.Path(option("--exportTimes")).write_text((here / "times.json").read_text())
if option("--exportProfile"):
    pathlib.Path(option("--exportProfile")).write_text((here / "profile.json").read_text())
print((here / "log").read_text())
"""
OTHER_VERSION = (
    "[11/20/2026-10:00:00] [E] Error[1]: [stdArchiveReader.cpp::StdArchiveReader::40] Error Code 1: Serialization "
    "(Serialization assertion stdVersionRead == serializationVersion failed.Version tag does not match. "
    "Note: Current Version: 213, Serialized Engine Version: 205)"
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.engine").write_bytes(b"engine")
    (tmp_path / "model.onnx").write_bytes(b"onnx")


def stand_in(tmp_path, monkeypatch, body=BODY, knows=NEW):
    bin = install(tmp_path, monkeypatch, "trtexec", body.replace("HELP", repr(knows)))
    (bin / "log").write_text(TRTEXEC_LOG)
    (bin / "times.json").write_text("[]")
    (bin / "profile.json").write_text(TRTEXEC_PROFILE)
    return bin


@pytest.mark.thorough
def test_an_engine_is_timed_with_every_latency_that_trtexec_states(tmp_path, monkeypatch, capsys):
    bin = stand_in(tmp_path, monkeypatch)
    said = command(capsys, "profile", "model.engine", "--backend", "trtexec", "-d", "cpu", "--mode", "graph")
    assert said.code == 0, said.err
    run = load(str(only_run(tmp_path)))
    stated = {"latency_s": 0.0425, "latency_min_s": 0.041, "latency_p90_s": 0.043, "gpu_compute_time_mean_s": 0.032}
    stated |= {"queries_per_s": 31.25, "host_walltime_s": 3.125, "gpu_compute_time_total_s": 3.0}
    assert {name: run.result(name).value for name in stated} == pytest.approx(stated)
    assert "Conv_0 + Relu_1" in run.units["name"].to_pylist()
    asked = called(bin, "trtexec")
    assert asked[0] == "--loadEngine=model.engine"
    assert {"--useCudaGraph", "--separateProfileRun", "--percentile=90,95,99"} <= set(asked)
    assert "--useCudaGraph" in run.settings["commands"][0]
    assert (only_run(tmp_path) / "times.json").exists()


@pytest.mark.thorough
def test_the_time_of_a_query_is_that_of_the_throughput_since_queries_overlap(tmp_path, monkeypatch, capsys):
    stand_in(tmp_path, monkeypatch)
    command(capsys, "profile", "model.engine", "--backend", "trtexec", "-d", "cpu")
    assert load(str(only_run(tmp_path))).settings["latency_s"] == pytest.approx(1 / 31.25)


@pytest.mark.thorough
def test_an_older_version_is_given_the_options_that_it_knows(tmp_path, monkeypatch, capsys):
    bin = stand_in(tmp_path, monkeypatch, knows=OLD)
    said = command(capsys, "profile", "model.engine", "--backend", "trtexec", "-d", "cpu", "--batch", "4")
    assert said.code == 0, said.err
    assert "--batch=4" in called(bin, "trtexec")
    assert not [one for one in called(bin, "trtexec") if "separateProfileRun" in one or "percentile" in one]


def test_a_batch_that_this_version_has_built_in_is_refused(tmp_path, monkeypatch, capsys):
    stand_in(tmp_path, monkeypatch)
    said = command(capsys, "profile", "model.engine", "--backend", "trtexec", "-d", "cpu", "--batch", "4")
    assert said.code == 2
    assert "--batch 4: this TensorRT fixes it in engines" in said.complaint


@pytest.mark.parametrize(
    ("knows", "wanted"),
    [
        (NEW, {"--profilingVerbosity=detailed", "--memPoolSize=workspace:30000", "--skipInference"}),
        (OLD, {"--nvtxMode=verbose", "--workspace=30000", "--buildOnly"}),
    ],
)
def test_an_engine_is_built_with_the_options_of_the_installed_version(tmp_path, monkeypatch, capsys, knows, wanted):
    bin = stand_in(tmp_path, monkeypatch, knows=knows)
    said = command(
        capsys, "convert", "model.onnx", "--to", "tensorrt", "--dtype", "fp16", "--workspace", "30000", "-o",
        "new.engine", "--", "--sparsity=enable", "--best",
    )  # fmt: skip
    assert said.code == 0, said.err
    asked = called(bin, "trtexec")
    assert {"--onnx=model.onnx", "--saveEngine=new.engine", "--fp16", *wanted} <= set(asked)
    assert asked[-2:] == ["--sparsity=enable", "--best"]
    assert (tmp_path / "new.engine").read_bytes() == b"engine"
    assert f"running: {bin / 'trtexec'} --onnx=model.onnx" in said.err


@pytest.mark.thorough
@pytest.mark.usefixtures("torchlib_once")
def test_a_workload_goes_to_an_engine_by_way_of_onnx(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    keeps = BODY + "\n(here / 'size').write_text(str(pathlib.Path(option('--onnx')).stat().st_size))\n"
    bin = stand_in(tmp_path, monkeypatch, keeps)
    (tmp_path / "toy.py").write_text(
        "import torch\ndef toy(batch=2):\n    return torch.nn.Linear(4, 4), torch.randn(batch, 4)\n"
    )
    said = command(capsys, "convert", "toy.py:toy", "--to", "tensorrt", "--batch", "3")
    assert said.code == 0, said.err
    assert int((bin / "size").read_text()) > 100
    assert "input 3x4" in said.out
    assert (tmp_path / "toy.engine").exists()
    assert not list(tmp_path.glob(".toy*"))


@pytest.mark.thorough
def test_an_engine_of_another_version_is_distinguished_from_other_failures(tmp_path, monkeypatch, capsys):
    bin = stand_in(tmp_path, monkeypatch, BODY + "\nsys.exit(1)")
    (bin / "log").write_text(OTHER_VERSION)
    said = command(capsys, "profile", "model.engine", "--backend", "trtexec", "-d", "cpu")
    assert said.code == 2
    assert "model.engine was built by another TensorRT or for another GPU" in said.err
    assert "Serialized Engine Version: 205" in said.err
    (bin / "log").write_text("[11/20/2026-10:00:00] [E] CUDA initialization failure with error: 35")
    said = command(capsys, "profile", "model.engine", "--backend", "trtexec", "-d", "cpu")
    assert said.code == 2
    assert "trtexec ended with exit code 1: CUDA initialization failure with error: 35" in said.err


@pytest.mark.thorough
def test_a_trtexec_that_prints_or_writes_nothing_is_reported(tmp_path, monkeypatch, capsys):
    stand_in(tmp_path, monkeypatch, "sys.exit(0)")
    said = command(capsys, "profile", "model.engine", "--backend", "trtexec", "-d", "cpu")
    assert said.code == 2
    assert "trtexec gave no figure" in said.err
    said = command(capsys, "convert", "model.onnx", "--to", "tensorrt", "-o", "new.engine")
    assert said.code == 2
    assert "trtexec gave no engine" in said.err
    assert not (tmp_path / "new.engine").exists()


def test_a_trtexec_that_fails_to_build_leaves_no_half_an_engine(tmp_path, monkeypatch, capsys):
    stand_in(tmp_path, monkeypatch, BODY + "\nprint('[11/20/2026-10:00:00] [E] out of memory')\nsys.exit(1)")
    said = command(capsys, "convert", "model.onnx", "--to", "tensorrt", "-o", "new.engine")
    assert said.code == 2
    assert "exit code 1: out of memory" in said.err
    assert not (tmp_path / "new.engine").exists()
    assert (tmp_path / "new.engine.log").exists()


@pytest.mark.thorough
def test_a_trtexec_that_hangs_is_ended(tmp_path, monkeypatch, capsys):
    hangs = "\nif '--help' in arguments:\n    sys.exit(0)\nprint('building', flush=True)\nhang()"
    stand_in(tmp_path, monkeypatch, hangs)
    limit_once_it_hangs(monkeypatch, tmp_path)
    said = command(capsys, "convert", "model.onnx", "--to", "tensorrt", "-o", "new.engine", "--time-limit", "0.5")
    assert said.code == 3
    assert "did not end within 0.5 s" in said.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.engine"], "no such file"),
        (["deit-t"], "takes a file"),
        (["model.engine", "--mode", "compile"], "--mode compile"),
        (["model.engine", "--threads", "2"], "--threads with --backend trtexec"),
        (["model.engine", "--streams", "2"], "--streams with --backend trtexec"),
        (["model.engine", "--hint", "latency"], "--hint latency with --backend trtexec"),
    ],
)
def test_what_trtexec_cannot_time_is_refused(tmp_path, monkeypatch, capsys, arguments, says):
    stand_in(tmp_path, monkeypatch)
    said = command(capsys, "profile", *arguments, "--backend", "trtexec", "-d", "cpu")
    assert said.code == 2
    assert says in said.complaint


def test_without_trtexec_it_is_reported_how_to_get_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for arguments in (
        ["profile", "model.engine", "--backend", "trtexec"],
        ["convert", "model.onnx", "--to", "tensorrt"],
    ):
        said = command(capsys, *arguments)
        assert said.code == 3
        assert "trtexec is not installed here" in said.complaint
        assert "libnvinfer-bin" in said.complaint


@pytest.mark.parametrize("call", [jt.ab, lambda a, b, **options: jt.profile(a, **options)], ids=["ab", "profile"])
def test_what_only_times_engines_is_no_backend_of_workloads(call):
    with pytest.raises(BadInputError, match="--backend trtexec times engines"):
        call("deit-t", "deit-t", device="sim:h100", backend="trtexec")


def test_only_torch_flushes_a_cache():
    with pytest.raises(BadInputError, match="--l2 cold with --backend trtexec"):
        ProfileSettings(l2="cold", backend="trtexec")
