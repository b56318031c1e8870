"""Arrivals, lengths and traces of a load."""

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.wings.serving.client.load import (
    Lengths,
    PlannedRequest,
    arrival_times,
    closed_levels,
    load_levels,
    open_levels,
    trace_level,
)

LENGTHS = Lengths(10, 20), Lengths(5, 5)


def test_poisson_arrivals_have_the_rate_and_its_spread():
    times = np.array(arrival_times("poisson", 50, 200, 1, np.random.default_rng(1)))
    gaps = np.diff(times)
    assert len(times) == pytest.approx(10_000, rel=0.04)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert times.max() < 200


def test_constant_arrivals_are_equally_far_apart():
    assert arrival_times("constant", 4, 1, 1, np.random.default_rng(1)) == [0, 0.25, 0.5, 0.75]


def test_bursts_arrive_together_at_the_mean_rate():
    times = arrival_times("bursts", 8, 2, 4, np.random.default_rng(1))
    assert times == [0] * 4 + [0.5] * 4 + [1] * 4 + [1.5] * 4


def test_levels_are_the_same_for_the_same_seed_and_differ_between_rates():
    first, again = (open_levels([5, 5.5], "poisson", 10, 1, LENGTHS, 3) for _ in range(2))
    assert first == again
    assert first[0].requests[0] != first[1].requests[0]
    assert [level.name for level in first] == ["5/s", "5.5/s"]
    assert all(10 <= one.input_tokens <= 20 and one.output_tokens == 5 for one in first[0].requests)


def test_a_closed_loop_has_lengths_to_draw_from():
    (level,) = closed_levels([4], 10, LENGTHS, 0)
    assert (level.kind, level.concurrency, level.rate_per_s) == ("closed", 4, None)
    assert {one.at_s for one in level.requests} == {0.0}


def test_a_rate_without_a_single_request_is_refused():
    with pytest.raises(BadInputError, match="not a single request; lengthen --duration"):
        open_levels([1e-6], "poisson", 1, 1, LENGTHS, 0)


@pytest.mark.parametrize("text", ["0", "5:2", "1e3", "-3", "a", "", "1:2:3", "99999999999"])
def test_wrong_lengths_are_refused(text):
    with pytest.raises(BadInputError, match=r"--input-tokens .*write N or LOW:HIGH"):
        Lengths.parse(text, "--input-tokens")


@pytest.mark.parametrize(
    "text",
    [
        "arrival_s,input_tokens,output_tokens\n7,30,3\n5,10,1\n5.5,20,2\n",
        '{"arrival_s": 7, "input_tokens": 30, "output_tokens": 3}\n\n{"arrival_s": 5, "input_tokens": 10, '
        '"output_tokens": 1}\n{"arrival_s": 5.5, "input_tokens": 20, "output_tokens": 2}\n',
    ],
    ids=["csv", "jsonl"],
)
def test_a_trace_is_replayed_from_its_first_request(tmp_path, text):
    path = tmp_path / "trace"
    path.write_text(text)
    level = trace_level(path)
    assert level.requests == [PlannedRequest(0.0, 10, 1), PlannedRequest(0.5, 20, 2), PlannedRequest(2.0, 30, 3)]
    assert level.seconds == 3.0
    assert level.arrivals == "trace"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has no column arrival_s"),
        ("arrival_s,output_tokens\n1,2\n", "it has no column input_tokens"),
        ("arrival_s,input_tokens,output_tokens\n", "it has no request"),
        ("arrival_s,input_tokens,output_tokens\n1,2,3\n1,x,3\n", "line 3: .*input_tokens 'x'"),
        ("arrival_s,input_tokens,output_tokens\nnan,2,3\n", "line 2"),
        ("arrival_s,input_tokens,output_tokens\n1,0,3\n", "line 2"),
        ("arrival_s,input_tokens,output_tokens\n1,2\n", "line 2"),
        ('{"arrival_s": 1}\n', "line 1: .*input_tokens None"),
        ('{"arrival_s": 1\n', "line 1 is no JSON object"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(tmp_path, text, said):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(BadInputError, match=f"--trace .*{said}"):
        trace_level(path)


def test_a_missing_trace_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="No such file"):
        trace_level(tmp_path / "none.csv")


def test_a_trace_gives_a_closed_loop_its_lengths(tmp_path):
    trace = tmp_path / "mix.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,100,32\n0,600,96\n")
    (level,) = load_levels(None, "16", trace, "poisson", 3.0, ("1", "1"), 0)
    assert (level.kind, level.concurrency) == ("closed", 16)
    assert [(one.input_tokens, one.output_tokens) for one in level.requests] == [(100, 32), (600, 96)]
