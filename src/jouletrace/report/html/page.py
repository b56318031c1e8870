"""From Runs to the page: what the template is given, and the page itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jouletrace.errors import BadInputError
from jouletrace.report import content, plots, reasons, serving
from jouletrace.report.comparison.data import Comparison
from jouletrace.report.document import Document, Footnotes, printable
from jouletrace.report.html import assets, sections, tables
from jouletrace.report.html.comparing import compared
from jouletrace.report.html.tables import Table
from jouletrace.report.html.timeline import timeline
from jouletrace.report.icicle import icicle
from jouletrace.report.results import Results, metric
from jouletrace.report.scale import NBSP, cell, quantity, split, unit_for
from jouletrace.report.traced import by_name
from jouletrace.report.tree import tree
from jouletrace.report.waveform import picture
from jouletrace.run import MODEL_UNIT, Run
from jouletrace.run.names import short_name
from jouletrace.version import __version__

_CARDS = (
    "energy_total_j",
    "latency_s",
    "power_w",
    "throughput_per_s",
    "energy_active_over_context_idle_j",
    "energy_active_over_deep_idle_j",
    "power_working_w",
    "power_idle_w",
)
_MOST_CARDS, _WAVEFORM = 6, 1200
_ALWAYS = ("energy_total_j", "latency_s", "power_w")
"""What a profile says on its first screen in any case: a figure, or why there is none."""


@dataclass(frozen=True)
class Card:
    """A headline figure: its name, value, unit, interval in words, marks of footnotes, why it is missing."""

    label: str
    value: str
    unit: str = ""
    interval: str = ""
    marks: str = ""
    reason: str = ""


@dataclass
class View:
    """One Run as the template takes it."""

    id: str
    tab: str
    document: Document
    cards: list[Card]
    footnotes: list[str]
    plots: dict[str, Any]
    timeline: dict[str, Any] | None
    waveform: tuple[Markup, str] | None
    headline: Table | None
    parts: list[Table]
    latency: Table | None
    sensors: Table | None
    checks: Table | None
    provenance: list[tuple[str, list[tuple[str, str]]]]
    hint: str = ""
    whole: str = "of an iteration"

    @property
    def stated(self) -> bool:
        """Whether a headline figure has an interval."""
        return any("±" in card.interval or " to " in card.interval.replace(NBSP, " ") for card in self.cards)

    @property
    def height(self) -> int:
        """Pixels of the icicle: a row for each level."""
        return int(max(self.plots[name]["rows"] for name in ("energy", "time") if name in self.plots)) * 52 + 90

    def data(self) -> Markup:
        """What the scripts draw, as JSON that no name can break out of."""
        simulated = bool(self.document.simulated)
        return assets.embedded({"plots": self.plots, "timeline": self.timeline, "simulated": simulated})


def render(runs: Sequence[Run], comparisons: Sequence[Comparison] = (), notes: Sequence[str] = ()) -> str:
    """The page.

    Args:
        runs: What to report on; at least one.
        comparisons: Results of ``compare`` on them.
        notes: What could not be compared, in words.

    Raises:
        BadInputError: If there is no Run.
        NotPossibleError: If plotly isn't installed.
    """
    if not runs:
        raise BadInputError("no Run to report on")
    library, library_hash = assets.plotly()
    script = assets.script()
    marks = Footnotes()
    together = None
    if len(runs) > 1:
        side_by_side = content.comparison(runs, marks)
        together = side_by_side, tables.of_section(side_by_side.sections[0], "together", "")
    against = [compared(found, number, marks) for number, found in enumerate(comparisons)]
    views = [_view(run, number, runs, marks) for number, run in enumerate(runs)]
    if len(runs) == 1 and against:  # the two sides of one recording, which come first
        against[0].document.unfinished, views[0].document.unfinished = views[0].document.unfinished, []
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            title=(together[0] if together else (against or views)[0].document).title,
            simulated=(together[0] if together else views[0].document).simulated,
            views=views,
            together=together,
            comparisons=against,
            uncompared=[printable(note) for note in notes],
            version=__version__,
            style=Markup(assets.text("style.css")),
            script=Markup(script),
            library=Markup(library),
            policy=assets.policy(assets.fingerprint(script.encode()), library_hash),
        )
    )


@cache
def _templates() -> Environment:
    """The templates, which take longer to compile than a page to write."""
    environment = Environment(
        loader=PackageLoader("jouletrace.report.html", ""), autoescape=True, undefined=StrictUndefined
    )
    environment.trim_blocks = environment.lstrip_blocks = True
    return environment


def _view(run: Run, number: int, runs: Sequence[Run], marks: Footnotes) -> View:
    results = Results(run)
    document = content.document(run)
    cards, footnotes = _cards(run, results, marks)
    specs: dict[str, Any] = {"latency": plots.histogram(run), "frontier": serving.frontier(run, results)}
    if run.kind != "ab":  # its two sides are no parts of one whole
        nodes = tree(run, results)
        specs |= {by: icicle(nodes, by) for by in ("energy", "time")}
    drawn = picture(run, width=_WAVEFORM, name=f"waveform{number}", titled=False)
    headline = content.model_section(run, results, marks).printable()
    sensors = tables.of_section(content.sensor_section(run.channels).printable(), "sensors") if run.channels else None
    found = View(
        id=f"run{number}",
        tab=_tab(run, runs),
        document=document,
        cards=cards,
        footnotes=footnotes,
        plots={name: spec for name, spec in specs.items() if spec is not None},
        timeline=timeline(run, results),
        waveform=(Markup(drawn[0]), drawn[1]) if drawn is not None else None,  # its texts are escaped
        headline=tables.of_section(headline, "figures", "Figures") if headline.rows else None,
        parts=[
            *_loads(run, results, marks),
            *tables.parts(run, results, marks),
            *sections.traced(run, results),
            *sections.counters(run),
        ],
        latency=sections.percentiles(run),
        sensors=sensors,
        checks=sections.check_table(results),
        provenance=sections.provenance(run),
    )
    if run.kind != "profile":
        found.whole = "of the recording" if len(run.results) else "of all that was traced"
    finer = any(results.units(level) for level in ("layer", "op", "kernel", "phase"))
    if run.kind == "profile" and not finer:
        asked = run.settings.get("detail")
        found.hint = (
            f"Its parts (--detail {asked}) were asked for and not measured: the warnings and the checks say why."
            if asked in ("phase", "layer", "kernel")
            else "Only the model as a whole was measured: profile with --detail layer or --detail kernel for its parts."
        )
    return found


def _loads(run: Run, results: Results, marks: Footnotes) -> list[Table]:
    """Of a server under load, a row for each load."""
    if not results.units("load"):
        return []
    return [tables.of_section(serving.section(run, results, marks).printable(), "loads")]


def _tab(run: Run, runs: Sequence[Run]) -> str:
    """Short text that distinguishes a Run from the others."""
    identities = [content.identity(one) for one in runs]
    own = content.identity(run)
    varying = [key for key in own if len({identity[key] for identity in identities}) > 1]
    words = [own[key] if key not in ("batch", "tokens") else f"{key} {own[key]}" for key in varying if own[key]]
    alike = sum(identity == own for identity in identities) > 1
    number = [f"{[id(one) for one in runs].index(id(run)) + 1}"] if alike or not words else []
    return printable(" · ".join([*words, *number]))


def _cards(run: Run, results: Results, marks: Footnotes) -> tuple[list[Card], list[str]]:
    """Headline figures, and what is to be known of them: a line each."""
    devices = results.units("device")
    unit_id = devices[0]["id"] if len(devices) == 1 and not results.metrics() else MODEL_UNIT
    there = results.metrics(unit_id)
    names = [name for name in _CARDS if name in there or (run.kind == "profile" and name in _ALWAYS)]
    cards: list[Card] = []
    footnotes = Footnotes(marks)
    for name in names:
        found, words = results.figure(name, unit_id), metric(name)
        estimate = found.estimate
        if (estimate.value is None and name not in _ALWAYS) or len(cards) == _MOST_CARDS:
            continue
        unit = unit_for([estimate.value], words.unit)
        value, interval = split(cell(estimate, unit))
        if estimate.half_width and estimate.value:
            interval += f" ({100 * estimate.half_width / abs(estimate.value):.2g}{NBSP}%)" if interval else ""
        label = words.label.strip()
        said = "".join(footnotes.mark(reasons.flag(code)) for code in found.flags)
        if estimate.value is None:
            cards.append(Card(label, value, marks=said, reason=reasons.reason(estimate.reason)))
        else:
            label = f"Energy, {label}" if label.startswith("active") else label
            cards.append(Card(label, value, unit.name, interval or "no interval", said))
    return (cards or _trace_cards(run)), footnotes.lines()


def _trace_cards(run: Run) -> list[Card]:
    """What a trace without figures says at a glance."""
    found = by_name(run)
    if not found:
        return []
    by_kernel: dict[str, float] = {}
    for one in found:  # on several devices a name is one kernel
        by_kernel[one.name] = by_kernel.get(one.name, 0.0) + one.total_s
    total = sum(by_kernel.values())
    longest = max(by_kernel, key=lambda name: by_kernel[name])
    share = f"{100 * by_kernel[longest] / total:.1f}{NBSP}% of all kernel time" if total else ""
    value, _, unit = quantity(total, "s").partition(NBSP)
    return [
        Card("Kernels and copies", str(sum(one.count for one in found)), "launches"),
        Card("Their time, summed", value, unit, "as traced"),
        Card("Names", str(len(by_kernel)), "", "kernels and copies that differ"),
        Card("Costliest", printable(short_name(longest)), "", share),
    ]
