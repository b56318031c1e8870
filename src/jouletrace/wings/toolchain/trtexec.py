"""TensorRT's ``trtexec``: it builds engines, and times them for ``profile --backend trtexec``, with the power."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, BrokenOffError, NotPossibleError
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Run
from jouletrace.run.forms import WorkloadFacts
from jouletrace.wings.toolchain import tools
from jouletrace.wings.toolchain.tools import Ended, Tool
from jouletrace.wings.toolchain.vendor_run import ToolRecording

TRTEXEC = Tool(
    "trtexec",
    ("/usr/src/tensorrt/bin/trtexec", "/opt/tensorrt/bin/trtexec", "/usr/local/tensorrt*/bin/trtexec"),
    "it comes with TensorRT (apt-get install libnvinfer-bin, or the tar file) and NVIDIA's tensorrt containers; "
    "see https://developer.nvidia.com/tensorrt",
)
SUFFIXES = (".engine", ".plan", ".trt", ".onnx")

_HELP_S = 60.0
_TIMED_S = 5.0
_OTHER_VERSION = re.compile(
    r"[^\n]*(?:not compatible with this version of TensorRT|Version tag does not match|"
    r"Serialized Engine Version[^\n]*does not match|generated on an incompatible device|"
    r"magicTag[^\n]*failed|serialized engine plan[^\n]*incompatible)[^\n]*"
)
_STAMP = re.compile(r"^\[[^\]]*\] \[[A-Z]\] (?:\[TRT\] )?(?:\[E\] )?")
_ERROR = re.compile(r"^\[[^\]]*\] \[E\] (.+)$", re.M)


def build(
    program: str,
    onnx: Path,
    path: Path,
    *,
    fp16: bool,
    workspace_mib: int | None,
    more: Sequence[str],
    limit_s: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Build an engine from an ``.onnx`` file; the log is kept in the same folder.

    ``workspace_mib`` is the memory in MiB that TensorRT may use, None for its own choice; ``more`` are further options,
    passed on unchanged. trtexec is ended after ``limit_s`` seconds. Returns facts: "bytes", "command", "log".

    Raises:
        BadInputError: If it fails or writes no engine, with its message.
        NotPossibleError: If it doesn't end in time, or its options can't be read.
    """
    known = _options_of(program)
    log = path.with_name(path.name + ".log")
    command = [program, f"--onnx={onnx}", f"--saveEngine={path}"]
    older_verbosity = known and "profilingVerbosity" not in known  # either names the layers in the engine
    command.append("--nvtxMode=verbose" if older_verbosity else "--profilingVerbosity=detailed")
    # the oldest versions have neither, and also time the engine, which does no harm
    command += next(([f"--{name}"] for name in ("skipInference", "buildOnly") if name in known), [])
    if fp16:
        if known and "fp16" not in known:
            raise NotPossibleError(
                f"{program} has no --fp16: this TensorRT takes types from the model; convert that with --dtype fp16"
            )
        command.append("--fp16")
    if workspace_mib is not None:
        older_pool = known and "memPoolSize" not in known
        command.append(f"--workspace={workspace_mib}" if older_pool else f"--memPoolSize=workspace:{workspace_mib}")
    command += more
    printed = shlex.join(command)
    say(f"running: {printed}")
    try:
        ended = tools.run(command, log, limit_s)
    except BaseException:
        path.unlink(missing_ok=True)  # a partial engine file looks like a complete one
        raise
    if ended.code or not path.exists() or path.stat().st_size == 0:
        path.unlink(missing_ok=True)
        raise BadInputError(f"trtexec {_outcome(ended, 'engine')} (its log: {log})")
    return {"bytes": path.stat().st_size, "command": printed, "log": str(log)}


