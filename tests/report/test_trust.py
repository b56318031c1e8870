"""Every code that a Run can hold has a check, a level and an action; what fails is counted and said."""

import ast
import json
import re
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import jouletrace
from jouletrace.analysis import RULES, analyse
from jouletrace.analysis.rules import ATTRIBUTION
from jouletrace.attribution import checks as attribution_checks
from jouletrace.bundled import bundled_runs
from jouletrace.report import render
from jouletrace.run import DeviceInfo, Estimate, Run, load, tables
from jouletrace.words.reasons import ACTIONS, FLAGS, REASONS
from make_runs import cpu_run, e, monitor_run, profile_run, result, simulated_run
from places import REPOSITORY
from shipped import ABSENT
from shown import failed_of, headline_of, trust_of, verdict_of

PACKAGE = Path(jouletrace.__file__).parent
CODE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+|[a-z]+")
WARNING, NULL, LEFT_OUT = {"warn", "RunWarning"}, {"null"}, {"add"}


@cache
def constants() -> dict[str, str]:
    """Texts by the names of constants, which modules give to one another."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign):
                continue
            target, value = node.targets[0], node.value
            both = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                both = list(zip(target.elts, value.elts, strict=True))
            for name, one in both:
                if isinstance(name, ast.Name) and isinstance(one, ast.Constant) and isinstance(one.value, str):
                    found[name.id] = one.value
    return found


def literals(node: ast.expr) -> list[str]:
    """Texts that an expression may be: a constant, or the sides of a condition."""
    if isinstance(node, ast.Name) and node.id.isupper():
        return [constants()[node.id]] if node.id in constants() else []
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.IfExp):
        return literals(node.body) + literals(node.orelse)
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in literals(value)]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [text for one in node.elts for text in literals(one)]
    return []


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def pairs(tree: ast.AST) -> Iterator[str]:
    """First parts of pairs of a code and a message: ``found.append(("code", f"..."))``, ``notes["code"] = ...``."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and called(node) == "append"
            and node.args
            and isinstance(node.args[0], ast.Tuple)
        ):
            yield from literals(node.args[0].elts[0])
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Subscript)
            and ast.unparse(node.targets[0].value).endswith("notes")
        ):
            yield from literals(node.targets[0].slice)


def raised() -> dict[str, str]:
    """Codes that the source names where it warns, flags, leaves out or has no figure, each with a place."""
    found: dict[str, str] = {}
    for path in PACKAGE.rglob("*.py"):
        home = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text())
        codes: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args:
                name, first = called(node), node.args[0]
                of_import = (
                    home.startswith("formats/importers") and name in LEFT_OUT and "left" in ast.unparse(node.func)
                )
                of_flag = name in ("append", "add") and "flag" in ast.unparse(node.func)
                if name in WARNING | NULL or of_import or of_flag:
                    codes += literals(first)
            elif isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(ast.unparse(target).split(".")[-1] in ("flags", "reason") for target in targets):
                    codes += literals(node.value)
        if home.startswith(("profiler", "recording", "formats/importers", "tracing")):
            codes += pairs(tree)
        for code in codes:
            if CODE.fullmatch(code):
                found.setdefault(code, home)
    return found


NO_CODES = {"flush", "segment"}
"""First parts of pairs that are no codes."""


@pytest.mark.thorough
def test_every_code_that_the_source_raises_has_its_check():
    there = raised()
    assert len(there) > 100, "the source was read"
    without = {code: place for code, place in there.items() if code not in RULES and code not in NO_CODES}
    assert not without


def test_every_flag_reason_and_action_has_its_check():
    assert not (set(REASONS) | set(FLAGS) | set(ACTIONS)) - set(RULES)


def test_every_repair_of_a_record_that_is_reported_has_its_check():
    assert {f"record_{code}" for code in import_module("jouletrace.analysis.analyse")._RECORD_WARNINGS} <= set(RULES)


def test_every_check_of_an_attribution_has_its_rule():
    text = Path(attribution_checks.__file__).read_text()
    names = set(re.findall(r'Outcome(?:\.without_interval)?\(\s*"(\w+)"', text))
    assert names == set(ATTRIBUTION)


@pytest.mark.thorough
@pytest.mark.skipif(bool(ABSENT), reason="wings raise codes, too")
def test_no_rule_is_of_a_code_that_nothing_raises():
    text = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.name not in ("rules.py", "reasons.py"))
    words = set(re.findall(r"\w+", text))
    made = {"closure", "clock_not_as_told", "ran_beside_others", "traced_by_torch"}  # here; by earlier versions
    parts = {code: code.removeprefix("record_") for code in RULES}
    assert not {code for code, part in parts.items() if code not in words and part not in words} - made


@pytest.mark.parametrize("place", [*(PACKAGE / "bundled").glob("*.zip"), *(REPOSITORY / "docs").rglob("*.zip")])
def test_recorded_runs_hold_no_code_without_a_check(place):
    with zipfile.ZipFile(place) as packed:
        header = json.loads(packed.read("run.json"))
    assert {warning["code"] for warning in header["warnings"]} <= set(RULES)


