"""The options of ``profile``, with their defaults and what they may be."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.execution.steps.modes import L2, MODES
from jouletrace.workloads.checks import check_seed
from jouletrace.workloads.options import TASKS
from jouletrace.workloads.precision import DTYPES
from jouletrace.workloads.training import check_loss_and_optimizer

DETAILS = ("model", "phase", "layer", "kernel")
RUNTIMES = ("onnxruntime", "openvino")
"""What runs a workload in place of torch (``profiler.backends``)."""
RUN_BY = ("auto", "torch", *RUNTIMES)
"""What may run a workload; "auto" is torch, and for a model file the runtime that it is for."""
HINTS = ("latency", "throughput")
"""What OpenVINO may be asked to arrange threads and streams for."""
MOST_THREADS = 1024
"""Of a runtime, and of its streams: more than any host has, which takes minutes to start, if it starts."""

_NUMBERS: dict[str, tuple[type, str]] = {"int": (Integral, "a whole number"), "float": (Real, "a number")}


@dataclass(frozen=True)
class ProfileSettings:
    """How to profile.

    Attributes:
        task: What an iteration does.
        detail: How far the result is broken down.
        device: "auto", "cuda:N", a UUID, "cpu" or "sim:NAME".
        batch: Samples an iteration; None for the workload's default.
        seq_len: Tokens a sample; None for the workload's default.
        dtype: Number format; "fp32" is IEEE single precision, "tf32" is its own. None for fp16 on a
            GPU and fp32 on a CPU.
        mode: How an iteration is launched.
        backend: One of ``RUN_BY``.
        threads: Threads of a runtime; None for its own choice.
        streams: Iterations that a runtime runs at once.
        hint: One of ``HINTS``: what OpenVINO arranges threads and streams for, by its own choice; None for what follows
            from ``streams``.
        l2: Whether the L2 cache holds what the last iteration left ("warm") or is flushed.
        target_ci: Wanted half-width of the energy's 95 % interval, relative.
        max_time_s: Most seconds of the energy pass; None for 9, for 5 beside a recording of kernels, or 15 where the
            sensor has long periods and so needs long windows.
        window_s: Least length of an energy window; None to fit the sensor.
        first_stage: Windows of the first stage, from which the number needed is computed.
        warmup_s: Most seconds of warm-up.
        idle_s: Seconds of each idle phase.
        latency_iterations: Most iterations of the latency pass.
        latency_s: Most seconds of the latency pass.
        detail_time_s: Seconds of the recording behind a finer detail than "model".
        block: Iterations in a block of block means (as ``torch.utils.benchmark`` reports).
        seed: Seed of weights and inputs.
        input_sets: Distinct random inputs to rotate among.
        config: Overrides of the model's configuration.
        optimizer: "adamw" or "sgd", of a training step.
        label_smoothing: Of its loss.
        data: Folder of images that it is trained on; None for random ones.
        max_new_tokens: Tokens to generate for each sample; None for the usual number.
        early_stop: Whether a sample may end before it has them.
        random: Random weights in place of those in a model's files.
        calibrated: Use a stored calibration of the board, where there is one.
    """

    task: str = "infer"
    detail: str = "model"
    device: str = "auto"
    batch: int | None = None
    seq_len: int | None = None
    dtype: str | None = None
    mode: str = "eager"
    backend: str = "auto"
    threads: int | None = None
    streams: int = 1
    hint: str | None = None
    l2: str = "warm"
    target_ci: float = 0.01
    max_time_s: float | None = None
    window_s: float | None = None
    first_stage: int = 8
    warmup_s: float = 5.0
    idle_s: float = 1.5
    latency_iterations: int = 2000
    latency_s: float = 2.0
    detail_time_s: float = 20.0
    block: int = 100
    seed: int = 0
    input_sets: int = 1
    config: dict[str, str] = field(default_factory=dict)
    optimizer: str = "adamw"
    label_smoothing: float = 0.0
    data: str | None = None
    max_new_tokens: int | None = None
    early_stop: bool = False
    random: bool = False
    calibrated: bool = True

    def __post_init__(self) -> None:
        """Refuse what makes no sense, naming the option.

        Raises:
            BadInputError: With the option, its value and what it may be.
        """
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
        for option in fields(self):
            value, kind = getattr(self, option.name), str(option.type).partition(" ")[0]
            if kind not in _NUMBERS or value is None:
                continue
            allowed, words = _NUMBERS[kind]
            if isinstance(value, bool) or not isinstance(value, allowed):
                name = option.name.removesuffix("_s").replace("_", "-")
                raise BadInputError(f"--{name} {value!r}: must be {words}")

    def _check_together(self) -> None:
        """Refuse options that don't go with one another."""
        cold, compiled, runtime = self.l2 == "cold", self.mode == "compile", self.backend in RUNTIMES
        detail, backend = f"--detail {self.detail}", f"--backend {self.backend}"
        detailed, generating, by_torch = self.detail != "model", self.task == "generate", self.backend == "torch"
        hinted, hint = self.hint is not None, f"--hint {self.hint}"
        for asked, option, beside, why in (
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
                raise BadInputError(f"{option} with {beside}: {why}")

    def to_dict(self) -> dict[str, Any]:
        """All options, defaults included, for ``Run.settings``."""
        return asdict(self)
