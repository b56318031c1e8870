"""A real browser for the report: Debian's chromium, driven by playwright.

Where there is none these tests are skipped, unless JOULETRACE_NEEDS_BROWSER is set: then they fail.
"""

import os
import shutil

import pytest

from jouletrace.report import html

NEEDED = "JOULETRACE_NEEDS_BROWSER"
REPORT = ".run:not([hidden])[data-ready]"


def _missing(what: str) -> None:
    if os.environ.get(NEEDED):
        pytest.fail(f"{what}, and {NEEDED} is set", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="module")
def chromium():
    # Of a module: while it lives there is a running event loop in this process.
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        _missing("no chromium here: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("no playwright here: pip install playwright")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page in a browser without a network, with all that it said and asked for.

    Args:
        ready: What is there once the page has been set up; of a report if none is given.

    Attributes:
        page: Playwright's page.
        said: Errors and warnings of the console, uncaught errors.
        asked: Addresses of requests other than for the file itself.
    """

    def __init__(self, browser, path, *, width=1440, height=900, dark=False, touch=False, ready=REPORT):
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
            offline=True,
            accept_downloads=True,
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(300_000)  # machines that run tests are often busy
        self.said, self.asked = [], []
        self.page.on("console", lambda m: self.said.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.address = path.as_uri()
        self.page.goto(self.address)
        self.page.wait_for_selector(ready, state="attached")

    def drawn(self):
        """Wait until all charts in view are drawn."""
        self.page.evaluate("jt.charts.drawAll()")  # its promise is waited for
        return self

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()

    def download(self, selector):
        """The text of the file that a click saves, and its name."""
        with self.page.expect_download() as waiting:
            self.page.click(selector)
        found = waiting.value
        return found.path().read_text(encoding="utf-8"), found.suggested_filename


def _opener(browser, folder):
    pages = []

    def write_and_open(*runs, comparisons=(), **how):
        path = html.write(list(runs), folder / f"{len(pages)}.html", comparisons)
        pages.append(Opened(browser, path, **how))
        return pages[-1]

    yield write_and_open
    for page in pages:
        page.context.close()


@pytest.fixture
def open_page(chromium):
    """Open a page that is there; closed after the test."""
    pages = []

    def open_one(path, **how):
        pages.append(Opened(chromium, path, **how))
        return pages[-1]

    yield open_one
    for page in pages:
        page.context.close()


@pytest.fixture
def opened(chromium, tmp_path):
    """Open the report of some Runs."""
    yield from _opener(chromium, tmp_path)


@pytest.fixture(scope="module")
def opened_for_all(chromium, tmp_path_factory):
    """The same for tests that leave a report as it was: opening one takes more than a second of work."""
    yield from _opener(chromium, tmp_path_factory.mktemp("reports"))
