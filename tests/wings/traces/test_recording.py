"""Another tool's timeline with a record of NVML samples: the same powers as of our own recording."""

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import commands
import foreign
from energy_tables import Rows
from gpu_recordings import load as load_recorded
from jouletrace.analysis import analyse, budgets, kernel_powers
from jouletrace.analysis.kernel_powers import models
from jouletrace.attribution import activity_of
from jouletrace.attribution.lock import lock
from jouletrace.formats.importers import read_files
from jouletrace.formats.importers.base import counted
from jouletrace.run import MODEL_UNIT, RECORDINGS, SAMPLE_RATE, ChannelInfo, DeviceInfo, Run, load, recording_of, tables
from jouletrace.sensor import on_grid
from jouletrace.stats import Z95
from places import REPOSITORY
from shown import rows

CHAIN, VIT, VIT_HZ = "chain-shuffled-h100", "vit-repeats-h200", 1238.6
KNOWN = {"value": 1224.3}
DOCS = REPOSITORY / "docs" / "how-to" / "importing.md"

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("known_average")]


def imported(*files, rate_hz=1224.3):
    """The figures of an import, the sample rate known from before."""
    run = read_files(files)
    run.stored[SAMPLE_RATE] = {one.id: {"value": rate_hz} for one in run.devices}
    return analyse(run)


def near(name, seconds=1.0):
    """The power record as it counts: from a second before the first kernel to one after the last."""
    rows, recorded = foreign.power_rows(name), load_recorded(name)
    time = rows[:, 0] * 1000
    return rows[(time > recorded.start_ns[0] - seconds * 1e9) & (time < recorded.end_ns.max() + seconds * 1e9)]


def powers(run):
    """Power of each kernel by name and operator."""
    units = [unit for unit in run.units.to_pylist() if unit["level"] == "kernel"]
    found = {(unit["name"].strip(), unit["op"] or ""): run.result("power_w", unit["id"]) for unit in units}
    return {kind: estimate.value for kind, estimate in found.items() if estimate.value is not None}


def said(run, code="not_attributed"):
    """The one warning of a code."""
    (warning,) = [one.message for one in run.warnings if one.code == code]
    assert "\n" not in warning
    return warning


