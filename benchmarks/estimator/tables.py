"""Tables of docs/results/accuracy-*.md from the rows of the judges, and one file of all rows.

python benchmarks/estimator/tables.py bursts.json exact.json stated.json off.json logs.json gpu.json -o ALL.json
python benchmarks/estimator/tables.py ALL.json
"""

import argparse
import json
from pathlib import Path


def cell(rows: list[dict], name: str) -> str:
    """Share that holds and median half-width in percent, over rows of one size."""
    given = [row[name] for row in rows if "holds" in row[name]]
    if not given:
        return "null"
    holds, half = (sum(one[key] for one in given) / len(given) for key in ("holds", "half_pct"))
    null = sum(row[name]["null"] for row in rows) / len(rows)
    return f"{100 * holds:.0f} / {half:.2g}" + (f" ({100 * null:.0f} null)" if null else "")


def ways(row: dict) -> list[str]:
    """Ways that a row judges."""
    return [name for name, value in row.items() if isinstance(value, dict)]


def best(rows: list[dict]) -> str:
    """Half-width of the best fixed grid point."""
    values = [row["library"]["oracle_pct"] for row in rows if "library" in row]
    return f" [{sum(values) / len(values):.2g}]" if values else ""


def bursts(rows: list[dict]) -> list[str]:
    """A line a shape, a column a length: each way, and the best of the estimator's grid."""
    names = ways(rows[0])
    columns = sorted({(row["off"], row["length_s"]) for row in rows})
    heads = [f"{length:g} s" + (f", {off:.0%} off" if off else "") for off, length in columns]
    lines = [f"| load: {', '.join(names)} | " + " | ".join(heads) + " |", "|---|" + "---|" * len(columns)]
    for shape in dict.fromkeys(row["shape"] for row in rows):
        cells = []
        for column in columns:
            mine = [r for r in rows if r["shape"] == shape and (r["off"], r["length_s"]) == column]
            cells.append(", ".join(cell(mine, name) for name in names) + best(mine))
        lines.append(f"| {shape} | " + " | ".join(cells) + " |")
    return lines


def logs(rows: list[dict]) -> list[str]:
    """A line a load, columns by distance of the readings."""
    names, read = ways(rows[0]), sorted({row["read_s"] for row in rows})
    heads = [f"read each {spacing:g} s: {name}" for spacing in read for name in names]
    lines = [f"| edges | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for mode, edges in dict.fromkeys((row["mode"], row["edges_s"]) for row in rows):
        mine = sorted((r for r in rows if (r["mode"], r["edges_s"]) == (mode, edges)), key=lambda r: r["read_s"])
        cells = [cell([row], name) for row in mine for name in names]
        lines.append(f"| {mode}, {edges:g} s | " + " | ".join(cells) + " |")
    return lines


def recorded(rows: list[dict]) -> list[str]:
    """Bursts beside the counter, then operators beside themselves looped alone."""
    names = ways(rows[0])
    lines = [f"| recording (n) | truth ± % | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for row in (row for row in rows if "recording" in row):
        ones = [row[name] for name in names]
        cells = [f"{one['hold']} hold, ± {one['half_pct']:.2g}, rms error {one['rms_pct']:.2g}" for one in ones]
        about = f"{row['recording']}, {row['seconds']:.2g} s ({row['n']}) | {row['truth_pct']:.2g}"
        lines.append(f"| {about} | " + " | ".join(cells) + " |")
    lines += ["", "| operator | alone, W | library | samples known |", "|---|---|---|---|"]
    for row in (row for row in rows if "operator" in row):
        cells = [f"{row[name]['watts']:.0f} ± {row[name]['half_w']:.0f}" for name in ("library", "samples known")]
        lines.append(f"| {row['operator']} | {row['alone_w'] or '–'} | " + " | ".join(cells) + " |")
    return lines


def plain(rows: list[dict]) -> list[str]:
    """A line a row, as it is."""
    return [json.dumps(rounded(row)) for row in rows]


def rounded(value: object) -> object:
    """Rows with five digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="write all rows here, by table")
    arguments = parser.parse_args()
    tables = {path.stem.split("_")[-1]: json.loads(path.read_text()) for path in arguments.files}
    if len(tables) == 1 and isinstance(next(iter(tables.values())), dict):
        tables = next(iter(tables.values()))
    for name, rows in tables.items():
        show = {"logs": logs, "recorded": recorded}.get(name, bursts if "shape" in rows[0] else plain)
        print(f"\n{name}\n\n" + "\n".join(show(rows)))
    if arguments.output:
        lines = [
            f' "{name}": [\n  ' + ",\n  ".join(json.dumps(rounded(row)) for row in rows) + "\n ]"
            for name, rows in tables.items()
        ]
        arguments.output.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
