"""Functions of higher packages that lower ones call without naming them: ``jouletrace/__init__.py`` sets them."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes longer than all that is done here
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any, ClassVar


class Above:
    """Functions and names that were handed down.

    Attributes:
        of_devices: Returns a figure of all devices of a recording together (``analysis.facts``).
        number_of: Returns the number of the unit of a Run that has a name or path (``run.parts``).
        text_of: Returns the text of a Run, a comparison or an Estimate as ``print`` shows it.
        report: Writes the HTML report of a Run or a comparison to a path, with a price and a mass of CO2 per kWh;
            returns the path.
        save: Writes a Run to a path and returns that.
        vendors: Modules of devices above ``devices`` (see ``devices.registry``).
        runtimes: The module of the backend above ``profiler`` that runs models in other runtimes.
    """

    of_devices: ClassVar[Callable[[Any, str], Any]]
    number_of: ClassVar[Callable[[Any, str], int]]
    text_of: ClassVar[Callable[[Any], str]]
    report: ClassVar[Callable[[Any, Path | str, str | None, str | None], Path]]
    save: ClassVar[Callable[..., Path]]
    vendors: ClassVar[tuple[str, ...]]
    runtimes: ClassVar[str]
