"""Callbacks that record the training loops of transformers' Trainer and Lightning.

    trainer = Trainer(..., callbacks=[jt.trainer_callback(save_to="runs/mine")])

Steps become spans of kind "iteration", epochs and evaluations become ranges. Only the ends of epochs and
evaluations synchronise with the GPU. The energy so far is added to the trainer's log, and so to its loggers
(TensorBoard, W&B, MLflow); at the end its totals, and what took most of it is printed. The libraries are imported when
a callback is created.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import signature
from itertools import count
from os import PathLike
from pathlib import Path
from traceback import walk_tb
from typing import Any

from jouletrace.errors import BadInputError, ClosedError, NotPossibleError, TakenError, unknown
from jouletrace.profiler.record import live
from jouletrace.profiler.record.live_sums import RangeSoFar
from jouletrace.profiler.record.ranges import STEP
from jouletrace.profiler.record.ranks import Rank
from jouletrace.profiler.record.recording import Recording
from jouletrace.profiler.record.split import prefixed, totals
from jouletrace.run import Run
from jouletrace.run.files import shown

_LEAST_S = 1.0
"""Least time in seconds of steps whose energy a log states: ten readings of a slow sensor."""


class _Loop:
    """One training as a recording: what both callbacks share, beside the base class of their library.

    Attributes:
        run, split: Those of the recording, after its end.
    """

    def __init__(self, label: str, options: dict[str, Any]) -> None:
        self._label, self._options = label, options
        if isinstance(place := options.get("save_to"), str | PathLike):
            options["save_to"] = Path(place).absolute()  # resolved now: training may begin in another folder
        elif place is None and "/" in str(label):
            raise BadInputError(f"callback: {str(label)!r} is a name, and nothing is saved: save_to={str(label)!r}?")
        known = signature(live.record).parameters
        for name in options:
            if name not in known:
                raise unknown("option of record", name, known)
        self._at_free_place(Recording.check)  # now: data and a model are made before the training begins
        self._recording: Recording | None = None
        self._open: list[live.range] = []
        self._stated = 0.0, 0.0, 0.0  # steps up to the last log: their number, seconds, joules
        self.run: Run | None = None
        self.split: Run | None = None
        self._shown: BaseException | None = None

    def close(self) -> None:
        """End the recording of a training that an exception ended, whose Run is incomplete; else this does nothing.

        The next training does so, too, and the end of the program: transformers calls no callback after an exception.
        """
        self._end(_ended_by(self._shown))

    def _start(self, callbacks: Sequence[object] = ()) -> None:
        """Begin to record, as one of a trainer's callbacks."""
        if sum(isinstance(one, _Loop) for one in callbacks) > 1:
            raise BadInputError(f"callback {self._label!r}: the trainer has two of jouletrace; give one")
        self.close()
        self._shown = _last_shown()  # it ended none of what begins
        self._stated = 0.0, 0.0, 0.0
        self._recording, place = self._at_free_place(Recording.__enter__)
        if place != (wanted := self._options["save_to"]):
            text = f"{self._label}: {shown(wanted)} exists: this training is saved to {shown(place)}"
            _print(text, self._recording.rank)
        atexit.register(self.close)  # after that of the recording, and so before it

    def _at_free_place(self, begin: Callable[[Recording], object]) -> tuple[Recording, Any]:
        """A recording that has begun, and its place: where another is, a training goes on, at the next free name."""
        place = wanted = self._options["save_to"]
        for n in count(2):
            try:
                recording = live.record(self._label, **{**self._options, "save_to": place})
                begin(recording)
                break
            except TakenError:
                suffix = ".zip" if wanted.suffix.lower() == ".zip" else ""
                place = wanted.with_name(f"{wanted.name.removesuffix(suffix)}-{n}{suffix}")
        return recording, place

    def _enter(self, name: str) -> None:
        if self._recording is not None:
            opened = live.range(name, sync=True)
            opened.__enter__()
            self._open.append(opened)

    def _leave(self, name: str) -> None:
        """End the range of that name and all ranges open inside it; a no-op if it isn't open."""
        if all(opened.name != name for opened in self._open):
            return
        while self._open:
            opened = self._open.pop()
            opened.__exit__(None, None, None)
            if opened.name == name:
                return

    def _skip(self) -> None:
        if self._recording is not None:
            self._recording.skip()

    def _logged(self) -> dict[str, float]:
        """The figures so far for a trainer's log; unknown figures are left out."""
        if self._recording is None or not self._recording.started:
            return {}
        found = self._recording.now()
        step = next((one for path, one in found.ranges.items() if path.split("/")[-1] == STEP), None)
        figures = {"energy_j": found.energy_j, "power_w": found.power_w, "energy_step_j": self._step_j(step)}
        return prefixed(figures, found.simulated)

    def _step_j(self, step: RangeSoFar | None) -> float | None:
        """Mean joules of the steps since the last log that states them; None if these took less than ``_LEAST_S``."""
        if step is None or step.energy_j is None:
            return None
        count, seconds, joules = (step.count * one for one in (1, step.time_s, step.energy_j))
        before_count, before_s, before_j = self._stated
        if seconds - before_s < _LEAST_S:
            return None
        self._stated = count, seconds, joules
        return (joules - before_j) / (count - before_count)

    def _end(self, error: BaseException | None = None) -> dict[str, float]:
        """End the recording and print its summary; returns its totals for a trainer's log."""
        recording, self._recording = self._recording, None
        if recording is None:
            return {}
        atexit.unregister(self.close)
        while self._open:
            self._open.pop().__exit__(None, None, None)
        recording.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        self.run, self.split = recording.run, recording.split
        if self.run is None:  # it was within another recording
            return {}
        _print(recording.summary(), recording.rank)
        return prefixed(totals(self.run, self.split), self.run.simulated)


