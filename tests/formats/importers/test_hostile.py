"""Files of other tools that ask for more memory or time than they are worth: refused in one line."""

import gzip
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from import_logs import meter, where_read, write
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, formats, read_file, read_files
from jouletrace.run import memory
from jouletrace.run.limits import VARIABLE

needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="memory is read in /proc")

_MOST_MIB = 256
_IMPORT = rf"""
import re, sys
from jouletrace.cli.main import main
from jouletrace.run import memory
memory.MOST_BYTES = {_MOST_MIB} << 20
try:
    main()
finally:
    peak_kib = re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]
    print("peak", int(peak_kib) // 1024, file=sys.stderr)
"""


def gzip_of_one_row(folder):
    """Two megabytes that unpack to four hundred."""
    return write(folder, gzip.compress(b"time_s,power_w\n" + b"1,2\n" * 100_000_000, 1), "x.csv.gz")


def json_of_events(folder):
    """Each event of two bytes becomes an object."""
    return write(folder, b'{"traceEvents":[{}' + b",{}" * 6_000_000 + b"]}", "x.json")


def table_of_short_rows(folder):
    """Each row of four bytes becomes a list of texts."""
    return write(folder, b"time_s,power_w\n" + b"1,2\n" * 5_000_000, "x.csv")


@needs_proc
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "form"),
    [(gzip_of_one_row, "table"), (table_of_short_rows, "table"), *where_read("kineto", (json_of_events, "kineto"))],
)
def test_what_takes_too_much_memory_is_refused_in_one_line(tmp_path, make, form):
    path = make(tmp_path)
    command = [sys.executable, "-c", _IMPORT, "import", str(path), "-f", form, "-o", str(tmp_path / "run")]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    said, peak = ran.stderr.splitlines()
    assert ran.returncode == 2
    assert f"{path.name}: reading takes more than 0.25 GiB of memory" in said
    assert f"{VARIABLE}=8 allows 8 GiB" in said
    assert int(peak.split()[1]) < _MOST_MIB
    assert not (tmp_path / "run").exists()


@needs_proc
def test_the_limit_is_of_the_reading_alone_and_grows_with_the_files(tmp_path, monkeypatch):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    path = write(tmp_path, meter([100.0] * 20), "x.csv")
    with memory.bounded([path]):
        small = resource.getrlimit(resource.RLIMIT_DATA)[0]
        run = read_files([path], ImportOptions())
    assert len(run.samples) == 40
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    os.truncate(path, 1 << 30)
    with memory.bounded([path]):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] > small + (8 << 30)
    os.truncate(path, 100)
    monkeypatch.setenv(VARIABLE, "4")
    with memory.bounded([path]):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] > small + (2 << 30)
    with pytest.raises(BadInputError, match="takes more than 4 GiB of memory"), memory.bounded([path]):
        raise MemoryError
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.thorough
@needs_proc
def test_what_the_process_held_before_leaves_the_reading_its_memory(tmp_path, monkeypatch):
    path = write(tmp_path, meter([100.0] * 20), "x.csv")
    monkeypatch.setattr(memory, "MOST_BYTES", 384 << 20)
    held = np.ones(48 << 20)  # as many bytes as a fresh process may have
    with memory.bounded([path]):
        assert len(np.ones(12 << 20)) < len(held)
        with pytest.raises(MemoryError):
            np.ones(48 << 20)


@pytest.mark.thorough
@needs_proc
def test_linear_algebra_takes_as_much_of_it_on_many_cores_as_on_one(tmp_path):
    path = write(tmp_path, meter([100.0] * 20), "x.csv")
    text = (
        "from pathlib import Path; from jouletrace.run import memory; from threadpoolctl import threadpool_info\n"
        f"with memory.bounded([Path({str(path)!r})]):\n    import scipy.linalg\n"
        "print({one['num_threads'] for one in threadpool_info() if 'scipy.libs' in one['filepath']})"
    )
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS", "OMP"))}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=bare, check=True)
    assert done.stdout == "{1}\n"


@pytest.mark.parametrize("form", [None, *(name for name in formats() if name not in ("jouletrace", "mig_folder"))])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_opened(tmp_path, kind, form):
    path = tmp_path / "x.csv"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(BadInputError, match=r"x\.csv: not an ordinary file"):
        read_file(path, ImportOptions(format=form))


def test_a_sparse_file_is_refused_by_its_size(tmp_path):
    path = write(tmp_path, meter([100.0] * 20), "x.csv")
    os.truncate(path, 1 << 40)
    with pytest.raises(BadInputError, match="larger than 4 GiB"):
        read_file(path, ImportOptions(format="table"))
