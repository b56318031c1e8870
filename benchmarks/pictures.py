"""Pictures for the documentation: real Runs on a terminal and in a browser, and the pages.

    python benchmarks/pictures.py [RUN RUN...] [--ab RUN...] [--dark RUN] [--terminal RUN...]
        [--atlas DATA] [--site FOLDER]

The first Run is shown by itself; all of them, compared. Those of ``ab``: what they say of their two sides, down to the
end of the timeline. --dark: the first screen in dark colours. --terminal: ``jouletrace show RUN`` in a terminal of 80
columns. --atlas: the page of a data set of ``atlas.py``. --site: the first page of a site that ``make docs`` has
built. It needs chromium and playwright.
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

import atlas_data
from jouletrace.compare.compare import against_first
from jouletrace.compare.paired import paired
from jouletrace.compare.sides import open_runs
from jouletrace.report import html
from jouletrace.run import load

WIDE, PHONE, DESKTOP = 1200, 390, 1440
_BELOW = 24
"""Pixels that are kept below what is shown."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--ab", nargs="+", default=[], metavar="RUN")
    parser.add_argument("--dark", metavar="RUN")
    parser.add_argument("--terminal", nargs="+", default=[], metavar="RUN")
    parser.add_argument("--atlas", type=Path, metavar="DATA")
    parser.add_argument("--site", type=Path, metavar="FOLDER")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/figures"))
    asked = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        if asked.runs:
            one = html.write([load(asked.runs[0])], Path(folder) / "one.html")
            overview(opened(browser, one, WIDE), asked.output / "report-overview.png")
            iteration(opened(browser, one, WIDE), asked.output / "report-iteration.png")
            overview(opened(browser, one, PHONE, dark=True), asked.output / "report-phone.png")
        if len(asked.runs) > 1:
            found, notes = against_first([open_runs([run]) for run in asked.runs])
            several = html.write([load(run) for run in asked.runs], Path(folder) / "all.html", found, notes)
            comparison(opened(browser, several, WIDE), asked.output / "report-compared.png")
        for place in asked.ab:
            run = load(place)
            page = html.write([run], Path(folder) / "ab.html", [paired(run)])
            sides(opened(browser, page, DESKTOP), asked.output / f"report-{Path(place).stem}.png")
        if asked.dark:
            page = html.write([load(asked.dark)], Path(folder) / "dark.html")
            overview(opened(browser, page, DESKTOP, dark=True), asked.output / "report-dark.png")
        for place in asked.terminal:
            terminal(browser, ["jouletrace", "show", place], asked.output / f"terminal-{Path(place).stem}.png")
        if asked.atlas:
            atlas_data.page(asked.atlas, Path(folder) / "atlas.html")
            page = browser.new_page(viewport={"width": WIDE, "height": 1600})
            page.goto((Path(folder) / "atlas.html").as_uri())
            page.wait_for_selector("body[data-shown]")
            page.wait_for_timeout(500)
            box = page.locator("#shares").bounding_box()
            page.set_viewport_size({"width": WIDE, "height": int(box["y"] + box["height"])})
            page.wait_for_timeout(500)
            clip(page, asked.output / "atlas.png", 0, box["y"] + box["height"])
        if asked.site:
            page = browser.new_page(viewport={"width": DESKTOP, "height": 900})
            page.goto((asked.site / "index.html").resolve().as_uri())
            page.wait_for_timeout(500)
            clip(page, asked.output / "site.png", 0, 900 - _BELOW)
        browser.close()


def terminal(browser: Any, command: list[str], place: Path) -> None:
    """Prints of a command on a terminal of 80 columns, in its colours."""
    printed = Console(record=True, width=80, file=io.StringIO())
    printed.print(f"$ {' '.join(command)}", highlight=False)
    printed.print(Text.from_ansi(on_terminal([sys.executable, "-m", *command])))
    page = browser.new_page(viewport={"width": 820, "height": 100}, device_scale_factor=2)
    page.set_content(printed.export_html(inline_styles=True))
    page.add_style_tag(content="pre { font-size: 14px; line-height: 1.25; margin: 8px 12px }")
    page.screenshot(path=place, full_page=True)
    print(f"{place}: {place.stat().st_size / 1e3:.0f} kB")


def on_terminal(command: list[str]) -> str:
    """The output of a command on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment):
        os.close(theirs)
        found = b""
        with open(ours, "rb", buffering=0) as output:
            try:
                while some := output.read(65536):
                    found += some
            except OSError:  # Linux says so when the other side is closed
                pass
    return found.decode().replace("\r\n", "\n")


def opened(browser: Any, path: Path, width: int, *, dark: bool = False) -> Any:
    """The page, drawn, in a window high enough for what is shown of it."""
    scheme = "dark" if dark else "light"
    page = browser.new_context(viewport={"width": width, "height": 1600}, color_scheme=scheme, offline=True).new_page()
    page.goto(path.resolve().as_uri())
    page.wait_for_selector(".run:not([hidden])[data-ready]", state="attached")
    page.evaluate("jt.charts.drawAll()")
    page.wait_for_timeout(500)
    return page


def overview(page: Any, place: Path) -> None:
    """From the top to the end of the icicle."""
    box = page.locator(".run:not([hidden]) .plot.icicle").bounding_box()
    clip(page, place, 0, box["y"] + box["height"])


def iteration(page: Any, place: Path) -> None:
    """The timeline, zoomed to the kernels of one iteration, if the Run has iterations."""
    timeline = page.locator(".run:not([hidden]) .timeline")
    if not timeline.locator("button", has_text="An iteration").count():
        return
    timeline.locator("button", has_text="An iteration").click()
    page.evaluate("scrollTo(0, 0)")
    page.set_viewport_size({"width": WIDE, "height": 3000})
    page.wait_for_timeout(500)
    box = timeline.bounding_box()
    clip(page, place, box["y"] - _BELOW, box["y"] + min(box["height"], 620))


def sides(page: Any, place: Path) -> None:
    """From the top to the end of the timeline."""
    box = page.locator(".run:not([hidden]) .timeline canvas").bounding_box()
    clip(page, place, 0, box["y"] + box["height"])


def comparison(page: Any, place: Path) -> None:
    """The first comparison, with its operators."""
    page.set_viewport_size({"width": WIDE, "height": 3000})
    compared = page.locator(".compared").first
    compared.locator("summary", has_text="Operators").click()
    page.wait_for_timeout(300)
    box = compared.bounding_box()
    clip(page, place, box["y"], box["y"] + min(box["height"], 900))


def clip(page: Any, place: Path, top: float, bottom: float) -> None:
    """Save a part of the page."""
    width = page.viewport_size["width"]
    area = {"x": 0, "y": max(top, 0), "width": width, "height": bottom - max(top, 0) + _BELOW}
    page.screenshot(path=place, clip=area, full_page=True)
    print(f"{place}: {place.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
