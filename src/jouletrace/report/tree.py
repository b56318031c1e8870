"""Where the energy and the time go, as a tree: model, phase, layer, operator, kernel; and kernels of a trace by name.

What the units of a Run say of themselves is kept; what they lack to make a tree is put together:
modules around operators that were measured without layers, operators within layers, kernels by
name where a trace is all there is, and the part of the GPU's idle power where nothing was broken down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.report.results import printed
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.parts import ABSENT, Part, Parts
from jouletrace.run.recording_names import IDLE_NAME, OUTSIDE

_WITHIN = 1.02
"""Share of the whole above which ranges together can't all lie beside one another."""

ENERGY, TIME = "energy_total_j", "time_s"
_NO_ROWS = ("site", "group", "length", "context")
"""Levels that are no parts of the whole: where an operator is called, modules removed as a whole, forwards of one
token or prompt."""

ROOT = "0"
"""Key of the whole."""

_RUNNING = ("kernel", "memcpy")
"""Kinds of the spans of what ran on a device."""


@dataclass(frozen=True)
class Node:
    """A part of the whole.

    Attributes:
        key: Unique in the tree; ``ROOT`` for the whole.
        parent: Key of the node around it; "" for the root.
        label: What it is called, as short as its place allows.
        level: "model", "phase", "layer", "module", "op", "kernel", "device", "range" or "part".
        energy: Joules per iteration (or in all, where nothing is iterated).
        time: Seconds likewise.
        detail: Properties that distinguish it from others of that name: module, shapes, how often.
        remarks: Codes of flags.
        how: "" if it was measured by itself, else how its figures came about.
    """

    key: str
    parent: str
    label: str
    level: str
    energy: Estimate = ABSENT
    time: Estimate = ABSENT
    detail: str = ""
    remarks: tuple[str, ...] = ()
    how: str = ""


def tree(run: Run, results: Parts, together: Estimate) -> list[Node]:
    """All parts that have energy or time, each behind the one around it; the root alone without parts.

    Args:
        run: The Run.
        results: Its figures.
        together: Energy of its devices in J, the whole of a recording (``analysis.facts``).
    """
    root = _root(run, results)
    units = [u for u in results.all() if u.id != MODEL_UNIT and u.level not in _NO_ROWS]
    modules: dict[int | None, str | None] = {u.id: u.module for u in units if u.level == "layer"}
    # The calls of a layer divide it once more, beside the layers within it.
    units = [u for u in units if u.level != "layer" or not u.module or u.module != modules.get(u.parent)]
    # Levels whose units take time that others take too would be drawn beside one another.
    twice = {"op"} if results.apart() else set()
    if run.kind == "record" and results.units("range"):
        twice.add("device")  # its ranges lie in the time and energy of the devices
        root = _of_devices(root, results, together)
    within = sum(unit.get(TIME).value or 0.0 for unit in results.units("range"))
    if root.time.value and within > _WITHIN * root.time.value:
        twice.add("range")  # they lie within one another, such as the functions of a call stack
    phases = {str(u.name): str(u.id) for u in units if u.level == "phase" and _has_figure(results, u)}
    if run.kind == "program":  # its phases are kinds of kernels, which operators and modules hold
        twice |= {"phase"} if any(unit.level == "kernel" for unit in units) else set()
    elif phases:
        twice.add("layer")  # a layer runs in several phases
    units = [unit for unit in units if unit.level not in twice]
    if phases and "generation" in run.workload:  # its phases hold what the GPU takes between their kernels
        units = [unit for unit in units if unit.name != IDLE_NAME]
    units = _in_phases(units, phases) if phases else units
    tops = {ROOT, *phases.values(), *(str(unit.id) for unit in units if unit.level == "device")}
    layered = any(unit.level == "layer" for unit in units)
    nodes = [root, *_of_units(results, units, layered)]
    if layered:
        nodes += _operators_in_layers(results)
    nodes = _in_modules(_ordered(nodes), tops) if not layered else _ordered(nodes)
    if len(nodes) == 1:
        nodes += _of_trace(by_name(run)) or _of_baselines(results)
    return _totalled(nodes)


