"""Servers that never end, lead elsewhere, hang up or repeat the key: what the commands that read HTTP make of them."""

import json
import os
from subprocess import DEVNULL

import pyarrow.parquet as pq
import pytest

pytest.importorskip("aiohttp")

from commands import command, start
from hostile_server import Hostile, hostile
from thinned import thinned

GPU = "sim:h100?realtime=1"
KEY = 'sk-attack/zqxylo+wurzelj 4a"x'
"""Its parts hold no hexadecimal word: digests of files lie beside them."""

BRIEF = ("--duration", "0.6", "--pause", "0.1", "--input-tokens", "8", "--output-tokens", "4")
SPARE_KB = 150 << 10
"""How much more memory a hostile server may take than a good one."""


@pytest.fixture(scope="module")
def server():
    with hostile() as other, hostile(Hostile()) as found:
        found.elsewhere = other.url
        found.other = other
        yield found


@pytest.fixture(autouse=True)
def place(workspace, server):
    server.asked.clear()
    server.other.asked.clear()
    server.longest, server.secret = 0, ""
    return workspace


def bench(capsys, server, mode, *more):
    return command(
        *(capsys, "bench", f"{server.url}/{mode}/v1", "--concurrency", "2", "-d", GPU, "-o", "run", *BRIEF, *more)
    )


def errors(place):
    rows = pq.read_table(place / "run" / "requests.parquet").to_pylist()
    return [row["error"] for row in rows if row["status"] == "failed"], len(rows)


def texts(place):
    """All that lies in the folder, tables as text."""
    for path in sorted(place.rglob("*")):
        if path.suffix == ".parquet":
            yield path, json.dumps(pq.read_table(path).to_pylist())
        elif path.suffix == ".arrows" or path.is_file():
            yield path, path.read_bytes().decode("utf-8", "replace")


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["echo", "echo-spelt", "echo-cut"])
def test_a_key_that_a_server_repeats_leaves_nowhere(capsys, place, server, monkeypatch, mode):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    found = bench(capsys, server, mode)
    assert found.code == 0, found.err
    failed, _ = errors(place)
    assert failed
    if mode != "echo-cut":
        assert all("***" in one for one in failed)
    said = [(mode, found.out), (mode, found.err)]
    for form in ("table", "json", "csv", "markdown"):
        shown = command(capsys, "show", "run", "--format", form, *(["-v"] if form == "table" else []))
        assert shown.code == 0, shown.err
        said += [(form, shown.out), (form, shown.err)]
    for form in ("csv", "parquet", "zip"):
        assert command(capsys, "export", "run", "--format", form, "-o", f"as-{form}").code == 0
    assert command(capsys, "report", "run", "-o", "page.html").code == 0
    for name, text in [*said, *texts(place)]:
        for part in ("zqxylo", "wurzelj"):
            assert part not in text, name
        assert "c2stYXR0YWNr" not in text, name  # base64 of its beginning
        assert "c2stYXR0" not in text, name


@pytest.mark.thorough
def test_a_key_in_a_refusal_is_masked(capsys, place, server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    found = bench(capsys, server, "refused")
    assert found.code == 2
    assert "HTTP 401: bad key Bearer ***: set OPENAI_API_KEY" in found.complaint
    assert not (place / "run").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("key", thinned(["energy", "power_w", "abc", "a", "123456", "EMPTY"], 2))
def test_a_key_that_is_an_ordinary_word_masks_itself_alone(capsys, place, server, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server.secret = key
    found = bench(capsys, server, "echo", "--json")
    assert found.code == 0, found.err
    printed = json.loads(found.out)
    assert "energy_j" in printed["model"]
    failed, _ = errors(place)
    assert set(failed) == {
        f"error in the stream: Incorrect API key provided: {key if len(key) < 4 else '***'} (really)"
    }
    monkeypatch.delenv("OPENAI_API_KEY")
    shown = command(capsys, "show", "run", "-v")
    assert shown.code == 0
    assert shown.out.count("***") <= 2 * len(failed)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["endless", "endless-line", "gzip"])
def test_a_stream_without_end_is_broken_off(capsys, place, server, mode):
    found = bench(capsys, server, mode, "--timeout", "60")
    assert found.code == 0, found.err
    failed, count = errors(place)
    assert len(failed) == count > 0
    assert set(failed) == {"error in the stream: an answer without end: many times the bytes of what was asked for"}
    assert server.longest < 64 << 20  # what is in buffers counts as sent


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["endless", "endless-line", "gzip", "gzip-page", "endless-page"])
def test_memory_stays_near_that_of_a_good_server(place, server, mode):
    def peak_kb(mode):
        """Of the largest of its processes."""
        url = f"{server.url}/{mode}/v1"
        arguments = ("bench", url, "--concurrency", "4", "-d", GPU, *BRIEF)
        child = start(*arguments, cwd=place, preloaded=False, stdout=DEVNULL, stderr=DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode in (0, 2)
        return used.ru_maxrss

    assert peak_kb(mode) < peak_kb("good") + SPARE_KB


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("gzip-page", "/models answers with more than 16 MiB"),
        ("endless-page", "/models answers with more than 16 MiB"),
        ("other-page", "/models answers 302: it redirects to another server, {elsewhere}; give that address if you"),
    ],
)
def test_a_list_of_models_that_is_none_ends_bench_in_one_line(capsys, server, mode, said):
    found = bench(capsys, server, mode)
    assert found.code == 2
    assert said.format(elsewhere=server.elsewhere) in found.complaint
    assert not server.other.asked
    assert server.longest < 64 << 20


