"""``--fail-if``, and ``compare`` on the command line."""

import json
import re
import shutil
from dataclasses import replace

import pytest

import jouletrace as jt
from commands import command
from compare_runs import null_result, side, stated
from jouletrace import compare
from jouletrace.comparing import parse
from jouletrace.comparing.checks import evaluate, limits
from jouletrace.comparing.pairs import ALPHA
from jouletrace.errors import BadInputError
from jouletrace.run import load, save, tables
from make_runs import gpu, profile_run

BASE, MORE, WIDE = (1.0, 1.001, 0.999), (1.06, 1.061, 1.059), (1.06, 1.12, 1.0)


def outcome(text, a=BASE, b=MORE, *, of_a=None, of_b=None):
    (check,) = stated(compare(side(*a, **(of_a or {})), side(*b, **(of_b or {})), fail_if=[text]))["checks"]
    return check


@pytest.mark.parametrize(
    ("text", "level", "pattern", "metric", "above", "change"),
    [
        ("energy>5%", "model", "", "energy", True, 0.05),
        ("latency > -2.5 %", "model", "", "latency", True, -0.025),
        ("power<-10%", "model", "", "power", False, -0.10),
        ("kernel:gemm*:energy>3%", "kernel", "gemm*", "energy", True, 0.03),
        ("kernel:at::f<float>*:time>3%", "kernel", "at::f<float>*", "time", True, 0.03),
    ],
)
def test_expressions_are_read(text, level, pattern, metric, above, change):
    found = parse(text)
    assert (found.level, found.pattern, found.metric, found.above) == (level, pattern, metric, above)
    assert found.change == pytest.approx(change)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("energy", "write "),
        ("enrgy>5%", "did you mean energy"),
        ("energy>five%", "write "),
        ("energy>5", "write "),
        ("energy> 5 J", "write "),
        ("kernels:x:energy>5%", "did you mean 'kernel'"),
        ("kernel:energy>5%", "write "),
        ("layer:a:watt>5%", "the metric is one of"),
        ("energy<3%", "write 'energy>3%' to fail where it rose by more"),
        ("kernel:f<int>:time < +3%", "write 'kernel:f<int>:time>3%'"),
        ("energy>-1000%", "write a limit above -100%"),
        ("time<-100%", "write a limit above -100%"),
        ("", "write "),
    ],
)
def test_what_is_no_check_is_refused_in_one_line(text, said):
    with pytest.raises(BadInputError, match=said) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.thorough
def test_a_check_fails_only_where_more_than_the_threshold_is_shown():
    assert outcome("energy>3%")["outcome"] == "failed"
    assert outcome("energy>10%")["outcome"] == "passed"
    assert outcome("energy>5.9%")["outcome"] == "inconclusive"
    assert outcome("energy<-3%", MORE, BASE)["outcome"] == "failed"
    assert outcome("energy<-3%")["outcome"] == "passed"


def test_a_wide_spread_is_inconclusive_and_says_what_could_be_detected():
    check = outcome("energy>3%", b=WIDE)
    assert check["outcome"] == "inconclusive"
    assert re.search(r"it would fail from \+\d+\.\d.% on", check["says"])


@pytest.mark.parametrize(("factor", "outcome_"), [(1.2, "inconclusive"), (2.0, "failed"), (0.5, "passed")])
def test_one_run_a_side_fails_a_check_beyond_the_largest_scatter_on_record_alone(factor, outcome_):
    check = outcome("energy>3%", (1.0,), (factor,))
    assert check["outcome"] == outcome_


@pytest.mark.parametrize("other", [False, True])
def test_a_check_is_decided_at_the_bound_that_it_prints(other):
    """On two GPUs, whose sensors' gain is in it, too."""
    device = gpu(id="GPU-99999999-2222-3333-4444-555555555555") if other else gpu()
    found = compare(side(*BASE), side(*MORE, device=device))
    contrast, step = found.row("energy_total_j").contrast, 1e-6
    low, high = (contrast.bound(ALPHA, lower=lower) for lower in (True, False))
    for limit, above, below in (
        (low - step, "failed", "passed"),
        (low + step, "inconclusive", "inconclusive"),
        (high - step, "inconclusive", "inconclusive"),
        (high + step, "passed", "failed"),
    ):
        check = parse(f"energy>{100 * limit:.8f}%")
        outcomes = [evaluate([replace(check, above=one)], found)[0].outcome for one in (True, False)]
        assert outcomes == [above, below]