def widths(nodes: Sequence[Node], metric: str) -> list[float]:
    """How wide each node is drawn, so that every one holds its children.

    A leaf is as wide as its value, and nothing where that is negative or missing. A node around
    others is as wide as its own value or as they are together, whichever is more: parts that were
    measured one by one come to a little less or more than the whole.

    Args:
        nodes: A tree, each node behind the one around it.
        metric: "energy" or "time".
    """
    inside: dict[str, float] = {}
    width: dict[str, float] = {}
    for node in reversed(nodes):
        own = (node.energy if metric == "energy" else node.time).value
        width[node.key] = max(own or 0.0, inside.get(node.key, 0.0))
        inside[node.parent] = inside.get(node.parent, 0.0) + width[node.key]
    return [width[node.key] for node in nodes]


def _root(run: Run, results: Parts) -> Node:
    names = [u.name for u in results.all() if u.id == MODEL_UNIT]
    name = str((names and names[0]) or run.workload.get("name") or run.kind)
    time = results.get("iteration_time_s")
    energy = results.get(ENERGY)
    return Node(
        ROOT,
        "",
        name,
        "model",
        energy,
        results.get(TIME) if time.value is None else time,
        remarks=energy.flags,
    )


def _of_devices(root: Node, results: Parts, together: Estimate) -> Node:
    """The whole of a recording: what its devices drew together, as long as the longest was watched."""
    devices = results.units("device")
    times = [time for one in devices if (time := one.get(TIME)).value is not None]
    if root.energy.value is None and together.value is not None:
        root = replace(root, energy=together, how="sum over its devices" if len(devices) > 1 else "")
    if root.time.value is None and times:
        root = replace(root, time=max(times, key=lambda time: time.value or 0.0))
    return root


def _in_phases(units: Sequence[Part], phases: dict[str, str]) -> list[Part]:
    """Operators within their phases; pools are left out, since one may hold operators of several phases."""
    ops = {unit.id for unit in units if unit.level == "op"}
    pools = {unit.parent for unit in units if unit.level == "op"} & ops
    found: list[Part] = []
    for unit in units:
        phase = phases.get(unit.phase or "")
        if unit.level == "op" and phase is not None:
            found.append(replace(unit, parent=int(phase)))
        elif unit.id not in pools:
            found.append(unit)
    return found


def _of_units(results: Parts, units: Sequence[Part], layered: bool) -> list[Node]:
    """A node for each unit that has a figure; operators that layers call are left to them."""
    there = {unit.id for unit in units}
    placed = {unit.parent for unit in results.all() if unit.level == "site"} if layered else set()
    ops: dict[int | None, int | None] = {unit.id: unit.parent for unit in units if unit.level == "op"}
    pools = {unit.parent for unit in units if unit.id in placed} & set(ops)
    found = []
    for unit in units:
        top = unit.parent if unit.level == "kernel" else unit.id
        if {top, unit.id} & placed or ops.get(top) in ops or unit.id in pools:
            continue  # shown within its layer, or within a pool that is shown as a whole
        parent = str(unit.parent) if unit.parent in there else ROOT
        # a range states what it takes on average
        times = float(unit.count or 1) if unit.level == "range" else 1.0
        node = _node(results, unit, str(unit.id), parent, _detail(unit), times)
        found += [] if node is None else [node]
    return found


