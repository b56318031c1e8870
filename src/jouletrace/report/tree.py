"""Where the energy and the time go, as a tree made from paths; and kernels of a trace by name.

``nested`` makes a tree of any rows with paths. ``tree`` says where each part of a Run lies: operators in modules or
layers, kernels in operators; of a trace kernels by name; and idle power where nothing was broken down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.report.facts import counted_devices
from jouletrace.run import Estimate, Run, device_labels
from jouletrace.run.parts import ABSENT, Part, Parts
from jouletrace.run.paths import Path, PathStep
from jouletrace.run.recording_names import IDLE_NAME, OUTSIDE
from jouletrace.words.reasons import printed

_WITHIN = 1.02
"""Share of the whole above which ranges together can't all lie beside one another."""

ENERGY, TIME = "energy_total_j", "time_s"
_ACROSS = ("model", "site", "group", "length", "context")
"""Levels that are no parts of the whole: where an operator is called, modules removed as a whole, forwards of one
token or prompt."""

_DETAIL = "detail"
"""Kind of a step that makes no node of its own: it distinguishes the step before it from others of its name."""

_LAST = {"module": 1, "op": 2}
"""Order of kinds below the whole: what is in no layer comes behind the layers, what is in no module behind modules."""

_DEEPEST = 128
"""Steps that a path has at most: what lies deeper is drawn right below the whole."""

_SUM = "sum of its parts"

_RUNNING = ("kernel", "memcpy")
"""Kinds of the spans of what ran on a device."""


@dataclass(frozen=True)
class TreeNode:
    """A part of the whole.

    Attributes:
        path: Its place, unique in the tree: steps from the whole down, each behind its details. The kind of its own
            step is "model", "phase", "layer", "module", "op", "kernel", "device", "range", "cause" or "part".
        energy: Joules per iteration (or in all, where nothing is iterated).
        time: Seconds likewise.
        remarks: Codes of flags.
        how: "" if it was measured by itself, else how its figures came about.
        part: Id of the part of the Run that it is, or is a share of; None for sums and what a trace says.
    """

    path: Path
    energy: Estimate = ABSENT
    time: Estimate = ABSENT
    remarks: tuple[str, ...] = ()
    how: str = ""
    part: int | None = None

    @property
    def level(self) -> str:
        """The kind of its own step."""
        return _step(self.path).kind

    @property
    def label(self) -> str:
        """Its name, as short as its place allows: the last word of a layer or operator."""
        kind, name = self.level, printed(_step(self.path).name)
        if kind not in ("layer", "op") or name.endswith("."):
            return name
        around, _, last = name.rpartition(".")
        return f"{around.rpartition('.')[2]}.{last}" if last.isdecimal() and around else last

    @property
    def details(self) -> list[str]:
        """Properties that distinguish it from others of its name: module, shapes, how often."""
        return [step.name for step in self.path[len(self.parent) + 1 :]]

    @property
    def parent(self) -> Path:
        """The path of the node around it; () for the whole."""
        return _around(self.path)


def _around(path: Path) -> Path:
    """The path around a node's own step."""
    return path[: max(n for n, step in enumerate(path) if step.kind != _DETAIL)]


def _step(path: Path) -> PathStep:
    """The step by which a node is named."""
    return path[len(_around(path))]


def nested(rows: Sequence[TreeNode]) -> list[TreeNode]:
    """A tree of rows, the whole first: each node behind the one around it, in the order of the rows.

    Nodes that no row is of are sums of what is in them, as is the whole if it has no energy; rows of one path are one.
    """
    nodes_at: dict[Path, list[TreeNode]] = {}
    for row in rows:
        nodes_at.setdefault(row.path, []).append(row)
    below: dict[Path, dict[Path, None]] = {}
    for path in nodes_at:
        inner, outer = path, _around(path)
        while outer:
            below.setdefault(outer, {})[inner] = None
            inner, outer = outer, () if outer in nodes_at else _around(outer)
    whole, order = rows[0].path, list[Path]()
    waiting = [whole]
    while waiting:
        order.append(path := waiting.pop())
        inside = list(below.get(path, ()))
        if path == whole:
            inside.sort(key=lambda child: _LAST.get(_step(child).kind, 0))
        waiting += reversed(inside)
    nodes: dict[Path, TreeNode] = {}
    for path in reversed(order):
        several = nodes_at.get(path, [])
        node = several[0] if len(several) == 1 else _summed(TreeNode(path, how=_SUM), several)
        if not several or (path == whole and node.energy.value is None):
            node = _summed(node, [nodes[child] for child in reversed(below[path])] if path in below else [])
        nodes[path] = node
    return [nodes[path] for path in order]


