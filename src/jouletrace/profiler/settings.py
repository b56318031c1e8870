"""The options of ``profile``, with their defaults and what they may be."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.option import option

DETAILS = ("model", "phase", "layer", "kernel")
RUNTIMES = ("onnxruntime", "openvino")
"""What runs a workload in place of torch (``profiler.backends``)."""
RUN_BY = ("auto", "torch", *RUNTIMES, "trtexec")
"""What may run a workload; "auto" is torch, and for a model file the runtime that it is for."""
HINTS = ("latency", "throughput")
"""What OpenVINO may be asked to arrange threads and streams for."""
MOST_THREADS = 1024
"""Of a runtime, and of its streams: more than any host has, which takes minutes to start, if it starts."""

_NUMBERS: dict[str, tuple[type, str]] = {"int": (Integral, "a whole number"), "float": (Real, "a number")}


@dataclass(frozen=True)
class ProfileSettings:
    """How to profile. Each field says what it is; times are in seconds, shares relative.

    Raises:
        BadInputError: If a value makes no sense, or two don't go together.
    """

    task: str = option("infer", "What an iteration does: infer, train or generate.")
    detail: str = option("model", "How far the result is broken down: model, phase, layer or kernel.")
    device: str = option(
        "auto",
        'auto, cuda:N, a GPU or MIG UUID, cpu, or sim:NAME for a simulated board ("sim:h100").',
        flags=("--device", "-d"),
    )
    batch: int | None = option(None, "Samples an iteration. [default: the workload's]")
    seq_len: int | None = option(
        None,
        "Tokens a sample; of a workload that generates, of its prompt. [default: the workload's]",
        flags=("--seq-len", "--prompt-len"),
    )
    max_new_tokens: int | None = option(None, "Tokens to generate for each sample: exactly so many. [default: 64]")
    early_stop: bool = option(False, "Let a sample end where the model ends it; tokens are counted as made.")
    dtype: str | None = option(None, "fp32 (IEEE), tf32, fp16, bf16, fp64, amp. [default: fp16, on a CPU fp32]")
    mode: str = option("eager", "How an iteration is launched: eager, graph (CUDA graph) or compile.")
    backend: str = option("auto", "What runs it: torch, onnxruntime, openvino; trtexec for an engine of TensorRT.")
    threads: int | None = option(None, "Threads of a runtime. [default: its own choice]")
    streams: int = option(1, "Iterations that a runtime runs at once.")
    hint: str | None = option(
        None, "What OpenVINO chooses its streams for: latency or throughput. [default: as many as --streams]"
    )
    l2: str = option("warm", "L2 cache between iterations: warm, or cold (flushed).")
    config: dict[str, str] = option(
        dict, "Change the model's configuration; repeatable.", metavar="KEY=VALUE", pairs=True
    )
    optimizer: str = option("adamw", "Of a training step: adamw or sgd.")
    label_smoothing: float = option(0.0, "Of a training step's loss: at least 0, less than 1.")
    data: str | None = option(
        None, "Train on its images, a class a sub-folder. [default: random ones]", metavar="FOLDER"
    )
    target_ci: float = option(0.01, "Wanted half-width of the energy's 95 % interval.", percent=True)
    max_time_s: float | None = option(
        None,
        "Most seconds of the energy pass. [default: 9; 5 beside a recording of kernels; 15 for a slow sensor]",
        metavar="SECONDS",
    )
    detail_time_s: float = option(
        20.0,
        "Seconds of the recording behind a finer detail than model; on sim: boards of their own time.",
        metavar="SECONDS",
    )
    warmup_s: float = option(5.0, "Most seconds of warm-up.", metavar="SECONDS")
    block: int = option(100, "Iterations in a block of block means (as torch.utils.benchmark reports).")
    random: bool = option(False, "Random weights for hf: and local folders: their configuration is enough.")
    seed: int = option(0, "Seed of weights and inputs.")
    input_sets: int = option(1, "Distinct random inputs to rotate among.")
    window_s: float | None = option(None, "Least length of an energy window. [default: fits the sensor]", shown=False)
    first_stage: int = option(8, "Windows of the first stage, from which the number needed follows.", shown=False)
    idle_s: float = option(1.5, "Length of each idle phase.", metavar="SECONDS", shown=False)
    latency_iterations: int = option(2000, "Most iterations of the latency pass.", shown=False)
    latency_s: float = option(2.0, "Most seconds of the latency pass.", shown=False)
    calibrated: bool = option(True, "Use a stored calibration of the board, where there is one.", shown=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense, naming the option.

        Raises:
            BadInputError: With the option, its value and what it may be.
        """
        from jouletrace.execution.steps.modes import L2, MODES
        from jouletrace.workloads.checks import check_seed
        from jouletrace.workloads.options import TASKS
        from jouletrace.workloads.precision import DTYPES
        from jouletrace.workloads.training import check_loss_and_optimizer

        self._check_numbers()
        for name, allowed in (
            ("task", TASKS),
            ("detail", DETAILS),
            ("dtype", DTYPES),
            ("mode", MODES),
            ("backend", RUN_BY),
            ("l2", L2),
            ("hint", HINTS),
        ):
            value = getattr(self, name)
            if value not in allowed and not (name in ("dtype", "hint") and value is None):
                raise BadInputError(f"--{name} {value}: must be one of {', '.join(allowed)}")
        for name in ("batch", "seq_len", "threads", "streams", "input_sets", "block", "latency_iterations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInputError(f"--{name.replace('_', '-')} {value}: must be at least 1")
        for name in ("threads", "streams"):
            value = getattr(self, name)
            if value is not None and value > MOST_THREADS:
                raise BadInputError(f"--{name} {value}: must be at most {MOST_THREADS}")
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
        """Refuse what is no number, from Python: the command line has seen to its own."""
        for one in fields(self):
            value, kind = getattr(self, one.name), str(one.type).partition(" ")[0]
            if kind not in _NUMBERS or value is None:
                continue
            allowed, words = _NUMBERS[kind]
            if isinstance(value, bool) or not isinstance(value, allowed):
                name = one.name.removesuffix("_s").replace("_", "-")
                raise BadInputError(f"--{name} {value!r}: must be {words}")

    def _check_together(self) -> None:
        """Refuse options that don't go with one another."""
        cold, compiled, runtime = self.l2 == "cold", self.mode == "compile", self.backend in RUNTIMES
        detail, backend = f"--detail {self.detail}", f"--backend {self.backend}"
        detailed, generating, by_torch = self.detail != "model", self.task == "generate", self.backend == "torch"
        hinted, hint = self.hint is not None, f"--hint {self.hint}"
        for asked, given, beside, why in (
            (runtime and self.task != "infer", f"--task {self.task}", backend, "runtimes run inference"),
            (runtime and self.mode != "eager", f"--mode {self.mode}", backend, "a runtime has its own way to run"),
            (runtime and cold, "--l2 cold", backend, "only torch on a GPU flushes the L2 cache"),
            (runtime and self.detail not in ("model", "kernel"), detail, backend, "it tells of nodes: --detail kernel"),
            (by_torch and self.threads is not None, "--threads", backend, f"it is for {' and '.join(RUNTIMES)}"),
            (by_torch and self.streams > 1, "--streams", backend, f"it is for {' and '.join(RUNTIMES)}"),
            (hinted and self.backend not in ("auto", "openvino"), hint, backend, "it is for openvino"),
            (hinted and self.streams > 1, hint, f"--streams {self.streams}", "a hint has OpenVINO choose the streams"),
            (detailed and cold, "--l2 cold", detail, "flushes would be in the way"),
            (
                detailed and compiled and self.detail == "phase",
                detail,
                "--mode compile",
                "which kernel is of which phase isn't known in generated code; use --mode graph",
            ),
            (generating and cold, "--l2 cold", "--task generate", "each token finds what the one before left there"),
            (
                generating and compiled,
                "--mode compile",
                "--task generate",
                "use eager, or graph: a loop without a host",
            ),
        ):
            if asked:
                raise BadInputError(f"{given} with {beside}: {why}")

    def to_dict(self) -> dict[str, Any]:
        """All options, defaults included, for ``Run.settings``."""
        return asdict(self)
