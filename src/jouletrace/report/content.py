"""From Runs to the document that is shown: which figures, in which order, with which remarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jouletrace.analysis.checks import joined
from jouletrace.analysis.facts import Facts, facts_of
from jouletrace.comparing.pairs import Comparison
from jouletrace.levels import TITLES
from jouletrace.report import advice as advised
from jouletrace.report import columns, facts, parts, program, reasons
from jouletrace.report.comparison import TOP
from jouletrace.report.comparison import document as comparison_document
from jouletrace.report.comparison import short as short_comparison
from jouletrace.report.cost import Tariff, cost_line, priced
from jouletrace.report.document import Footnotes, NoFootnotes, printable
from jouletrace.report.facts import methods, remarks
from jouletrace.report.kinds import worded
from jouletrace.report.scale import NBSP, NONE, figure, quantity
from jouletrace.report.table import Column, Table
from jouletrace.report.text import Document
from jouletrace.report.trust import lines
from jouletrace.report.verdict import gain_line, verdict
from jouletrace.run import ChannelInfo, Estimate, Run, device_labels
from jouletrace.run.metrics import OF_PARTS, PROGRAM_TIME, metric, ordered
from jouletrace.run.parts import ABSENT, OF_ROWS, Parts
from jouletrace.run.recording_names import recording_of
from jouletrace.version import __version__
from jouletrace.wing import kind_of

INCOMPLETE = "INCOMPLETE: "
"""Stands before what says how a Run ended that did not end by itself."""

_PLURAL = {"op": "operators", "kernel": "kernels", "range": "ranges", "layer": "layers"}

_OF_ALL = (
    *("latency_s", "throughput_per_s", "power_w", "energy_total_j"),
    *("energy_active_over_context_idle_j", "energy_active_over_deep_idle_j"),
)
_COMPARED = (*_OF_ALL[1:], "power_idle_w", "power_working_w", "power_difference_w")
"""Metrics of Runs side by side, where not all have an energy per sample or everything is shown."""

_SEVERAL = ("energy_per_sample_j", "latency_p50_s", "latency_p99_s", "time_s", "cost", "co2_g")
"""Metrics of profiles side by side."""

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
    known = facts_of(run, results)
    found = Document(facts.title(run), facts.SIMULATED if run.simulated else "")
    found.subtitle = [facts.device_line(device) for device in run.devices]
    found.subtitle += [line for line in (facts.weights(run), facts.when(run)) if line]
    names = ", ".join(facts.counted([device.name for device in run.devices]))
    found.caption = f"{found.title}, on {names}" if names else found.title
    found.sections = [model_section(run, results, marks)]
    shown, hidden = levels_shown(results, detail), list[str]()
    if run.kind == "import":
        if detail != "range" and results.units("kernel"):
            shown = [level for level in shown if level != "range"]
        count = {level: len(results.units(level)) for level in _PLURAL if level not in shown}
        hidden = [f"{n} {_PLURAL[at][: -1 if n == 1 else None]} (--detail {at})" for at, n in count.items() if n]
    found.verdict = verdict_lines(run, results, known, tariff, advice=advice)
    if run.kind == "program" and detail == "model":
        shown = [level for level in ("device", "phase", "layer", "kernel") if results.units(level)]
    if (kind := worded(run, results)) is not None:
        found.sections.insert(0, kind.section(run, results, marks))
        shown = [level for level in shown if level != kind.LEVEL]
    shown = [level for level in shown if level != results.stated.level]  # its figures stand above
    for level in shown:
        long = level not in ("device", "layer") and len(results.units(level)) > parts.MOST_ROWS
        limit = parts.MOST_ROWS if top is None and long and run.kind in ("import", "program") else top
        found.sections += parts.sections(run, results, level, limit, marks)
    if run.kind == "calibrate":
        found.sections.append(sensor_section(run.channels))
    found.sections = [section for section in found.sections if section.rows]
    found.facts = _facts(run, known)
    if hidden:
        found.facts.append(("Not listed", facts.SEPARATOR.join(hidden)))
    if detail != "model" and not results.units(detail):
        found.facts.insert(0, (TITLES[detail], f"none: {_why_not(run, detail)}"))
    if not found.sections:
        found.facts.insert(0, ("Figures", "none: nothing was measured"))
    found.unfinished = _unfinished(known)
    found.warnings = remarks(known.warnings)
    found.methods = [methods(run, results, known)]
    return found.printable()


def short(
    run: Run, *, detail: str = "model", top: int | None = None, tariff: Tariff | None = None, advice: bool = True
) -> Document:
    """The verdict on one Run, and one table of its parts where it has some."""
    results = Parts(run)
    known = facts_of(run, results)
    found = Document(facts.headline(run))
    found.unfinished = _unfinished(known)
    found.verdict = verdict_lines(run, results, known, tariff, advice=advice)
    level = _level_of_short(run, results, detail)
    if (kind := worded(run, results)) is not None:
        found.sections = [kind.section(run, results, NoFootnotes(), brief=True)]
        found.sections[0].notes = []
    elif level and results.units(level):
        levels = dict.fromkeys([level, *["context"] * bool(results.units("context"))])
        marks = Footnotes() if level == "range" else NoFootnotes(but=[reasons.flag(code) for code in OF_ROWS])
        listed = [parts.sections(run, results, level, top, marks, brief=True) for level in levels]
        found.sections = [section for sections in listed for section in sections if section.rows]
    elif run.kind == "calibrate":
        found.sections = [sensor_section([one for one in run.channels if one.origin == "calibrated"])]
        found.sections = [section for section in found.sections if section.rows]
    elif run.kind == "import" and len(results.stated.figures) > 1 and not results.units("device"):
        found.sections = [model_section(run, results, NoFootnotes())]  # all that the file states
    if detail != "model" and not results.units(detail):
        found.verdict.append(f"no {TITLES[detail].lower()}: {_why_not(run, detail)}")
    return found.printable()


def _level_of_short(run: Run, results: Parts, detail: str) -> str:
    """The one level that is listed below a verdict; "" for none."""
    if detail != "model":
        return detail
    if run.kind == "program":
        levels = ("phase", "layer", "kernel", "device") if results.gpus else ("layer", "kernel", "phase", "device")
        return next((level for level in levels if len(results.units(level)) > (level == "layer")), "")
    shown = [level for level in levels_shown(results, detail) if level not in ("device", "load")]  # see ``worded``
    return shown[0] if shown else "device" if len(results.units("device")) > 1 else ""


def _why_not(run: Run, detail: str) -> str:
    """Why there is nothing at the detail that was asked for."""
    asked = run.settings.get("detail") == detail
    return "--detail-time was too short for any" if asked else "not measured at that detail"


def _unfinished(known: Facts, name: str = "") -> list[str]:
    return [f"{INCOMPLETE}{name}{line}" for line in remarks(known.ended)]


def summary(run: Run) -> str:
    """The verdict as ``print`` shows it of what a program has just measured, behind its name."""
    results = Parts(run)
    name = f"{'SIMULATED ' if run.simulated else ''}{run.workload.get('name') or run.kind}"
    known = facts_of(run, results)
    first, *rest = verdict_lines(run, results, known)
    return "\n".join(printable(line.replace(NBSP, " ")) for line in (f"{name}: {first}", *_unfinished(known), *rest))


def verdict_lines(
    run: Run, results: Parts, known: Facts, tariff: Tariff | None = None, *, advice: bool = True
) -> list[str]:
    """The verdict with what it costs, how far it can be trusted, and advice."""
    costs = cost_line(run, results, known, tariff)
    late = [one.message for one in run.warnings if one.code == "recorded_late"]
    found = [*verdict(run, results, known), *late, *costs, *gain_line(run, results, known), *lines(known.checks)]
    return found + (advised.lines(known.advice, run.kind) if advice else [])


def of_sample(run: Run, results: Parts, known: Facts, tariff: Tariff | None) -> dict[str, Estimate]:
    """Figures of a Run beside others: energy per sample of a profile, p50 and p99, cost and CO2 as ``cost.priced``."""
    found = dict[str, Estimate]()
    if run.kind == "profile":
        found["energy_per_sample_j"] = results.get(ENERGY).scaled(1 / (run.workload.get("items") or 1))
    if "latency_s" in results.whole.figures or known.latency["n"]:
        p99 = known.percentiles["p99"] if known.latency["n"] else results.get("latency_p99_s")
        found |= {"latency_p50_s": results.get("latency_s"), "latency_p99_s": p99}
    if tariff is not None:
        energy, _ = priced(run, results, known)
        found |= {} if tariff.price is None else {"cost": tariff.cost(energy)}
        found |= {} if tariff.carbon_g is None else {"co2_g": tariff.emitted(energy)}
    return found


def varied(run: Run) -> dict[str, str]:
    """Settings in which Runs may differ besides their identity, by name of a column."""
    workload: Mapping[str, object] = run.workload
    config = {**(run.settings.get("config") or {}), **(workload.get("config") or {})}  # type: ignore[dict-item]
    limits = dict.fromkeys(f"{one.power_limit_w:g}" for one in run.devices if one.power_limit_w is not None)
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
    entries, own = list[dict[str, Estimate]](), list[dict[str, str]]()
    for number, one in enumerate(there):
        more = of_sample(*one, tariff)
        if one[0].kind == "profile" and (time := one[1].get("iteration_time_s")).value is not None:
            more["time_s"] = time
        for row, row_figures in _entries(*one):
            own.append({"file": files[number] if files else "", **row, **varied(one[0])})
            entries.append({**row_figures, **more})
    names, stated = list(own[0]), [*identity(runs[0]), "config"]
    varying = [name for name in names if len({row[name] for row in own}) > 1] or ["workload"]
    common = [f"{name} {own[0][name]}" for name in stated if name not in varying and own[0][name]]
    found = Document(f"{len(runs)} runs")
    if any(run.simulated for run in runs):
        every = all(run.simulated for run in runs)
        found.simulated = facts.SIMULATED if every else "SIMULATED: some of these are simulated GPUs"
    found.subtitle = [facts.SEPARATOR.join(common)] if common else []
    found.caption = ": ".join([found.title, *found.subtitle])
    found.subtitle.extend(dict.fromkeys(words for run in runs if (words := facts.weights(run))))

    profiles = brief and all("energy_per_sample_j" in row for row in entries)
    shown = (*_SEVERAL[:-2], *(() if profiles else _COMPARED), *_SEVERAL[-2:])
    metrics = [name for name in shown if any(name in row for row in entries)]
    section = Table("", [Column(name) for name in varying], apart=not profiles)
    section.rows = [[row[name] for name in varying] for row in own]
    columns.add_figures(section, entries, metrics, marks or Footnotes())
    found.sections = [section]
    sensors = dict.fromkeys(facts.sensor_line(channel) for run in runs for channel in facts.power_channels(run))
    found.facts = [("Sensor", line) for line in sensors]
    texts: dict[str, list[str]] = {}
    for run, results, known in there:
        name = facts.SEPARATOR.join(filter(None, (identity(run).get(key) for key in varying)))
        found.unfinished += _unfinished(known, f"{name}: ")
        found.warnings.extend(f"{name}: {line}" for line in remarks(known.warnings))
        texts.setdefault(methods(run, results, known), []).append(name)
    found.methods = [f"{'; '.join(owners)}: {text}" if len(texts) > 1 else text for text, owners in texts.items()]
    if tariff is not None:
        pers = dict.fromkeys(per or "Run" for per in (priced(*one)[1] for one in there))
        found.verdict.append(
            f"cost per {' or '.join(pers)} at {tariff.given} (given, not measured; ± with the sensor's gain)"
        )
    if brief:
        section.notes, found.facts, found.warnings, found.methods = [], [], [], []
        found.verdict += lines(joined([known.checks for _, _, known in there]))
    return found.printable()


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
    sides = [one for one in compared if one is not None]
    if verbose:
        found = [comparison_document(one, top=top or TOP, marks=marks) for one in sides]
    else:
        found = [short_comparison(one, top=top or TOP) for one in sides]
    stated = [line for one in found for line in one.warnings]
    if len(runs) > 1:
        found.append(comparison(runs, marks, tariff, files=files, brief=not verbose))
    if detail != "model" or (len(runs) == 1 and (verbose or not found)):
        found += [
            document(run, detail=detail, top=top, marks=marks, tariff=tariff, advice=advice)
            if verbose
            else short(run, detail=detail, top=top, tariff=tariff, advice=advice)
            for run in runs
        ]
    elif len(runs) == 1:
        found[0].unfinished = _unfinished(facts_of(runs[0], Parts(runs[0])))
    if verbose and len(runs) == 1:  # how it ended stands at the head of all, and nowhere else
        found[-1].warnings = [line for line in found[-1].warnings if line not in stated]
        found[0].unfinished, rest = found[-1].unfinished, found[1:]
        found[-1].verdict = found[-1].verdict if len(found) == 1 else []
        said_before = [line.removeprefix(INCOMPLETE) for line in found[0].unfinished]
        found[0].warnings = [line for line in found[0].warnings if line not in said_before]
        for one in rest:
            one.unfinished = []
    return found


def levels_shown(results: Parts, detail: str) -> list[str]:
    """Levels that are listed: devices and ranges always, else the one that ``detail`` names.

    Generation of tokens is always broken down by phase: prompts and new tokens differ in cost.
    """
    always = [level for level in ("device", "range", "load") if results.units(level)]
    if "tokens_per_s" in results.whole.figures and results.units("phase"):
        always += {"model": ["phase"], "phase": ["phase", "length"]}.get(detail, [])
        always += ["context"] if results.units("context") else []
    return always + ([detail] if detail != "model" and detail not in always else [])


def _facts(run: Run, known: Facts) -> list[tuple[str, str]]:
    """Latency, facts of its kind, sensors, conditions, passed checks, kernels with an operator, another version."""
    sensors = dict.fromkeys(facts.sensor_line(channel) for channel in facts.power_channels(run))
    missing = [str(device.details["no_power_note"]) for device in run.devices if "no_power_note" in device.details]
    kind = kind_of(run.workload)
    of_kind = [] if kind is None else kind.facts(run)
    found = facts.latency_lines(known) + of_kind + [("Sensor", line) for line in (*sensors, *missing)]
    found += [("Settings", line) for line in facts.setting_lines(run)]
    found += facts.condition_lines(run, known.conditions_of)
    found += [("Passed", facts.SEPARATOR.join(known.checks.passed))] if known.checks.passed else []
    found += [("Operators", words)] if (words := program.matched(run)) else []
    made_by = run.versions.get("jouletrace", __version__)
    older = f"jouletrace {made_by}, as the Run states them: {__version__} may find others"
    return found + ([("Figures by", older)] if made_by != __version__ else [])


def identity(run: Run) -> dict[str, str]:
    """Properties that distinguish a Run from others, by name of a column."""
    workload: Mapping[str, object] = run.workload
    keys = {"task": "task", "batch": "batch", "tokens": "seq_len", "dtype": "dtype", "mode": "mode"}
    values = {name: "" if workload.get(key) is None else str(workload[key]) for name, key in keys.items()}
    devices = [d.name + " (SIMULATED)" * (d.simulated and "SIMULATED" not in d.name) for d in run.devices]
    name = str(workload.get("name") or run.command or run.kind)
    return {"workload": name, **values, "device": ", ".join(dict.fromkeys(devices))}


def _entries(run: Run, results: Parts, known: Facts) -> list[tuple[dict[str, str], dict[str, Estimate]]]:
    """The rows that a Run has in a comparison: the whole, and each device where several were watched."""
    devices, whole = results.units("device"), dict(results.whole.figures)
    whole |= {"time_s": results.time} if run.kind == "program" else {}
    if not devices:
        return [(identity(run), whole)]
    found = [
        ({**identity(run), "device": device_labels(run.devices).get(unit.module or "", unit.name)}, unit.figures)
        for unit in devices
    ]
    hosts = {device.id for device in run.devices if device.kind == "cpu"}
    if sum(unit.module not in hosts for unit in devices) == 1:
        return found
    # the energy of a program is that of its GPUs; a record has only what its devices drew together
    named = [device.name for device in run.devices if ENERGY not in whole or device.id not in hosts]
    whole = {**known.of_devices, **whole}
    whole = {name: one for name, one in whole.items() if one.value is not None}
    return [({**identity(run), "device": ", ".join(facts.counted(named))}, whole), *found] if whole else found


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
        found, words = there.get(name, ABSENT), metric(name)
        how = reasons.method(found.method) if found.reason is None else reasons.reason(found.reason)
        how = NBSP.join([how, *(footnotes.mark(reasons.flag(code)) for code in found.flags)])
        label = ("Time" if name == PROGRAM_TIME and not steps else words.label).replace(" ", NBSP)
        section.rows.append([label, figure(found, words.unit), str(found.n or ""), how])
    if missing is not None:
        section.rows.append([f"Power{NBSP}and{NBSP}energy", NONE, "", reasons.reason(missing)])
    section.notes = footnotes.lines()
    return section


def _all_missing(there: Mapping[str, Estimate], names: Sequence[str]) -> str | None:
    """The one reason why every figure that needs power is missing; None if that isn't so."""
    figures = [there.get(name, ABSENT) for name in names if name in _NEED_POWER]
    codes = {found.reason for found in figures}
    if len(figures) < 2 or len(codes) != 1 or any(found.flags for found in figures):
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
