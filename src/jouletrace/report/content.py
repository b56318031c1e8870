"""From Runs to the document that is shown: which figures, in which order, with which remarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jouletrace.analysis.checks import joined
from jouletrace.analysis.facts import Facts, facts_of
from jouletrace.comparing.pairs import Comparison
from jouletrace.levels import TITLES
from jouletrace.report import advice as advised
from jouletrace.report import columns, facts, parts, program
from jouletrace.report.comparison import TOP
from jouletrace.report.comparison import document as comparison_document
from jouletrace.report.comparison import short as short_comparison
from jouletrace.report.cost import cost_columns, cost_line, priced, tariff_of
from jouletrace.report.document import Footnotes, NoFootnotes
from jouletrace.report.facts import methods, printed, remarks
from jouletrace.report.host import host_lines
from jouletrace.report.kinds import worded
from jouletrace.report.table import Column, Table
from jouletrace.report.tariffs import Tariff
from jouletrace.report.text import Document
from jouletrace.report.trust import lines
from jouletrace.report.verdict import beyond_readings, gain_line, verdict
from jouletrace.run import ChannelInfo, Estimate, Run, device_labels
from jouletrace.run.channels import HOST
from jouletrace.run.metrics import OF_PARTS, PROGRAM_TIME, metric, ordered
from jouletrace.run.parts import ABSENT, OF_ROWS, Parts
from jouletrace.run.recording_names import recording_of
from jouletrace.version import __version__
from jouletrace.wing import kind_of
from jouletrace.words import reasons
from jouletrace.words.scale import NBSP, NONE, figure, quantity
from jouletrace.words.text import printable

INCOMPLETE = "INCOMPLETE: "
"""Stands before what says how a Run ended that did not end by itself."""

_PLURAL = {"op": "operators", "kernel": "kernels", "range": "ranges", "layer": "layers"}

_OF_ALL = (
    *("latency_s", "throughput_per_s", "power_w", "energy_total_j"),
    *("energy_active_over_context_idle_j", "energy_active_over_deep_idle_j"),
)
_COMPARED = (*_OF_ALL[1:], "power_idle_w", "power_working_w", "power_difference_w")
"""Metrics of Runs side by side, where not all have an energy per sample or everything is shown."""

_SEVERAL = ("energy_per_sample_j", "latency_p50_s", "latency_p99_s", "time_s")
"""Metrics of profiles side by side."""

_BRIEFLY = ("time_s", "energy_total_j", "power_w")
"""Metrics of other Runs side by side, with those of profiles that some have; the others where there is room."""

_VARIED = ("optimizer", "quantization", "cache", "new_tokens", "streams", "threads")
"""Facts of a workload besides its identity in which Runs may differ."""

PROFILE = (*_OF_ALL, "baseline_context_idle_w", "baseline_deep_idle_w")
"""Metrics that a profile always states: a figure, or why there is none."""

ENERGY = "energy_total_j"

_NEED_POWER = {*PROFILE, "counter_ratio"} - {"latency_s", "throughput_per_s"}


def document(
    run: Run,
    *,
    detail: str = "model",
    top: int | None = None,
    marks: Footnotes | None = None,
    tariff: Tariff | None = None,
    advice: bool = True,
) -> Document:
    """Everything that is shown of one Run; ``marks`` are the footnotes of what is shown with it."""
    results, marks = Parts(run), Footnotes(marks)
    run_facts = facts_of(run, results)
    text = Document(facts.title(run), facts.SIMULATED if run.simulated else "")
    text.subtitle = [facts.device_line(device) for device in run.devices]
    text.subtitle += [line for line in (facts.weights(run), facts.when(run)) if line]
    names = ", ".join(facts.counted([device.name for device in run.devices]))
    text.caption = f"{text.title}, on {names}" if names else text.title
    as_printed, _ = printed(results, run_facts)
    text.sections = [model_section(run, as_printed, marks)]
    shown, hidden = levels_shown(results, detail), list[str]()
    if run.kind == "import":
        if detail != "range" and results.units("kernel"):
            shown = [level for level in shown if level != "range"]
        count = {level: len(results.units(level)) for level in _PLURAL if level not in shown}
        hidden = [f"{n} {_PLURAL[at][: -1 if n == 1 else None]} (--detail {at})" for at, n in count.items() if n]
    text.verdict = verdict_lines(run, results, run_facts, tariff, advice=advice)
    if run.kind == "program" and detail == "model":
        shown = [level for level in ("device", "phase", "range", "layer", "kernel") if results.units(level)]
    if (kind := worded(run, results)) is not None:
        text.sections.insert(0, kind.section(run, as_printed, marks))
        shown = [level for level in shown if level != kind.LEVEL]
    shown = [level for level in shown if level != results.stated.level]  # its figures stand above
    for level in shown:
        long = level not in ("device", "layer") and len(results.units(level)) > parts.MOST_ROWS
        limit = parts.MOST_ROWS if top is None and long and run.kind in ("import", "program") else top
        text.sections += parts.sections(run, results, level, limit, marks)
    if run.kind == "calibrate":
        text.sections.append(sensor_section(run.channels))
    text.sections = [section for section in text.sections if section.rows]
    text.facts = _facts(run, run_facts)
    if hidden:
        text.facts.append(("Not listed", facts.SEPARATOR.join(hidden)))
    if detail != "model" and not results.units(detail):
        text.facts.insert(0, (TITLES[detail], f"none: {_why_not(run, detail)}"))
    if not text.sections:
        text.facts.insert(0, ("Figures", "none: nothing was measured"))
    text.unfinished = _unfinished(run_facts)
    text.warnings = remarks(run_facts.warnings)
    text.methods = [methods(run, results, run_facts)]
    return text.printable()


def short(
    run: Run, *, detail: str = "model", top: int | None = None, tariff: Tariff | None = None, advice: bool = True
) -> Document:
    """The verdict on one Run, and one table of its parts where it has some."""
    results = Parts(run)
    run_facts = facts_of(run, results)
    text = Document(facts.headline(run))
    text.unfinished = _unfinished(run_facts)
    text.verdict = verdict_lines(run, results, run_facts, tariff, advice=advice)
    level, (as_printed, _) = _level_of_short(run, results, detail), printed(results, run_facts)
    if (kind := worded(run, results)) is not None:
        text.sections = [kind.section(run, as_printed, NoFootnotes(), brief=True)]
        text.sections[0].notes = []
    elif level and results.units(level):
        levels = dict.fromkeys([level, *["context"] * bool(results.units("context"))])
        marks = Footnotes() if level == "range" else NoFootnotes(but=[reasons.flag(code) for code in OF_ROWS])
        listed = [parts.sections(run, results, level, top, marks, brief=True) for level in levels]
        text.sections = [section for sections in listed for section in sections if section.rows]
    elif run.kind == "calibrate":
        text.sections = [sensor_section([channel for channel in run.channels if channel.origin == "calibrated"])]
        text.sections = [section for section in text.sections if section.rows]
    elif run.kind == "import" and len(results.stated.figures) > 1 and not results.units("device"):
        text.sections = [model_section(run, as_printed, NoFootnotes())]  # all that the file states
    if detail != "model" and not results.units(detail):
        text.verdict.append(f"no {TITLES[detail].lower()}: {_why_not(run, detail)}")
    return text.printable()


def _level_of_short(run: Run, results: Parts, detail: str) -> str:
    """The one level that is listed below a verdict; "" for none."""
    if detail != "model":
        return detail
    if run.kind == "program":
        levels = (
            ("phase", "layer", "kernel", "device") if results.gpus else ("layer", "kernel", "range", "phase", "device")
        )
        return next((level for level in levels if len(results.units(level)) > (level == "layer")), "")
    shown = [level for level in levels_shown(results, detail) if level not in ("device", "load")]  # see ``worded``
    return shown[0] if shown else "device" if len(results.units("device")) > 1 else ""


def _why_not(run: Run, detail: str) -> str:
    """Why there is nothing at the detail that was asked for."""
    asked = run.settings.get("detail") == detail
    return "--detail-time was too short for any" if asked else "not measured at that detail"


def _unfinished(run_facts: Facts, name: str = "") -> list[str]:
    return [f"{INCOMPLETE}{name}{line}" for line in remarks(run_facts.ended)]


def summary(run: Run) -> str:
    """The verdict as ``print`` shows it of what a program has just measured, behind its name."""
    results = Parts(run)
    name = f"{'SIMULATED ' if run.simulated else ''}{run.workload.get('name') or run.kind}"
    run_facts = facts_of(run, results)
    first, *rest = verdict_lines(run, results, run_facts)
    return "\n".join(
        printable(line.replace(NBSP, " ")) for line in (f"{name}: {first}", *_unfinished(run_facts), *rest)
    )


def verdict_lines(
    run: Run, results: Parts, run_facts: Facts, tariff: Tariff | None = None, *, advice: bool = True
) -> list[str]:
    """The verdict with what it costs, how far it can be trusted, and advice."""
    costs = cost_line(run, results, run_facts, tariff)
    as_printed = printed(results, run_facts)
    late = [warning.message for warning in run.warnings if warning.code == "recorded_late"]
    said = [
        *verdict(run, *as_printed),
        *host_lines(run, as_printed[0]),
        *late,
        *costs,
        *gain_line(run, results, run_facts),
        *lines(run_facts.checks),
    ]
    return said + (advised.lines(as_printed[1].advice, run.kind) if advice else [])


def of_sample(run: Run, results: Parts, run_facts: Facts, tariff: Tariff | None) -> dict[str, Estimate]:
    """Figures of a Run beside others: its time, p50 and p99, energy per sample of a profile, and its cost.

    Cost and CO2 equivalent are of the energy of ``cost.priced``, at ``tariff_of`` the Run.
    """
    is_timed = run.kind in ("profile", "program") and results.time.value is not None
    figures = {"time_s": results.time} if is_timed else dict[str, Estimate]()
    if run.kind == "profile":
        energy = printed(results, run_facts)[0].get(ENERGY)
        figures["energy_per_sample_j"] = energy.scaled(1 / (run.workload.get("items") or 1))
    if "latency_s" in results.whole.figures or run_facts.latency["n"]:
        p99 = run_facts.percentiles["p99"] if run_facts.latency["n"] else results.get("latency_p99_s")
        figures |= {"latency_p50_s": results.get("latency_s"), "latency_p99_s": p99}
    if (used := tariff_of(run, tariff)) is not None:
        energy, _ = priced(run, results, run_facts)
        figures |= {} if used.price is None else {"cost": used.cost(energy)}
        figures |= {} if used.carbon_g is None else {"co2e_g": used.emitted(energy)}
    return figures


def varied(run: Run) -> dict[str, str]:
    """Settings in which Runs may differ besides their identity, by name of a column."""
    workload: Mapping[str, object] = run.workload
    config = {**(run.settings.get("config") or {}), **(workload.get("config") or {})}  # type: ignore[dict-item]
    limits = dict.fromkeys(f"{info.power_limit_w:g}" for info in run.devices if info.power_limit_w is not None)
    return {
        "config": ",".join(f"{name}={value}" for name, value in config.items()),
        **{name.replace("_", " "): str(workload.get(name) or "") for name in _VARIED},
        "limit (W)": ", ".join(limits),
    }


def comparison(
    runs: Sequence[Run],
    marks: Footnotes | None = None,
    tariff: Tariff | None = None,
    *,
    files: Sequence[str] = (),
    brief: bool = False,
) -> Document:
    """Several Runs (at least one) in one table, one row each, with the settings that differ; others are stated once.

    ``files`` names them. If ``brief``, the table without notes, and how far all can be trusted together.
    """
    there = [(run, results, facts_of(run, results)) for run in runs for results in (Parts(run),)]
    entries, of_rows, tariffs = list[dict[str, Estimate]](), list[dict[str, str]](), list[Tariff | None]()
    is_priced = any(tariff_of(run, tariff) for run in runs)
    pers = [priced(*of_run)[1] or "Run" for of_run in there]
    if "million samples" in pers:  # iterations without samples have one
        pers = ["million samples" if per == "million iterations" else per for per in pers]
    for number, of_run in enumerate(there):
        used, more = tariff_of(of_run[0], tariff), of_sample(*of_run, tariff)
        of_cost = {"tariff": used.given if used else "", "cost is": f"per {pers[number]}"} if is_priced else {}
        for row, row_figures in _entries(of_run[0], *printed(*of_run[1:])):
            of_rows.append({"file": files[number] if files else "", **row, **varied(of_run[0]), **of_cost})
            entries.append({**row_figures, **more})
            tariffs.append(used)
            more = {}  # of the whole, which comes first
    names, stated = list(of_rows[0]), [*identity(runs[0]), "config"]
    varying = [name for name in names if len({row[name] for row in of_rows}) > 1] or ["workload"]
    common = [f"{name} {of_rows[0][name]}" for name in stated if name not in varying and of_rows[0][name]]
    side_by_side = Document(f"{len(runs)} runs")
    if any(run.simulated for run in runs):
        every = all(run.simulated for run in runs)
        side_by_side.simulated = facts.SIMULATED if every else "SIMULATED: some of these are simulated GPUs"
    side_by_side.subtitle = [facts.SEPARATOR.join(common)] if common else []
    side_by_side.caption = ": ".join([side_by_side.title, *side_by_side.subtitle])
    side_by_side.subtitle.extend(dict.fromkeys(words for run in runs if (words := facts.weights(run))))

    profiles = brief and all("energy_per_sample_j" in row for row in entries)
    first = (*_SEVERAL, "power_w") if profiles else _BRIEFLY if brief else _SEVERAL
    beside = [] if profiles else [name for name in dict.fromkeys((*_SEVERAL, *_COMPARED)) if name not in first]
    metrics = [name for name in (*first, *beside) if any(name in row for row in entries)]
    section = Table("", [Column(name) for name in varying], apart=not profiles)
    section.rows = [[row[name] for name in varying] for row in of_rows]
    columns.add_figures(section, entries, metrics, marks or Footnotes(), beside if brief else ())
    _add_costs(section, entries, tariffs)
    side_by_side.sections = [section]
    sensors = dict.fromkeys(
        facts.sensor_line(channel, run_facts) for run, _, run_facts in there for channel in facts.power_channels(run)
    )
    side_by_side.facts = [("Sensor", line) for line in sensors]
    texts: dict[str, list[str]] = {}
    for run, results, run_facts in there:
        name = facts.SEPARATOR.join(filter(None, (identity(run).get(key) for key in varying)))
        side_by_side.unfinished += _unfinished(run_facts, f"{name}: ")
        side_by_side.warnings.extend(f"{name}: {line}" for line in remarks(run_facts.warnings))
        texts.setdefault(methods(run, results, run_facts), []).append(name)
    side_by_side.methods = [
        f"{'; '.join(owners)}: {text}" if len(texts) > 1 else text for text, owners in texts.items()
    ]
    side_by_side.verdict += [
        f"± {words}" for words in dict.fromkeys(beyond_readings(entry[2]) for entry in there) if words
    ]
    side_by_side.verdict += _cost_said(tariffs, of_rows[0], varying)
    if brief and not profiles and any(run.kind == "profile" for run in runs):
        side_by_side.verdict.append("time and energy of a profile are those of an iteration")
    if brief:
        section.notes, side_by_side.facts, side_by_side.warnings, side_by_side.methods = [], [], [], []
        side_by_side.verdict += lines(joined([run_facts.checks for _, _, run_facts in there]))
    return side_by_side.printable()


def _add_costs(section: Table, entries: Sequence[dict[str, Estimate]], tariffs: Sequence[Tariff | None]) -> None:
    """Add a column of costs for each currency, which are never summed, and one of CO2 equivalent."""
    currencies = list(dict.fromkeys(used.currency for used in tariffs if used is not None and used.price is not None))
    carbon = any("co2e_g" in row for row in entries)
    section.columns += cost_columns(currencies, carbon=carbon)
    for row, figures, used in zip(section.rows, entries, tariffs, strict=True):
        row.extend(figures.get("cost", "") if used and used.currency == unit else "" for unit in currencies)
        row.extend([figures.get("co2e_g", "")] if carbon else [])


def _cost_said(tariffs: Sequence[Tariff | None], row: Mapping[str, str], varying: Sequence[str]) -> list[str]:
    """The line on costs below a table, whose columns name the tariffs, and of what the costs are, if these vary."""
    used_by = [used for used in tariffs if used is not None]
    if not used_by:
        return []
    per = "" if "cost is" in varying else f" {row['cost is']}"
    at = "the tariff of each" if "tariff" in varying else used_by[0].given
    kept = dict.fromkeys(used.in_place_of for used in used_by if used.in_place_of)
    instead = f"; Runs state {' and '.join(kept)}" if kept else ""
    return [f"cost{per} at {at} (given, not measured; ± with the sensor's gain{instead})"]


def documents(
    runs: Sequence[Run],
    *,
    detail: str,
    top: int | None,
    compared: Sequence[Comparison | None] = (),
    verbose: bool = True,
    tariff: Tariff | None = None,
    advice: bool = True,
    files: Sequence[str] = (),
) -> list[Document]:
    """One Run, or several side by side; with a finer ``detail`` than "model", each by itself after that.

    Args:
        runs: What to show; at least one.
        detail: Which parts are listed.
        top: So many of them.
        compared: By Run, what one of ``ab`` says of its two sides: that is what it was made for, so it comes first.
        verbose: Everything; else verdicts with one table each.
        tariff: What a kWh costs and emits, for a line of it; None for none.
        advice: Say what could save energy.
        files: Name of each Run's file, for a column of several.
    """
    marks = Footnotes() if verbose else NoFootnotes()
    sides = [both for both in compared if both is not None]
    if verbose:
        texts_of_sides = [comparison_document(both, top=top or TOP, marks=marks) for both in sides]
    else:
        texts_of_sides = [short_comparison(both, top=top or TOP) for both in sides]
    stated = [line for text in texts_of_sides for line in text.warnings]
    if len(runs) > 1:
        texts_of_sides.append(comparison(runs, marks, tariff, files=files, brief=not verbose))
    if detail != "model" or (len(runs) == 1 and (verbose or not texts_of_sides)):
        texts_of_sides += [
            document(run, detail=detail, top=top, marks=marks, tariff=tariff, advice=advice)
            if verbose
            else short(run, detail=detail, top=top, tariff=tariff, advice=advice)
            for run in runs
        ]
    elif len(runs) == 1:
        texts_of_sides[0].unfinished = _unfinished(facts_of(runs[0], Parts(runs[0])))
    if verbose and len(runs) == 1:  # how it ended stands at the head of all, and nowhere else
        texts_of_sides[-1].warnings = [line for line in texts_of_sides[-1].warnings if line not in stated]
        texts_of_sides[0].unfinished, rest = texts_of_sides[-1].unfinished, texts_of_sides[1:]
        texts_of_sides[-1].verdict = texts_of_sides[-1].verdict if len(texts_of_sides) == 1 else []
        said_before = [line.removeprefix(INCOMPLETE) for line in texts_of_sides[0].unfinished]
        texts_of_sides[0].warnings = [line for line in texts_of_sides[0].warnings if line not in said_before]
        for text in rest:
            text.unfinished = []
    return texts_of_sides


def levels_shown(results: Parts, detail: str) -> list[str]:
    """Levels that are listed: devices and ranges always, else the one that ``detail`` names.

    Generation of tokens is always broken down by phase: prompts and new tokens differ in cost.
    """
    always = [level for level in ("device", "range", "load") if results.units(level)]
    if "tokens_per_s" in results.whole.figures and results.units("phase"):
        always += {"model": ["phase"], "phase": ["phase", "length"]}.get(detail, [])
        always += ["context"] if results.units("context") else []
    return always + ([detail] if detail != "model" and detail not in always else [])


def _facts(run: Run, run_facts: Facts) -> list[tuple[str, str]]:
    """Latency, facts of its kind, sensors, conditions, passed checks, kernels with an operator, another version."""
    sensors = dict.fromkeys(facts.sensor_line(channel, run_facts) for channel in facts.power_channels(run))
    missing = [str(device.details["no_power_note"]) for device in run.devices if "no_power_note" in device.details]
    kind = kind_of(run.workload)
    of_kind = [] if kind is None else kind.facts(run)
    listed = facts.latency_lines(run_facts) + of_kind + [("Sensor", line) for line in (*sensors, *missing)]
    listed += [("Host", facts.sensor_line(channel)) for channel in run.channels if channel.name in HOST]
    listed += [("Settings", line) for line in facts.setting_lines(run)]
    listed += [("Commit", stated)] if (stated := run.workload.get("commit")) else []
    listed += facts.condition_lines(run, run_facts.conditions_of)
    listed += [("Passed", facts.SEPARATOR.join(run_facts.checks.passed))] if run_facts.checks.passed else []
    listed += [("Operators", words)] if (words := program.matched(run)) else []
    made_by = run.versions.get("jouletrace", __version__)
    older = f"jouletrace {made_by}, as the Run states them: {__version__} may find others"
    return listed + ([("Figures by", older)] if made_by != __version__ else [])


def identity(run: Run) -> dict[str, str]:
    """Properties that distinguish a Run from others, by name of a column."""
    workload: Mapping[str, object] = run.workload
    keys = {"task": "task", "batch": "batch", "tokens": "seq_len", "dtype": "dtype", "mode": "mode"}
    values = {name: "" if workload.get(key) is None else str(workload[key]) for name, key in keys.items()}
    devices = [d.name + " (SIMULATED)" * (d.simulated and "SIMULATED" not in d.name) for d in run.devices]
    name = str(workload.get("name") or run.command or run.kind)
    return {"workload": name, **values, "device": ", ".join(dict.fromkeys(devices))}


def _entries(run: Run, results: Parts, run_facts: Facts) -> list[tuple[dict[str, str], dict[str, Estimate]]]:
    """The rows that a Run has in a comparison: the whole, and each device where several were watched."""
    devices, whole = results.units("device"), dict(results.whole.figures)
    whole |= {"time_s": results.time} if run.kind == "program" else {}
    if not devices:
        return [(identity(run), whole)]
    entries = [
        ({**identity(run), "device": device_labels(run.devices).get(unit.module or "", unit.name)}, unit.figures)
        for unit in devices
    ]
    hosts = {device.id for device in run.devices if device.kind == "cpu"}
    if len(devices) == 1 or (ENERGY in whole and sum(unit.module not in hosts for unit in devices) == 1):
        return entries
    # the energy of a program is that of its GPUs; a record has only what its devices drew together
    named = [device.name for device in run.devices if ENERGY not in whole or device.id not in hosts]
    whole = {**run_facts.of_devices, **whole}
    whole = {name: estimate for name, estimate in whole.items() if estimate.value is not None}
    return [({**identity(run), "device": ", ".join(facts.counted(named))}, whole), *entries] if whole else entries


def model_section(run: Run, results: Parts, marks: Footnotes) -> Table:
    """The figures of the whole, or of the one device recorded: one a row, since each has its own unit."""
    steps = run.kind == "profile" or recording_of(run).get("iterations_by")
    columns = [Column("per iteration" if steps else ""), Column("value", numeric=True)]
    section = Table("", [*columns, Column("n", numeric=True), Column("how")])
    footnotes = Footnotes(marks)
    there = results.stated.figures
    names = ordered({*there, *(PROFILE if run.kind == "profile" else ())} - set(OF_PARTS))
    missing = _all_missing(there, names)
    if missing is not None:
        names = [name for name in names if name not in _NEED_POWER]
    for name in names:
        estimate, words = there.get(name, ABSENT), metric(name)
        how = reasons.method(estimate.method) if estimate.reason is None else reasons.reason(estimate.reason)
        how = NBSP.join([how, *(footnotes.mark(reasons.flag(code)) for code in estimate.flags)])
        label = ("Time" if name == PROGRAM_TIME and not steps else words.label).replace(" ", NBSP)
        section.rows.append([label, figure(estimate, words.unit), str(estimate.n or ""), how])
    if missing is not None:
        section.rows.append([f"Power{NBSP}and{NBSP}energy", NONE, "", reasons.reason(missing)])
    section.notes = footnotes.lines()
    return section


def _all_missing(there: Mapping[str, Estimate], names: Sequence[str]) -> str | None:
    """The one reason why every figure that needs power is missing; None if that isn't so."""
    figures = [there.get(name, ABSENT) for name in names if name in _NEED_POWER]
    codes = {estimate.reason for estimate in figures}
    if len(figures) < 2 or len(codes) != 1 or any(estimate.flags for estimate in figures):
        return None
    return codes.pop()


def sensor_section(channels: Sequence[ChannelInfo]) -> Table:
    """Every channel: where it comes from and how it behaves in time."""
    names = {"channel": 0, "unit": 3, "source": 1, "period": 0, "window": 0, "rise": 0, "delay": 0, "gapless": 0}
    names |= {"gain error": 2, "known": 0}
    section = Table("Sensors", [Column(name, wide=wide) for name, wide in names.items()], id="sensors")
    for c in channels:
        gapless = NONE if c.gapless is None else "yes" if c.gapless else "no"
        gain = NONE if c.gain_pct is None else f"±{c.gain_pct:g}{NBSP}%"
        times = [quantity(value, "s") for value in (c.period_s, c.window_s, c.response.get("rise_s"), c.delay_s)]
        section.rows.append([c.name, c.unit, c.source, *times, gapless, gain, c.origin])
    return section
