"""Logs in sections with headings of their own, and in blocks below lines of times."""

from datetime import UTC, datetime, timedelta

BEGIN = datetime(2026, 3, 3, 10, tzinfo=UTC)


def rows(form, k):
    """Heading and cell of each column of the ``k``th row, by the heading's name."""
    at = BEGIN + timedelta(seconds=k)
    smi, stamp = at.strftime("%Y/%m/%d %H:%M:%S.000"), at.strftime("%Y-%m-%d %H:%M:%S")
    return {
        "query": {"timestamp": smi, "power.draw [W]": f"{300 + k % 3}.00 W", "temperature.gpu": "60"},
        "nounits": {"timestamp": smi, "power.draw [W]": f"{300 + k % 3}.00", "temperature.gpu": "60"},
        "dcgm": {"TimeStamp": f"{at.timestamp():.0f}", "EntityId": "0", "POWER": f"{300 + k % 3}", "TMPTR": "60"},
        "table": {"Time": stamp, "Power (W)": f"{300 + k % 3}", "Temperature (C)": "60", "note": "a b"},
    }[form]


def sections(form, *parts):
    """A file of 20 rows a section, each with its own columns."""
    lines = []
    for number, names in enumerate(parts):
        lines += [", ".join(names), *(", ".join(rows(form, 20 * number + k)[n] for n in names) for k in range(20))]
    return "\n".join(lines) + "\n"


DATES = {
    "C": lambda at: at.strftime("%a %b %e %H:%M:%S UTC %Y"),
    "en_GB": lambda at: at.strftime("%a %e %b %H:%M:%S UTC %Y"),
    "en_US": lambda at: at.strftime("%a %b %e %I:%M:%S %p UTC %Y"),
    "e-mail": lambda at: at.strftime("%a, %d %b %Y %H:%M:%S +0000"),
    "ISO": lambda at: at.isoformat(),
    "in a frame": lambda at: at.strftime("===== %Y-%m-%d %H:%M:%S ====="),
    "marked": lambda at: at.strftime("# %Y-%m-%d %H:%M:%S"),
    "epoch": lambda at: f"{at.timestamp():.0f}",
    "time of day": lambda at: at.strftime("%H:%M:%S"),
}


GERMAN = {
    "date": lambda at: at.strftime("Di %e. Mär %H:%M:%S CET %Y"),
    "newer date": lambda at: at.strftime("Di %e. Mär %Y %H:%M:%S CET"),
    "long": lambda at: at.strftime("Dienstag, %e. März %Y, %H:%M:%S Uhr"),
    "in a frame": lambda at: at.strftime("=== Di %e. Mär %H:%M:%S CET %Y ==="),
}


def blocks(stamp, header, row, count=20, step=5, headings=True):
    """A block each 5 s: a line with the time, the headings, and the rows."""
    text = "" if headings else header
    for k in range(count):
        text += f"\n{stamp(BEGIN + timedelta(seconds=step * k))}\n" + (header if headings else "") + row(k)
    return text