def directly(name, rate_hz=1224.3):
    """A Run of the same recording as ``profile`` keeps it."""
    recorded, rows, gpu = load_recorded(name), near(name), "GPU-1"
    units, of_operator = [], {}
    for operator in dict.fromkeys(kind.operator for kind in recorded.kinds if kind.operator):
        of_operator[operator] = len(units) + 1
        units.append(
            {"id": len(units) + 1, "parent": MODEL_UNIT, "level": "op", "name": operator, "op": operator, "count": 1}
        )
    first = len(units) + 1
    for place, kind in enumerate(recorded.kinds):
        parent = of_operator.get(kind.operator, MODEL_UNIT)
        op = kind.operator or None
        units.append(
            {"id": first + place, "parent": parent, "level": "kernel", "name": kind.name, "op": op, "count": 1}
        )
    units.append({"id": first + len(recorded.kinds), "parent": MODEL_UNIT, "level": "op", "name": "idle", "count": 1})
    about = {"iterations": 1, "start_ns": int(recorded.start_ns[0]), "end_ns": int(recorded.end_ns.max()), "dropped": 0}
    channel = ChannelInfo(gpu, "power_w", "W", "samples", period_s=0.02, window_s=0.025, gapless=True)
    run = Run(
        kind="profile", workload={RECORDINGS: [about]}, devices=[DeviceInfo(gpu, "GPU", "gpu")], channels=[channel]
    )
    run.units = tables.from_rows(units, "units")
    activity = {"start_ns": recorded.start_ns, "end_ns": recorded.end_ns, "unit": first + recorded.kind}
    run.activity = tables.conform(pa.table(activity), "activity")
    some = [gpu] * len(rows), ["power_w"] * len(rows)
    columns = {"time_ns": rows[:, 0] * 1000, "device": some[0], "channel": some[1], "value": rows[:, 1] / 1e3}
    run.samples = tables.conform(pa.table(columns), "samples")
    run.stored[SAMPLE_RATE] = {one.id: {"value": rate_hz} for one in run.devices}
    return analyse(run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trace, and the record beside it."""
    folder = tmp_path_factory.mktemp("foreign")
    foreign.write_kineto(folder / "trace.json", *foreign.events_of(CHAIN))
    foreign.write_power(folder / "power.csv", near(CHAIN))
    return folder


@pytest.fixture(scope="module")
def chain(folder):
    return imported(folder / "trace.json", folder / "power.csv")


def test_powers_are_those_of_our_own_recording(chain):
    direct, found = powers(directly(CHAIN)), powers(chain)
    assert found.keys() == direct.keys()
    assert len(found) >= 10
    for kind, watts in direct.items():
        assert found[kind] == pytest.approx(watts, rel=1e-6)
    assert chain.result(SAMPLE_RATE).value == pytest.approx(1224.3, abs=0.4)
    assert not chain.warnings


def test_powers_are_those_of_the_regression_itself(chain):
    recorded, rows = load_recorded(CHAIN), near(CHAIN)
    readings = on_grid(rows[:, 0] * 1000, rows[:, 1] / 1e3)
    activity = activity_of(recorded.start_ns, recorded.end_ns, recorded.kind, recorded.kinds, readings.origin_ns)
    rows = Rows(lock(activity, models(chain, chain.channels[0])[0], readings).fit, lambda kind: kind.name)
    for (name, _), watts in powers(chain).items():
        row = rows.row([one for one in rows.names if one.strip() == name])
        assert row.energy.value / row.seconds == pytest.approx(watts, rel=1e-6)


@pytest.mark.slow
def test_operators_come_by_their_launches(tmp_path):
    trace = foreign.write_kineto(tmp_path / "t.json", *foreign.events_of(VIT, operators=True))
    run = imported(trace, foreign.write_power(tmp_path / "p.csv", near(VIT)), rate_hz=VIT_HZ)
    direct, found = powers(directly(VIT, VIT_HZ)), powers(run)
    assert found.keys() == direct.keys()
    assert sum(op != "" for _, op in found) >= 5
    for kind, watts in direct.items():
        assert found[kind] == pytest.approx(watts, rel=1e-6)
    assert recording_of(run)["dropped"] == 0
    assert not any(warning.code == "not_attributed" for warning in run.warnings)


def test_parts_make_the_whole(chain):
    assert chain.result("closure_kernels").value == pytest.approx(1, abs=0.005)
    assert chain.result("closure_layers").reason == "not_measured"  # nothing says which module anything is of
    units = chain.units.to_pylist()
    seconds = sum(chain.result("time_s", unit["id"]).value for unit in units if unit["level"] in ("kernel", "op"))
    assert seconds == pytest.approx(chain.result("iteration_time_s").value, rel=1e-3)
    energy = [
        chain.result("energy_total_j", unit["id"]).value or 0 for unit in units if unit["level"] in ("kernel", "op")
    ]
    assert sum(energy) == pytest.approx(chain.result("energy_total_j").value, rel=0.01)


def test_the_whole_has_a_budget(chain):
    (found,) = budgets(chain)
    assert found.unit == MODEL_UNIT
    stated = np.linalg.norm([term.u for term in found.terms if term.stated])
    assert stated == pytest.approx(found.figure.half_width / Z95)


def test_files_may_come_in_any_order(folder, chain):
    assert powers(imported(folder / "power.csv", folder / "trace.json")) == pytest.approx(powers(chain), rel=1e-9)


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("time_ns,power_w", lambda us, mw: f"{us}000,{mw / 1e3:.3f}"),
        ("time_s,power_mw", lambda us, mw: f"{us // 10**6}.{us % 10**6:06d},{mw}"),
        ("Timestamp (us);Power (W)", lambda us, mw: f"{us};{mw / 1e3:.3f}"),
    ],
)
def test_a_record_in_other_units_says_the_same(folder, tmp_path, chain, header, line):
    power = foreign.write_power(tmp_path / "other.csv", near(CHAIN), header, line)
    assert powers(imported(folder / "trace.json", power)) == pytest.approx(powers(chain), rel=1e-6)


def test_an_export_of_nsys_says_the_same(folder, tmp_path, chain):
    run = imported(foreign.write_nsys(tmp_path / "t.sqlite", CHAIN), folder / "power.csv")
    assert powers(run) == pytest.approx(powers(chain), rel=1e-6)


@pytest.mark.parametrize(
    ("category", "name"), [("user_annotation", "ProfilerStep#{}"), ("user_annotation", "train step {}")]
)
def test_figures_are_per_iteration_where_annotations_mark_them(tmp_path, chain, category, name):
    events, base = foreign.events_of(CHAIN, operators=True)
    count = len(load_recorded(CHAIN).start_ns)
    each = 2000
    steps = count // each
    for step in range(steps):  # the last kernels are launched outside of all
        args = {"External id": 10**6 + step}
        events.append(
            foreign.event(category, name.format(step), 4000 * (1 + step * each), 4000 * each - 100, 7, 7, args)
        )
    trace = foreign.write_kineto(tmp_path / "t.json", events, base)
    run = imported(trace, foreign.write_power(tmp_path / "p.csv", near(CHAIN)))
    about = recording_of(run)
    assert (about["iterations"], about["iterations_by"]) == (steps, name.split("#")[0].removesuffix(" {}"))
    assert powers(run) == pytest.approx(powers(chain), rel=1e-6)
    recorded = load_recorded(CHAIN)
    starts = recorded.start_ns
    period = (starts[(steps - 1) * each] - starts[0]) / 1e9 / (steps - 1)
    assert run.result("iteration_time_s").value == pytest.approx(period, rel=1e-6)
    inside = slice(0, steps * each)
    for unit in run.units.to_pylist():
        if unit["level"] == "kernel":
            mine = recorded.kind[inside] == [kind.name.strip() for kind in recorded.kinds].index(unit["name"])
            seconds = (recorded.end_ns - starts)[inside][mine].sum() / 1e9 / steps
            assert run.result("time_s", unit["id"]).value == pytest.approx(seconds, rel=1e-6)
    assert run.result("power_w").value * period == pytest.approx(run.result("energy_total_j").value, rel=1e-6)
    share = 1 - (recorded.end_ns - starts)[inside].sum() / (recorded.end_ns - starts).sum()
    assert f"{100 * share:.1f} % of the kernels' time was launched outside" in said(run, "outside_of_iterations")


def test_launch_shapes_are_kinds_of_their_own(tmp_path):
    """One kernel on two grids draws two powers; without the grids it would draw one."""
    events, base = foreign.events_of(CHAIN)
    names = [kind.name for kind in load_recorded(CHAIN).kinds]
    a, b = (next(name for name in names if part in name) for part in ("sm80_xmma", "scan_innermost"))
    for one in events:
        if one["name"] in (a, b):
            one["args"] |= {"grid": [4 if one["name"] == a else 8, 2, 1], "block": [128, 1, 1]}
            one["name"] = "both"
    run = imported(
        foreign.write_kineto(tmp_path / "t.json", events, base), foreign.write_power(tmp_path / "p.csv", near(CHAIN))
    )
    found = powers(run)
    assert {"both <<<4x2, 128>>>", "both <<<8x2, 128>>>"} <= {name for name, _ in found}
    direct = powers(directly(CHAIN))
    assert found["both <<<4x2, 128>>>", ""] == pytest.approx(direct[a.strip(), ""], rel=1e-6)
    assert found["both <<<8x2, 128>>>", ""] == pytest.approx(direct[b.strip(), ""], rel=1e-6)


def energies(run):
    """Energies of kernels, and how they were determined."""
    ids = [unit["id"] for unit in run.units.to_pylist() if unit["level"] == "kernel"]
    return [run.result("energy_total_j", id) for id in ids]


def test_files_of_other_times_are_one_line_with_both_spans(folder, tmp_path):
    rows = near(CHAIN) + np.array([3600 * 10**6, 0])
    run = imported(folder / "trace.json", foreign.write_power(tmp_path / "p.csv", rows))
    text = said(run, "no_common_time")
    assert len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC to ", text)) == 2
    assert "--offset" in text
    assert RECORDINGS not in run.workload
    assert all(one.value is None for one in energies(run))
    assert len(run.warnings) == 1


def test_a_record_that_ends_before_the_kernels_is_one_line_with_both_spans(tmp_path):
    """Its host spans lie within the record, and its kernels don't."""
    events, base = foreign.events_of(CHAIN, operators=True)
    rows = foreign.power_rows(CHAIN)
    early = rows + np.array([base // 1000 - rows[0, 0], 0])
    run = imported(
        foreign.write_kineto(tmp_path / "t.json", events, base), foreign.write_power(tmp_path / "p.csv", early)
    )
    assert re.search(r"kernels ran from 2\S+ \S+ UTC to .*, the power record is from 2", said(run))


def test_a_coarse_record_is_for_what_there_was_before(folder, tmp_path):
    run = imported(folder / "trace.json", foreign.write_power(tmp_path / "p.csv", near(CHAIN)[::5]))
    assert "it has a reading every 100 ms; the driver's record of samples has one every 20 ms" in said(run)
    assert RECORDINGS not in run.workload
    assert not len(run.activity)
    assert run.result("time_busy_s").value > 0


def test_readings_off_the_drivers_grid_are_no_samples(folder, tmp_path):
    rows = near(CHAIN).copy()
    rows[:, 0] += np.random.default_rng(1).integers(-9000, 9000, len(rows))
    run = imported(folder / "trace.json", foreign.write_power(tmp_path / "p.csv", rows[np.argsort(rows[:, 0])]))
    assert "it isn't the driver's record" in said(run)


@pytest.mark.usefixtures("first_range_only")
def test_a_record_of_another_gpu_is_not_believed(folder, tmp_path):
    rows = foreign.power_rows("pulses-h200")
    moved = rows[: len(near(CHAIN))] + np.array([near(CHAIN)[0, 0] - rows[0, 0], 0])
    run = imported(folder / "trace.json", foreign.write_power(tmp_path / "p.csv", moved))
    assert said(run).startswith("no energies of kernels")
    assert RECORDINGS not in run.workload


@pytest.mark.usefixtures("first_range_only")
def test_a_short_record_keeps_the_energies_of_its_spans(folder, tmp_path):
    """Too short for the times of samples: readings count as averages, and what can be integrated is."""
    events, base = foreign.events_of(CHAIN, kernels=slice(0, 4000))
    first, last = events[0], events[-1]
    args = {"External id": 1}
    events.append(foreign.event("user_annotation", "all", first["ts"], last["ts"] - first["ts"], 7, 7, args))
    run = imported(foreign.write_kineto(tmp_path / "t.json", events, base), folder / "power.csv")
    assert "the recording lasts" in said(run, "samples_unplaced")
    (unit,) = [unit["id"] for unit in run.units.to_pylist() if unit["name"] == "all"]
    assert run.result("energy_total_j", unit).value > 500


def test_a_timeline_without_kernels_is_one_line(tmp_path, folder):
    events, base = foreign.events_of(CHAIN, operators=True)
    host = [one for one in events if one["cat"] != "kernel"]
    for one in host:
        one["ts"] += 100 * 10**9
    run = imported(foreign.write_kineto(tmp_path / "t.json", host, base), folder / "power.csv")
    assert "the timeline has none" in said(run)


@pytest.mark.usefixtures("first_range_only")
def test_kernels_that_were_dropped_are_seen_by_their_launches(tmp_path, folder):
    events, base = foreign.events_of(CHAIN, operators=True)
    kept = [one for place, one in enumerate(events) if one["cat"] != "kernel" or place % 41]
    run = imported(foreign.write_kineto(tmp_path / "t.json", kept, base), folder / "power.csv")
    assert re.search(
        r"trace with larger buffers: the tracer missed \d\.\d\d% of the kernels \(at most 0\.10%\)", said(run)
    )


def test_launches_into_a_graph_have_no_kernels_and_none_is_missed(tmp_path, folder):
    events, base = foreign.events_of(CHAIN, operators=True)
    begin = foreign.event("cuda_runtime", "cudaStreamBeginCapture", 10, 5, 7, 7, {"correlation": 10**7})
    launch = foreign.event("cuda_runtime", "cudaLaunchKernel", 20, 5, 7, 7, {"correlation": 10**7 + 1})
    for extra, missing in (([launch], 1), ([begin, launch], 0)):
        run = imported(foreign.write_kineto(tmp_path / "t.json", events + extra, base), folder / "power.csv")
        assert recording_of(run)["dropped"] == missing


def test_kernels_that_overlap_share_energy_and_it_is_reported(tmp_path, folder):
    events, base = foreign.events_of(CHAIN)
    beside = [dict(one, name="beside", args=one["args"] | {"stream": 8}) for one in events[::3]]
    run = imported(foreign.write_kineto(tmp_path / "t.json", events + beside, base), folder / "power.csv")
    assert "others ran at once" in said(run, "kernels_overlap")


def test_a_run_is_computed_again_from_what_is_stored(chain, tmp_path):
    chain.save(str(tmp_path / "run"))
    again = load(tmp_path / "run")
    before = powers(again)
    assert before == pytest.approx(powers(chain), rel=1e-12)
    assert powers(analyse(again)) == pytest.approx(before, rel=1e-9)
    assert again.units.to_pylist() == chain.units.to_pylist()


@pytest.fixture
def known_rate(monkeypatch):
    """A rate that a calibration has left: commands look near it, and not among all that GPUs have."""
    monkeypatch.setattr(
        kernel_powers,
        "models",
        lambda run, channel: models(replace(run, stored=run.stored | {SAMPLE_RATE: {channel.device: KNOWN}}), channel),
    )


@pytest.mark.usefixtures("known_rate")
def test_the_command_of_the_documentation_prints_tables_and_checks(folder, workspace):
    (command,) = re.findall(r"^jouletrace (import \S+\.json \S+\.csv.*?)(?:\s+#.*)?$", DOCS.read_text(), re.M)
    for name in ("trace.json", "power.csv"):
        (workspace / name).write_bytes((folder / name).read_bytes())
    shown = commands.done(*shlex.split(command), "-v")
    for words in ("figures are of the whole recording", "Operators and kernels", "Checks", "Sample rate of the sensor"):
        assert words in shown.out
    assert (workspace / "run" / "run.json").is_file()


@pytest.mark.usefixtures("known_rate")
def test_the_command_gives_the_same_as_json(folder, workspace):
    shown = commands.done("import", str(folder / "trace.json"), str(folder / "power.csv"), "--json")
    report = json.loads(shown.out)["report"]
    assert len(rows(report, "code", "kernel")) >= 10
    assert report["checks"]["closure_kernels"]["value"] == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize(
    ("count", "text", "found"),
    [
        (1, "cells are empty", "1 cell is empty"),
        (2, "cells are empty", "2 cells are empty"),
        (1, "rows have no entity", "1 row has no entity"),
        (1, "lines that should hold figures do not", "1 line that should hold figures does not"),
        (1, "metrics aren't numbers", "1 metric isn't numbers"),
    ],
)
def test_one_of_something_is_counted_in_the_singular(count, text, found):
    assert counted(count, text) == found