def _operators_in_layers(results: Parts) -> list[Node]:
    """Operators and their kernels within the layers that call them, each with its layer's part of the figures."""
    rows = results.all()
    units = {unit.id: unit for unit in rows}
    keys = {(unit.gpu, unit.name): str(unit.id) for unit in rows if unit.level == "layer"}
    kernels: dict[int | None, list[Part]] = {}
    calls: dict[tuple[tuple[str, str], int | None], int] = {}
    everywhere: Counter[int | None] = Counter()
    for unit in rows:
        if unit.level == "kernel":
            kernels.setdefault(unit.parent, []).append(unit)
        elif unit.level == "site":
            here = (unit.gpu, unit.module or OUTSIDE), unit.parent
            calls[here] = calls.get(here, 0) + (unit.count or 1)
            everywhere[unit.parent] += unit.count or 1
    found = []
    for (layer, op), count in calls.items():
        if layer not in keys or op is None or op not in units:
            continue
        share = count / everywhere[op]
        key = f"{keys[layer]}/{op}"
        node = _node(results, units[op], key, keys[layer], str(units[op].shapes or ""), share)
        if node is not None:
            of_op = kernels.get(op, [])
            below = (_node(results, k, f"{key}/{k.id}", key, str(k.shapes or ""), share) for k in of_op)
            found += [node, *(kernel for kernel in below if kernel is not None)]
    return found


def _has_figure(results: Parts, unit: Part) -> bool:
    return any(unit.get(name).value is not None for name in (ENERGY, TIME))


def _node(results: Parts, unit: Part, key: str, parent: str, detail: str, share: float = 1.0) -> Node | None:
    """A unit, or a share of what it takes; None if it has no figure."""
    energy, time = (unit.get(name) for name in (ENERGY, TIME))
    if not _has_figure(results, unit):
        return None
    how = "" if share > 1 - 1e-9 else f"{100 * share:.3g} % of what equal operators take together"
    remarks = tuple(dict.fromkeys((*energy.flags, *time.flags)))
    part = (energy.scaled(share), time.scaled(share))
    return Node(key, parent, _label(unit), unit.level, *part, detail, remarks, how)


def _in_modules(nodes: Sequence[Node], tops: Collection[str]) -> list[Node]:
    """Operators right below nodes of these keys under the modules that call them, where no layers are shown."""
    found: dict[str, Node] = {}
    for node in nodes:
        if node.level != "op" or node.parent not in tops or not node.detail:
            found[node.key] = node
            continue
        module, _, shapes = node.detail.partition("\n")
        parent, path = node.parent, ""
        for step in _steps(module):
            path = f"{path}.{step}" if path else step
            key = f"{node.parent} module {path}"
            found.setdefault(key, Node(key, parent, step, "module", detail=path, how="sum of its parts"))
            parent = key
        found[node.key] = replace(node, parent=parent, detail=shapes)
    return _ordered(list(found.values()))


def _steps(module: str) -> list[str]:
    """Names on the way to a module; numbers and stars stay with what they number."""
    steps: list[str] = []
    for word in filter(None, module.split(".")):
        if steps and (word == "*" or word.isdecimal()):
            steps[-1] += f".{word}"
        else:
            steps.append(word)
    return steps


def _of_trace(traced: Sequence[NamedLaunches]) -> list[Node]:
    """Kernels by name under their devices: what a trace without energy says."""
    nodes: dict[str, Node] = {}
    for number, one in enumerate(traced):
        device = f"device {one.device}"
        nodes.setdefault(device, Node(device, ROOT, one.device or "device", "device", how="sum of its parts"))
        seconds = Estimate(one.total_s, n=one.count, method="trace")
        key, launches = f"k{number}", f"{one.count} launches"
        nodes[key] = Node(key, device, one.name, "kernel", time=seconds, detail=launches)
    return list(nodes.values())


def _of_baselines(results: Parts) -> list[Node]:
    """How much of a step's energy an idle GPU would have drawn anyway."""
    total = results.get(ENERGY).value
    context, deep = (results.get(f"energy_active_over_{name}_idle_j") for name in ("context", "deep"))
    work, kept = context.value, deep.value
    if total is None or work is None:
        return []
    about = "active over context idle"
    found = [Node("work", ROOT, "work", "part", context, detail=about, remarks=context.flags)]
    if kept is not None:
        part = Estimate(kept - work, method="derived")
        found.append(Node("kept", ROOT, "context kept alive", "part", part, remarks=deep.flags))
    rest = Estimate(total - (work if kept is None else kept), method="derived")
    name = "idle power, with a context" if kept is None else "idle power"
    return [*found, Node("idle", ROOT, name, "part", rest)]


