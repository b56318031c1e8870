"""Trainers of other libraries, recorded: their events as they fire them, without much of a training."""

import atexit
import re
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

import jouletrace as jt
from commands import wait_for
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler.record import Recording
from jouletrace.profiler.record.live_sums import RangeSoFar

REAL = "sim:h100?realtime=1&load=0.5:300"


def spans(run, kind, name=None):
    return [row for row in run.spans.to_pylist() if row["kind"] == kind and name in (None, row["name"])]


def seconds(rows):
    return [(row["end_ns"] - row["start_ns"]) / 1e9 for row in rows]


def interruption(run):
    """The one warning that states how a Run ended early, whatever other warnings stand beside it."""
    (said,) = [warning.message for warning in run.warnings if warning.code == "interrupted"]
    return said


def check_training(run):
    """Two epochs of three steps of 20 ms, an evaluation of 100 ms in the middle of the first."""
    assert len(spans(run, "range", "epoch")) == 2
    (evaluation,) = spans(run, "range", "evaluation")
    assert seconds([evaluation])[0] >= 0.1
    steps = spans(run, "iteration")
    assert len(steps) == 6
    assert min(seconds(steps)) >= 0.02
    before = [step for step in steps if step["end_ns"] <= evaluation["start_ns"]]
    after = [step for step in steps if step["start_ns"] >= evaluation["end_ns"]]
    assert (len(before), len(after)) == (2, 4), "an evaluation is in no step"
    assert Recording.active is None


@pytest.mark.thorough
def test_a_trainer_reports_its_steps_epochs_and_evaluations(tmp_path):
    callbacks = pytest.importorskip("transformers.trainer_callback")
    ours = jt.trainer_callback("tiny", device=REAL, save_to=tmp_path / "run")
    assert isinstance(ours, callbacks.TrainerCallback)

    class Flow(callbacks.TrainerCallback):
        """Asks for an evaluation after the second step, as the trainer's own does."""

        def on_step_end(self, args, state, control, **_):
            control.should_evaluate = state.global_step == 2

    handler = callbacks.CallbackHandler([Flow(), ours], None, None, None, None)
    state, control, args = callbacks.TrainerState(), callbacks.TrainerControl(), SimpleNamespace()
    handler.on_train_begin(args, state, control)
    for _ in range(2):
        handler.on_epoch_begin(args, state, control)
        for _ in range(3):
            handler.on_step_begin(args, state, control)
            time.sleep(0.02)
            state.global_step += 1
            handler.on_step_end(args, state, control)
            if control.should_evaluate:
                time.sleep(0.1)
                handler.on_prediction_step(args, state, control)
                handler.on_evaluate(args, state, control, {})
        handler.on_epoch_end(args, state, control)
    assert ours.run is None
    handler.on_train_end(args, state, control)
    check_training(ours.run)
    assert jt.load(tmp_path / "run").complete


class Loggers:
    """Figures that TensorBoard, W&B and others would get."""

    def __init__(self):
        self.lines = []

    def log_metrics(self, metrics, step):
        self.lines.append((step, metrics))


def started(callback):
    wait_for(lambda: callback._recording.started)


@pytest.mark.thorough
def test_loggers_of_a_trainer_get_the_figures_and_in_the_end_the_totals(capsys):
    callbacks = pytest.importorskip("transformers.trainer_callback")
    seen, ours = [], jt.trainer_callback("tiny", device=REAL)

    class Logger(callbacks.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            seen.append(dict(logs))

    handler = callbacks.CallbackHandler([callbacks.DefaultFlowCallback, Logger, ours], None, None, None, None)
    state, control = callbacks.TrainerState(), callbacks.TrainerControl()
    args = SimpleNamespace(logging_strategy="no", eval_strategy="no", save_strategy="no")
    handler.on_train_begin(args, state, control)
    assert [type(one).__name__ for one in handler.callbacks] == ["DefaultFlowCallback", "EnergyCallback", "Logger"]
    started(ours)
    for _ in range(3):
        time.sleep(0.5)
        handler.on_step_end(args, state, control)
    handler.on_log(args, state, control, {"loss": 1.0, "train_runtime": 1.5, "train_tokens_per_second": 8.0})
    handler.on_log(args, state, control, {"eval_loss": 1.0, "eval_runtime": 0.5})
    assert ours.run is None
    handler.on_log(args, state, control, {"train_runtime": 1.5, "total_flos": 8.0})
    handler.on_train_end(args, state, control)
    assert set(seen[0]) >= {"loss", "simulated_energy_j", "simulated_power_w"}
    assert set(seen[1]) == {"eval_loss", "eval_runtime"}
    assert set(seen[2]) == {"train_runtime", "total_flos", "simulated_energy_j", "simulated_power_w"}
    assert seen[2]["simulated_energy_j"] == pytest.approx(ours.run.result("energy_total_j", 1).value)
    assert "SIMULATED tiny: " in capsys.readouterr().err


def test_the_energy_of_a_step_is_that_of_those_since_the_last_log(lightning):
    ours = jt.lightning_callback()
    so_far = [
        (None, None),
        (RangeSoFar(1, 2.0, 500.0, 2.0, 500.0), 500.0),  # compiles
        (RangeSoFar(10, 0.29, 77.0, 0.1, None), None),  # 0.9 s are too short
        (RangeSoFar(21, 3.0 / 21, None, 0.1, None, "sensor_too_slow"), None),
        (RangeSoFar(21, 4.0 / 21, 1100.0 / 21, 0.1, None), 30.0),
        (RangeSoFar(21, 4.0 / 21, 1100.0 / 21, 0.1, None), None),  # none since
        (RangeSoFar(31, 5.0 / 31, 1500.0 / 31, 0.1, None), 40.0),
    ]
    for step, joules in so_far:
        assert ours._step_j(step) == (None if joules is None else pytest.approx(joules))


@pytest.fixture
def lightning(monkeypatch):
    """The part of Lightning that a callback sees: its base class."""
    module = ModuleType("lightning.pytorch")
    module.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)
    return module


