"""Long lists of cases, of which ``make test`` runs some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """The first of each ``every`` cases as they are, and others marked slow: ``make slow`` runs those."""
    found = []
    for number, case in enumerate(cases):
        if number % every == 0:
            found.append(case)
        elif isinstance(case, type(pytest.param())):
            found.append(pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id))
        else:
            found.append(pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow))
    return found
