"""``profile --backend trtexec``: a TensorRT engine timed by trtexec, with the power measured meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from jouletrace.addons.toolchain import trtexec
from jouletrace.addons.toolchain.recording import Recording
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Run
from jouletrace.run.forms import WorkloadFacts

SUFFIXES = (".engine", ".plan", ".trt", ".onnx")

_SECONDS = 5.0
LIMIT_S = 600.0


def profile_engine(
    model: str,
    settings: ProfileSettings,
    folder: Path,
    *,
    typed: str = "",
    limit_s: float = LIMIT_S,
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """Time an engine (or an ``.onnx`` file, which trtexec builds first) and record power meanwhile.

    trtexec's own latencies (GPU, host, enqueue, copies) and its throughput are kept as stated. Its
    queries overlap, so a query takes the inverse of the throughput of the GPU's time. That time, multiplied by the
    difference between working and idle power, is the energy of a query.

    Args:
        model: The file.
        settings: Only ``device``, ``batch``, ``mode`` ("graph" for ``--useCudaGraph``) and ``max_time_s`` are used.
        folder: Folder of the Run and trtexec's files.
        typed: For ``Run.command``.
        limit_s: Seconds after which trtexec is ended.
        say: Called with the command before it runs.

    Raises:
        BadInputError: If it isn't such a file, belongs to another version of TensorRT, or trtexec fails.
        NotPossibleError: If trtexec isn't installed, or didn't end in time.
    """
    path = Path(model)
    if path.suffix.lower() not in SUFFIXES:
        raise BadInputError(f"{model}: --backend trtexec takes a file: {', '.join(SUFFIXES)}")
    if not path.is_file() or path.stat().st_size == 0:
        raise BadInputError(f"{model}: {'the file is empty' if path.is_file() else 'no such file'}")
    if settings.mode == "compile":
        raise BadInputError("--mode compile with --backend trtexec: eager, or graph for --useCudaGraph")
    for option, given in (
        ("--threads", settings.threads is not None),
        ("--streams", settings.streams > 1),
    ):
        if given:
            raise BadInputError(f"{option} with --backend trtexec: it applies to other runtimes")
    program = trtexec.TRTEXEC.find()
    known = trtexec.options_of(program)
    if settings.batch is not None and known and "batch" not in known:
        raise BadInputError(f"--batch {settings.batch}: this TensorRT fixes it in engines; convert with --batch")
    with closing(open_device(settings.device)) as device:
        if device.clock.virtual:
            raise BadInputError(f"{device.spec}: trtexec runs on a real device")
        command = trtexec.timing(
            program,
            known,
            path,
            folder,
            batch=settings.batch,
            cuda_graph=settings.mode == "graph",
            seconds=settings.max_time_s or _SECONDS,
        )
        workload: WorkloadFacts = {"name": model, "task": "infer", "backend": "trtexec", "mode": settings.mode}
        recording = Recording(
            device,
            folder,
            typed=typed,
            workload=workload,
            settings=settings.to_dict(),
            limit_s=limit_s,
            say=say,
        )
        with recording:
            recording.idle()
            trtexec.check(recording.run(command, "trtexec.log"), path)
            recording.idle()
            files = [folder / "trtexec.log", folder / "profile.json"]
            return recording.finish({file: "trtexec" for file in files if file.exists()}, amend=_time_of_a_query)


def _time_of_a_query(run: Run) -> None:
    throughput = next((r for r in run.results.to_pylist() if r["metric"] == "queries_per_s"), None)
    if throughput is not None and throughput["value"]:
        run.settings["latency_s"] = 1 / throughput["value"]
