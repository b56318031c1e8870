"""The report of a fleet as one HTML file, composed of parts of a Run's report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jouletrace.addons.fleet import charts
from jouletrace.addons.fleet.actions import LIMIT, Action, actions
from jouletrace.addons.fleet.dataset import ABOUT, Dataset
from jouletrace.addons.fleet.document import (
    document,
    facts,
    gpu_table,
    label,
    slowness_table,
    spread_table,
    variance_table,
)
from jouletrace.addons.fleet.findings import Findings
from jouletrace.addons.fleet.results import Fleet
from jouletrace.addons.fleet.store import Store, open_store
from jouletrace.addons.fleet.words import PERCENT, reason
from jouletrace.report.document import Footnotes, printable
from jouletrace.report.html import REPORT_MARKS, assets, tables
from jouletrace.report.html.page import Card
from jouletrace.report.html.tables import Table
from jouletrace.report.scale import NONE, cell, quantity, split
from jouletrace.run import Estimate
from jouletrace.run.files import check_replaceable
from jouletrace.version import __version__


@dataclass(frozen=True)
class Section:
    """One group of GPUs in the form for the template."""

    id: str
    title: str
    ordered: str
    cards: list[Card]
    plots: dict[str, Any]
    tables: list[Table]
    facts: list[tuple[str, str]]
    simulated: bool

    def data(self) -> Markup:
        """The scripts' data as JSON, in which names are escaped."""
        return assets.embedded({"plots": self.plots, "timeline": None, "simulated": self.simulated})


def write(fleet: Fleet, found: Sequence[Findings], path: Path, limit: float = LIMIT) -> Path:
    """Write the report; an existing report is replaced.

    Args:
        fleet: The results.
        found: Findings on its groups.
        path: The file.
        limit: Relative slowness from which a GPU should be inspected.

    Raises:
        BadInputError: If another file has that name, or it can't be written.
        NotPossibleError: If plotly isn't installed.
    """
    check_replaceable(path, REPORT_MARKS, "a report")
    page = render(fleet, found, limit)
    Store(str(path.parent)).write(path.name, page.encode())
    return path


def render(fleet: Fleet, found: Sequence[Findings], limit: float = LIMIT) -> str:
    """The page.

    Raises:
        NotPossibleError: If plotly isn't installed.
    """
    library, library_hash = assets.plotly()
    script = assets.script()
    loaders = [PackageLoader("jouletrace.addons.fleet", ""), PackageLoader("jouletrace.report.html", "")]
    environment = Environment(loader=ChoiceLoader(loaders), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    whole, marks = document(fleet, found), Footnotes()
    store = open_store(fleet.source) if fleet.about else None
    unread: list[str] = []
    sections = [_section(one, number, store, marks, unread) for number, one in enumerate(found)]
    # Truncated files have been named already, with what is lost.
    unread = [line for line in unread if not any(_place(line) in said for said in whole.warnings)]
    return environment.get_template("fleet.html.j2").render(
        title=whole.title,
        simulated=whole.simulated,
        warnings=[*whole.warnings, *map(printable, unread)],
        command=printable(str(fleet.about.get("command", ""))),
        about=ABOUT if fleet.about else "",
        sections=sections,
        actions=_actions(actions(fleet, found, limit), limit),
        version=__version__,
        style=Markup(assets.text("style.css")),
        script=Markup(script),
        library=Markup(library),
        policy=assets.policy(assets.fingerprint(script.encode()), library_hash),
    )


def _section(found: Findings, number: int, store: Store | None, marks: Footnotes, unread: list[str]) -> Section:
    """The page's content for a group; ``unread`` receives a line for each file that can't be read."""
    specs = {
        "time": charts.box_plots(found, "time_s"),
        "energy": charts.box_plots(found, "energy_j"),
        "power": charts.box_plots(found, "power_w"),
        "hosts": charts.host_plots(found),
        "repeats": charts.repeats(found),
        "heat": charts.heat(found),
    }
    if store is not None:
        ids = {found.group.gpus[code].id for code in charts.chosen(found)}
        samples, damaged = Dataset(store).read("samples", ids)
        unread += [line for line in damaged if line not in unread]
        specs["power_time"] = charts.over_time(found, samples, "power_w", "power, W")
        specs["clock_time"] = charts.over_time(found, samples, "clock_sm_mhz", "SM clock, MHz")
    sections = [spread_table(found, marks), variance_table(found, marks), slowness_table(found)]
    shown = [tables.of_section(s, f"part{n}", "Spread" if n == 0 else None) for n, s in enumerate(sections) if s]
    return Section(
        f"run{number}",
        printable(found.group.title),
        "" if found.group.shares_time or len(found.group.gpus) == 1 else ", the fastest first",
        _cards(found),
        {name: spec for name, spec in specs.items() if spec is not None},
        [*shown, _gpus(found)],
        [(printable(name), printable(line)) for name, line in facts(found)],
        bool(found.group.facts["simulated"]),
    )


def _place(line: str) -> str:
    """The file name at the beginning of a line on a damaged file."""
    return printable(line.partition(" can't be read")[0])


def _cards(found: Findings) -> list[Card]:
    cards = [_card("GPUs apart in time", found.spreads["time_s"].range)]
    cards.append(_card("GPUs apart in energy", found.spreads["energy_j"].range))
    components = found.spreads["time_s"].components
    if components:
        cards.append(_card("Of the variance of time, between GPUs", components[1].share))
    if found.skew.most is not None:
        cards.append(Card("Start skew, at most", quantity(found.skew.most, "s"), interval=f"{found.skew.n} starts"))
    return cards


def _card(label: str, estimate: Estimate) -> Card:
    if estimate.value is None:
        return Card(label, NONE, interval=reason(estimate.reason))
    value, interval = split(cell(estimate, PERCENT))
    return Card(label, f"{value} %", interval=interval)


def _gpus(found: Findings) -> Table:
    table = gpu_table(found)
    if len(table.rows) > tables.MOST_ROWS:
        table.notes.append(f"{len(table.rows) - tables.MOST_ROWS} slower GPUs are left out")
        del table.rows[tables.MOST_ROWS :]
    return table


def _actions(found: Sequence[Action], limit: float) -> Table:
    words = [("action", ""), ("GPU", ""), ("host", ""), ("UUID", ""), ("serial", ""), ("slot", ""), ("evidence", "")]
    rows = [[one.action, label(one.name), one.node, one.gpu, one.serial, one.slot, one.evidence] for one in found]
    table = tables.plain("actions", f"What to do, with {100 * limit:g} % as the limit", words, rows)
    if len(found) > tables.MOST_ROWS:
        table.notes = [f"{len(found) - tables.MOST_ROWS} more are left out here; --actions writes all"]
    return table
