"""A server under load: the verdict, a table of its loads, and the frontier of energy against latency."""

from __future__ import annotations

from jouletrace.analysis.facts import Facts
from jouletrace.analysis.latency import MAY_MISS
from jouletrace.report import columns
from jouletrace.report.charts import PALETTE, Spec, plain, short
from jouletrace.report.document import Footnotes
from jouletrace.report.headline import Headline
from jouletrace.report.table import Cell, Column, Table
from jouletrace.run import Estimate, Run
from jouletrace.run.forms import LoadFacts, Serving
from jouletrace.run.parts import Part, Parts
from jouletrace.words import reasons
from jouletrace.words.scale import NBSP, figure, quantity, unit_for

LEVEL = "load"
COST, REQUEST = "energy_per_output_token_j", "energy_per_request_j"
MANY = 1e6
"""Tokens whose cost is stated: one costs far less than a cent."""

SLO_SHARE = 1 - MAY_MISS
"""A load meets the SLO if so many of its requests do."""
_SCATTERS = 0.2
"""Relative difference of a rate from the offered one from which the verdict states it."""

_SHOWN = ("requests_per_s", "ttft_p95_s", "tpot_p95_s", "e2e_p95_s", "energy_per_request_j", COST, "share_within_slo")
_PARTS = ("energy_total_j", "energy_prefill_j", "energy_decode_j", "energy_idle_j")
"""Energy of the steady window and what it consists of: shown together or not at all."""
_SECONDARY = (
    "bill_p50_j",
    "bill_p90_j",
    "bill_p99_j",
    "energy_prompt_token_j",
    "energy_output_token_j",
    "power_w",
    "share_idle",
    "activity",
    "goodput_per_s",
    "requests_open",
    "tokens_per_s",
    "tokens_per_j",
)
_LATENCIES = {"ttft": "first token", "e2e": "end to end"}
_HEADINGS = {
    "ttft_p95_s": "TTFT p95",
    "tpot_p95_s": "TPOT p95",
    "e2e_p95_s": "e2e p95",
    "share_within_slo": "in SLO",
}


def serving_of(run: Run) -> Serving:
    """The server's facts in the Run; without loads if it states nothing."""
    return run.workload.get("serving") or Serving(levels=[])


def named(load: LoadFacts) -> str:
    """A load as the option that makes it, or by its name."""
    if load.get("arrivals") in ("trace", None) or load.get("rate_per_s") == load.get("concurrency"):
        return load["name"]
    rate = load.get("rate_per_s")
    return f"--concurrency {load.get('concurrency')}" if rate is None else f"--rate {rate:g}"


def loads(run: Run, results: Parts) -> list[tuple[Part, LoadFacts]]:
    """Units of the loads with what was offered, without those of one server alone before the others."""
    by_name = {load["name"]: load for load in serving_of(run)["levels"] if not load.get("alone")}
    return [(unit, by_name[unit.name]) for unit in results.units("load") if unit.name in by_name]


def leading(run: Run, results: Parts, known: Facts) -> tuple[Part, str, bool] | None:
    """See ``KindOfRun``: the energy per request of the leading load, which is modelled of a slice."""
    found = _leading(run, results, known)
    return None if found is None else (found[0], REQUEST, bool(serving_of(run).get("servers")))


def prices(run: Run, results: Parts, known: Facts) -> list[tuple[Estimate, str, str]]:
    """See ``KindOfRun``: of output tokens at the leading load, with absolute uncertainty; each server has a model."""
    found = []
    for place, url in enumerate(["", *(server["url"] for server in serving_of(run).get("servers") or [])], -1):
        chosen = _leading(run, results, known, None if place < 0 else place)
        token = Headline.from_part(run, chosen[0], COST).absolute if chosen else Estimate.null("load_not_valid")
        at = f" at {chosen[1]['name']}" if chosen else ""
        of = f"million output tokens{at}{'' if place < 0 else ' (modelled)'}"
        found.append((token.scaled(MANY), of, "" if place < 0 else f" of {url}"))
    return found


