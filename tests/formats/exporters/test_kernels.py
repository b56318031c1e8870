"""The flat table of kernels."""

import csv
from pathlib import Path

import pytest

import jouletrace.bundled
from jouletrace.analysis.divided import divided
from jouletrace.errors import BadInputError
from jouletrace.formats.exporters import export
from jouletrace.run import load
from make_runs import profile_run

LAYERS = Path(jouletrace.bundled.__file__).parent / "deit-b-64-layers-h200.zip"


def rows(run, path):
    with export(run, "kernels", path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_kernel_has_its_calls_times_and_energy(tmp_path):
    run = load(LAYERS)
    found = rows(run, tmp_path / "kernels.csv")
    times = [float(row["time_s"]) for row in found]
    assert times == sorted(times, reverse=True)
    assert sum(float(row["share_of_time"]) for row in found) == pytest.approx(1.0)
    assert all(float(row["time_mean_s"]) * int(row["calls"]) == pytest.approx(float(row["time_s"])) for row in found)
    energies = {
        one.path[0].name: one.get("energy_total_j") for one in divided(run, ["kernel"]) if one.path[0].kind == "kernel"
    }
    assert {row["kernel"] for row in found} == set(energies)
    for row in found:
        ends = [float(row[f"energy_total_j{end}"]) for end in ("_low", "", "_high")]
        own = energies[row["kernel"]]
        assert ends == [own.low, own.value, own.high]


def test_a_run_without_kernels_is_refused_and_leaves_no_file(tmp_path):
    with pytest.raises(BadInputError, match="holds no kernels"):
        export(profile_run(), "kernels", tmp_path / "kernels.csv")
    assert not list(tmp_path.iterdir())