def test_a_run_without_a_fault_passes_all_checks():
    found = trust_of(profile_run())
    assert (found["level"], found["failed"]) == ("yes", [])
    assert headline_of(profile_run()) == f"trust: yes, all {found['checks']} checks passed"
    assert found["checks"] == found["passed"] >= 8


def test_a_failure_counts_once_a_check_and_says_what_to_do():
    run = profile_run()
    run.warn("not_settled", "power was still changing after 5.0 s of warm-up", "warm-up")
    run.warn("not_settled", "latency was still changing after 5.0 s of warm-up", "warm-up")
    run.workload["warm_up"] = {"power_settled": False, "latency_settled": False}
    run.settings["warmup_s"] = 5.0
    lines = verdict_of(run)
    assert lines[-2:] == [
        f"trust: no, 1 of {trust_of(profile_run())['checks']} checks failed",
        "  power was still changing after 5.0 s of warm-up: give --warmup 15",
    ], "one kind of failure is one line"
    assert len(trust_of(run)["failed"]) == 2, "none is lost"


@pytest.mark.parametrize("simulated", [True, False])
def test_rest_is_advised_for_a_real_gpu_alone(simulated):
    run = profile_run()
    run.devices[0].simulated = simulated
    run.results = tables.from_rows(
        [*run.results.to_pylist(), result(0, "x_w", e(70.0, 1.0), "baseline_drifted")], "results"
    )
    (failed,) = failed_of(run, "baseline_drifted")
    assert ("rest" in (failed["action"] or "")) != simulated


def warmed_up(**about):
    """A profile whose warm-up was too short."""
    run = profile_run()
    run.warn("not_settled", "16.7 s of warm-up were too short to determine whether power had settled", "warm-up")
    run.workload["warm_up"] = {"latency_settled": True, **about}
    return run


def test_the_warm_up_to_give_is_longer_than_the_one_that_ran():
    run = warmed_up(power_settled=None, seconds=16.7)
    run.settings["warmup_s"] = 0.3
    assert verdict_of(run)[-1].endswith("give --warmup 34")


def test_a_warm_up_too_short_to_see_a_drift_qualifies_alone():
    assert trust_of(warmed_up(power_settled=None))["level"] == "with care"
    assert trust_of(warmed_up(power_settled=False))["level"] == "no"
    run = warmed_up(power_settled=False)
    run.kind = "ab"
    assert trust_of(run)["level"] == "with care", "A and B alternate"


def test_a_warning_that_comes_after_a_print_is_in_the_next():
    run = profile_run()
    assert trust_of(run)["level"] == "yes"
    run.warn("other_processes", "another process was on the GPU")
    assert trust_of(run)["level"] == "no"


def test_an_unknown_code_qualifies_the_figures():
    run = profile_run()
    run.warn("made_elsewhere", "something new")
    (failed,) = trust_of(run)["failed"]
    assert (failed["check"], failed["level"]) == ("made elsewhere", "with care")
    assert verdict_of(run)[-1] == "  something new"


def with_flags(flags, metric="energy_total_j"):
    run = profile_run()
    rows = [{**row, "flags": flags if row["metric"] == metric else row["flags"]} for row in run.results.to_pylist()]
    run.results = tables.from_rows(rows, "results")
    return run


def test_an_option_stays_with_its_value():
    lines = render([with_flags("few_windows")], width=80).splitlines()
    assert any("--max-time 60" in line for line in lines), lines
    assert not any(line.endswith("--max-time") for line in lines)


def test_flags_qualify_and_remarks_do_not():
    assert trust_of(with_flags("nominal_response"))["level"] == "yes", "its uncertainty is in the intervals"
    assert trust_of(with_flags("unmodelled"))["level"] == "with care"
    assert "run jouletrace calibrate on an idle GPU" in " ".join(render([with_flags("unmodelled")]).split())
    assert trust_of(with_flags("stored"))["level"] == "yes"
    assert trust_of(with_flags("target_not_met"))["level"] == "yes", "an interval wider than asked for holds"


@pytest.mark.parametrize(
    ("hours", "action"), [(1, "run it again"), (23, "run it again"), (25, "run jouletrace calibrate on an idle GPU")]
)
def test_after_a_calibration_the_advice_is_another_run(hours, action):
    run = with_flags("unmodelled")
    made = run.created_ns - hours * 3600 * 10**9
    run.calibration = {run.devices[0].id: {"time_ns": made, "load": "", "channels": {}}}
    assert [one["action"] for one in failed_of(run, "unmodelled")] == [action]


def test_a_calibration_that_fits_no_model_is_made_again():
    run = Run(kind="calibrate", devices=[DeviceInfo("GPU-1", "a GPU")])
    run.warn("unmodelled", "the readings of power_w don't fit the model of the sensor", "power_w")
    assert [one["action"] for one in failed_of(run, "unmodelled")] == ["run it again on an idle GPU"]


def without_energy(reason="no_samples"):
    """A profile whose record was lost."""
    run = profile_run()
    rows = run.results.to_pylist()
    for row in rows:
        if row["metric"] == "energy_total_j" and row["unit"] == 0:
            row |= {"value": None, "low": None, "high": None, "reason": reason}
    run.results = tables.from_rows(rows, "results")
    return run