def _summed(node: TreeNode, parts: Sequence[TreeNode]) -> TreeNode:
    """A node with sums over its parts in place of figures that it lacks."""
    joules = [part.energy.value for part in parts if part.energy.value is not None]
    seconds = [part.time.value for part in parts if part.time.value is not None]
    if joules and node.energy.value is None:
        node = replace(node, energy=Estimate(sum(joules), method="derived"))
    return replace(node, time=Estimate(sum(seconds), method="derived")) if seconds and node.time.value is None else node


def widths(nodes: Sequence[TreeNode], metric: str) -> list[float]:
    """How wide each node is drawn: as its value, or as all in it if that is more; 0 where it is missing or negative.

    Parts that were measured one by one come to a little less or more than the whole.

    Args:
        nodes: A tree, each node behind the one around it.
        metric: "energy" or "time".
    """
    inside: dict[Path, float] = {}
    width: dict[Path, float] = {}
    for node in reversed(nodes):
        size = (node.energy if metric == "energy" else node.time).value
        width[node.path] = max(size or 0.0, inside.get(node.path, 0.0))
        inside[node.parent] = inside.get(node.parent, 0.0) + width[node.path]
    return [width[node.path] for node in nodes]


def depths(nodes: Sequence[TreeNode]) -> dict[Path, int]:
    """How deep each node of a tree lies, in its order; the whole at 1."""
    depth_of: dict[Path, int] = {}
    for node in nodes:
        depth_of[node.path] = depth_of.get(node.parent, 0) + 1
    return depth_of


def tree(run: Run, results: Parts, together: Estimate) -> list[TreeNode]:
    """All parts that have energy or time, each behind the one around it; the whole alone without parts.

    Args:
        run: The Run.
        results: Its figures.
        together: Energy of its devices in J, the whole of a recording (``analysis.facts``).
    """
    whole = _whole(run, results, together)
    rows = _rows(results, _dividing(run, results, whole)) or _of_trace(run) or _of_baselines(results)
    return nested([whole, *(replace(row, path=whole.path + row.path) for row in rows)])


def _whole(run: Run, results: Parts, together: Estimate) -> TreeNode:
    """The model, or all that was recorded: what devices drew together, as long as the longest was watched."""
    name = str(results.whole.name or run.workload.get("name") or run.kind)
    energy, time = results.get(ENERGY), results.time
    node = TreeNode((PathStep("model", name),), energy, results.get(TIME) if time.value is None else time, energy.flags)
    devices = results.units("device") if run.kind == "record" and results.units("range") else []
    if devices and energy.value is None and together.value is not None:
        node = replace(node, energy=together, how=f"sum over {counted_devices(results)}" if len(devices) > 1 else "")
    watched = [time_s for device in devices if (time_s := device.get(TIME)).value is not None]
    longest = max(watched, key=lambda time: time.value or 0.0, default=ABSENT)
    return node if node.time.value is not None or not watched else replace(node, time=longest)