def _totalled(nodes: Sequence[Node]) -> list[Node]:
    """The same, with sums where a node was not measured by itself."""
    energy: dict[str, float] = {}
    time: dict[str, float] = {}
    found: list[Node] = []
    for part in reversed(nodes):
        node = part
        if node.how == "sum of its parts" or (node.key == ROOT and node.energy.value is None):
            joules, seconds = _or_sum(node.energy, energy.get(node.key)), _or_sum(node.time, time.get(node.key))
            node = replace(node, energy=joules, time=seconds)
        for sums, value in ((energy, node.energy.value), (time, node.time.value)):
            if value is not None:
                sums[node.parent] = sums.get(node.parent, 0.0) + value
        found.append(node)
    return found[::-1]


def _or_sum(own: Estimate, inside: float | None) -> Estimate:
    return own if own.value is not None or inside is None else Estimate(inside, method="derived")


def _ordered(nodes: Sequence[Node]) -> list[Node]:
    """Each node behind the one around it; those whose parent has no figure go to the root."""
    keys = {node.key for node in nodes}
    below: dict[str, list[Node]] = {}
    for node in nodes:
        if node.key != ROOT:
            parent = node.parent if node.parent in keys else ROOT
            below.setdefault(parent, []).append(replace(node, parent=parent))
    below.get(ROOT, []).sort(key=lambda node: node.level == "op")  # what is in no layer comes behind the layers
    found, waiting = [], [node for node in nodes if node.key == ROOT]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(reversed(below.get(node.key, [])))
    return found


def _label(unit: Part) -> str:
    name = printed(unit.name)
    if unit.level not in ("layer", "op") or name.endswith("."):
        return name
    around, _, last = name.rpartition(".")
    return f"{around.rpartition('.')[2]}.{last}" if last.isdecimal() and around else last


def _detail(unit: Part) -> str:
    """Module and shapes of an operator, a line each; what little there is of others."""
    if unit.level == "op":
        return f"{unit.module or ''}\n{unit.shapes or ''}".rstrip("\n")
    return str(unit.module or "") if unit.module != unit.name else ""


@dataclass(frozen=True)
class NamedLaunches:
    """All launches of one name on one device.

    Attributes:
        name: Name of the kernel or copy.
        kind: "kernel" or "memcpy".
        device: Name of the device.
        count: Launches in the trace.
        total_s, least_s, most_s: Seconds of all launches together, of the shortest, of the longest.
    """

    name: str
    kind: str
    device: str
    count: int
    total_s: float
    least_s: float
    most_s: float


def by_name(run: Run) -> list[NamedLaunches]:
    """What ran on devices, by name, the most time first; empty without a trace."""
    timed = pc.and_(pc.is_valid(run.spans["start_ns"]), pc.is_valid(run.spans["end_ns"]))
    spans = run.spans.filter(pc.and_(pc.is_in(run.spans["kind"], pa.array(_RUNNING)), timed))
    seconds = pc.divide(pc.subtract(spans["end_ns"], spans["start_ns"]).cast("float64"), 1e9)
    keyed = spans.select(["kind", "device", "name"]).append_column("s", seconds).combine_chunks()
    groups = keyed.group_by(["kind", "device", "name"], use_threads=False)
    names, found = device_names(run), []
    for row in groups.aggregate([("s", "count"), ("s", "sum"), ("s", "min"), ("s", "max")]).to_pylist():
        where = names.get(row["device"], row["device"] or "")
        times = (row["s_count"], row["s_sum"], row["s_min"], row["s_max"])
        found.append(NamedLaunches(str(row["name"] or "?"), row["kind"], where, *times))
    return sorted(found, key=lambda traced: -traced.total_s)


def device_names(run: Run) -> dict[str, str]:
    """The title of each device, by id: its name, and its index where several share a name."""
    counts = Counter(device.name for device in run.devices)
    named = {}
    for device in run.devices:
        own = str(device.id) if device.index is None else str(device.index)
        named[device.id] = f"{own}: {device.name}" if counts[device.name] > 1 else device.name
    return named
