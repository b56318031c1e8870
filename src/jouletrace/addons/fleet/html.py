"""The report of a fleet as one HTML file, made of the pieces of a Run's."""

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
from jouletrace.addons.fleet.document import document, facts, gpu_heading, slowness_table, spread_table, variance_table
from jouletrace.addons.fleet.findings import Findings, mean_of
from jouletrace.addons.fleet.results import Fleet
from jouletrace.addons.fleet.slowness import COUNTED, is_counted
from jouletrace.addons.fleet.spread import FIGURES
from jouletrace.addons.fleet.store import FolderStore, Store, open_store
from jouletrace.addons.fleet.words import PERCENT, SAME_TIME, reason
from jouletrace.report.document import Cell, Footnotes, printable
from jouletrace.report.html import REPORT_MARKS, assets, tables
from jouletrace.report.html.tables import Heading, Table
from jouletrace.report.scale import NBSP, NONE, Unit, cell, fixed, quantity, split, unit_for
from jouletrace.run import Estimate
from jouletrace.run.files import check_replaceable
from jouletrace.version import __version__

_COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("clock_mhz", "SM (MHz)", 0),
    (COUNTED, "SM, counted (MHz)", 0),
    ("temperature_c", "die (°C)", 1),
    ("temperature_max_c", "hottest (°C)", 0),
    ("power_w", "power (W)", 1),
    ("idle_w", "deep idle (W)", 1),
    ("context_idle_w", "context idle (W)", 1),
    ("power_cap_share", "under the cap (share)", 2),
    ("hardware_share", "slowed by hardware (share)", 2),
)
_ASIDE = ("temperature_max_c", "context_idle_w")
"""Those that are shown on request only."""


@dataclass(frozen=True)
class Card:
    """A headline: what, how much, and how sure."""

    label: str
    value: str
    interval: str


@dataclass(frozen=True)
class Section:
    """One group of GPUs as the template takes it."""

    id: str
    title: str
    ordered: str
    cards: list[Card]
    plots: dict[str, Any]
    tables: list[Table]
    facts: list[tuple[str, str]]
    simulated: bool

    def data(self) -> Markup:
        """What the scripts draw, as JSON that no name can break out of."""
        return assets.embedded({"plots": self.plots, "timeline": None, "simulated": self.simulated})


def write(fleet: Fleet, found: Sequence[Findings], path: Path, limit: float = LIMIT) -> Path:
    """Write the report; an older report that is there is replaced.

    Args:
        fleet: The results.
        found: What is known of its groups.
        path: The file.
        limit: Relative slowness that is worth a look.

    Raises:
        BadInputError: If another file is there, or it can't be written.
        NotPossibleError: If plotly isn't installed.
    """
    check_replaceable(path, REPORT_MARKS, "a report")
    page = render(fleet, found, limit)
    FolderStore(str(path.parent)).write(path.name, page.encode())
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
    # Those that are cut off have been named already, with what is lost by it.
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
    """What the page shows of a group; ``unread`` is given a line for each file that it can't be drawn from."""
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
        [*shown, gpu_table(found)],
        [(printable(name), printable(line)) for name, line in facts(found)],
        bool(found.group.facts["simulated"]),
    )


def _place(line: str) -> str:
    """The file that a line on a damaged one begins with."""
    return printable(line.partition(" can't be read")[0])


def _cards(found: Findings) -> list[Card]:
    cards = [_card("GPUs apart in time", found.spreads["time_s"].range)]
    cards.append(_card("GPUs apart in energy", found.spreads["energy_j"].range))
    components = found.spreads["time_s"].components
    if components:
        cards.append(_card("Of the variance of time, between GPUs", components[1].share))
    if found.skew.most is not None:
        cards.append(Card("Start skew, at most", quantity(found.skew.most, "s"), f"{found.skew.n} starts"))
    return cards


def _card(label: str, estimate: Estimate) -> Card:
    if estimate.value is None:
        return Card(label, NONE, reason(estimate.reason))
    value, interval = split(cell(estimate, PERCENT))
    return Card(label, f"{value} %", interval)


