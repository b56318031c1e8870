"""Where modules are looked for: a file of the user's may have the name of any module that we need.

``PYTHONPATH``, the folder of a script and that of ``-m`` precede Python's own modules. They are meant for the program.
"""

from __future__ import annotations

import os
import sys

users: list[str] = []
"""The user's entries of ``sys.path``, which ``ours_first`` has moved."""


def ours_first() -> None:
    """Look in the user's folders last, but for one that holds jouletrace itself, which a process of ours imports too.

    It is called in a process of ours before anything else is imported.
    """
    given = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    meant = {os.path.abspath(place) for place in given.split(os.pathsep)} if given else set()
    if not sys.flags.safe_path:
        meant.add(os.path.abspath(sys.path[0]))
    meant.discard(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    users[:] = [place for place in sys.path if os.path.abspath(place) in meant]
    sys.path[:] = [*(place for place in sys.path if place not in users), *users]