@pytest.mark.thorough
def test_lightning_reports_its_steps_epochs_and_validations(lightning):
    ours = jt.lightning_callback(device=REAL)
    assert isinstance(ours, lightning.Callback)
    ours.on_validation_start(None, None)  # the sanity check before fit
    ours.on_validation_end(None, None)
    ours.on_fit_start(None, None)
    for epoch in range(2):
        ours.on_train_epoch_start(None, None)
        for step in range(3):
            time.sleep(0.02)
            ours.on_train_batch_end(None, None, {}, None, step)
            if (epoch, step) == (0, 1):
                ours.on_validation_start(None, None)
                time.sleep(0.1)
                ours.on_validation_end(None, None)
        ours.on_train_epoch_end(None, None)
    ours.on_fit_end(None, None)
    check_training(ours.run)


@pytest.mark.thorough
def test_the_sanity_check_of_lightning_has_its_name(lightning):
    ours = jt.lightning_callback(device=REAL)
    ours.on_fit_start(None, None)
    for checking in (True, False):
        trainer = SimpleNamespace(sanity_checking=checking)
        ours.on_validation_start(trainer, None)
        ours.on_validation_end(trainer, None)
    ours.on_fit_end(None, None)
    assert [row["name"] for row in spans(ours.run, "range")] == ["sanity check", "evaluation"]


def test_why_a_callback_has_no_energy_is_in_words(capsys, no_rapl):
    ours = jt.trainer_callback("tiny", device="cpu")
    ours._start()
    ours._end()
    assert "energy unknown: no RAPL energy counter here" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_fit_that_fails_keeps_what_it_had(lightning):
    ours = jt.lightning_callback(device=REAL)
    ours.on_fit_start(None, None)
    ours.on_train_epoch_start(None, None)
    ours.on_train_batch_end(None, None)
    ours.on_exception(None, None, ValueError("loss is not a number"))
    assert not ours.run.complete
    assert len(spans(ours.run, "range", "epoch")) == 1
    assert any("loss is not a number" in warning.message for warning in ours.run.warnings)
    ours.on_fit_end(None, None)  # whatever comes afterwards


@pytest.mark.thorough
def test_loggers_of_lightning_get_the_figures_and_in_the_end_the_totals(lightning):
    ours, logger = jt.lightning_callback(device=REAL), Loggers()
    trainer = SimpleNamespace(log_every_n_steps=2, global_step=0, loggers=[logger])
    ours.on_fit_start(trainer, None)
    started(ours)
    for _ in range(3):
        time.sleep(0.5)
        trainer.global_step += 1
        ours.on_train_batch_end(trainer, None)
    ours.on_fit_end(trainer, None)
    assert [step for step, _ in logger.lines] == [2, 3]
    assert logger.lines[1][1]["simulated_energy_j"] == pytest.approx(ours.run.result("energy_total_j", 1).value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"update_s": 0}, "update_s=0"),
        ({"device": "nope"}, "unknown device 'nope'"),
        ({"device": "sim:h100?realtime=0"}, "leave out realtime=0"),
        ({"label": "runs/mine"}, "'runs/mine' is a name, and nothing is saved: save_to='runs/mine'?"),
        ({"kernel": False}, "no option of record 'kernel'; there is label, device, "),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_a_model_is_made(lightning, options, said):
    with pytest.raises(BadInputError, match=re.escape(said)):
        jt.lightning_callback(**{"device": REAL, **options})


