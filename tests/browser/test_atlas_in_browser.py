"""The page of the atlas in a real browser: both plots are drawn, filters choose rows, nothing is loaded."""

import sys

from places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

from atlas_data import table


def test_filters_choose_what_the_plots_and_the_table_show(chromium, tmp_path):
    for name in ("src/jouletrace/bundled/deit-b-64-graph-h100.zip", "docs/results/runs/segformer-kernels-h200.zip"):
        (tmp_path / name.rpartition("/")[2]).symlink_to(REPOSITORY / name)
    table([tmp_path], tmp_path)
    path = tmp_path / "atlas.html"
    context = chromium.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    try:
        page, said, asked = context.new_page(), [], []
        page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector('body[data-shown="2"]')
        assert page.locator("#scatter .scatterlayer .trace").count() == 2
        page.select_option("#filters [data-name=model]", "segformer")
        assert page.locator("#atlas tbody tr:visible").count() == 1
        assert page.locator("#scatter .scatterlayer .trace").count() == 1
        assert page.locator("#shares .barlayer .trace").count() >= 6
        page.select_option("#filters [data-name=model]", "")
        page.get_by_role("button", name="energy (J)").click()
        assert page.locator("#atlas tbody tr").first.locator("td").nth(1).text_content() == "segformer"
        assert said == []
        assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
    finally:
        context.close()
