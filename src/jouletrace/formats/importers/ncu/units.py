"""Units of ncu, whose spelling depends on the version, as factors to SI."""

from __future__ import annotations

import re
from functools import cache

_PREFIX = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BASE = {"second": "s", "sec": "s", "s": "s", "hz": "Hz", "Hz": "Hz", "byte": "B", "B": "B"}
_UNIT = re.compile(r"^([numkKMGT]?)(second|sec|s|hz|Hz|byte|B)$")
_PER = re.compile(r"^([numkKMGT]?)(second|sec|s)$")


@cache
def to_si(unit: str) -> tuple[float, str]:
    """The factor for a reading in ``unit``, and the resulting unit.

    Seconds, hertz and bytes (decimal multiples, as in ncu) and rates of them become s, Hz, B and
    B/s; cycles per time become Hz; a missing unit becomes 1; other units stay unchanged ("%",
    "inst/cycle", "register/thread").
    """
    plain = unit.strip()
    over, _, under = plain.partition("/")
    if not plain:
        return 1.0, "1"
    time = _PER.match(under)
    per = _PREFIX[time[1]] if time else 1.0
    if over == "cycle" and time:
        return 1 / per, "Hz"
    found = _UNIT.match(over)
    if found is None:
        return 1.0, plain
    base = _BASE[found[2]]
    return _PREFIX[found[1]] / per, f"{base}/s" if time else f"{base}/{under}" if under else base
