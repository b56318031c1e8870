"""What is wrong with an option, in one line: its name, the value and what is allowed."""

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
"""By pydantic's code: what was asked for."""

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
"""By pydantic's code: where the bound stands, and its words."""


def said(error: Any) -> str:
    """What typer found wrong with the command line.

    Newer typers check values by pydantic, whose words name neither the value nor what the option is; those of older
    ones, and of what is no value, stay as they are.
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
