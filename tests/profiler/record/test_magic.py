"""The cell magic, in a shell that does what IPython's does with it."""

import re
from types import SimpleNamespace

import pytest

import jouletrace as jt
from jouletrace.profiler.record import magic

UsageError = pytest.importorskip("IPython.core.error").UsageError

REAL = "sim:h100?realtime=1&load=0.5:300"


class Shell:
    """As ``IPython.core.interactiveshell.InteractiveShell``."""

    def __init__(self):
        self.user_ns, self.magics = {}, {}

    def register_magic_function(self, function, kind, name):
        self.magics[kind, name] = function

    def transform_cell(self, code):
        return code

    def run_cell(self, code):
        outcome = SimpleNamespace(error_before_exec=None, error_in_exec=None)
        try:
            exec(code, self.user_ns)
        except Exception as error:
            outcome.error_in_exec = error
        return outcome


@pytest.fixture
def joules():
    shell = Shell()
    jt.load_ipython_extension(shell)
    return lambda line, cell: (shell.magics["cell", "joules"](line, cell), shell.user_ns)[1]


@pytest.mark.thorough
def test_a_cell_is_recorded(joules, capsys, tmp_path):
    found = joules(
        f"'my cell' --device '{REAL}' --save-to {tmp_path / 'run'}",
        "import jouletrace as jt, time\nwith jt.range('nap'):\n    time.sleep(0.05)\nx = 3",
    )
    assert found["x"] == 3
    run = found["_joules"]
    assert (run.kind, run.workload["name"], found["_joules_split"]) == ("record", "my cell", None)
    assert "nap" in {unit["name"] for unit in run.units.to_pylist()}
    assert jt.load(tmp_path / "run").complete
    assert capsys.readouterr().out.startswith("SIMULATED my cell: ")


@pytest.mark.thorough
def test_a_cell_that_fails_keeps_what_was_recorded(joules):
    run = joules("--device cpu --no-kernels", "1 / 0")["_joules"]
    assert not run.complete
    assert any("division by zero" in warning.message for warning in run.warnings)


def test_a_cell_that_does_not_compile_is_not_recorded_and_leaves_the_run_of_the_cell_before(joules, capsys):
    joules("--device cpu --no-kernels", "x = 1")
    capsys.readouterr()
    found = joules("--device cpu --no-kernels", "print((1)")
    assert isinstance(found["_joules"], jt.Run)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--gpu cpu", "unrecognized arguments: --gpu"),
        ("-h", "usage: %%joules [--device"),
        ("--device none-such", "none-such"),
        ("'open", "No closing quotation"),
    ],
)
def test_options_that_make_no_sense_fail_the_cell_and_keep_the_run_of_the_cell_before(line, said):
    shell = Shell()
    shell.user_ns |= (before := {"_joules": "of the cell before", "_joules_split": None})
    with pytest.raises(UsageError, match=rf"^%%joules: .*{re.escape(said)}.*$"):
        magic.joules(shell, line, "ran = True")
    assert shell.user_ns == before


def test_a_cell_that_fails_while_it_is_recorded_keeps_no_run_of_another(monkeypatch):
    shell = Shell()
    shell.user_ns |= {"_joules": "of the cell before", "_joules_split": None}
    monkeypatch.setattr(shell, "run_cell", lambda code: 1 / 0)  # the shell itself fails
    with pytest.raises(ZeroDivisionError):
        magic.joules(shell, "--device cpu --no-kernels", "x = 1")
    assert shell.user_ns == {}
