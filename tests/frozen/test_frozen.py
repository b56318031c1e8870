"""Figures, exports, help and public names are what they were frozen as; ``accepted.csv`` lists what may differ."""

import difflib
import re

import pytest

import frozen
from cupti_records import KERNEL, MEMCPY, MEMSET, RUNTIME, field, records_by_kind
from frozen import PROGRAMS, SIMULATED
from jouletrace.run import load
from printed_sums import sums_of
from shipped import ABSENT, is_read
from thinned import thinned

STORED = [path for path in frozen.STORED if is_read(path.stem)]
COMPARED = [names for names in frozen.COMPARED if all(map(is_read, names))]

TOLERANCE = {"stored": (1e-6, 1e-4), "simulated": (1e-4, 0.02)}
"""By kind of Run: of a value, relative, and of the ends of its interval, in half-widths. Stored Runs state what they
did; simulated ones are fitted again, and other processors round otherwise."""

SIMILAR = ("h100-fp32", "h100-bf16", "h200", "a100-large", "v100", "ab-modes", "ab-null", "calibrate-h100")
"""Simulated Runs of which another has the same kind, GPU or option."""

ACCEPTED = {line["what"]: line for line in frozen.accepted()}


@pytest.fixture(scope="module")
def before():
    return frozen.frozen_figures()


def differences(run, kind, every, now):
    """Lines of figures of a Run that differ from the frozen ones and aren't accepted."""
    before = {key: row for key, row in every.items() if key[0] == run}
    after = frozen.by_key(now)
    assert before, f"{run} isn't frozen"
    lines = []
    for key in before.keys() | after.keys():
        old, new = (_text(rows.get(key)) for rows in (before, after))
        if old != new and not _close(before.get(key), after.get(key), *TOLERANCE[kind]):
            line = ACCEPTED.get(" | ".join(key))
            if line is None or line["old"] != old or not _same(line["new"], new, *TOLERANCE[kind]):
                lines.append((" | ".join(key), old, new))
    return sorted(lines)


def _same(accepted, now, *tolerance):
    """True of equal texts, and of figures that are as close as those that were frozen."""
    return accepted == now or _close(_figure(accepted), _figure(now), *tolerance)


def _figure(text):
    """The figure in a cell; None where it holds none."""
    numbers = re.fullmatch(r"([-+.e\d]+)(?: \[([-+.e\d]+), ([-+.e\d]+)\])?", text)
    return numbers and dict(
        zip(("value", "low", "high"), (one and float(one) for one in numbers.groups()), strict=True)
    )


def _text(row):
    """A figure as a cell: "4.714238872 [4.704172524, 4.724305219]", a reason, or "absent"."""
    if row is None:
        return "absent"
    if row["value"] is None:
        return str(row["text"])
    ends = "" if row["low"] is None or row["high"] is None else f" [{row['low']:.10g}, {row['high']:.10g}]"
    return f"{row['value']:.10g}{ends}"


def _close(old, new, tolerance, of_half):
    if old is None or new is None or old["value"] is None or new["value"] is None:
        return False
    if abs(new["value"] - old["value"]) > tolerance * abs(old["value"]) + 1e-12:
        return False
    if any((old[end] is None) != (new[end] is None) for end in ("low", "high")):
        return False
    if old["low"] is None or old["high"] is None:
        return True
    slack = of_half * (old["high"] - old["low"]) / 2 + tolerance * abs(old["value"])
    return all(abs(new[end] - old[end]) <= slack + 1e-12 for end in ("low", "high"))


@pytest.mark.thorough
@pytest.mark.parametrize("path", [*STORED, *PROGRAMS], ids=lambda path: path.stem)
def test_figures_of_recorded_runs_are_as_frozen(path, before):
    assert differences(path.stem, "stored", before, frozen.figures_of(path.stem, path)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("names", COMPARED, ids=" : ".join)
def test_comparisons_are_as_frozen(names, before):
    assert differences(" : ".join(names), "stored", before, frozen.compared(names)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SIMILAR)) for one in SIMULATED])
def test_figures_of_simulated_runs_are_as_frozen(name, before, workspace):
    (workspace / "toy.py").write_text(frozen.TOY)
    run = frozen.simulate(name, workspace)
    assert differences(name, "simulated", before, frozen.figures_of(name, run)) == []
    assert sums_of(load(run)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("path", thinned(STORED, 2), ids=lambda path: path.stem)
def test_exports_are_as_frozen(path, tmp_path):
    before = {key: digest for key, digest in frozen.frozen_exports().items() if key[0] == path.stem}
    after = frozen.exports_of(path.stem, path, tmp_path)
    found = {(row["run"], row["format"], row["file"]): row["digest"] for row in after}
    changed = {key for key in before.keys() | found.keys() if before.get(key) != found.get(key)}
    lines = sorted((" | ".join(key), before.get(key, "absent"), found.get(key, "absent")) for key in changed)
    known = {(line["what"], line["old"], line["new"]) for line in ACCEPTED.values()}
    assert [line for line in lines if line not in known] == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("what", "frozen_as", "now"),
    [("help", frozen.HELP, frozen.help_texts), ("names", frozen.NAMES, frozen.public_names)],
    ids=["help", "names"],
)
def test_words_of_the_interface_are_as_frozen(what, frozen_as, now):
    """A changed line is accepted by a row whose old and new are the line before and after."""
    before, after = frozen_as.read_text().splitlines(), now().splitlines()
    known = {line[side] for line in ACCEPTED.values() if line["what"].startswith(what) for side in ("old", "new")}
    if ABSENT:  # lines lack; none is new
        before, after = [], [line for line in after if line not in before]
    changed = [line for line in difflib.unified_diff(before, after, n=0, lineterm="") if line[0] in "+-"]
    assert [line for line in changed[2:] if line[1:].strip() not in known] == []


@pytest.mark.thorough
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_kernels_of_a_run_are_those_that_cupti_wrote(path):
    """Whoever reads CUPTI's buffers finds the kernels and copies of today, to the nanosecond."""
    written, names = records_by_kind(path.with_suffix(".npz"))
    assert {KERNEL} <= set(written) <= {KERNEL, MEMCPY, MEMSET, RUNTIME}
    assert all(names.values())
    activity = load(path).activity
    stated = set(zip(*(activity[edge].to_numpy().tolist() for edge in ("start_ns", "end_ns")), strict=True))
    for kind in (KERNEL, MEMCPY):
        if kind in written:
            edges = (field(written[kind], at, "<u8").tolist() for at in (16, 24))
            assert stated >= set(zip(*edges, strict=True))
    assert len(activity) <= sum(len(written.get(kind, [])) for kind in (KERNEL, MEMCPY, MEMSET))


def test_what_is_accepted_says_why_and_since_when():
    for line in ACCEPTED.values():
        assert all(line[name].strip() for name in ("what", "truth", "commit")), line
        assert line["old"] != line["new"], line