def _dividing(run: Run, results: Parts, whole: TreeNode) -> list[Part]:
    """Parts that divide the whole; levels whose units take time that others take too would be drawn beside these."""
    units, across = results.all(), {*_ACROSS, *(["op"] if results.apart() else [])}
    phases = {unit.name: unit.id for unit in units if unit.level == "phase" and _has_figure(unit)}
    ranges = results.units("range")
    if run.kind == "record" and ranges:
        across.add("device")  # its ranges lie in the time and energy of the devices
    if run.kind == "monitor":
        across.add("range")  # pods and pieces of time, which divide the same energy as the devices
    outer_s = sum(unit.get(TIME).value or 0.0 for unit in ranges if results.is_top(unit))
    if whole.time.value and outer_s > _WITHIN * whole.time.value:
        across.add("range")  # they lie within one another, such as the functions of a call stack
    if run.kind != "program":
        across |= {"layer"} if phases else set()  # a layer runs in several phases
    elif any(unit.level == "kernel" for unit in units):
        across.add("phase")  # its phases are kinds of kernels, which operators and modules hold
    modules: dict[int | None, str | None] = {unit.id: unit.module for unit in units if unit.level == "layer"}
    # Phases of a generation that an older version measured hold what the GPU takes between kernels
    idle_apart = not phases or not results.units("length")
    pools = {unit.parent for unit in units if unit.level == "op"} if phases else set()
    dividing = []
    for unit in units:
        # the calls of a layer divide it once more, beside the layers within it
        call = unit.level == "layer" and unit.module and unit.module == modules.get(unit.parent)
        if unit.level in across or call or (unit.name == IDLE_NAME and not idle_apart):
            continue
        if unit.level == "op" and unit.phase in phases:
            dividing.append(replace(unit, parent=phases[unit.phase]))
        elif unit.level != "op" or unit.id not in pools:  # a pool may hold operators of several phases
            dividing.append(unit)
    return dividing


def _rows(results: Parts, units: Sequence[Part]) -> list[TreeNode]:
    """A row for each part that has a figure; operators that layers call have one in each, with its share."""
    layered = any(unit.level == "layer" for unit in units)
    calls = _calls(results) if layered else {}
    called = {op for _, op in calls}
    ops: dict[int | None, int | None] = {unit.id: unit.parent for unit in units if unit.level == "op"}
    pools = {unit.parent for unit in units if unit.id in called} & ops.keys()
    kept: dict[int | None, Part] = {}
    for unit in units:
        op = unit.parent if unit.level == "kernel" else unit.id
        elsewhere = {op, unit.id} & called or ops.get(op) in ops or unit.id in pools
        if not elsewhere and _has_figure(unit):  # else shown within its layer, or within a pool as a whole
            kept[unit.id] = unit

    rows = [_row(unit, _way(unit, kept, in_modules=not layered)) for unit in kept.values()]
    kernels: dict[int | None, list[Part]] = {}
    for unit in results.all():
        if unit.level == "kernel":
            kernels.setdefault(unit.parent, []).append(unit)
    for (layer, op), share in calls.items():
        if layer is not None and _has_figure(results[op]):
            around = _way(kept.get(layer), kept) + _named(results[op], results[op].shapes)
            rows.append(_row(results[op], around, share))
            below = filter(_has_figure, kernels.get(op, []))
            rows += [_row(kernel, around + _named(kernel, kernel.shapes), share) for kernel in below]
    return rows


def _way(unit: Part | None, kept: Mapping[int | None, Part], *, in_modules: bool = False) -> Path:
    """The path of a part within those that are kept; without these where it lies too deep."""
    itself = path = () if unit is None else _steps(unit, in_modules=in_modules)
    while unit is not None and (unit := kept.get(unit.parent)) is not None:
        if len(path) > _DEEPEST:
            return itself
        path = _steps(unit, in_modules=in_modules) + path
    return path


def _calls(results: Parts) -> dict[tuple[int | None, int], float]:
    """Shares of the calls of each operator by the layer that makes them; None for calls of no layer with a row."""
    layers = {(unit.gpu, unit.name): unit.id for unit in results.units("layer")}
    calls: Counter[tuple[int | None, int]] = Counter()
    everywhere: Counter[int] = Counter()
    for unit in results.units("site"):
        if unit.parent is not None:
            calls[layers.get((unit.gpu, unit.module or OUTSIDE)), unit.parent] += unit.count or 1
            everywhere[unit.parent] += unit.count or 1
    return {(layer, op): count / everywhere[op] for (layer, op), count in calls.items()}


