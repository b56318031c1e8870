"""What the page is made of besides its figures: styles, scripts, plotly, and the rule that nothing else may run."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from jouletrace.errors import NotPossibleError
from jouletrace.report.html.packing import squeezed

_SCRIPTS = ("base.js", "pens.js", "timeline.js", "charts.js", "tables.js", "main.js")
_FOLDER = "jouletrace.report.html"


@cache
def script() -> str:
    """Our own JavaScript, its files in order."""
    return "\n".join(text(name) for name in _SCRIPTS)


@cache
def text(name: str) -> str:
    """One of the files beside this module."""
    return (files(_FOLDER) / name).read_text(encoding="utf-8")


@cache
def plotly() -> tuple[str, str]:
    """Plotly's JavaScript, packed, and the hash by which the page lets it run.

    Raises:
        NotPossibleError: If plotly isn't installed.
    """
    try:
        code = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    except (ModuleNotFoundError, FileNotFoundError):
        raise NotPossibleError("the report needs plotly: pip install 'jouletrace[report]'") from None
    return squeezed(code), fingerprint(code)


def policy(*scripts: str) -> str:
    """The page's Content-Security-Policy: the scripts with these hashes may run, and nothing may be loaded.

    So a name that got past the escaping still couldn't run anything, and no request leaves the page.
    """
    allowed = " ".join(f"'{fingerprint}'" for fingerprint in scripts)
    rules = [
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rules)


def embedded(value: Any) -> Markup:
    """What the scripts draw, as JSON inside the page that no name can break out of."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def fingerprint(code: bytes) -> str:
    """The hash of a script as Content-Security-Policy has it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(code).digest()).decode("ascii")
