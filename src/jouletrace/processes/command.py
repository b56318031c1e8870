"""Replaces this process by a command, whose end with its parent ``with_parent`` has arranged: it outlives an exec.

python -m jouletrace.processes.with_parent PARENT jouletrace.processes.command PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, which an exec would hand on
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error.strerror}")
