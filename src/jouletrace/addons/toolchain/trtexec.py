"""Driving TensorRT's ``trtexec``: options of the installed version, and the meaning of its failures."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jouletrace.addons.toolchain import programs
from jouletrace.addons.toolchain.programs import Ended, Program
from jouletrace.errors import BadInputError, BrokenOffError, NotPossibleError

TRTEXEC = Program(
    "trtexec",
    ("/usr/src/tensorrt/bin/trtexec", "/opt/tensorrt/bin/trtexec", "/usr/local/tensorrt*/bin/trtexec"),
    "it comes with TensorRT (apt-get install libnvinfer-bin, or the tar file) and NVIDIA's tensorrt containers; "
    "see https://developer.nvidia.com/tensorrt",
)

_HELP_S = 60.0
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
    fp16: bool = False,
    workspace_mib: int | None = None,
    more: Sequence[str] = (),
    limit_s: float = 3600.0,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Build an engine from an ``.onnx`` file; the log is kept in the same folder.

    Args:
        program: trtexec.
        onnx: The model.
        path: File of the engine.
        fp16: Let TensorRT compute in fp16.
        workspace_mib: Memory in MiB that it may use; None for its own choice.
        more: Further options, passed on unchanged.
        limit_s: Seconds after which it is ended.
        say: Called with the command before it runs.

    Returns:
        Facts: "bytes", "command", "log".

    Raises:
        BadInputError: If it fails or writes no engine, with its message.
        NotPossibleError: If it doesn't end in time, or its options can't be read.
    """
    known = options_of(program)
    log = path.with_name(path.name + ".log")
    command = [program, f"--onnx={onnx}", f"--saveEngine={path}", *_verbosity(known), *_without_run(known)]
    if fp16:
        if known and "fp16" not in known:
            raise NotPossibleError(
                f"{program} has no --fp16: this TensorRT takes types from the model; convert that with --dtype fp16"
            )
        command.append("--fp16")
    if workspace_mib is not None:
        command.append(_workspace(known, workspace_mib))
    command += more
    say(f"running: {programs.printed(command)}")
    try:
        ended = programs.run(command, log, limit_s)
    except BaseException:
        path.unlink(missing_ok=True)  # a partial engine file looks like a complete one
        raise
    if ended.code or not path.exists() or path.stat().st_size == 0:
        path.unlink(missing_ok=True)
        raise BadInputError(f"trtexec {_outcome(ended, 'engine')} (its log: {log})")
    return {"bytes": path.stat().st_size, "command": programs.printed(command), "log": str(log)}


def options_of(program: str) -> set[str]:
    """The names of the options of this version; empty if it doesn't list them.

    Raises:
        NotPossibleError: If it can't be started, or hangs.
    """
    try:
        said = subprocess.run(
            [program, "--help"], capture_output=True, text=True, errors="replace", timeout=_HELP_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotPossibleError(f"{program} --help: {error}") from None
    return set(re.findall(r"^\s*--(\w+)", said.stdout + said.stderr, re.M))


def timing(
    program: str,
    known: set[str],
    model: Path,
    folder: Path,
    *,
    batch: int | None = None,
    cuda_graph: bool = False,
    seconds: float = 3.0,
) -> list[str]:
    """The command that times an engine (or an ``.onnx`` file, which it builds first).

    Args:
        program: trtexec.
        known: Result of ``options_of``.
        model: The engine, or the ``.onnx`` file.
        folder: Folder of its files: "times.json", and "profile.json" with the time of each layer.
        batch: Batch of a network with an implicit batch dimension; others have a fixed one.
        cuda_graph: Launch it as a CUDA graph.
        seconds: Duration of the run.
    """
    what = "onnx" if model.suffix.lower() == ".onnx" else "loadEngine"
    command = [program, f"--{what}={model}", f"--duration={seconds:g}", f"--exportTimes={folder / 'times.json'}"]
    if "percentile" in known:
        command.append("--percentile=90,95,99" if "separateProfileRun" in known else "--percentile=99")
    if "separateProfileRun" in known:  # otherwise the profile would slow down the timed run
        command += ["--separateProfileRun", "--dumpProfile", f"--exportProfile={folder / 'profile.json'}"]
    if batch is not None:
        command.append(f"--batch={batch}")
    if cuda_graph:
        command.append("--useCudaGraph")
    return command


def check(ended: Ended, model: Path) -> None:
    """Raise an error if the timing failed.

    Raises:
        BadInputError: If the engine belongs to another version or GPU, with trtexec's message.
        BrokenOffError: If it failed otherwise, or printed no figure.
    """
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


def _verbosity(known: set[str]) -> list[str]:
    """Option for names of layers in the engine, which replaced ``--nvtxMode`` in newer versions."""
    if known and "profilingVerbosity" not in known:
        return ["--nvtxMode=verbose"]
    return ["--profilingVerbosity=detailed"]


def _without_run(known: set[str]) -> list[str]:
    """Option to build only; older versions also time the engine, which does no harm."""
    return next(([f"--{name}"] for name in ("skipInference", "buildOnly") if name in known), [])


def _workspace(known: set[str], mib: int) -> str:
    if known and "memPoolSize" not in known:
        return f"--workspace={mib}"
    return f"--memPoolSize=workspace:{mib}"