def best(run: Run, results: Parts, known: Facts, server: int | None = None) -> tuple[Part, LoadFacts] | None:
    """The load that costs least per output token, of those (of one server) that are valid and meet the SLO."""
    return _cheapest(run, results, known, server, in_slo=bool(serving_of(run).get("slo_s")))


def _leading(run: Run, results: Parts, known: Facts, server: int | None = None) -> tuple[Part, LoadFacts] | None:
    """The load whose price is stated first: the best or, where none meets the SLO, the cheapest of the valid ones."""
    return best(run, results, known, server) or _cheapest(run, results, known, server, in_slo=False)


def _cheapest(
    run: Run, results: Parts, known: Facts, server: int | None, *, in_slo: bool
) -> tuple[Part, LoadFacts] | None:
    found = []
    for unit, load in loads(run, results):
        cost, share = unit.get(COST).value, unit.get("share_within_slo").value
        own = load["name"] not in known.doubted and (server is None or load.get("server", 0) == server)
        if own and cost is not None and (not in_slo or (share or 0.0) >= SLO_SHARE):
            found.append((cost, unit, load))
    return min(found, key=lambda one: one[0])[1:] if found else None


def verdict(run: Run, results: Parts, known: Facts, absolute: str = "") -> list[str]:
    """Which loads are not valid, then the energy of the load that costs least, with its ``absolute`` uncertainty."""
    there = loads(run, results)
    if not there:
        return ["no request was answered"]
    wrong = [load["name"] for _, load in there if load["name"] in known.doubted]
    lines = [f"NOT VALID at {', '.join(wrong)}: no energy per request or token is stated there"] if wrong else []
    lines = [*(f"at {load['name']}: {said}" for unit, load in there if (said := _answered(run, unit))), *lines]
    if len(wrong) == len(there):
        return [*lines, *_none_meets(run)]
    servers = serving_of(run).get("servers") or []
    if servers:
        for place, server in enumerate(servers):
            lines += _led(run, results, known, place, f"{server['url']}, modelled: ")
        lines += _whole_gpu(run, results)
    else:
        lines += _led(run, results, known, None, "", absolute)
    return lines + _other_rates(run, results, known)


def _led(run: Run, results: Parts, known: Facts, server: int | None, label: str, absolute: str = "") -> list[str]:
    """The price of the leading load (of one server), why it leads, and what its energy consists of."""
    there = [one for one in loads(run, results) if server is None or one[1].get("server", 0) == server]
    valid = [one for one in there if one[1]["name"] not in known.doubted]
    if not valid:
        return []
    chosen = best(run, results, known, server)
    unit, load = _leading(run, results, known, server) or valid[0]
    energy, token = (unit.get(name) for name in ("energy_per_request_j", COST))
    if energy.value is None:
        said = reasons.no_energy(energy.reason)
    else:
        power = figure(unit.get("power_w"), "W")
        said = f"{figure(energy, 'J')} per request{absolute}, {figure(token, 'J')} per output token, {power}"
    imported = energy.value is None and bool(_answered(run, unit))
    lines = [*([] if imported else [f"{label}at {load['name']}: {said}"]), *_billed(results, unit)]
    slo = _slo(run)
    if chosen is None and slo:
        lines = [*(f"{label}{line}" for line in _none_meets(run)), *lines]
    if len(valid) > 1 and token.value is not None:
        within = f" within the SLO ({slo})" if slo and chosen is not None else " of the valid loads" if slo else ""
        lines.append(f"costs least{within}: {named(load)}")
    return lines


