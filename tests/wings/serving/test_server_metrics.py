"""Figures that servers state on their pages of metrics."""

import time

import pytest

from jouletrace.wings.serving.client.server_metrics import ServerMetrics, values
from metric_server import Page, serving


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (
            'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
            "vllm:num_requests_waiting 2\nvllm:gpu_cache_usage_perc 0.25\n",
            {"server_running": 7.0, "server_waiting": 2.0, "server_cache_used": 0.25},
        ),
        (
            "sglang:num_running_reqs 5\nsglang:num_queue_reqs 1\nsglang:token_usage 0.5\n",
            {"server_running": 5.0, "server_waiting": 1.0, "server_cache_used": 0.5},
        ),
        ("tgi_batch_current_size 8\ntgi_queue_size 0\n", {"server_running": 8.0, "server_waiting": 0.0}),
        ("llamacpp:requests_processing 1\nllamacpp:requests_deferred NaN\n", {"server_running": 1.0}),
        ("other 3\n", {}),
        ("<html>", {}),
        ("", {}),
    ],
)
def test_gauges_of_servers_are_known_by_name(page, found):
    assert values(page) == found


def test_a_server_without_the_page_is_asked_once():
    with serving(Page("no", status=404)) as page:
        with ServerMetrics(page.url.removesuffix("/metrics") + "/v1", "GPU-1") as metrics:
            time.sleep(0.2)
        assert metrics.rows == []
        assert metrics.channels() == []
        assert page.asked == 1


def test_readings_are_samples_of_the_device():
    page = Page("tgi_batch_current_size 8\n")
    with serving(page), ServerMetrics(page.url.removesuffix("/metrics") + "/v1", "GPU-1") as metrics:
        while not metrics.rows:
            time.sleep(0.01)
    (channel,) = metrics.channels()
    assert (channel.device, channel.name, channel.unit) == ("GPU-1", "server_running", "1")
    assert metrics.rows[0]["value"] == 8.0
    assert abs(metrics.rows[0]["time_ns"] / 1e9 - time.time()) < 60
