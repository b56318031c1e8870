"""What the examples of recorded loops print in the end: a line for each of their ranges."""

import jouletrace as jt


def print_ranges(run: jt.Run) -> None:
    """Mean energy of one, with its interval, or why there is none; ``jouletrace show`` prints more."""
    mark = "SIMULATED " if run.simulated else ""
    for unit in run.units.to_pylist():
        if unit["level"] != "range":
            continue
        energy = run.result("energy_total_j", unit["id"])
        said = f"no energy: {energy.reason}"
        if energy.value is not None:
            said = f"{energy.value:.4g} J [{energy.low:.4g}, {energy.high:.4g}]"
        print(f"{mark}{unit['name']:20s} × {unit['count']:5d}  {said}")
