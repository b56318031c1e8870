"""From Runs to the page: what the template is given, and the page itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from jouletrace.analysis.facts import facts_of
from jouletrace.comparing.paired import own_sides
from jouletrace.comparing.pairs import DIFFERENT, INCONCLUSIVE, SAME, Comparison, Note
from jouletrace.errors import BadInputError
from jouletrace.levels import PROFILE, taken
from jouletrace.report import charts, columns, comparison, content
from jouletrace.report.charts import Spec
from jouletrace.report.comparison_words import note
from jouletrace.report.document import Footnotes
from jouletrace.report.headline import Headline, headline
from jouletrace.report.html import assets, tables
from jouletrace.report.html.timeline import timeline
from jouletrace.report.kinds import worded
from jouletrace.report.table import Table
from jouletrace.report.tariffs import Tariff
from jouletrace.report.text import Document
from jouletrace.report.tree import by_name, tree
from jouletrace.report.waveform import picture
from jouletrace.run import Run
from jouletrace.run.metrics import metric
from jouletrace.run.names import short_name
from jouletrace.run.parts import Parts
from jouletrace.words import reasons
from jouletrace.words.scale import NBSP, cell, quantity, split, unit_for
from jouletrace.words.text import printable

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
"""Figures on the first screen of a profile in any case, each with a reason if it is null."""

_LEAST_REACH = 0.01
"""Change to which bars of comparisons reach at least, so that next to nothing doesn't look like much."""


@dataclass(frozen=True)
class Card:
    """A headline figure: its name, value, unit, interval in words, marks of footnotes, why it is missing."""

    label: str
    value: str
    unit: str = ""
    interval: str = ""
    marks: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Compared:
    """A comparison as the template takes it.

    Attributes:
        id: Unique in the report.
        document: Title, sides, notes and warnings in words.
        tables: The model's figures, then the parts of each level, those that differ first.
        difference: Its causes, for ``flame.js``; None where none is stated.
        waterfall: From A to B by these, for plotly; None where none is stated.
    """

    id: str
    document: Document
    tables: list[Table]
    difference: Spec | None = None
    waterfall: Spec | None = None

    @property
    def plots(self) -> dict[str, Spec]:
        """Its charts by name."""
        plots = {"difference": self.difference, "waterfall": self.waterfall}
        return {name: spec for name, spec in plots.items() if spec is not None}

    @property
    def data(self) -> Markup:
        """The scripts' data as JSON, in which names are escaped."""
        return assets.embedded({"plots": self.plots, "simulated": bool(self.document.simulated)})

    @property
    def verdicts(self) -> str:
        """How many of the model's figures got which verdict, for a reader in a hurry."""
        verdicts = [cell.full for cell in self.tables[0].cells("verdict")] if self.tables else []
        counts = {verdict: verdicts.count(verdict) for verdict in (*DIFFERENT, SAME, INCONCLUSIVE)}
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def render(
    runs: Sequence[Run],
    comparisons: Sequence[Comparison] = (),
    notes: Sequence[Note] = (),
    tariff: Tariff | None = None,
    files: Sequence[str] = (),
) -> str:
    """The page.

    Args:
        runs: What to report on; at least one.
        comparisons: Parts of ``compare`` on them.
        notes: Comparisons that could not be made.
        tariff: What a kWh costs and emits, before what the Runs keep.
        files: Name of each Run's file, for a column of several.

    Raises:
        BadInputError: If there is no Run.
        NotPossibleError: If plotly isn't installed.
    """
    if not runs:
        raise BadInputError("no Run to report on")
    marks = Footnotes()
    together = None
    if len(runs) > 1:
        side_by_side = content.comparison(runs, marks, tariff, files=files)
        together = side_by_side, replace(side_by_side.sections[0].shown(), id="together")
    of_runs = [sides for run in runs if (sides := own_sides(run)) is not None]
    against = [compared(pair, number, marks) for number, pair in enumerate([*of_runs, *comparisons])]
    views = [_view(run, number, runs, marks, tariff) for number, run in enumerate(runs)]
    recorded: Document = views[0]["document"]
    if len(runs) == 1 and against:  # the two sides of one recording, which come first
        against[0].document.unfinished, recorded.unfinished = recorded.unfinished, []
    first = together[0] if together else recorded
    return assets.page(
        "page.html.j2",
        [*(view["plots"] for view in views), *(sides.plots for sides in against)],
        title=(against[0].document if against and not together else first).title,
        simulated=first.simulated,
        views=views,
        together=together,
        comparisons=against,
        uncompared=[printable(note(of_note)) for of_note in notes],
    )