def profile_engine(
    model: str,
    settings: ProfileSettings,
    folder: Path,
    *,
    typed: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """Time an engine (or an ``.onnx`` file, which trtexec builds first) and record power meanwhile.

    trtexec's own latencies (GPU, host, enqueue, copies) and its throughput are kept as stated. Its
    queries overlap, so a query takes the inverse of the throughput of the GPU's time. That time, multiplied by the
    difference between working and idle power, is the energy of a query. Of the settings only ``device``, ``batch``,
    ``mode`` ("graph" for ``--useCudaGraph``) and ``max_time_s`` are used.

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
    for option, given in (("--threads", settings.threads is not None), ("--streams", settings.streams > 1)):
        if given:
            raise BadInputError(f"{option} with --backend trtexec: it applies to other runtimes")
    program = TRTEXEC.find()
    known = _options_of(program)
    if settings.batch is not None and known and "batch" not in known:
        raise BadInputError(f"--batch {settings.batch}: this TensorRT fixes it in engines; convert with --batch")
    with closing(open_device(settings.device)) as device:
        if device.clock.virtual:
            raise BadInputError(f"{device.spec}: trtexec runs on a real device")
        workload: WorkloadFacts = {"name": model, "task": "infer", "backend": "trtexec", "mode": settings.mode}
        recording = ToolRecording(device, folder, typed=typed, workload=workload, settings=settings.to_dict(), say=say)
        with recording:
            recording.idle()
            ended = recording.run(_timing(program, known, path, folder, settings), "trtexec.log")
            _check(ended, path)
            recording.idle()
            files = [folder / "trtexec.log", folder / "profile.json"]
            return recording.finish({file: "trtexec" for file in files if file.exists()}, amend=_time_of_a_query)


def _options_of(program: str) -> set[str]:
    """The names of the options of this version; empty if it doesn't list them."""
    try:
        said = subprocess.run(
            [program, "--help"], capture_output=True, text=True, errors="replace", timeout=_HELP_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotPossibleError(f"{program} --help: {error}") from None
    return set(re.findall(r"^\s*--(\w+)", said.stdout + said.stderr, re.M))


def _timing(program: str, known: set[str], model: Path, folder: Path, settings: ProfileSettings) -> list[str]:
    """The command that times a model into ``times.json``, and each of its layers into ``profile.json``."""
    what = "onnx" if model.suffix.lower() == ".onnx" else "loadEngine"
    seconds = settings.max_time_s or _TIMED_S
    command = [program, f"--{what}={model}", f"--duration={seconds:g}", f"--exportTimes={folder / 'times.json'}"]
    if "percentile" in known:
        command.append("--percentile=90,95,99" if "separateProfileRun" in known else "--percentile=99")
    if "separateProfileRun" in known:  # otherwise the profile would slow down the timed run
        command += ["--separateProfileRun", "--dumpProfile", f"--exportProfile={folder / 'profile.json'}"]
    if settings.batch is not None:  # of a network with an implicit batch dimension; others have a fixed one
        command.append(f"--batch={settings.batch}")
    if settings.mode == "graph":
        command.append("--useCudaGraph")
    return command


def _check(ended: Ended, model: Path) -> None:
    other = _OTHER_VERSION.search(ended.output)
    if other is not None and ended.code:
        said = _STAMP.sub("", other[0].strip())
        raise BadInputError(f"{model} was built by another TensorRT or for another GPU: {said}; build it again here")
    if ended.code or "=== Performance summary ===" not in ended.output:
        raise BrokenOffError(f"trtexec {_outcome(ended, 'figure')}")


def _outcome(ended: Ended, wanted: str) -> str:
    errors = _ERROR.findall(ended.output)
    telling = errors[0] if errors else ended.last_complaint()
    how = f"ended with {ended.how()}" if ended.code else f"gave no {wanted}"
    return f"{how}{f': {telling[:300]}' if telling else ''}"


def _time_of_a_query(run: Run) -> None:
    throughput = next((r for r in run.results.to_pylist() if r["metric"] == "queries_per_s"), None)
    if throughput is not None and throughput["value"]:
        run.settings["latency_s"] = 1 / throughput["value"]