def _answered(run: Run, unit: Part) -> str:
    """Rate and latencies of an imported load without energy, which is what its file was made for; else ""."""
    rate = unit.get("requests_per_s")
    if run.kind != "import" or rate.value is None or unit.get("energy_total_j").value is not None:
        return ""
    said = [f"{quantity(rate.value, '1')} requests/s"]
    for name, words in _LATENCIES.items():
        known = [(p, unit.get(f"{name}_{p}_s").value) for p in ("p50", "p95", "p99")]
        times = [f"{p} {quantity(seconds, 's')}" for p, seconds in known if seconds is not None]
        said += [f"{words} {', '.join(times)}"] if times else []
    return "; ".join(said)


def _other_rates(run: Run, results: Parts, known: Facts) -> list[str]:
    """Valid loads that answered another rate than was offered: by the chance of arrivals, or the client held back."""
    found = []
    for unit, load in loads(run, results):
        offered, answered = load.get("rate_per_s"), unit.get("requests_per_s").value
        valid = load["name"] not in known.doubted
        if valid and offered and answered is not None and abs(answered / offered - 1) > _SCATTERS:
            found.append(f"{answered:.3g}/s at {load['name']}")
    return [f"answered, though no queue grew: {', '.join(found)}"] if found else []


def _slo(run: Run) -> str:
    return ", ".join(f"{name}<{limit:g}{NBSP}s" for name, limit in (serving_of(run).get("slo_s") or {}).items())


def _none_meets(run: Run) -> list[str]:
    slo = _slo(run)
    return [f"no valid load meets the SLO ({slo} for {SLO_SHARE:.0%} of the requests)"] if slo else []


def _whole_gpu(run: Run, results: Parts) -> list[str]:
    """The whole GPU's power at each load, and how much of it is context idle of what no slice in use has."""
    serving = serving_of(run)
    used = sum(server["slices"] for server in serving.get("servers") or [])
    whole = max(serving.get("slices", 0), used)
    lines = {}
    for unit, load in loads(run, results):
        power = unit.get("power_gpu_w")
        idle = unit.get("baseline_context_idle_w")
        if power.value is None or idle.value is None or load.get("group") in lines:
            continue
        unused = f", {figure(idle.scaled(1 - used / whole), 'W')} of it context idle of slices without a server"
        name = load["name"].partition(" on ")[0]
        lines[load.get("group")] = f"whole GPU at {name}: {figure(power, 'W')}{unused if used < whole else ''}"
    return list(lines.values())


def _billed(results: Parts, unit: Part) -> list[str]:
    """Energy of prefill, decode and of no step, and percentiles of bills, where the server's steps are known."""
    total, *there = (unit.get(name) for name in _PARTS)
    if "energy_prefill_j" not in unit.figures:
        return []
    named_parts = zip(("prefill", "decode", "no step running"), there, strict=True)
    parts = [f"{name} {figure(one, 'J') if one.value is not None else 'unknown'}" for name, one in named_parts]
    count = unit.get("bill_p50_j").n or 0
    high = "p99" if count >= 100 else "p90"
    bills = [(name, unit.get(f"bill_{code}_j")) for name, code in (("median", "p50"), (high, high))]
    said = [f"{name} {figure(one, 'J')}" for name, one in bills if one.value is not None]
    lines = [f"its steady window took {figure(total, 'J')}: {', '.join(parts)}"]
    if not said:
        return lines
    all_ = unit.count or 0
    some = f" (of the {count} of {all_} that lie wholly in the window)" if count < all_ else ""
    return [*lines, f"bills of requests: {', '.join(said)}{some}"]


