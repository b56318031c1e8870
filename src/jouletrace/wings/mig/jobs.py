"""Jobs of a sweep, including the names that other MIG profilers use, the slices that they run on, and how they fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jouletrace.arrays import Floats
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.wings.mig.partition import Profile
from jouletrace.workloads import resolve

_MODELS = {
    "vit": "vit-base",
    "vision_transformer": "vit-base",
    "swin": "swin-tiny",
    "swin_transformer": "swin-tiny",
}
"""Names of built-in models in other MIG profilers; every name of ``profile`` is accepted too."""

_TASKS = {
    "infer": "infer",
    "cv_infer": "infer",
    "nlp_infer": "infer",
    "train": "train",
    "cv_train": "train",
    "nlp_train": "train",
}
"""Names of tasks, including those of other MIG profilers, and their names in ``profile``."""


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        model: Name as given.
        workload: Its name in ``profile``.
        task: "infer" or "train".
        batch: Samples per request.
        seq_len: Tokens per sample; None for the model's own.
        dtype: Number format; None for the workload's own.
        mode: "eager" or "graph".
    """

    model: str
    workload: str
    task: str = "infer"
    batch: int = 1
    seq_len: int | None = None
    dtype: str | None = None
    mode: str = "eager"

    def __str__(self) -> str:
        length = f" seq {self.seq_len}" if self.seq_len else ""
        return f"{self.model} {self.task} batch {self.batch}{length}"


@dataclass(frozen=True)
class Slice:
    """A MIG instance on which jobs run: its name in CUDA, its profile, the number of its GPU instance.

    ``board_slices`` are the compute slices of the whole GPU.
    """

    uuid: str
    profile: Profile
    instance: int
    board_slices: int = 7


@dataclass(frozen=True)
class Served:
    """The requests that a slice served in a segment.

    ``latency_s`` has shape (n,), in order; ``start_ns`` of the first and ``end_ns`` of the last are since the Unix
    epoch.
    """

    latency_s: Floats
    start_ns: int
    end_ns: int


class JobFailedError(NotPossibleError):
    """A job could not be run on a slice.

    Attributes:
        reason: As ``campaign.worker.reason_of``, "vanished" or "timed_out".
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def read_jobs(
    models: Sequence[str],
    tasks: Sequence[str] = ("infer",),
    batches: Sequence[int] = (1,),
    seq_lens: Sequence[int | None] = (None,),
    *,
    dtype: str | None = None,
    mode: str = "eager",
) -> list[Job]:
    """All combinations, models outermost.

    Raises:
        BadInputError: If a model or task is unknown, or a batch makes no sense.
    """
    if not models:
        raise BadInputError("--models: name at least one (vit,resnet50,swin,bert-base,...)")
    for task in tasks:
        if task not in _TASKS:
            raise BadInputError(f"--tasks {task}: must be one of {', '.join(_TASKS)}")
    for option, values in (("--batch", batches), ("--seq-len", seq_lens)):
        for value in values:
            if value is not None and value < 1:
                raise BadInputError(f"{option} {value}: must be at least 1")
    if mode not in ("eager", "graph"):
        raise BadInputError(f"--mode {mode}: must be eager or graph")
    found = []
    for model in models:
        workload = _MODELS.get(model.lower(), model)
        resolve(workload)  # refuses an unknown model before anything is changed
        for task in tasks:
            for seq_len in seq_lens:
                found += [Job(model, workload, _TASKS[task], batch, seq_len, dtype, mode) for batch in batches]
    return list(dict.fromkeys(found))
