"""What the examples of recorded loops print in the end: a line for each of their ranges."""

import jouletrace as jt


def print_ranges(run: jt.Run) -> None:
    """Energy of all of a name and the mean of each, with intervals, or why there is none; ``show`` prints more."""
    mark = "SIMULATED " if run.simulated else ""
    for unit in run.units.to_pylist():
        if unit["level"] != "range":
            continue
        energy, each = (run.result(name, unit["id"]) for name in ("energy_total_j", "energy_each_j"))
        said = f"no energy: {energy.reason}" if energy.value is None else f"{energy}, each {each}"
        print(f"{mark}{unit['name']:20s} × {unit['count']:5d}  {said}")
