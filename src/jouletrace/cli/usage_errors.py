"""One-line messages for usage errors: the option, its value and the allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_parsing": "true or false",
}
"""Expected kind of value, by pydantic's error code."""

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
"""Key of the bound and its words, by pydantic's error code."""


def said(error: Any) -> str:
    """The message for a usage error reported by typer.

    Newer versions of typer check values by pydantic, whose messages name neither the value nor the option. Messages
    of older versions, and of other errors, are unchanged.
    """
    param, cause = getattr(error, "param", None), error.__cause__
    if param is None or not callable(getattr(cause, "errors", None)):
        return str(error.format_message())
    found: Mapping[str, Any] = cause.errors()[0]
    code, name = found["type"], max(param.opts, key=len)
    if code in _BOUNDS:
        key, words = _BOUNDS[code]
        return f"{name} {found['input']}: must be {words} {found['ctx'][key]:g}"
    if code not in _KINDS:
        return str(error.format_message())
    allowed = _KINDS[code]
    for end, words in (("min", "at least"), ("max", "at most")):
        bound = getattr(param, end, None)
        if bound is not None:
            allowed += f", {words} {bound:g}"
    about = (getattr(param, "help", None) or "").partition(" [default")[0].rstrip(".")
    value = found["input"] if str(found["input"]).strip() else repr(found["input"])
    return f"{name} {value}: must be {allowed}" + (f" ({about})" if about else "")
