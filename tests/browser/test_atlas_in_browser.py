"""The page of the atlas in a real browser: both plots are drawn, filters choose rows, nothing is loaded."""

import sys

from places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

from atlas_data import page as write_page
from atlas_data import table


def test_filters_choose_what_the_plots_and_the_table_show(open_page, tmp_path):
    for name in ("src/jouletrace/bundled/deit-b-64-graph-h100.zip", "docs/results/runs/segformer-kernels-h200.zip"):
        (tmp_path / name.rpartition("/")[2]).symlink_to(REPOSITORY / name)
    table([tmp_path], tmp_path)
    write_page(tmp_path, tmp_path / "atlas.html")
    opened = open_page(tmp_path / "atlas.html", width=1200, ready='body[data-shown="2"]')
    page = opened.page
    assert page.locator("#scatter .scatterlayer .trace").count() == 2
    page.select_option("#filters [data-name=model]", "segformer")
    assert page.locator("#atlas tbody tr:visible").count() == 1
    assert page.locator("#scatter .scatterlayer .trace").count() == 1
    assert page.locator("#shares .barlayer .trace").count() >= 6
    page.select_option("#filters [data-name=model]", "")
    page.get_by_role("button", name="energy (J)").click()
    assert page.locator("#atlas tbody tr").first.locator("td").nth(1).text_content() == "segformer"
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith(("data:", "blob:"))] == [opened.address]
