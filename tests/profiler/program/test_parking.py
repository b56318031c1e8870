"""Threads that a program leaves behind."""

import subprocess
import sys
import threading

import pytest

LEFT_BEHIND = """
import threading, time
from jouletrace.profiler.program.parking import park_threads

counts = {"busy": 0, "jouletrace-own": 0, "importing": 0}

def count(name):
    while True:
        time.sleep(0.001)
        counts[name] += 1

def load():
    import count_for_ever

for name in ("busy", "jouletrace-own"):
    threading.Thread(target=count, args=(name,), name=name, daemon=True).start()
threading.Thread(target=load, daemon=True).start()
time.sleep(0.2)
park_threads()
time.sleep(0.2)
before = dict(counts)
later = threading.Thread(target=time.sleep, args=(0.001,))
later.start()
later.join()
time.sleep(0.5)
print(*(counts[name] - before[name] > 0 for name in counts))
"""


@pytest.mark.skipif(not hasattr(threading, "setprofile_all_threads"), reason="needs Python 3.12")
def test_threads_of_the_program_stop_and_ours_and_those_that_import_go_on(tmp_path):
    (tmp_path / "count_for_ever.py").write_text("import __main__\n__main__.count('importing')\n")
    (tmp_path / "program.py").write_text(LEFT_BEHIND)
    found = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.split() == ["False", "True", "True"]