def section(run: Run, results: Parts, marks: Footnotes, *, brief: bool = False) -> Table:
    """A load a row; without the parts of its energy if ``brief``, of which the first alone would fit."""
    there = [unit for unit, _ in loads(run, results)]
    found = Table("Loads, in their steady state", [Column("load")], [[Cell(str(unit.name))] for unit in there])
    found.id = "load"
    figures = [unit.figures for unit in there]
    known = {name for row in figures for name in row}
    if brief and all(unit.get("energy_total_j").value is None for unit in there):  # columns of dashes
        known = {name for name in known if not _of_energy(name)}
    shown = [name for name in _SHOWN if name in known]
    own = () if brief or "energy_prefill_j" not in known else ("power_w", *_PARTS)  # power has room in the brief table
    secondary = [name for name in dict.fromkeys((*own, *_SECONDARY)) if name in known]
    columns.add_figures(found, figures, shown, marks)
    for group in (_PARTS, _SECONDARY):  # energies of windows and of requests each have a unit of their own
        columns.add_figures(found, figures, [name for name in group if name in secondary], marks, secondary)
    found.notes = list(dict.fromkeys(found.notes))
    for place, column in enumerate(found.columns):
        if column.key in _SHOWN:
            name, brief = _HEADINGS.get(column.key, column.name), not column.key.startswith("energy")
            unit = "" if column.key == "share_within_slo" else column.unit
            found.columns[place] = Column(name, True, brief=brief, key=column.key, unit=unit)
    return found


def _of_energy(name: str) -> bool:
    """True for a metric that needs the energy of a load."""
    return name.endswith(("_j", "_w")) or "_per_j" in name


def plots(run: Run, results: Parts, known: Facts) -> dict[str, Spec | None]:
    """See ``KindOfRun``."""
    return {"frontier": _frontier(run, results, known)}


def facts(run: Run) -> list[tuple[str, str]]:
    """The server, the client's own load, and the clock of another machine."""
    serving = serving_of(run)
    found = []
    if "url" in serving:
        prompts = "random token ids" if serving.get("token_ids") else "random words"
        found.append(("Server", f"{serving['url']}{NBSP}· {serving.get('api', '')} · {prompts}"))
    shares = [load["client_cpu_s"] / load["client_wall_s"] for load in serving["levels"] if load.get("client_wall_s")]
    if shares:
        real_time = all(load.get("client_real_time") for load in serving["levels"] if load.get("kind") == "open")
        priority = f"{NBSP}· real-time priority" if real_time else ""
        found.append(("Client", f"at most {max(shares):.0%} of a core{priority}"))
    for device in run.devices:
        if "clock_offset_s" in device.details:
            offset, error = (float(device.details[key]) for key in ("clock_offset_s", "clock_offset_error_s"))
            said = f"the clock of {device.host} is ahead by {quantity(offset, 's')} ± {quantity(error, 's')}, corrected"
            found.append(("Clock", said))
    return found


def _frontier(run: Run, results: Parts, known: Facts) -> Spec | None:
    """Energy per output token against latency, a point a load; None with fewer than two."""
    points = []
    for unit, load in loads(run, results):
        cost, latency = unit.get(COST), unit.get("e2e_p95_s")
        if cost.value is not None and latency.value is not None:
            points.append((latency.value, cost, load))
    if len(points) < 2:
        return None
    points.sort(key=lambda one: one[0])
    across, up = unit_for([x for x, _, _ in points], "s"), unit_for([cost.value for _, cost, _ in points], "J")
    y = [(cost.value or 0.0) / up.factor for _, cost, _ in points]
    trace = {
        "type": "scatter",
        "mode": "lines+markers+text",
        "x": short([x / across.factor for x, _, _ in points]),
        "y": short(y),
        "text": [plain(load["name"]) for _, _, load in points],
        "textposition": "top center",
        "error_y": {"type": "data", "array": short([(cost.half_width or 0.0) / up.factor for _, cost, _ in points])},
        "marker": {"size": 9, "color": [PALETTE[load["name"] in known.doubted] for _, _, load in points]},
        "line": {"color": PALETTE[6], "width": 1, "dash": "dot"},
        "hovertemplate": f"%{{text}}<br>%{{x}} {across.name}<br>%{{y}} {up.name}<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": f"end-to-end latency, p95, {across.name}"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": f"energy per output token, {up.name}"}, "rangemode": "tozero"},
        "showlegend": False,
    }
    return {"title": "frontier", "data": [trace], "layout": layout}