def _last_shown() -> BaseException | None:
    """The exception that Python has last shown to the user."""
    return getattr(sys, "last_value", None)


def _ended_by(before: BaseException | None) -> BaseException:
    """The exception that ended a training, if Python has shown it to the user since that was ``before``."""
    error = _last_shown()
    through = walk_tb(error.__traceback__) if error is not None and error is not before else ()
    if error is not None and any(frame.f_globals.get("__name__") == "transformers.trainer" for frame, _ in through):
        return error
    return ClosedError("close(): the training did not end")


def _print(text: str, rank: Rank | None) -> None:
    """Print on stderr, in lines of its own: a trainer's progress bar ends without a line break. Once for all ranks."""
    if rank is not None and rank.rank:
        return
    bars = sys.modules.get("tqdm")
    with suppress(OSError):  # a closed stderr must not end a training
        if bars is not None and hasattr(bars, "tqdm"):
            bars.tqdm.write(text, file=sys.stderr)
            sys.stderr.flush()
        else:
            print(text, file=sys.stderr, flush=True)


def trainer_callback(
    label: str = "training",
    *,
    device: str | Sequence[str] | None = None,
    save_to: str | Path | None = None,
    **options: Any,
) -> Any:
    """A ``transformers.TrainerCallback`` that records the training: energy per epoch, evaluation and step.

    Args:
        label: Name of the Run.
        device: As in ``record``.
        save_to: As in ``record``, but with a number behind it where it exists. The callback's ``run`` also holds the
            Run after the training, and ``split`` that of its kernels (see ``Recording``).
        **options: Further options of ``record``: ``on_update``, ``kernels``, ...

    Raises:
        BadInputError: If an option or a device doesn't exist.
        NotPossibleError: If transformers isn't installed.
    """
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise NotPossibleError("trainer_callback needs transformers: pip install transformers") from None

    class EnergyCallback(_Loop, TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            handler = sys._getframe(1).f_locals.get("self")  # no event states it
            callbacks = getattr(handler, "callbacks", ())
            _put_before_loggers(self, callbacks)
            self._start(callbacks)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._enter("epoch")

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            live.step()
            if control.should_evaluate:  # set by the trainer's own callback before this call
                self._enter("evaluation")

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._leave("evaluation")
            self._skip()

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._skip()

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._leave("epoch")
            if control.should_evaluate:
                self._enter("evaluation")

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if not isinstance(logs, dict):
                return
            if "total_flos" in logs:  # at the end; each log may state "train_runtime", beside tokens
                logs.update(self._end())
            elif not any(key.endswith("_runtime") and key != "train_runtime" for key in logs):
                logs.update(self._logged())  # not of an evaluation, whose energy the sensor has not reached

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._end()

    return EnergyCallback(label, {"device": device, "save_to": save_to, **options})


def _put_before_loggers(callback: Any, callbacks: Any) -> None:
    """Move our callback before those of loggers, which write what the log holds when it is their turn."""
    from transformers import DefaultFlowCallback

    flow = [i for i, one in enumerate(callbacks) if isinstance(one, DefaultFlowCallback)]
    if isinstance(callbacks, list) and flow and callback in callbacks[flow[0] :]:
        callbacks.remove(callback)
        callbacks.insert(flow[0] + 1, callback)  # behind what decides on evaluations


def lightning_callback(
    label: str = "training",
    *,
    device: str | Sequence[str] | None = None,
    save_to: str | Path | None = None,
    **options: Any,
) -> Any:
    """A Lightning ``Callback`` that records ``fit``: energy per epoch, validation and step.

    Args:
        label: Name of the Run.
        device: As in ``record``.
        save_to: As in ``record``, but with a number behind it where it exists. The callback's ``run`` also holds the
            Run after ``fit``, and ``split`` that of its kernels (see ``Recording``).
        **options: Further options of ``record``: ``on_update``, ``kernels``, ...

    Raises:
        BadInputError: If an option or a device doesn't exist.
        NotPossibleError: If neither ``lightning`` nor ``pytorch_lightning`` is installed.
    """
    Callback: Any = _lightning_base()

    class EnergyCallback(_Loop, Callback):  # type: ignore[misc]  # imported at run time
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            self._start(getattr(trainer, "callbacks", ()))

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self._enter("epoch")

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
            live.step()
            every = getattr(trainer, "log_every_n_steps", 0)
            if every and trainer.global_step % every == 0:
                _log(trainer, self._logged())

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            self._enter(self._validation(trainer))

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            self._leave(self._validation(trainer))
            self._skip()

        def _validation(self, trainer: Any) -> str:
            """Name of a validation; before the first epoch Lightning tries two batches."""
            return "sanity check" if getattr(trainer, "sanity_checking", False) else "evaluation"

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._leave("epoch")

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._end(exception)

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            _log(trainer, self._end())

    return EnergyCallback(label, {"device": device, "save_to": save_to, **options})


def _log(trainer: Any, figures: dict[str, float]) -> None:
    """Hand figures to Lightning's loggers."""
    for logger in getattr(trainer, "loggers", ()) if figures else ():
        logger.log_metrics(figures, step=trainer.global_step)


def _lightning_base() -> Any:
    for package in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return __import__(package, fromlist=["Callback"]).Callback
        except ImportError:
            continue
    raise NotPossibleError("lightning_callback needs Lightning: pip install lightning")