def test_a_check_states_its_one_sided_bound_and_no_interval():
    check = outcome("energy>3%")
    assert re.fullmatch(r"energy \+6\.00.%, above \+5\.\d\d.% at 95.%", check["says"])
    assert re.fullmatch(r"energy \+6\.00.%, below \+6\.\d\d.% at 95.%", outcome("energy>10%")["says"])


def test_a_check_states_in_numbers_what_decided_it():
    failed, passed, still_open = outcome("energy>3%"), outcome("energy>10%"), outcome("energy>5.9%")
    for check, low, high in ((failed, 0.055, 0.06), (passed, 0.06, 0.065)):
        (row,) = check["rows"]
        assert low < row["bound"] < high
        assert (row["change"], row["confidence"], row["fails_from"]) == (pytest.approx(0.06), 0.95, None)
    assert (failed["limit"], passed["limit"]) == (0.03, 0.1)
    (row,) = still_open["rows"]
    assert row["bound"] is None
    assert f"from +{100 * row['fails_from']:.2f}" in still_open["says"]


def test_on_two_gpus_sensor_gain_stands_against_both_conclusions():
    keys = {"of_b": {"device": gpu(id="GPU-99999999-2222-3333-4444-555555555555")}}
    assert outcome("energy>3%", **keys)["outcome"] == "inconclusive"
    assert outcome("energy>3%", b=(1.3, 1.301, 1.299), **keys)["outcome"] == "failed"
    assert outcome("latency>3%", **keys)["outcome"] == "passed"


OTHER = "GPU-99999999-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"device": gpu(id=OTHER, name="NVIDIA A100")}, "device differs: NVIDIA H100 80GB HBM3 in A, NVIDIA A100 in B"),
        ({"device": gpu(simulated=True)}, "device differs: NVIDIA H100 80GB HBM3 in A, SIMULATED NVIDIA H100"),
        ({"device": gpu(id="cpu", name="Xeon", kind="cpu")}, "device differs: NVIDIA H100 80GB HBM3 in A, Xeon in B"),
        ({"name": "other"}, "workload differs: thing in A, other in B"),
    ],
)
def test_checks_over_other_devices_or_workloads_are_not_judged(keys, said):
    check = outcome("latency>3%", b=(2.0, 2.001, 1.999), of_b=keys)
    assert check["outcome"] == "not judged"
    assert check["says"].startswith(said)


@pytest.mark.parametrize("keys", [{"device": gpu(id=OTHER)}, {"name": "head/thing"}, {"name": "thing:lean"}])
def test_another_gpu_folder_or_variant_of_that_name_is_judged(keys):
    assert outcome("energy>3%", b=(1.3, 1.301, 1.299), of_b=keys)["outcome"] == "failed"


def test_checks_on_parts_mean_all_that_fit_the_pattern():
    parts = {
        "of_a": {"parts": {"enc.0": 0.4, "enc.1": 0.4, "dec": 0.1}},
        "of_b": {"parts": {"enc.0": 0.4, "enc.1": 0.8, "dec": 0.1}},
    }
    check = outcome("layer:enc.*:energy>10%", BASE, BASE, **parts)
    assert check["outcome"] == "failed"
    assert check["says"].startswith("enc.1: energy +100 %".replace(" %", "\u00a0%"))
    assert outcome("layer:dec:energy>10%", BASE, BASE, **parts)["outcome"] == "passed"


@pytest.mark.parametrize("pattern", ["mm", "aten.mm", "*mm"])
def test_an_operator_is_named_as_tables_print_it_or_as_torch_does(pattern):
    keys = {
        name: {"parts": {"aten.mm": joules, "aten.add": 0.1}, "level": "op"}
        for name, joules in (("of_a", 0.4), ("of_b", 0.8))
    }
    assert outcome(f"op:{pattern}:energy>10%", BASE, BASE, **keys)["outcome"] == "failed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layer:encc:energy>1%", "no layer in common is called 'encc'; did you mean enc"),
        ("op:x:energy>1%", "A and B have no op: profile with --detail op"),
    ],
)
def test_a_check_that_looks_at_nothing_is_refused(text, said):
    with pytest.raises(BadInputError, match=said):
        outcome(text, a=BASE, b=BASE, of_a={"parts": {"enc": 0.4}}, of_b={"parts": {"enc": 0.4}})


