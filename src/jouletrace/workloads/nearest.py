"""The known names nearest to a wrong one, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'a' or 'b'?"``, or ``""`` if nothing in ``known`` is near ``name``."""
    by_lower = {candidate.lower(): candidate for candidate in known if candidate != name}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    if not near:
        return ""
    return "; did you mean " + " or ".join(f"'{by_lower[match]}'" for match in near) + "?"
