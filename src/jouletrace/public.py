"""Public names of packages, each loaded from its module on first use: who imports a package loads none of them.

Packages of ours import from modules of others; tests import from packages, and needn't know which module has a name.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing takes longer than all that is done here
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def public_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Args:
        package: Its ``__name__``.
        homes: Module of the package: its public names, with spaces between. None is that of a module of the package.
    """
    of = {name: module for module, text in homes.items() for name in text.split()}

    def named(name: str) -> Any:
        if name not in of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{of[name]}"), name)  # not kept: a test may replace it in its module

    return named