@pytest.mark.parametrize("text", ["work>3%", "layer:enc:work>3%", "ttft>3%"])
def test_a_known_metric_that_neither_side_has_is_not_measured(text):
    keys = {"parts": {"enc": 0.4}}
    found = compare(side(*BASE, **keys), side(*MORE, **keys), fail_if=[text, "energy>3%"])
    assert [one["outcome"] for one in stated(found)["checks"]] == ["not measured", "failed"]
    assert f"neither side has {text.rpartition(':')[2][:4]}" in stated(found)["checks"][0]["says"]


def test_a_check_on_parts_says_which_side_lacks_them():
    with pytest.raises(BadInputError, match="B has no layer: profile with --detail layer"):
        outcome("layer:enc:energy>1%", of_a={"parts": {"enc": 0.4}})


def test_checks_count_all_their_rows():
    """Twenty checks at once are held to less than one alone."""
    narrow = [f"energy>{i}%" for i in range(3, 5)]
    many = compare(side(*BASE), side(1.06, 1.07, 1.05), fail_if=narrow + ["latency>50%"] * 20)
    alone = compare(side(*BASE), side(1.06, 1.07, 1.05), fail_if=["energy>3%"])
    assert alone.checks[0].outcome == "failed"
    assert many.checks[0].outcome == "inconclusive"


# the command


@pytest.fixture
def saved(workspace):
    for name, factors in (("a", BASE), ("b", MORE), ("w", WIDE)):
        for i, (run, _) in enumerate(side(*factors), start=1):
            save(run, workspace / f"{name}{i}")
    return workspace


A, B, W = "a1,a2,a3", "b1,b2,b3", "w1,w2,w3"


@pytest.mark.thorough
def test_compare_prints_a_table(capsys, saved):
    said = command(capsys, "compare", A, B)
    assert (said.code, said.err.startswith("as a gate: "), said.err.count("\n")) == (0, True, 1)
    assert "worse" in said.out
    assert "3 runs" in said.out
    assert "Latency, medians" in said.out, "show of repeats states the median of all iterations"