@pytest.mark.thorough
def test_a_redirect_to_another_server_is_reported_and_not_followed(capsys, place, server):
    found = bench(capsys, server, "other")
    assert found.code == 0
    failed, count = errors(place)
    assert f"{count} of {count} requests failed: /completions answers 307" in found.out.split("checks failed")[1][:200]
    assert "raise the power" not in found.out  # of a GPU that had nothing to do
    assert len(failed) == count > 0
    said = f"/completions answers 307: it redirects to another server, {server.elsewhere}; give that address if you"
    assert all(one.startswith(said) for one in failed)
    assert not server.other.asked


@pytest.mark.thorough
def test_requests_that_fail_without_a_word_are_the_only_reason(capsys, place, server):
    found = bench(capsys, server, "wordless")
    assert found.code == 0, found.err
    failed, count = errors(place)
    assert set(failed) == {"HTTP 500: without a message"}
    assert len(failed) == count
    for doubt in ("raise the power", "were there others"):
        assert doubt not in " ".join(found.out.split())


@pytest.mark.thorough
def test_a_kept_connection_that_the_server_closes_costs_no_request(capsys, place, server):
    found = bench(capsys, server, "drops", "--json")
    assert found.code == 0, found.err
    failed, count = errors(place)
    assert not failed
    assert count > 4
    (warning,) = [
        one for one in json.loads((place / "run" / "run.json").read_text())["warnings"] if one["code"] == "sent_again"
    ]
    assert f"of {count} requests were sent twice" in warning["message"]


@pytest.mark.thorough
def test_a_request_that_ends_its_server_is_not_sent_for_ever(capsys, place, server):
    assert bench(capsys, server, "hangs-up").code == 0
    failed, count = errors(place)
    assert set(failed) == {"the server closed the connection before the end of the answer"}
    assert server.asked["hangs-up", "POST"] <= 2 * count + 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("gzip-page", "answers with more than 16 MiB"),
        ("endless-page", "answers with more than 16 MiB"),
        ("other-page", "answers 302: it redirects to another server, {elsewhere}; give that address if you mean it"),
    ],
)
def test_a_page_without_end_is_no_counter(capsys, server, mode, said):
    url, said = f"{server.url}/{mode}/metrics", said.format(elsewhere=server.elsewhere)
    found = command(
        *(capsys, "monitor", "--per", f"{url}#work_total", "-d", GPU, "--duration", "0.5", "-o", "run", "-v")
    )
    assert found.code == 0, found.err
    assert said in " ".join(found.out.split())
    assert not server.other.asked
    assert server.longest < 64 << 20


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["own-page", "dropped-page"])
def test_a_page_that_moved_on_its_server_or_came_at_the_second_try_is_read(capsys, place, server, mode):
    url = f"{server.url}/{mode}/metrics#work_total"
    found = command(capsys, "monitor", "--per", url, "-d", GPU, "--duration", "0.5", "-o", "run")
    assert found.code == 0, found.err
    codes = [one["code"] for one in json.loads((place / "run" / "run.json").read_text())["warnings"]]
    assert not {"work_never_read", "work_not_read"} & set(codes)
