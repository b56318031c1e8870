"""Looking things up in a Run."""

import subprocess
import sys

import numpy as np
import pytest

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run import Estimate, Run, RunWarning, tables
from make_runs import GPU, START, monitor_run, profile_run, simulated_run


def test_an_empty_run_has_empty_tables_and_no_figures():
    run = Run()
    assert all(len(run.table(name)) == 0 for name in tables.TABLES)
    assert run.result("energy_total_j") == Estimate.null("not_measured")
    assert run.result("energy_total_j").flags == ()
    with pytest.raises(BadInputError, match=f"no device '{GPU}'; there is none"):
        run.series(GPU, "power_w")


def test_a_series_is_one_channel_of_one_device_with_exact_stamps():
    stamps, values = profile_run().series(GPU, "power_w")
    assert stamps.dtype == np.int64
    assert stamps[0] == START
    assert stamps[-1] == START + 599 * 20_000_000
    assert values[0] == 72.0
    assert len(values) == 600


def test_a_series_that_a_device_lacks_is_empty_and_an_unknown_name_is_refused_with_those_that_are_there():
    run = profile_run()
    assert [len(part) for part in run.series(GPU, "temperature_memory_c")] == [0, 0]
    with pytest.raises(BadInputError, match=f"no device 'gpu'; there is {GPU}"):
        run.series("gpu", "power_w")
    with pytest.raises(BadInputError, match=f"no channel of {GPU} 'power'; there is power_w"):
        run.series(GPU, "power")


def test_a_result_of_a_unit_may_be_asked_for_by_its_name_or_path_if_one_has_it():
    names = {1: "epoch", 2: "epoch/forward", 3: "forward", 4: "evaluation/loss", 5: "epoch/loss"}
    run = Run(
        units=tables.from_rows([{"id": id, "level": "range", "name": name} for id, name in names.items()], "units"),
        results=tables.from_rows([{"unit": id, "metric": "time_s", "value": float(id)} for id in names], "results"),
    )
    for id, name in names.items():
        assert run.result("time_s", name).value == id
    with pytest.raises(BadInputError, match=r"no unit 'epoc'; there is epoch, .* did you mean 'epoch'"):
        run.result("time_s", "epoc")
    with pytest.raises(BadInputError, match=r"2 units are called 'loss'; .*: 4 \(evaluation/loss\), 5 \(epoch/loss\)"):
        run.result("time_s", "loss")


def test_a_result_comes_with_its_interval_and_flags():
    run = profile_run()
    assert run.result("energy_total_j") == Estimate(4.652, 4.652 - 0.021, 4.652 + 0.021, 12, "windows")
    assert run.result("baseline_deep_idle_w").flags == ("stored",)
    assert run.result("energy_total_j").flags == ()


def test_a_result_of_a_unit_is_not_that_of_the_model():
    run = monitor_run()
    assert run.result("share").reason == "not_measured"
    assert run.result("power_w", 2).value == 236.0
    assert run.result("power_idle_w", 1) == Estimate.null("always_busy")


def test_a_table_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(BadInputError, match="no table 'ranges'; there is samples, "):
        Run().to_pandas("ranges")


def test_every_table_goes_to_pandas():
    run = profile_run(kernels=2)
    for name in tables.TABLES:
        frame = run.to_pandas(name)
        assert list(frame.columns) == tables.TABLES[name].names
        assert len(frame) == len(run.table(name))
    assert run.to_pandas().query("metric == 'energy_total_j' and unit == 0")["value"].item() == 4.652


def test_a_run_is_simulated_if_any_device_is():
    assert simulated_run().simulated
    assert not profile_run().simulated
    assert not Run().simulated


def test_a_warning_is_kept_once():
    run = Run()
    run.warn("not_settled", "power was still changing", "warm-up")
    run.warn("not_settled", "power was still changing", "warm-up")
    assert run.warnings == [RunWarning("not_settled", "power was still changing", "warm-up")]


def test_a_channel_is_selected_by_device_and_name():
    run = monitor_run()
    channel = run.channel(run.devices[1].id, "power_w")
    assert channel is not None
    assert channel.device == run.devices[1].id
    assert run.channel(GPU, "temperature_c") is None


def test_a_misspelt_metric_is_refused_with_the_nearest_and_a_known_one_that_is_not_there_is_null():
    run = Run()
    with pytest.raises(BadInputError, match="no metric 'energy_totl_j'; did you mean energy_total_j"):
        run.result("energy_totl_j")
    with pytest.raises(BadInputError, match=r"no metric 'energy_j'; did you mean energy_total_j "):
        profile_run().result("energy_j")
    with pytest.raises(BadInputError, match=r"no metric 'zzz'; this Run has none"):
        run.result("zzz")
    with pytest.raises(BadInputError, match=r"'energy'; did you mean energy_total_j .*all: run.results\['metric'\]"):
        profile_run().result("energy")
    with pytest.raises(BadInputError, match=r"'zzz'; this Run has latency_s, "):
        profile_run().result("zzz")
    assert run.result("energy_total_j").reason == "not_measured"
    rows = [{"unit": 3, "metric": "of_another_program", "value": 1.0}]
    run.results = tables.from_rows(rows, "results")
    assert run.result("of_another_program", 3).value == 1.0
    assert run.result("of_another_program").reason == "not_measured"


def test_a_table_without_pandas_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(NotPossibleError, match="pip install pandas"):
        profile_run().to_pandas("units")


@pytest.mark.thorough
def test_a_run_that_was_loaded_prints_and_saves_where_nothing_else_was_imported(tmp_path):
    profile_run().save(tmp_path / "first")
    code = (
        "import sys; from jouletrace.run import load; run = load(sys.argv[1]); print(run);"
        "print(run.result('energy_total_j')); run.save(sys.argv[2])"
    )
    command = [sys.executable, "-c", code, *(str(tmp_path / name) for name in ("first", "second"))]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    assert str(profile_run()) in shown
    assert shown.splitlines()[-1] == "4.652 ± 0.021 J"
    assert (tmp_path / "second" / "run.json").exists()