@pytest.mark.thorough
def test_python_takes_runs_paths_and_lists_and_prints_what_the_command_does(capsys, saved):
    found = jt.compare(["a1", load("a2"), saved / "a3"], B.split(","), fail_if=["energy>3%"])
    assert f"{found}\n" == command(capsys, "compare", A, B, "--fail-if", "energy>3%").out
    assert found.verdicts["energy_total_j"] == "worse"
    assert found.checks[0].outcome == "failed"
    table = found.to_pandas()
    (energy,) = table[(table["level"] == "model") & (table["metric"] == "energy_total_j")].to_dict("records")
    row = found.whole["energy_total_j"]
    assert (energy["a"], energy["change_low"], energy["verdict"]) == (row.a.value, row.change.low, "worse")
    assert len(table) == len(found.rows)
    assert jt.compare(load("a1"), "b1").a.runs == (load("a1").workload["name"],)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("a", "options", "said"),
    [
        ([], {}, "no Run is given for one side"),
        (3, {}, "3 is neither a Run nor the path of one"),
        ("nowhere", {}, "nowhere"),
        ("a1", {"margin": 0}, "must lie between"),
        ("a1", {"fail_if": ["energy"]}, "write "),
    ],
)
def test_what_python_can_not_compare_is_refused_in_one_line(saved, a, options, said):
    with pytest.raises(BadInputError, match=said) as caught:
        jt.compare(a, "b1", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.thorough
def test_json_is_one_object(capsys, saved):
    found = json.loads(command(capsys, "compare", A, B, "--json").out)
    assert found["schema"] == 1
    assert found["a"]["count"] == 3


@pytest.mark.thorough
def test_a_failed_check_is_exit_code_1(capsys, saved):
    said = command(capsys, "compare", A, B, "--fail-if", "energy>3%")
    assert said.code == 1
    assert "'energy>3%' failed: energy +6.00" in said.err
    assert "FAILED" in said.out
    assert command(capsys, "compare", A, B, "--fail-if", "energy>20%").code == 0


@pytest.mark.thorough
def test_a_comparison_without_a_check_says_which_would_pass_and_which_would_fail(capsys, saved):
    said = command(capsys, "compare", A, B)
    passes, fails = re.findall(r"'(energy>\d+%)'", said.err)
    assert command(capsys, "compare", A, B, "--fail-if", passes).code == 0
    assert command(capsys, "compare", A, B, "--fail-if", fails).code == 1
    assert "as a gate" not in command(capsys, "compare", A, B, "--fail-if", passes).err
    assert "as a gate" not in command(capsys, "compare", A, B, "--json").err


@pytest.mark.thorough
def test_a_comparison_after_an_improvement_offers_a_gate_against_rises(capsys, saved):
    said = command(capsys, "compare", B, A)
    assert said.err == (
        "as a gate: --fail-if 'energy>1%' passes with these figures, a rise beyond it fails (exit code 1)\n"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("spread", [0.0001, 0.01, 0.2])
@pytest.mark.parametrize("times", [0.001, 0.1, 0.5, 0.97, 0.999, 1.0, 1.001, 1.03, 1.5, 10])
def test_each_check_that_is_offered_is_read_and_comes_out_as_stated(times, spread):
    a, b = (side(*(one * (1 + by * spread) for by in (0, 1, -1))) for one in (1.0, times))
    found = compare(a, b)
    ends = limits(found)
    assert ends or spread == 0.2
    for limit, expected in zip(ends or (), ("failed", "passed"), strict=False):
        if limit is not None:
            assert limit >= 0
            (check,) = evaluate([parse(f"energy>{limit}%")], found)
            assert check.outcome == expected


def test_no_check_is_offered_that_would_not_be_judged(capsys, tmp_path):
    save(profile_run(), tmp_path / "a")
    other = profile_run()
    other.workload["name"] = "another"
    save(other, tmp_path / "b")
    said = command(capsys, "compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert (said.code, "as a gate" in said.err) == (0, False)


@pytest.mark.thorough
def test_an_inconclusive_check_fails_under_strict_alone(capsys, saved):
    lax = command(capsys, "compare", A, W, "--fail-if", "energy>3%")
    assert lax.code == 0
    assert lax.err.startswith("jouletrace: --fail-if 'energy>3%' is inconclusive: ")
    assert "it would fail from +" in lax.out
    assert (lax.err.count("--strict"), lax.err.count("+")) == (1, 0)
    assert "it would fail from +" in command(capsys, "compare", A, W, "--fail-if", "energy>3%", "-f", "csv").err
    assert command(capsys, "compare", A, W, "--fail-if", "energy>3%", "--strict").code == 1


@pytest.mark.thorough
@pytest.mark.parametrize(("lacking", "where"), [("B", "B"), ("AB", "A and B")])
def test_a_check_of_what_was_not_measured_is_exit_code_3(capsys, saved, lacking, where):
    names = ["b1", "b2", "b3", *(["a1", "a2", "a3"] if lacking == "AB" else [])]
    for name in names:
        save(null_result(load(name), "energy_total_j", "rapl_absent"), saved / "no" / name)
    a = "no/a1,no/a2,no/a3" if lacking == "AB" else A
    said = command(capsys, "compare", a, "no/b1,no/b2,no/b3", "--fail-if", "energy>3%", "--fail-if", "latency>50%")
    assert said.code == 3
    assert (
        said.err == f"jouletrace: --fail-if 'energy>3%' not measured: energy of {where}: no RAPL energy counter here\n"
    )
    assert "NOT MEASURED" in said.out


@pytest.mark.thorough
@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_a_check_on_runs_without_trust_is_not_judged(capsys, saved, strict):
    files = [saved / name / "results.parquet" for name in ("a1", "b1")]
    shutil.copyfile(files[1], files[0])
    said = command(capsys, "compare", A, B, "--fail-if", "energy>3%", "--fail-if", "time>3%", *strict)
    assert said.code == 3
    assert "not judged: trust: no, results.parquet is not what was saved" in " ".join(said.err.split())
    assert "PASSED" not in said.out
    assert "NOT JUDGED" in said.out
    assert said.err.splitlines()[-1].startswith("jouletrace: --fail-if is not judged: ")


@pytest.mark.thorough
def test_the_same_run_on_both_sides_fails_under_strict(capsys, saved):
    shutil.copytree(saved / "a1", saved / "copy")
    assert command(capsys, "compare", "a1", "copy", "--fail-if", "energy>3%").code == 0
    said = command(capsys, "compare", "a1", "copy", "--fail-if", "energy>3%", "--strict")
    assert said.code == 1
    assert said.err.startswith("jouletrace: --strict: both sides are the same Run")
    assert said.err.count("\n") == 1


@pytest.mark.thorough
def test_a_simulation_that_repeats_itself_is_in_the_table_and_fails_under_strict(capsys, workspace):
    for i, factor in enumerate((1.0, 1.0, 1.001)):
        (run, _), *_ = side(factor, device=gpu(simulated=True))
        row = {"time_ns": 1, "device": gpu().id, "channel": "power_w", "value": 400.0 + (i > 1)}
        run.id, run.samples = f"run {i}", tables.from_rows([row], "samples")
        save(run, workspace / f"s{i}")
    for words in ("compare s0 s1 --fail-if energy>3%", "compare s0,s2 s1 --fail-if energy>3%"):
        said = command(capsys, *words.split())
        assert "simulated runs with the same readings" in " ".join(said.out.split())
        assert said.code == 0
        said = command(capsys, *words.split(), "--strict")
        assert said.code == 1
        assert said.err.startswith("jouletrace: --strict: s0 and s1 are simulated runs with the same readings")


def test_a_malformed_check_is_refused_before_anything_is_read(capsys, workspace):
    said = command(capsys, "compare", "no", "where", "--fail-if", "energy>5")
    assert said.code == 2
    assert said.complaint.startswith("jouletrace: --fail-if 'energy>5': write ")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a1"], "Missing argument 'B'"),
        (["a1", "nowhere"], "no Run at nowhere"),
        (["a1", "b1", "--margin", "x"], "--margin 'x'"),
        (["a1", "b1", "--format", "html"], "it is one of table, json, csv, markdown, latex"),
        (["a1", "b1", "--format", "csv", "--json"], "give only one of them"),
    ],
)
def test_wrong_use_gets_one_line(capsys, saved, arguments, said):
    found = command(capsys, "compare", *arguments)
    assert found.code == 2
    assert said in found.complaint


@pytest.mark.thorough
def test_the_runs_of_several_processes_are_separated(capsys, saved):
    """As folders where they are kept beside it, else by blocks."""
    for i, (run, _) in enumerate(side(*BASE), start=1):
        save(run, saved / "many" / "repeats" / str(i))
    save(side(1.0)[0][0], saved / "many")
    found = json.loads(command(capsys, "compare", "many", B, "--json").out)
    assert found["a"]["count"] == 3
    assert found["a"]["runs"] == [f"many/repeats/{i}" for i in (1, 2, 3)]


@pytest.mark.thorough
def test_a_repetition_that_is_lost_is_noticed(capsys, saved):
    whole = side(1.0)[0][0]
    whole.settings["repeats"], whole.id = 3, "whole"
    save(whole, saved / "many")
    for i, (run, _) in enumerate(side(*BASE), start=1):
        save(run, saved / "many" / "repeats" / str(i))
    assert command(capsys, "verify", "many").code == 0
    assert "lacks runs" not in command(capsys, "compare", "many", B).out
    (saved / "many" / "repeats" / "2" / "run.json").unlink()
    said = command(capsys, "verify", "many")
    assert (said.code, "repeats/2/run.json: it is missing" in said.out) == (1, True)
    found = json.loads(command(capsys, "compare", "many", B, "--json").out)
    assert "many lacks runs that it states: repeats/2/run.json" in json.dumps(found["trust"])


def test_a_run_of_several_processes_without_their_folders_is_split_by_blocks():
    def repeated(factor):
        run = profile_run(scale=factor)
        run.settings["repeats"] = 3
        rows = run.windows.to_pylist()
        for i, row in enumerate(rows):
            row["block"] = i % 3
            row["energy_j"] *= 1 + 0.001 * row["block"]
        run.windows = tables.from_rows(rows, "windows")
        return [(run, "packed.zip")]

    found = compare(repeated(1.0), repeated(1.1))
    assert (found.a.count, found.b.count) == (3, 3)
    row = found.row("energy_total_j")
    assert row.verdict == "worse"
    assert row.change.value == pytest.approx(0.1, abs=0.002)
