"""The page of a fleet in a real browser: all charts are drawn, nothing complains, nothing is loaded."""

from fleet_data import fleet
from jouletrace.addons.fleet import html
from jouletrace.addons.fleet.findings import find


def test_every_chart_of_a_fleet_is_drawn_and_nothing_complains(chromium, tmp_path):
    read = fleet([1.0, 1.01, 0.99, 1.0, 1.02, 1.05])
    path = tmp_path / "fleet.html"
    html.write(read, [find(group) for group in read.groups], path)
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, offline=True)
    try:
        page, said, asked = context.new_page(), [], []
        page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector(".run[data-ready]", state="attached")
        page.evaluate("jt.charts.drawAll()")  # its promise is waited for
        charts = page.locator("figure[data-plots] .plot")
        assert charts.count() >= 1
        assert page.locator(".plot[data-drawn]").count() == charts.count()
        assert page.locator("#run0-part2 tbody tr").count() == 6
        assert said == []
        assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
    finally:
        context.close()
