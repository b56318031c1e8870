"""A monitor that counts real work beside the power: servers that are slow, broken or gone."""

import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from commands import FOREVER_S, PATIENCE_S, command, only_run
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring import CounterTarget, LiveWork, WorkCounter
from jouletrace.profiler.monitoring.monitor import monitor
from jouletrace.run import load
from jouletrace.simulator.boards import SimulatedGpu
from metric_server import Page, counter_page, serving
from places import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "served_model.py"
REAL = "sim:h100?realtime=1&load=0.5:300"


# --- a monitor that counts -------------------------------------------------------------------------


class Seen:
    """A display that keeps what it is shown, and what ``look`` says then."""

    def __init__(self, look):
        self.works: list[LiveWork] = []
        self.looks: list[object] = []
        self.energies: list[float | None] = []
        self.look = look

    def show(self, readings, work):
        self.works.append(work)
        self.looks.append(self.look())
        self.energies.append(readings[0].energy_j)


def watched(counter, look=lambda: None, **options):
    device = SimulatedGpu(REAL)
    seen = Seen(look)
    facts = {"interval_s": 0.2, "duration_s": 2.2, **options}
    run = monitor([device], counter=counter, displays=[seen.show], **facts)
    return run, seen


@pytest.mark.thorough
def test_a_running_server_has_its_joules_per_token_live_and_in_the_run(tmp_path):
    began = time.monotonic()
    with serving(Page(lambda: counter_page(round(1e5 + 1000 * (time.monotonic() - began))))) as page:
        counter = WorkCounter(CounterTarget.parse(f"{page.url}#tokens_total"), 0.2)
        run, seen = watched(counter, folder=tmp_path / "run")
    # At which moment within its answer the server had its value no one knows.
    each, rate = run.result("energy_per_work_j"), run.result("work_per_s")
    assert each.value == pytest.approx(0.3, rel=0.2)
    assert rate.value == pytest.approx(1000, rel=0.2)
    live = [work.j_each for work in seen.works if work.j_each is not None]
    assert np.median(live) == pytest.approx(0.3, rel=0.3)
    assert np.median([work.per_s for work in seen.works if work.per_s is not None]) == pytest.approx(1000, rel=0.3)
    assert seen.works[-1].j_each_mean == pytest.approx(0.3, rel=0.3)
    assert seen.energies[-1] == pytest.approx(300 * run.result("time_s", 1).value, rel=0.2)
    assert [w.code for w in run.warnings] == []
    saved = load(tmp_path / "run")
    assert saved.samples.equals(run.samples)
    assert analyse(saved).results.equals(run.results), "the figures come from what is stored alone"


@pytest.mark.thorough
def test_a_url_that_is_down_keeps_measuring_and_says_so():
    run, seen = watched(WorkCounter(CounterTarget.parse("http://127.0.0.1:9/#tokens_total"), 0.2), duration_s=0.8)
    assert run.result("energy_per_work_j").reason == "work_never_read"
    assert "work_never_read" in [w.code for w in run.warnings]
    assert run.result("energy_total_j", 1).value > 0
    assert "can't be reached" in seen.works[-1].problem


@pytest.mark.thorough
def test_a_slow_server_delays_neither_ticks_nor_samples():
    page = Page()

    def never_again():
        page.wait_s = FOREVER_S  # from now on
        return counter_page(1)

    page.text = never_again
    with serving(page):
        counter = WorkCounter(CounterTarget.parse(f"{page.url}#tokens_total"), 0.2, timeout_s=0.5)
        run, seen = watched(counter, duration_s=1.6, look=lambda: page.asked)
    assert page.asked > 2, "a reading is given up after half a second"
    assert max(Counter(seen.looks).values()) >= 2, "ticks go on while an answer is waited for"
    assert not [w for w in run.warnings if w.code.startswith("record")]
    assert "did not answer" in next(w.message for w in run.warnings if w.code == "work_not_read")


def test_virtual_time_and_a_real_counter_do_not_go_together():
    counter = WorkCounter(CounterTarget.parse("http://127.0.0.1:9/#x"))
    with pytest.raises(BadInputError, match="a counter takes real time"):
        monitor([SimulatedGpu("sim:h100")], duration_s=1.0, counter=counter)


# --- the command line, with the example ------------------------------------------------------------


@pytest.mark.thorough
def test_the_example_is_measured_from_the_command_line(capsys, workspace):
    arguments = [sys.executable, str(EXAMPLE), "--port", "0", "--requests-per-s", "50", "--seconds", str(PATIENCE_S)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as served:
        try:
            target = served.stdout.readline().strip() + '{kind="generation"}'
            options = ("-d", REAL, "--duration", "2.2", "--interval", "0.5")
            said = command(capsys, "monitor", "-v", "--per", target, *options)
        finally:
            served.kill()
    assert said.code == 0, said.err
    for words in ("SIMULATED", "Energy per unit of work", "0.0 to"):
        assert words in said.out
    assert "served_tokens_total: " in said.err
    assert " J each" in said.err
    run = load(only_run(workspace))
    assert run.result("energy_per_work_j").value > 0
    assert run.workload["work"] == "served_tokens_total"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--per", "http://h/"), "write URL#metric"),
    ],
)
def test_wrong_options_are_refused_in_one_line(capsys, workspace, options, said):
    found = command(capsys, "monitor", "-d", REAL, *options)
    assert found.code == 2
    assert said in found.complaint
