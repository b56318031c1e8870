"""Addresses, bodies and streamed answers of OpenAI's protocol."""

import json

import pytest

from jouletrace.errors import BadInputError
from jouletrace.wings.serving.client.protocol import (
    Answer,
    Bodies,
    Dialect,
    StreamError,
    base_url,
    dialects,
    error_text,
)


@pytest.mark.parametrize(
    ("typed", "base"),
    [
        ("http://a:8000", "http://a:8000/v1"),
        ("http://a:8000/", "http://a:8000/v1"),
        ("https://a/v1/", "https://a/v1"),
        ("http://a:1/proxy/v1/chat/completions", "http://a:1/proxy/v1"),
        ("http://[::1]:8000/v1/completions", "http://[::1]:8000/v1"),
        ("http://a/v1/models", "http://a/v1"),
    ],
)
def test_the_base_is_what_stands_in_front_of_the_endpoints(typed, base):
    assert base_url(typed) == base


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("localhost:8000", "did you mean http://localhost:8000"),
        ("127.0.0.1:8000/v1", "did you mean http://127.0.0.1:8000/v1"),
        ("ftp://a", "not an http"),
        ("http://", "not an http"),
        ("http://a:port", "."),
        ("http://user:secret@a", "leave the password out"),
    ],
)
def test_other_addresses_are_refused(typed, said):
    with pytest.raises(BadInputError, match=said) as caught:
        base_url(typed)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("length", [1, 3, 6, 7, 500, 100_000])
def test_prompts_have_the_wanted_number_of_tokens_and_differ(length):
    bodies = Bodies("m", Dialect()), Bodies("m", Dialect())
    first, second = (json.loads(one.body(length, 9)) for one in bodies)
    assert len(first["prompt"]) == len(second["prompt"]) == length
    assert first["max_tokens"] == 9
    assert first["stream"] is True
    assert first["ignore_eos"] is True
    assert first["stream_options"] == {"include_usage": True}
    if length > 3:
        assert first["prompt"][:4] != second["prompt"][:4]


def test_chats_have_words():
    body = json.loads(Bodies("", Dialect("chat", False, {})).body(12, 5))
    assert len(body["messages"][0]["content"].split()) == 12
    assert "model" not in body
    assert "ignore_eos" not in body


def test_what_says_most_is_tried_first():
    tried = list(dialects("auto"))
    assert (tried[0].api, tried[0].token_ids, set(tried[0].extra)) == (
        "completions",
        True,
        {"ignore_eos", "stream_options"},
    )
    assert (tried[-1].api, tried[-1].token_ids, tried[-1].extra) == ("chat", False, {})


def stream(*events):
    return b"".join(
        b"data: " + (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n\n" for one in events
    )


def text(words, reason=None):
    return {"choices": [{"text": words, "finish_reason": reason}]}


def delta(reason=None, **fields):
    return {"choices": [{"delta": fields, "finish_reason": reason}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


def test_completions_are_counted_and_timed():
    answer = Answer()
    answer.add(stream(text(" a")), 10)
    answer.add(stream(text(" b")), 20)
    answer.add(stream(text(" c", "length"), USAGE, b"[DONE]"), 30)
    assert answer.chunks_ns == [10, 20, 30]
    assert (answer.input_tokens, answer.output_tokens, answer.done) == (7, 3, True)


def test_events_may_be_split_anywhere():
    whole = stream(text(" a"), text(" b", "length"), USAGE, b"[DONE]")
    for size in (1, 7, 50):
        answer = Answer()
        for n, at in enumerate(range(0, len(whole), size)):
            answer.add(whole[at : at + size], n + 1)
        assert (len(answer.chunks_ns), answer.output_tokens, answer.done) == (2, 3, True)


def test_a_role_is_no_token_and_reasoning_is_one():
    answer = Answer()
    answer.add(stream(delta(role="assistant", content="")), 10)
    answer.add(stream(delta(reasoning_content="hm")), 20)
    answer.add(stream(delta(content="a"), delta(content=None, reason="stop"), b"[DONE]"), 30)
    assert (answer.chunks_ns, answer.output_tokens) == ([20, 30], None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (stream({"error": {"message": "out of memory", "code": 500}}), "out of memory"),
        (b'{"error": "no"}\n', "no"),
        (stream(b"nonsense"), "no chunk of an answer: nonsense"),
        (stream({"choices": "x"}), "no chunk of an answer"),
    ],
)
def test_errors_in_the_stream_are_detected(data, said):
    with pytest.raises(StreamError, match=said):
        Answer().add(data, 1)


def test_comments_and_names_of_events_are_skipped():
    answer = Answer()
    answer.add(b": ping\n\nevent: x\nid: 4\n" + stream(text(" a", "stop")), 5)
    assert (len(answer.chunks_ns), answer.done) == (1, True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "a\\nb"}}', "a b"),
        (b'{"detail": "x"}', "x"),
        (b'{"error": {"code": 4}}', '{"error": {"code": 4}}'),
        (b"<html>", "<html>"),
        (b"", "without a message"),
        (b"\xff" * 3, "\ufffd" * 3),
        (b"x" * 500, "x" * 200),
    ],
)
def test_what_an_error_says_is_one_short_line(body, said):
    assert error_text(body) == said


@pytest.mark.parametrize("count", [-5, 2**31 + 1, 2**63 + 5, 10**20, 5.5, "5", True, None, [5], {"x": 5}])
def test_a_token_count_that_is_none_is_no_usage_figure(count):
    answer = Answer()
    usage = {"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": count}}
    answer.add(stream(text(" a", "stop"), usage, b"[DONE]"), 10)
    assert (answer.input_tokens, answer.output_tokens, len(answer.chunks_ns), answer.done) == (None, None, 1, True)


@pytest.mark.parametrize("usage", [[1], "x", 5, None])
def test_usage_of_another_type_is_none(usage):
    answer = Answer()
    answer.add(stream(text(" a", "stop"), {"choices": [], "usage": usage}, b"[DONE]"), 10)
    assert (answer.input_tokens, answer.output_tokens, answer.done) == (None, None, True)


@pytest.mark.parametrize(
    "event",
    [b"[" * 200_000, b'{"x": ' + b"[" * 200_000, b'{"error": ' + b"[" * 200_000, b'{"choices": [{"text": "\xff"}]}'],
)
def test_events_that_no_decoder_takes_are_errors_of_the_stream(event):
    with pytest.raises(StreamError, match="no chunk of an answer"):
        Answer().add(stream(event), 1)