@pytest.mark.thorough
def test_a_training_that_was_interrupted_is_ended_by_the_next_or_by_close():
    pytest.importorskip("transformers")
    ours = jt.trainer_callback("tiny", device=REAL)
    ours.on_train_begin(None, None, None)
    first = Recording.active
    said = pytest.warns(RuntimeWarning, match=r"within the active 'tiny': .*Recording.active.close\(\) ends it")
    with said, jt.record("cell", device=REAL):
        pass
    ours.on_train_begin(None, None, None)
    assert Recording.active is not first
    assert ours.run is first.run
    assert not first.run.complete
    assert "the training did not end" in interruption(first.run)
    second = Recording.active
    second.close()
    assert interruption(second.run).startswith("ended early by close(); ")
    ours.close()
    assert Recording.active is None
    assert ours.run is not first.run
    assert not ours.run.complete
    ours.close()  # and does nothing


@pytest.mark.thorough
def test_an_exception_that_no_callback_hears_of_is_stated_at_the_end_of_the_program(
    lightning, monkeypatch, capsys, tmp_path
):
    at_exit = []
    monkeypatch.setattr(atexit, "register", lambda *call: at_exit.append(call))
    ours = jt.lightning_callback("tiny", device=REAL, save_to=tmp_path / "run")
    ours.on_fit_start(None, None)
    ours.on_train_epoch_start(None, None)
    time.sleep(0.3)
    with pytest.raises(RuntimeError) as raised:
        exec("raise RuntimeError('boom')", {"__name__": "transformers.trainer"})
    monkeypatch.setattr(sys, "last_value", raised.value, raising=False)
    for function, *given in reversed(at_exit):
        function(*given)
    run, said = jt.load(tmp_path / "run"), capsys.readouterr().err
    assert not run.complete
    assert [row["name"] for row in spans(run, "range")] == ["epoch"]
    assert not any(warning.code == "ranges_not_ended" for warning in run.warnings)
    assert "ended early by RuntimeError: boom; what was recorded until then is kept" in said
    assert f"saved {tmp_path}" in said


def test_a_second_callback_of_a_trainer_is_refused(lightning):
    ours, other = jt.lightning_callback(device=REAL), jt.lightning_callback(device=REAL)
    with pytest.raises(BadInputError, match="callback 'training': the trainer has two of jouletrace; give one"):
        ours.on_fit_start(SimpleNamespace(callbacks=[ours, other]), None)
    assert Recording.active is None


@pytest.mark.thorough
def test_a_training_whose_place_exists_is_saved_at_the_next_free_name(lightning, capsys, tmp_path):
    for name in ("taken.zip", "taken-2.zip"):
        (tmp_path / name).touch()
    ours = jt.lightning_callback("tiny", device=REAL, save_to=tmp_path / "taken.zip")
    for name in ("taken-3.zip", "taken-4.zip"):  # of a second fit, too
        ours.on_fit_start(None, None)
        ours.on_fit_end(None, None)
        assert jt.load(tmp_path / name).complete
        said = capsys.readouterr().err
        assert f"tiny: {tmp_path}/taken.zip exists: this training is saved to {tmp_path}/{name}\n" in said
        assert f"saved {tmp_path}/{name}" in said
    with pytest.raises(BadInputError, match="cannot write"):
        jt.lightning_callback(device=REAL, save_to=tmp_path / "taken.zip" / "below")


@pytest.mark.parametrize(
    ("make", "missing"),
    [("trainer_callback", ["transformers"]), ("lightning_callback", ["lightning.pytorch", "pytorch_lightning"])],
)
def test_a_library_that_is_not_there_is_named(monkeypatch, make, missing):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NotPossibleError, match="pip install"):
        getattr(jt, make)()


@pytest.mark.thorough
def test_the_closing_lines_stand_apart_from_a_progress_bar_and_name_the_run(capsys, tmp_path):
    tqdm = pytest.importorskip("tqdm").tqdm
    callback = jt.trainer_callback("tiny", device=REAL, save_to=tmp_path / "run")
    bar = tqdm(total=2, file=sys.stderr)
    callback._start()
    time.sleep(0.3)
    bar.update(2)
    callback._end()
    bar.close()
    lines = [line.rpartition("\r")[2] for line in capsys.readouterr().err.splitlines()]
    assert any(line.startswith("SIMULATED tiny: ") for line in lines), "no line begins with the bar"
    assert any(line.startswith(f"saved {tmp_path}") and "jouletrace show" in line for line in lines)


@pytest.mark.thorough
def test_a_trainer_s_callback_saves_where_it_was_made(workspace, monkeypatch):
    pytest.importorskip("transformers")
    ours = jt.trainer_callback("tiny", device=REAL, save_to="run")
    monkeypatch.chdir(workspace.parent)
    ours.on_train_begin(None, None, None)
    time.sleep(0.05)
    ours.on_train_end(None, None, SimpleNamespace())
    assert jt.load(workspace / "run").complete
