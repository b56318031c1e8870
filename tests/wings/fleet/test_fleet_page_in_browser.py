"""The page of a fleet in a real browser: all charts are drawn, nothing complains, nothing is loaded."""

import pytest

from fleet_data import fleet
from jouletrace.wings.fleet import html
from jouletrace.wings.fleet.findings import find


@pytest.mark.thorough
def test_every_chart_of_a_fleet_is_drawn_and_nothing_complains(open_page, tmp_path):
    read = fleet([1.0, 1.01, 0.99, 1.0, 1.02, 1.05])
    path = tmp_path / "fleet.html"
    html.write(read, [find(group) for group in read.groups], path)
    opened = open_page(path, ready=".run[data-ready]").drawn()
    page = opened.page
    charts = page.locator("figure[data-plots] .plot")
    assert charts.count() >= 1
    assert page.locator(".plot[data-drawn]").count() == charts.count()
    assert page.locator("#run0-part2 tbody tr").count() == 6
    names = [*opened.texts("[data-by]"), *opened.texts(".card")]
    assert names[:3] == ["Time of an iteration", "Energy of an iteration", "Power"]
    assert "not distinguishable from sensor gain" in names[-1]
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith(("data:", "blob:"))] == [opened.address]
