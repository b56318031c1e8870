"""Assets of the page besides its figures: styles, scripts, plotly, and the rule that nothing else may run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from jouletrace.errors import NotPossibleError
from jouletrace.version import __version__

_SCRIPTS = ("base.js", "pens.js", "timeline.js", "flame.js", "charts.js", "tables.js", "theme.js", "main.js")
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


def needed(plots: Iterable[Mapping[str, Any]]) -> tuple[str, tuple[str, ...]]:
    """Plotly for a page with these plots, packed, and its hash; nothing where our own scripts draw them all.

    Raises:
        NotPossibleError: If plotly is needed and isn't installed.
    """
    if not any("nodes" not in spec for some in plots for spec in some.values()):
        return "", ()
    library, needed_parts = plotly()
    return library, (needed_parts,)


@cache
def _templates(packages: tuple[str, ...]) -> Environment:
    """The templates of packages, which take longer to compile than a page to write."""
    loader = ChoiceLoader([PackageLoader(package, "") for package in (*packages, _FOLDER)])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    return environment


def template(name: str, *packages: str) -> Template:
    """A template of these packages, or one beside this module."""
    return _templates(packages).get_template(name)


def page(name: str, plots: Iterable[Mapping[str, Any]], *packages: str, **fields: Any) -> str:
    """A page by a template of these packages, or one beside this module, with what any page consists of.

    Raises:
        NotPossibleError: If its plots need plotly, and that isn't installed.
    """
    library, hashes = needed(plots)
    return template(name, *packages).render(
        version=__version__,
        style=Markup(text("style.css")),
        script=Markup(script()),
        library=Markup(library),
        policy=policy(fingerprint(script().encode()), *hashes),
        **fields,
    )


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
    """The data that the scripts draw, as JSON inside the page that no name can break out of."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def fingerprint(code: bytes) -> str:
    """The hash of a script as Content-Security-Policy has it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(code).digest()).decode("ascii")


_MILD = 6


class Packer:
    """Collects columns of one Run; each is referred to by its place.

    A column of whole numbers not below zero is stored as planes: all lowest bytes, then all next
    ones, as many as the largest number needs. High planes are nearly constant and compress to almost nothing.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def whole(self, values: Any) -> dict[str, int]:
        """Add whole numbers from 0 to 2⁵³; returns where they are: "at", "n", "bytes"."""
        column = np.ascontiguousarray(values, dtype="<u8")
        most = int(column.max()) if len(column) else 0
        width = max(1, -(-most.bit_length() // 8))
        planes = column.view(np.uint8).reshape(-1, 8)[:, :width].T
        return self._add(np.ascontiguousarray(planes).tobytes(), len(column), width)

    def rising(self, values: Any) -> dict[str, int]:
        """Add whole numbers in rising order, as differences."""
        column = np.asarray(values, dtype=np.int64)
        return {**self.whole(np.diff(column, prepend=0)), "sum": 1}

    def real(self, values: Any) -> dict[str, int]:
        """Add real numbers in single precision."""
        column = np.ascontiguousarray(values, dtype="<f4")
        planes = column.view(np.uint8).reshape(-1, 4).T
        return {**self._add(np.ascontiguousarray(planes).tobytes(), len(column), 4), "real": 1}

    def text(self) -> str:
        """All columns."""
        return squeezed(b"".join(self._parts))

    def _add(self, data: bytes, n: int, width: int) -> dict[str, int]:
        at = {"at": self._at, "n": n, "bytes": width}
        self._parts.append(data)
        self._at += len(data)
        return at


def squeezed(data: bytes) -> str:
    """Bytes as Base64 of their gzip; the same for the same bytes."""
    return base64.b64encode(gzip.compress(data, _MILD, mtime=0)).decode("ascii")