def _steps(unit: Part, *, in_modules: bool) -> Path:
    """The steps of a part within what is around it: of an operator its modules, or these as a detail."""
    module = unit.module or ""
    if unit.level != "op":
        return _named(unit, module if module != unit.name else "")
    if not in_modules:
        return _named(unit, module, unit.shapes)
    steps: Path = ()
    words: list[str] = []
    for word in filter(None, module.split(".")):
        if words and (word == "*" or word.isdecimal()):  # numbers and stars stay with what they number
            words[-1] += f".{word}"
            steps = steps[:-2]
        else:
            words.append(word)
        steps += (PathStep("module", words[-1]), PathStep(_DETAIL, ".".join(words)))
    return steps + _named(unit, unit.shapes)


def _named(unit: Part, *details: str | None) -> Path:
    """The step of a part and its details that are known."""
    return (PathStep(unit.level, unit.holds or unit.name), *(PathStep(_DETAIL, text) for text in details if text))


def _has_figure(unit: Part) -> bool:
    return any(unit.get(name).value is not None for name in (ENERGY, TIME))


def _row(unit: Part, path: Path, share: float = 1.0) -> TreeNode:
    """A share of what a part takes."""
    energy, time = (unit.get(name) for name in (ENERGY, TIME))
    how = "" if share > 1 - 1e-9 else f"{100 * share:.3g} % of what equal operators take together"
    remarks = tuple(dict.fromkeys((*energy.flags, *time.flags)))
    return TreeNode(path, energy.scaled(share), time.scaled(share), remarks, how, unit.id)


def _of_trace(run: Run) -> list[TreeNode]:
    """Kernels by name under their devices: what a trace without energy says."""
    nodes = []
    for launched in by_name(run):
        device, kernel = PathStep("device", launched.device or "device"), PathStep("kernel", launched.name)
        path = (device, kernel, PathStep(_DETAIL, f"{launched.count} launches"))
        nodes.append(TreeNode(path, time=Estimate(launched.total_s, n=launched.count, method="trace")))
    return nodes


def _of_baselines(results: Parts) -> list[TreeNode]:
    """How much of a step's energy an idle GPU would have drawn anyway."""
    total = results.get(ENERGY).value
    context, deep = (results.get(f"energy_active_over_{name}_idle_j") for name in ("context", "deep"))
    work, kept = context.value, deep.value
    if total is None or work is None:
        return []
    path = (PathStep("part", "work"), PathStep(_DETAIL, "active over context idle"))
    nodes = [TreeNode(path, context, remarks=context.flags)]
    if kept is not None:
        part = Estimate(kept - work, method="derived")
        nodes.append(TreeNode((PathStep("part", "context kept alive"),), part, remarks=deep.flags))
    rest = Estimate(total - (work if kept is None else kept), method="derived")
    name = "context idle" if kept is None else "deep idle"
    return [*nodes, TreeNode((PathStep("part", name),), rest)]


@dataclass(frozen=True)
class NamedLaunches:
    """All launches of one name on one device.

    Attributes:
        name, kind, device: What it is called, whether a "kernel" or a "memcpy", and where it ran.
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
    """All launches on devices by name, the most time first; empty without a trace."""
    timed = pc.and_(pc.is_valid(run.spans["start_ns"]), pc.is_valid(run.spans["end_ns"]))
    spans = run.spans.filter(pc.and_(pc.is_in(run.spans["kind"], pa.array(_RUNNING)), timed))
    seconds = pc.divide(pc.subtract(spans["end_ns"], spans["start_ns"]).cast("float64"), 1e9)
    keyed = spans.select(["kind", "device", "name"]).append_column("s", seconds).combine_chunks()
    groups = keyed.group_by(["kind", "device", "name"], use_threads=False)
    names, kernels = device_labels(run.devices), []
    for row in groups.aggregate([("s", "count"), ("s", "sum"), ("s", "min"), ("s", "max")]).to_pylist():
        where = names.get(row["device"], row["device"] or "")
        times = (row["s_count"], row["s_sum"], row["s_min"], row["s_max"])
        kernels.append(NamedLaunches(str(row["name"] or "?"), row["kind"], where, *times))
    return sorted(kernels, key=lambda traced: -traced.total_s)
