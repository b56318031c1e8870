"""Logs from cells, and what the command line makes of them."""

from commands import command
from jouletrace.run import load


def imported(capsys, tmp_path, text, *arguments, name="log.csv"):
    """The Run that the command line makes of a text, and what it prints; the Run is opened again."""
    path = tmp_path / name
    path.write_text(text)
    place = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
    said = command(capsys, "import", str(path), "-o", str(place), *arguments)
    assert said.code == 0, said.err
    assert command(capsys, "verify", str(place)).code == 0
    return load(place), said.out


def refused(capsys, tmp_path, text, *arguments):
    """The line with which the command line refuses a text."""
    path = tmp_path / "log.csv"
    path.write_text(text)
    said = command(capsys, "import", str(path), *arguments)
    assert said.code == 2
    return said.complaint


def table(cells):
    header = "time_s,power_w,temperature_c,clock_mhz,utilization_pct,memory_mib,energy_counter_j,power_limit_w"
    return "\n".join([header, *(",".join(row) for row in cells)]) + "\n", "table.csv"


def csv_of_dcgm(cells):
    header = "TimeStamp,EntityId,POWER,TMPTR,SMCLK,GPUTL,FBUSD,TOTEC,PMLMT"
    rows = [",".join([row[0], "0", *row[1:]]) for row in cells]
    return "\n".join([header, *rows]) + "\n", "dcgm.csv"


def query_of_smi(cells):
    header = "timestamp, power.draw [W], temperature.gpu, clocks.sm [MHz], utilization.gpu [%], memory.used [MiB], "
    header += "fan.speed [%], enforced.power.limit [W]"
    rows = [", ".join([f"2026/08/12 16:57:{k:02d}.000", *row[1:]]) for k, row in enumerate(cells)]
    return "\n".join([header, *rows]) + "\n", "smi.csv"


_FIELDS = [
    *("POWER_USAGE", "GPU_TEMP", "SM_CLOCK", "GPU_UTIL", "FB_USED"),
    *("TOTAL_ENERGY_CONSUMPTION", "ENFORCED_POWER_LIMIT"),
]


def scrapes(cells):
    lines = []
    for row in cells:
        for name, cell in zip(_FIELDS, row[1:], strict=True):
            if cell:  # an exporter leaves the whole line out
                labels = 'gpu="0",UUID="GPU-1",modelName="NVIDIA A30"'
                lines.append(f"DCGM_FI_DEV_{name}{{{labels}}} {cell} {row[0]}000")
    return "\n".join(lines) + "\n", "page.prom"
