"""Files of other tools, damaged at random, and what is asked of an importer then; for tests and a benchmark.

A damaged file is read in part, counting what was left out, or refused in one line: no traceback, no hang.
"""

import gzip
import random
import time
from collections import Counter

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.importers.base import ImportOptions
from jouletrace.run import tables
from pace import loop_s

MOST_LOOPS = 150
"""No small file takes so much work (``pace``): reading in vain goes on in step with the size of a file."""

_SNIPPETS = (
    *(b"\x00", b"\xff\xfe", b"\x1b[31m", b"\n\n", b'"', b",", b";", b"{", b"}", b"[", b"]", b"\\", b"-", b"="),
    *(b"1e999", b"-1", b"nan", b"NaN", b"9" * 40, b"\xe2\x80\xa8"),
)


def damaged(data, draw):
    """The same with one to three random changes; never empty."""
    for _ in range(draw.randint(1, 3)):
        data = _changed(data, draw) or b"\n"
    return data


def _changed(data, draw):
    """Cut off, cut out, doubled, bytes flipped, put in; a few bytes or a long stretch; lines dropped or shuffled."""
    how = draw.randrange(9)
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
    lines = data.split(b"\n")
    if how == 6:
        draw.shuffle(lines)
    elif how == 7:
        del lines[draw.randrange(len(lines))]
    else:
        lines.insert(draw.randrange(len(lines)), draw.choice(lines)[: draw.randrange(40)])
    return b"\n".join(lines)


def read_damaged(importer, samples, path, count, seed=1):
    """Have ``importer`` read ``count`` damaged copies of ``samples``, by turns, as ``path``: how many were what.

    One in ten of a ``path`` that ends in ``.gz`` is damaged after it was packed. Each Run must be whole.
    """
    draw = random.Random(f"{path.name} {seed}")
    outcomes = Counter()
    pace_s = loop_s()
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
            check_whole(importer.read(path, ImportOptions()))
        except BadInputError as error:
            refusal = str(error)
        spent_s = time.process_time() - began
        assert refusal is None or (path.name in refusal and "\n" not in refusal), refusal
        outcomes["refused" if refusal else "read"] += 1
        assert spent_s < MOST_LOOPS * pace_s, f"number {k} took too long"
    return outcomes


def check_whole(run):
    """Whatever was read is a Run that can be saved: finite, in range, every row of a known device and channel."""
    for name in tables.TABLES:
        tables.conform(run.table(name), name).validate(full=True)
    assert any(len(run.table(name)) for name in tables.TABLES)
    assert np.all(np.isfinite(run.samples["value"].to_numpy()))
    known = {(channel.device, channel.name) for channel in run.channels}
    named = run.samples.select(["device", "channel"]).group_by(["device", "channel"]).aggregate([])
    assert {(row["device"], row["channel"]) for row in named.to_pylist()} <= known
    assert all(value is None or np.isfinite(value) for value in run.results["value"].to_pylist())
    starts, ends = (run.spans[name].to_numpy() for name in ("start_ns", "end_ns"))
    assert not np.any(ends < starts)  # times that are missing are NaN here
    assert isinstance(run.settings["imported"][0]["left_out"], dict)
