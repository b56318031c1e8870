"""Files of other tools, damaged at random, and what is asked of an importer then; for tests and a benchmark.

A damaged file is read in part, counting what was left out, or refused in one line: no traceback, no hang. What was read
can be analysed, saved, loaded, shown and reported.
"""

import gzip
import random
import re
import time
from collections import Counter

import numpy as np

from jouletrace import report
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions
from jouletrace.formats.importers.merge import merge
from jouletrace.report.contract import to_json_object
from jouletrace.run import load, tables
from pace import within

MOST_LOOPS = 150
"""No small file takes so much work (``pace``): futile reading grows in proportion to the size of a file."""

_SNIPPETS = (
    *(b"\x00", b"\xff\xfe", b"\x1b[31m", b"\n\n", b'"', b",", b";", b"{", b"}", b"[", b"]", b"\\", b"-", b"="),
    *(b"1e999", b"-1", b"nan", b"NaN", b"9" * 40, b"\xe2\x80\xa8"),
)
_NUMBERS = (
    *(
        b"0",
        b"-0",
        b"-1",
        b"65535",
        b"1e20",
        b"1e29",
        b"1e200",
        b"1e300",
        b"1e308",
        b"-1e308",
        b"1e-300",
        b"inf",
        b"nan",
    ),
    *(
        b"2147483647",
        b"2147483648",
        b"4294967296",
        b"9223372036854775807",
        b"9223372036854775808",
        b"9" * 20,
        b"9" * 400,
    ),
    *(b".5" + b"9" * 400, b"0." + b"0" * 400 + b"1", b"1_000", b"0x7f", b"1,234.5", b"1.234,5", "１２".encode()),
)
"""Texts in the place of a number: largest of some type, beyond it, and in other spellings."""

_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)")
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{2,}")
_HOSTILE = (
    b"\x1b]0;owned\x07\x1b[2J",
    b"=1+2",
    b"@SUM(A1)",
    b"+1",
    b"\xe2\x80\xae",
    b"</script><script>",
    b"[red]",
    b"%s",
)
"""First letters of names that a terminal, a spreadsheet or a page would run."""

_UNITS = (b"ns", b"us", b"ms", b"s", b"mW", b"W", b"kW", b"MHz", b"%", b"MiB")
_UNIT = re.compile(rb"(?<![A-Za-z])(ns|us|ms|s|mW|W|MHz|MiB|mJ)(?![A-Za-z])")


def damaged(data, draw):
    """The same with one to three random changes; never empty."""
    for _ in range(draw.randint(1, 3)):
        data = _changed(data, draw) or b"\n"
    return data


def _changed(data, draw):
    """Cut off, cut out, doubled, bytes flipped, put in; lines dropped or shuffled; numbers, units, names replaced."""
    how = draw.randrange(14)
    a = draw.randrange(len(data) + 1)
    b = draw.randrange(a, len(data) + 1) if draw.random() < 0.5 else a + draw.randrange(40)
    if how == 0:
        return data[:a]
    if how == 1:
        return data[:a] + data[b:]
    if how == 2:
        return data[:b] + data[a:b] + data[b:]
    if how in (3, 4):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 20)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        return bytes(changed)
    if how == 5:
        return data[:a] + draw.choice(_SNIPPETS) + data[a:]
    if how in (9, 10):
        return _replaced(data, _NUMBER, draw, lambda _: draw.choice(_NUMBERS))
    if how == 11:
        return _replaced(data, _WORD, draw, lambda found: draw.choice(_HOSTILE) + found)
    if how == 12:
        return _replaced(data, _UNIT, draw, lambda _: draw.choice(_UNITS))
    lines = data.split(b"\n")
    if how == 6:
        draw.shuffle(lines)
    elif how == 7:
        del lines[draw.randrange(len(lines))]
    elif how == 8:
        lines.insert(draw.randrange(len(lines)), draw.choice(lines)[: draw.randrange(40)])
    else:  # quotes gone, as of names that hold commas
        some = range(len(lines)) if draw.random() < 0.5 else [draw.randrange(len(lines))]
        for place in some:
            lines[place] = lines[place].replace(b'"', b"")
    return b"\n".join(lines)


def _replaced(data, form, draw, replacement):
    """With one place that a form matches, or all that look the same, replaced."""
    start = draw.randrange(len(data))
    found = form.search(data, start) or form.search(data)
    if found is None:
        return data
    new = replacement(found.group())
    if draw.random() < 0.2:
        return data.replace(found.group(), new)
    return data[: found.start()] + new + data[found.end() :]


def read_damaged(importer, samples, path, count, seed=1, through=None, options=None):
    """Have ``importer`` read ``count`` damaged copies of ``samples``, by turns, as ``path``: how many were what.

    One in ten of a ``path`` that ends in ``.gz`` is damaged after it was packed. Each Run must be whole; with a folder
    ``through`` each is analysed, saved there, loaded, shown and reported.
    """
    draw = random.Random(f"{path.name} {seed}")
    outcomes = Counter()
    for k in range(count):
        data = damaged(samples[k % len(samples)], draw)
        if path.suffix == ".gz":
            data = gzip.compress(data, 1)
            data = damaged(data, draw) if k % 10 == 0 else data
        path.write_bytes(data)
        refusal = None
        began = time.process_time()
        importer.sniff(data)
        try:
            run = importer.read(path, options or ImportOptions())
            check_whole(run)
        except BadInputError as error:
            refusal = str(error)
        spent_s = time.process_time() - began
        assert refusal is None or (path.name in refusal and "\n" not in refusal), refusal
        if through is not None and refusal is None:
            refusal = carry_through(run, str(path), through)
            assert "\n" not in (refusal or "")
        outcomes["refused" if refusal else "read"] += 1
        assert within(spent_s, MOST_LOOPS), f"number {k} took too long"
    return outcomes


def carry_through(run, path, folder):
    """Analyse a Run, save, load, show and report it, as the command line does; the line if it is refused on the way."""
    from jouletrace.report import html

    place = folder / "run.zip"
    try:
        run = analyse(merge([run], [path], ImportOptions()))
        run.save(str(place), overwrite=True)
        run = load(place)
        shown = [report.render([run], detail=detail) for detail in {report.default_detail(run), "model", "range"}]
        shown += [report.render([run], form, detail="kernel") for form in ("csv", "json", "markdown")]
        to_json_object(run)
        page = html.render([run])
    except BadInputError as error:
        return str(error)
    assert not any(re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text) for text in shown), "a name steers the terminal"
    assert "</script><script>" not in page
    return None


def check_whole(run):
    """A Run that was read can be saved: finite, in range, every row of a known device and channel."""
    for name in tables.TABLES:
        tables.conform(run.table(name), name).validate(full=True)
    stated = run.workload.get("serving", {}).get("levels")  # loads of which a file has totals alone
    assert stated or any(len(run.table(name)) for name in tables.TABLES)
    assert np.all(np.isfinite(run.samples["value"].to_numpy()))
    known = {(channel.device, channel.name) for channel in run.channels}
    named = run.samples.select(["device", "channel"]).group_by(["device", "channel"], use_threads=False).aggregate([])
    assert {(row["device"], row["channel"]) for row in named.to_pylist()} <= known
    assert all(value is None or np.isfinite(value) for value in run.results["value"].to_pylist())
    starts, ends = (run.spans[name].to_numpy() for name in ("start_ns", "end_ns"))
    assert not np.any(ends < starts)  # times that are missing are NaN here
    assert isinstance(run.settings["imported"][0]["left_out"], dict)
