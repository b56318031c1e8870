"""The options of ``profile``, with defaults and checks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, cast

from jouletrace.errors import BadInputError
from jouletrace.levels import PROFILE, check, listed
from jouletrace.option import option
from jouletrace.wing import registered

if TYPE_CHECKING:
    from jouletrace.run.forms import Settings  # imports pyarrow, which --help does without

DEVICE_HELP = 'auto, cuda:N, a GPU or MIG UUID, cpu, or sim:NAME for a simulated GPU ("sim:h100").'
AUTO = "auto"
"""Detail of a profile where none is asked for: the phases of a training step or a generation, else the model."""
HINTS = ("latency", "throughput")
"""Performance hints of OpenVINO, which then chooses threads and streams."""
MOST_COUNT = 2**31 - 1
"""Largest batch, sequence length and other count: beyond what any GPU holds, and what sizes in 64 bits take."""
MOST_THREADS = 1024
"""Largest number of threads, and of streams, of a runtime: starting more takes minutes or fails."""

_NUMBERS: dict[str, tuple[type, str]] = {"int": (Integral, "a whole number"), "float": (Real, "a number")}


@dataclass(frozen=True)
class ProfileSettings:
    """Settings of a profile, described by the help of each field; times are in seconds, fractions relative.

    Raises:
        BadInputError: If a value is invalid, or two options exclude each other.
    """

    task: str = option("infer", "Task of an iteration: infer, train or generate.")
    detail: str = option(
        "model",
        f"Level of the breakdown: {listed(PROFILE)}; auto is model for --task infer, else phase.",
    )
    device: str = option("auto", DEVICE_HELP, flags=("--device", "-d"))
    batch: int | None = option(None, "Samples per iteration. [default: the workload's]")
    seq_len: int | None = option(
        None,
        "Tokens per sample; with --task generate, tokens of the prompt. [default: the workload's]",
        flags=("--seq-len", "--prompt-len"),
    )
    max_new_tokens: int | None = option(None, "Exact number of tokens to generate per sample. [default: 64]")
    dtype: str | None = option(
        None,
        "fp32 (IEEE), tf32, fp16, bf16, fp64; amp: fp32, with autocast to fp16 (CPU: bf16). "
        "[default: fp16, on a CPU fp32; your own model as it is]",
    )
    mode: str = option("eager", "Launch mode of an iteration: eager, graph (CUDA graph) or compile.")
    backend: str = option("auto", "Backend: torch, onnxruntime, openvino; trtexec for a TensorRT engine.")
    threads: int | None = option(None, "Threads of a runtime. [default: the runtime's choice]")
    streams: int = option(1, "Iterations that a runtime runs concurrently.")
    hint: str | None = option(
        None, "Hint by which OpenVINO chooses its streams: latency or throughput. [default: as many as --streams]"
    )
    l2: str = option("warm", "L2 cache before each iteration: warm, or cold (flushed).")
    config: dict[str, str] = option(
        dict, "Change the model's configuration; repeatable.", metavar="KEY=VALUE", pairs=True
    )
    optimizer: str = option("adamw", "Optimizer of a training step: adamw or sgd.")
    label_smoothing: float = option(0.0, "Label smoothing of the training loss: at least 0, less than 1.")
    data: str | None = option(
        None, "Train on the images of a folder, one sub-folder per class. [default: random images]", metavar="FOLDER"
    )
    target_ci: float = option(0.01, "Requested half-width of the energy's 95 % interval.", percent=True)
    max_time_s: float | None = option(
        None,
        "Time limit from the warm-up on, beside --detail-time; an iteration is never cut. "
        "[default: none, but 9 for the energy pass; 5 with a recording of kernels; 15 for a slow sensor]",
        metavar="SECONDS",
    )
    detail_time_s: float = option(
        20.0,
        "Length of the recording for a finer detail than model; simulated time on sim: GPUs.",
        metavar="SECONDS",
    )
    warmup_s: float = option(5.0, "Time limit of the warm-up.", metavar="SECONDS")
    block: int = option(100, "Iterations per block for block means (as torch.utils.benchmark reports).")
    random: bool = option(False, "Random weights for hf: and local folders, which then need only a configuration.")
    seed: int = option(0, "Seed of weights and inputs.")
    input_sets: int = option(1, "Distinct random inputs to rotate among.")
    window_s: float | None = option(None, "Least length of an energy window. [default: by the sensor]", shown=False)
    first_stage: int = option(8, "Windows of the first stage, which determines the total number.", shown=False)
    idle_s: float = option(0.7, "Length of each idle phase.", metavar="SECONDS", shown=False)
    latency_iterations: int = option(2000, "Largest number of iterations of the latency pass.", shown=False)
    latency_s: float = option(
        1.0,
        "Time limit of the latency pass; a p99 needs about 400 iterations.",
        flags=("--timed",),
        metavar="SECONDS",
    )
    first_token: bool = option(True, "Time the first token of a generation, too.", shown=False)
    calibrated: bool = option(True, "Use a stored calibration of the GPU, if there is one.", shown=False)

    def __post_init__(self) -> None:
        """Check all values.

        Raises:
            BadInputError: With the option, its value and the allowed values.
        """
        from jouletrace.devices import only_one
        from jouletrace.execution.steps.registry import L2, MODES
        from jouletrace.workloads.environment import DTYPES, short_name
        from jouletrace.workloads.options import TASKS, check_loss_and_optimizer, check_seed

        object.__setattr__(self, "device", only_one(self.device))
        if self.dtype is not None and not isinstance(self.dtype, str):  # one of torch
            object.__setattr__(self, "dtype", short_name(self.dtype))
        if self.detail == AUTO:
            phases = self.task != "infer" and self.mode != "compile" and self.l2 == "warm"  # see _check_together
            object.__setattr__(self, "detail", "phase" if phases else "model")
        check(PROFILE, self.detail, f"--detail {self.detail}")
        self._check_numbers()
        for name, allowed in (
            ("task", TASKS),
            ("dtype", DTYPES),
            ("mode", MODES),
            ("backend", ("auto", "torch", *registered("backends"), *registered("engines"))),
            ("l2", L2),
            ("hint", HINTS),
        ):
            value = getattr(self, name)
            if value not in allowed and not (name in ("dtype", "hint") and value is None):
                raise BadInputError(f"--{name} {value}: must be one of {', '.join(allowed)}")
        for name in ("batch", "seq_len", "threads", "streams", "input_sets", "block", "latency_iterations"):
            value = getattr(self, name)
            most = MOST_THREADS if name in ("threads", "streams") else MOST_COUNT
            if value is not None and not 1 <= value <= most:
                bound = "at least 1" if value < 1 else f"at most {most}"
                raise BadInputError(f"--{name.replace('_', '-')} {value}: must be {bound}")
        check_seed(self.seed)
        check_loss_and_optimizer(self.label_smoothing, self.optimizer)
        for name in ("max_time_s", "warmup_s", "idle_s", "latency_s", "window_s", "detail_time_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise BadInputError(f"--{name.removesuffix('_s').replace('_', '-')} {value}: must be more than 0 s")
        self._check_together()
        if not 0 < self.target_ci < 1:
            raise BadInputError(f"--target-ci {self.target_ci:g}: must lie between 0 and 100 %")
        if self.first_stage < 2:
            raise BadInputError(f"first_stage {self.first_stage}: an interval needs at least 2 windows")

    def _check_numbers(self) -> None:
        """Refuse values from Python that aren't numbers; the command line checks its own values."""
        for setting in fields(self):
            value, kind = getattr(self, setting.name), str(setting.type).partition(" ")[0]
            if kind not in _NUMBERS or value is None:
                continue
            allowed, words = _NUMBERS[kind]
            if isinstance(value, bool) or not isinstance(value, allowed):
                name = setting.name.removesuffix("_s").replace("_", "-")
                raise BadInputError(f"--{name} {value!r}: must be {words}")

    def _check_together(self) -> None:
        """Refuse options that exclude each other."""
        runtimes = registered("backends")
        compiled, runtime = self.mode == "compile", self.backend in runtimes
        detail, backend = f"--detail {self.detail}", f"--backend {self.backend}"
        detailed, generating, by_torch = self.detail != "model", self.task == "generate", self.backend == "torch"
        cold, another = self.l2 == "cold", self.backend not in ("auto", "torch")
        hinted, hint = self.hint is not None, f"--hint {self.hint}"
        for asked, given, beside, why in (
            (runtime and self.task != "infer", f"--task {self.task}", backend, "runtimes run inference"),
            (runtime and self.mode != "eager", f"--mode {self.mode}", backend, "a runtime has its own launch mode"),
            (another and cold, "--l2 cold", backend, "only torch on a GPU flushes the L2 cache"),
            (
                runtime and self.detail not in ("model", "op", "kernel"),
                detail,
                backend,
                "a runtime reports only nodes: use --detail kernel",
            ),
            (
                by_torch and self.threads is not None,
                "--threads",
                backend,
                f"only for {' and '.join(runtimes) or 'a runtime'}",
            ),
            (by_torch and self.streams > 1, "--streams", backend, f"only for {' and '.join(runtimes) or 'a runtime'}"),
            (hinted and self.backend not in ("auto", "openvino"), hint, backend, "only for openvino"),
            (
                hinted and self.streams > 1,
                hint,
                f"--streams {self.streams}",
                "with a hint OpenVINO chooses the streams",
            ),
            (detailed and cold, "--l2 cold", detail, "the flushes would disturb the recording"),
            (generating and cold, "--l2 cold", "--task generate", "each token runs with the cache of the previous one"),
            (
                detailed and compiled and self.detail == "phase",
                detail,
                "--mode compile",
                "the phase of a kernel is unknown in generated code; use --mode graph",
            ),
            (
                generating and compiled,
                "--mode compile",
                "--task generate",
                "use eager, or graph, whose loop runs without the host",
            ),
        ):
            if asked:
                raise BadInputError(f"{given} with {beside}: {why}")

    def to_dict(self) -> Settings:
        """All options, defaults included, for ``Run.settings``."""
        return cast("Settings", asdict(self))