def gpu_table(found: Findings) -> Table:
    """Every GPU with all that is known of it, sortable."""
    group = found.group
    alone = len({gpu.node for gpu in group.gpus}) == 1
    headings = [Heading("GPU", "label"), Heading("host", "host", aside=alone), Heading("UUID", "gpu", aside=True)]
    headings += [
        Heading("serial", "serial", aside=True),
        Heading("slot", "pci_bus", aside=True),
        Heading("runs", "runs", True),
    ]
    places = {name: {place.gpu: place for place in found.spreads[name].places} for name in ("time_s", "energy_j")}
    units = {name: unit_for([p.value.value for p in own.values()], FIGURES[name]) for name, own in places.items()}
    for name, words in (("time_s", "time"), ("energy_j", "energy")):
        headings += [
            Heading(f"{words} ({units[name].name})", name, True),
            Heading(f"{words} off median (%)", f"{name}_off", True),
            Heading(f"rank by {words}", f"{name}_rank", True),
        ]
    columns = [one for one in _COLUMNS if one[0] != COUNTED or is_counted(group)]
    headings.append(Heading("at equal temperature (%)", "off_at_equal_temperature", True, aside=True))
    headings += [Heading(words, name, True, aside=name in _ASIDE) for name, words, _ in columns]
    table = Table("gpus", gpu_heading(found), headings)
    if group.shares_time:
        table.notes.append(f"{SAME_TIME[0].upper()}{SAME_TIME[1:]}.")
    order = [place.gpu for place in found.spreads["time_s"].places]
    for code in order[: tables.MOST_ROWS]:
        gpu = group.gpus[code]
        names = [gpu.label, gpu.node, gpu.id, str(gpu.facts.get("serial") or ""), str(gpu.facts.get("pci_bus") or "")]
        row = [Cell(printable(text)) for text in names]
        row[0] = _label(gpu.label)
        runs = int((group.runs["gpu"] == code).sum())
        row.append(Cell(str(runs), runs))
        for figure, by_code in places.items():
            place = by_code.get(code)
            row.append(_figure(place.value if place else None, units[figure]))
            row += [_figure(place.off if place else None, PERCENT), _rank(place.rank if place else None)]
        row.append(_figure(found.cooler.get(code), PERCENT))
        for name, _, digits in columns:
            value = mean_of(group, name, code)
            row.append(Cell(NONE if value is None else fixed(value, digits), value))
        table.rows.append(row)
    if len(order) > tables.MOST_ROWS:
        table.notes.append(f"{len(order) - tables.MOST_ROWS} slower GPUs are left out")
    if found.gain_pct is not None and len(order) > 1:
        table.notes.append(
            f"Ranks by energy are by what each board's own sensor says; its gain is known to ±{found.gain_pct:g} % only"
        )
    return table


def _label(text: str) -> Cell:
    """What a GPU is called, on one line."""
    shown = printable(text)
    return Cell(shown.replace(" ", NBSP), full=shown)


def _figure(estimate: Estimate | None, unit: Unit) -> Cell:
    if estimate is None or estimate.value is None:
        return Cell(NONE)
    return Cell(cell(estimate, unit), estimate.value, estimate.low, estimate.high)


def _rank(estimate: Estimate | None) -> Cell:
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return Cell(NONE)
    low, high = round(estimate.low), round(estimate.high)
    return Cell(f"{low}" if low == high else f"{low}–{high}", estimate.value, estimate.low, estimate.high)


def _actions(found: Sequence[Action], limit: float) -> Table:
    names = ("action", "GPU", "host", "UUID", "serial", "slot", "evidence")
    table = Table(
        "actions", f"What to do, with {100 * limit:g} % as the limit", [Heading(name, name) for name in names]
    )
    for one in found[: tables.MOST_ROWS]:
        words = (one.node, one.gpu, one.serial, one.slot, one.evidence)
        cells = [Cell(one.action), _label(one.name)]
        table.rows.append(cells + [Cell(printable(text)) for text in words])
    if len(found) > tables.MOST_ROWS:
        table.notes.append(f"{len(found) - tables.MOST_ROWS} more are left out here; --actions writes all")
    return table
