"""The page of a monitor in a real browser, at the size of a phone, while readings come."""

from urllib.parse import urlsplit

import pytest

from jouletrace.devices import Process
from jouletrace.profiler.monitoring import Reading
from jouletrace.run import DeviceInfo
from jouletrace.wings.live import Address, Exporter

START_NS = 1_763_676_000_000_000_000
EVIL = "<script>document.title='broken'</script><b>"


def readings(second, power_w):
    for n in range(2):
        info = DeviceInfo(f"GPU-{n}", EVIL, index=n, simulated=n == 0, power_limit_w=350.0)
        values = {"power_w": power_w + n, "clock_sm_mhz": 1980.0}
        used = [Process(7, EVIL, 2**30)]
        yield Reading(info.id, EVIL, info, START_NS + second * 10**9, values, processes=used)


@pytest.mark.thorough
@pytest.mark.parametrize("dark", [False, True])
def test_it_follows_the_monitor_fits_and_shows_names_as_text(chromium, dark):
    size = {"width": 360, "height": 780}
    context = chromium.new_context(viewport=size, has_touch=True, color_scheme="dark" if dark else "light")
    page, said, asked = context.new_page(), [], set()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    with Exporter(Address("127.0.0.1", 0), EVIL) as exporter:
        exporter.show(list(readings(0, 300.0)), None)
        page.goto(exporter.url)
        page.wait_for_selector("body[data-ready]")
        assert "300.0\u00a0W" in page.locator(".gpu").first.inner_text()
        exporter.show(list(readings(1, 333.0)), None)
        page.get_by_text("333.0\u00a0W").wait_for()
        texts = page.locator(".gpu").all_inner_texts()
        assert "334.0\u00a0W" in texts[1]
        assert "1980\u00a0MHz" in texts[1]
        assert all(f"{EVIL} (pid 7, 1.00\u00a0GiB)" in text for text in texts)
        assert [EVIL in text for text in page.locator("h2, #what").all_inner_texts()] == [True] * 3
        assert page.locator("#gpus b, #gpus script, #what b").count() == 0
        assert ["SIMULATED" in text for text in texts] == [True, False]
        assert page.title() == "SIMULATED: jouletrace monitor"
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") is not dark
        page.locator(".gpu canvas").first.tap(position={"x": 333, "y": 60})
        assert "power 333.0\u00a0W" in page.inner_text("#tip")
        assert said == []
        assert asked == {urlsplit(exporter.url).netloc}
    page.get_by_text("the monitor has ended or can't be reached").wait_for()
    context.close()