def test_a_missing_sensor_is_no_doubt_of_the_time_and_a_lost_record_is_one():
    assert trust_of(cpu_run())["level"] == "with care"
    assert trust_of(without_energy())["level"] == "no"
    assert "energy unknown: the sensor gave no reading in that time" in " ".join(render([without_energy()]).split())


def test_the_worst_comes_first_and_what_qualifies_alone_is_a_remark():
    run = without_energy()
    run.warn("record_hole", "the record has a hole")
    run.warn("unmodelled", "readings don't fit")
    found = trust_of(run)
    assert [one["level"] for one in found["failed"]] == ["no", "with care", "with care"]
    assert headline_of(run) == f"trust: no, 1 of {found['checks']} checks failed, 2 remarks"
    run = profile_run()
    run.warn("record_hole", "the record has a hole")
    run.warn("record_hole", "the record has another")
    run.warn("unmodelled", "readings don't fit")
    assert headline_of(run) == "trust: with care, 2 remarks", "one for each code"


def test_of_several_a_failure_of_one_is_one_of_all():
    failed = profile_run(name="other")
    failed.warn("other_processes", "another process was on the GPU")
    text = render([profile_run(), failed], width=1000).replace("\u00a0", " ")
    assert f"trust: no, 1 of {trust_of(failed)['checks']} checks failed\n  another process was on the GPU: wait" in text


@pytest.mark.parametrize("make", [profile_run, simulated_run, cpu_run, monitor_run])
def test_json_states_trust(make):
    found = trust_of(make())
    assert set(found) == {"level", "passed", "checks", "failed"}
    assert found["passed"] + len({one["check"] for one in found["failed"]}) == found["checks"]


def closing(low, high, flags=""):
    """A Run whose parts make this share of the whole."""
    run = profile_run()
    rows = run.results.to_pylist()
    made = Estimate((low + high) / 2, low, high, 9, "trace").to_dict()
    rows.append({**dict.fromkeys(rows[0]), "unit": 0, "metric": "closure_kernels", **made, "flags": flags})
    run.results = tables.from_rows(rows, "results")
    return run


def test_parts_that_miss_the_whole_qualify():
    (failed,) = trust_of(closing(1.15, 1.25))["failed"]
    said = "parts sum to 1.200 ± 0.050 of the whole"
    assert (failed["code"], failed["message"].replace("\u00a0", " ")) == ("closure", said)


@pytest.mark.parametrize(
    ("kind", "option"), [("profile", "--detail-time"), ("program", "--duty"), ("record", "for longer")]
)
def test_advice_on_parts_names_options_of_the_command_that_made_them(kind, option):
    run = closing(0.8, 0.9)
    run.kind = kind
    (failed,) = failed_of(run, "closure")
    assert option in failed["action"]
    assert ("--detail-time" in failed["action"]) == (kind == "profile")


@pytest.mark.parametrize(("kind", "said"), [("program", "run it again while less else"), ("import", "from before")])
def test_a_record_that_ends_early_asks_for_what_its_user_can_do(kind, said):
    run = without_energy("outside_record")
    run.kind = kind
    (failed,) = [one for one in trust_of(run)["failed"] if one["code"] == "outside_record"]
    assert said in failed["action"]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (closing(0.99, 1.01), "parts sum to 1.000 ± 0.010 of the whole"),
        (closing(1.012, 1.018), "parts sum to 1.0150 ± 0.0030 of the whole, within the 2 % that tracing may cost"),
        (
            closing(1.012, 1.018, "traced_at_cap"),
            "parts summed to 1.0150 ± 0.0030 of the whole, and are scaled to it, as tracing moves the clock at the cap",
        ),
    ],
)
def test_parts_whose_interval_leaves_out_the_whole_say_why_they_pass(run, said):
    """The sum of the parts is no guarantee of one."""
    assert headline_of(run).replace("\u00a0", " ").endswith(f"; {said}; each row has its own ±")
    assert failed_of(run, "closure") == []


@pytest.mark.thorough
def test_bundled_runs_state_what_this_version_computes():
    for entry in bundled_runs():
        stored, fresh = entry.run, analyse(load(PACKAGE / "bundled" / entry.name))
        assert headline_of(stored) == headline_of(fresh)
        for metric in ("energy_total_j", "power_w"):
            one, other = stored.result(metric), fresh.result(metric)
            assert one.value == pytest.approx(other.value, rel=1e-5)
            assert one.half_width == pytest.approx(other.half_width, rel=0.01)


def test_remarks_of_an_older_run_say_no_trust_of_their_own():
    """Stored words once said "trust: no" of rows, below a headline of the whole that says "with care"."""
    run = load(REPOSITORY / "tests" / "frozen" / "programs" / "compiled_train.zip")
    assert any("trust: no" in warning.message for warning in run.warnings)
    text = " ".join(render([run], verbose=True).split())
    assert "! no energies of kernels: record" in text
    assert text.count("trust: ") == 1
