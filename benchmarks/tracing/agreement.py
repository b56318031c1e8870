"""How far the tracer's owners of kernels agree with Kineto's, for the same steps of programs (steps.py).

    python benchmarks/tracing/agreement.py FOLDER [-v]

FOLDER holds PROGRAM/, the tracer's files, and PROGRAM.json, the truth. Prints for each program its launches, the
share of these and of GPU time whose operators and modules equal the truth, by whether operators were marked at the
launch, and what has none. Modules are compared without the numbers of equal layers.
"""

import json
import sys
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from jouletrace.run.recording_names import of_equal_layers
from jouletrace.tracer.labels import labels_of
from jouletrace.tracer.names import operator
from jouletrace.tracer.reader import read


def plain(name):
    low = name.lower()
    if low.startswith("memcpy"):
        return " ".join(low.split()[:2])
    return "memset" if low.startswith("memset") else name.removeprefix("void ").split("(")[0].split("<")[0]


def main():
    place, verbose = Path(sys.argv[1]), "-v" in sys.argv
    print(
        f"{'program':14} launches  aligned  marked | operator: marked, learned, of time | module: all, of time | none"
    )
    for truth_file in sorted(place.glob("*.json")):
        traced = max(read(place / truth_file.stem), key=lambda one: len(one.work))
        labels, label = labels_of(traced)
        work, owners = traced.work, traced.owners
        measured = [k for k, path in enumerate(owners.paths) if "measured" in path]
        inside = np.flatnonzero(np.isin(owners.path, measured))
        rows = np.arange(inside.min(), inside.max() + 1) if len(inside) else np.arange(len(work))
        truth = json.loads(truth_file.read_text())
        mine, theirs = [plain(work.names[k]) for k in work.name[rows]], [plain(one[0]) for one in truth]
        pairs = [(k, k) for k in range(len(mine))]
        if mine != theirs:
            blocks = SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
            pairs = [(block.a + k, block.b + k) for block in blocks for k in range(block.size)]
        at = rows[[a for a, _ in pairs]]
        found = [labels[k] for k in label[at]]
        expected = [(operator(truth[b][1]), of_equal_layers(truth[b][2])) for _, b in pairs]
        op = np.array([a[0] == b[0] for a, b in zip(found, expected, strict=True)])
        module = np.array([a[1] == b[1] for a, b in zip(found, expected, strict=True)])
        none = np.array([not a[0] and bool(b[0]) for a, b in zip(found, expected, strict=True)])
        marked, seconds = owners.sampled[at], (work.end_ns - work.start_ns)[at].astype(float)

        def share(of, chosen=slice(None), seconds=seconds):
            return f"{100 * np.average(of[chosen], weights=seconds[chosen]):6.2f}" if len(of[chosen]) else "     -"

        one = np.ones(len(op))
        every = slice(None)
        print(
            f"{truth_file.stem:14} {len(mine):8} {len(pairs):8} {marked.mean():7.2f} | {share(op, marked, one)} "
            f"{share(op, ~marked, one)} {share(op)} | {share(module, every, one)} {share(module)} "
            f"| {share(none, every, one)}"
        )
        if verbose:
            wrong = Counter(
                (mine[pairs[k][0]][:50], found[k], expected[k], bool(marked[k])) for k in np.flatnonzero(~(op & module))
            )
            for key, n in wrong.most_common(10):
                print("    ", n, *key)


if __name__ == "__main__":
    main()