def _view(run: Run, number: int, runs: Sequence[Run], marks: Footnotes, tariff: Tariff | None) -> dict[str, Any]:
    """One Run as the template takes it."""
    results = Parts(run)
    run_facts = facts_of(run, results)
    document = content.document(run, tariff=tariff)
    cards, footnotes = _cards(run, results, marks, headline(run, results, run_facts))
    kind = worded(run, results)
    specs = {"latency": charts.histogram(run_facts), **({} if kind is None else kind.plots(run, results, run_facts))}
    if run.kind != "ab":  # its two sides are no parts of one whole
        nodes = tree(run, results, run_facts.together)
        specs |= {by: charts.icicle(nodes, by) for by in ("energy", "time")}
    plots = {name: spec for name, spec in specs.items() if spec is not None}
    over_time = timeline(run, results)
    drawn = picture(run, width=_WAVEFORM, name=f"waveform{number}", titled=False)
    of_model = content.model_section(run, results, marks)
    checks = columns.check_section(results)
    listed = [] if kind is None else [replace(kind.section(run, results, marks).shown(), id=f"{kind.LEVEL}s")]
    of_all = "of the recording" if len(run.results) else "of all that was traced"
    return {
        "id": f"run{number}",
        "tab": _tab(run, runs),
        "document": document,
        "ab": run.kind == "ab",
        "cards": cards,
        "stated": any("±" in card.interval or " to " in card.interval.replace(NBSP, " ") for card in cards),
        "footnotes": footnotes,
        "plots": plots,
        "height": max((plots[name]["rows"] for name in ("energy", "time") if name in plots), default=0) * 24 + 34,
        "whole": "of an iteration" if run.kind == "profile" else of_all,
        "hint": _hint(run, results),
        "timeline": over_time,
        "waveform": (Markup(drawn[0]), drawn[1]) if drawn is not None else None,  # its texts are escaped
        "headline": replace(of_model.shown(), id="figures", title="Figures") if of_model.rows else None,
        "parts": [
            *listed,
            *tables.of_parts(run, results, marks),
            *tables.traced(run, results),
            *tables.counters(run),
        ],
        "latency": tables.percentiles(run_facts),
        "sensors": content.sensor_section(run.channels).shown() if run.channels else None,
        "checks": checks.shown() if checks.rows else None,
        "provenance": tables.provenance(run),
        "data": assets.embedded({"plots": plots, "timeline": over_time, "simulated": bool(document.simulated)}),
    }


def _hint(run: Run, results: Parts) -> str:
    """How to see parts of a profile that has none."""
    if run.kind != "profile" or any(results.units(level) for level in taken(PROFILE)[1:]):
        return ""
    asked = run.settings.get("detail")
    if asked in taken(PROFILE)[1:]:
        return f"Its parts (--detail {asked}) were asked for and not measured: the warnings and the checks say why."
    return "Only the model as a whole was measured: profile with --detail layer or --detail kernel for its parts."


def _tab(run: Run, runs: Sequence[Run]) -> str:
    """Short text that distinguishes a Run from the others."""
    identities = [content.identity(other) for other in runs]
    of_this = content.identity(run)
    varying = [key for key in of_this if len({identity[key] for identity in identities}) > 1]
    words = [
        of_this[key] if key not in ("batch", "tokens") else f"{key} {of_this[key]}" for key in varying if of_this[key]
    ]
    alike = sum(identity == of_this for identity in identities) > 1
    number = [f"{[id(other) for other in runs].index(id(run)) + 1}"] if alike or not words else []
    return printable(" · ".join([*words, *number]))


def compared(both_sides: Comparison, number: int, marks: Footnotes | None = None) -> Compared:
    """A comparison for the page: every row of the model, those of parts that differ first, with changes drawn."""
    document = comparison.document(both_sides, top=tables.MOST_ROWS, marks=marks)
    shown = [section.shown() for section in document.sections]
    for table in shown:
        changes = table.cells("change")
        reach = max([_LEAST_REACH, *(1.5 * abs(change.value or 0.0) for change in changes)])
        tables.draw_bars([change for change in changes if change.low is not None], -reach, reach)
    return Compared(f"compared{number}", document, shown, charts.difference(both_sides), charts.waterfall(both_sides))


def _cards(run: Run, results: Parts, marks: Footnotes, first: Headline | None) -> tuple[list[Card], list[str]]:
    """Headline figures, the first with its absolute uncertainty, and what is to be known of them: a line each."""
    whole = results.stated
    names = [name for name in _CARDS if name in whole.figures or (run.kind == "profile" and name in _ALWAYS)]
    cards: list[Card] = []
    footnotes = Footnotes(marks)
    for name in names:
        estimate, words = whole.get(name), metric(name)
        if (estimate.value is None and name not in _ALWAYS) or len(cards) == _MOST_CARDS:
            continue
        unit = unit_for([estimate.value], words.unit)
        value, interval = split(cell(estimate, unit))
        if estimate.half_width and estimate.value:
            interval += f" ({100 * estimate.half_width / abs(estimate.value):.2g}{NBSP}%)" if interval else ""
        if first is not None and interval and (first.metric, first.figure) == (name, estimate) and first.beside:
            interval += f", {first.beside}"
        label = words.label.strip()
        said = "".join(footnotes.mark(reasons.flag(code)) for code in estimate.flags)
        if estimate.value is None:
            cards.append(Card(label, value, marks=said, reason=reasons.reason(estimate.reason)))
        else:
            label = f"Energy, {label}" if label.startswith("active") else label
            cards.append(Card(label, value, unit.name, interval or "no interval", said))
    return (cards or _trace_cards(run)), footnotes.lines()


def _trace_cards(run: Run) -> list[Card]:
    """The first glance at a trace without figures."""
    launched = by_name(run)
    if not launched:
        return []
    by_kernel: dict[str, float] = {}
    for kernel in launched:  # on several devices a name is one kernel
        by_kernel[kernel.name] = by_kernel.get(kernel.name, 0.0) + kernel.total_s
    total = sum(by_kernel.values())
    longest = max(by_kernel, key=lambda name: by_kernel[name])
    share = f"{100 * by_kernel[longest] / total:.1f}{NBSP}% of all kernel time" if total else ""
    value, _, unit = quantity(total, "s").partition(NBSP)
    return [
        Card("Kernels and copies", str(sum(kernel.count for kernel in launched)), "launches"),
        Card("Their time, summed", value, unit, "as traced"),
        Card("Names", str(len(by_kernel)), "", "kernels and copies that differ"),
        Card("Costliest", printable(short_name(longest)), "", share),
    ]
