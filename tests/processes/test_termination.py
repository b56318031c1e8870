"""SIGTERM and SIGHUP end a command wherever they find it, and only once."""

import signal
import subprocess
import sys

import pytest

from commands import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")

BEGIN = """
import os, signal, sys, time
from jouletrace.errors import TerminatedError
from jouletrace.processes import termination

termination.command_begins()
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, termination.terminated)

def send():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
        os.kill(os.getpid(), number)
"""

DROPPED = """
class Deleted:
    def __del__(self):
        send()

class Watched:
    pass

try:
    {drops}
    print("continues", flush=True)
    time.sleep(3600)
except TerminatedError:
    print("terminated")
"""

HANDLED = """
try:
    os.kill(os.getpid(), signal.SIGTERM)
except TerminatedError:
    time.sleep(0.5)
    termination.taken()
with termination.interrupts_taken():
    os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.5)
print("not sent again", flush=True)
termination.command_is_over()
os.kill(os.getpid(), signal.SIGTERM)
"""


def said(script):
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


CALLBACK = "import weakref; made = Watched(); watching = weakref.ref(made, lambda _: send()); del made"


@pytest.mark.parametrize("drops", ["Deleted()", CALLBACK], ids=["finaliser", "callback"])
def test_an_exception_that_python_drops_is_raised_again(drops):
    assert said(DROPPED.format(drops=drops))[:2] == (0, ["continues", "terminated"])


def test_an_exception_that_is_handled_is_not_raised_again_and_after_the_command_signals_end_the_process():
    code, out, err = said(HANDLED)
    assert (code, out, err) == (-signal.SIGTERM, ["not sent again"], "")


def test_ctrl_c_after_the_command_prints_no_traceback():
    """Python would print that of the function that it interrupts as it ends."""
    code, out, err = said("""
import atexit
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
termination.command_is_over()
""")
    assert (code, out, err) == (-signal.SIGINT, [], "")
