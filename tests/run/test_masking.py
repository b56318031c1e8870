"""Secrets are stored nowhere; words that only sound like them stay."""

import json
import subprocess
import sys
import time
from base64 import b64encode
from urllib.parse import quote, quote_plus

import pyarrow.parquet as pq
import pytest

from jouletrace.formats.exporters import export
from jouletrace.known_secrets import refresh
from jouletrace.recording.environment import environment
from jouletrace.recording.session import command_line
from jouletrace.report import render
from jouletrace.run import DeviceInfo, Run, SpoolWriter, load, masked, save, tables
from jouletrace.run.masking import masked_all, masked_arguments

SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"python train.py --password={SECRET} --epochs 3",
        f"python train.py --db-password {SECRET}",
        f"train --hf_token={SECRET}",
        f"train --auth-token '{SECRET} {SECRET}'",
        f"HF_TOKEN={SECRET} python x.py",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"http://user:{SECRET}@host:8000/metrics",
        f"https://host/metrics?token={SECRET}&per=tokens_total",
        f"https://host/metrics?per=tokens_total&api_key={SECRET}#part",
        f"s3://bucket/key?X-Amz-Credential={SECRET}&X-Amz-Signature={SECRET}",
        f"curl -H 'Authorization: Bearer {SECRET}'",
        f"curl -H 'X-Api-Key: {SECRET}'",
        f'config={{"password": "{SECRET}"}}',
        f'{{"token":"{SECRET}"}}',
        f"the server said: bearer {SECRET}{SECRET} is not known",
    ],
)
def test_a_secret_is_masked_wherever_it_stands(text):
    assert SECRET not in masked(text)
    assert "***" in masked(text)
    assert masked(masked(text)) == masked(text)


@pytest.mark.parametrize(
    "text",
    [f"hf_{'x' * 34}", f"ghp_{'a1' * 18}", f"github_pat_{'a' * 40}", "AKIAIOSFODNN7EXAMPLE", f"sk-{'a' * 40}"],
)
def test_a_token_that_says_what_it_is_is_masked_without_a_name(text):
    assert masked(f"load {text} now") == "load *** now"


@pytest.mark.parametrize(
    "text",
    [
        "jouletrace profile gpt2 --task generate --max-new-tokens 128 --batch 8",
        "tokens=128, s_per_token=0.01, energy_per_token_j=3.5, 12 mJ per token: the median",
        "pad_token=0 eos_token=</s>",
        "file.py:fn?config={'tokenizer': 'x', 'key': 5}",
        "--per http://host:8000/metrics?name=tokens_total --seed 3",
        "git@github.com:someone/something",
        "ranges overlap: 'author=me' and 'bypass=3'",
        "commit 7c9d3c0b1d1d4a7b9e3a3b1f2c4d5e6f7a8b9c0d",
        "sm_password_free_kernel<float, 4>(int*)",
        "cutlass::gemm::kernel::Token<128, 64>",
        "",
    ],
)
def test_what_is_no_secret_stays(text):
    assert masked(text) == text


def test_arguments_are_masked_one_by_one():
    given = ["run", "--password", "a b -c", "--token", "--epochs", "3", "--api-key=x y", "-o", "out"]
    kept = ["run", "--password", "***", "--token", "--epochs", "3", "--api-key=***", "-o", "out"]
    assert masked_arguments(given) == [*kept[:6], "--api-key=*** y", *kept[7:]]


def test_values_under_a_name_that_says_so_are_masked():
    given = {
        "token": "abc",
        "tokens": 12,
        "deep": [{"Password": "x", "list": ["--secret", "y"]}],
        "none": {"auth": None},
    }
    assert masked_all(given) == {
        "token": "***",
        "tokens": 12,
        "deep": [{"Password": "***", "list": ["--secret", "***"]}],
        "none": {"auth": None},
    }


def test_keys_that_are_ids_are_masked_with_the_values(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_API_KEY", "abc-secretval12345")
    device = "SIM-abc-secretval12345"
    run = Run(devices=[DeviceInfo(device, "b")], calibration={device: {}})
    save(run, tmp_path / "run")
    assert "secretval12345" not in (tmp_path / "run" / "run.json").read_text()
    assert list(load(tmp_path / "run").calibration) == ["SIM-***"]


def test_nothing_secret_is_in_run_json_wherever_it_was_given(tmp_path):
    run = Run(
        command=f"jouletrace monitor -- train --password={SECRET}",
        workload={"name": f"train --token {SECRET}", "url": f"http://x/?token={SECRET}"},
        settings={"per": f"http://u:{SECRET}@host/metrics", "commands": ["x", "--password", SECRET]},
        devices=[DeviceInfo("a", "b", details={"api_key": SECRET})],
    )
    run.warn("failed", f"cannot ask http://host/?token={SECRET}")
    save(run, tmp_path / "run")
    text = (tmp_path / "run" / "run.json").read_text()
    assert SECRET not in text
    assert json.loads(text)["command"] == "jouletrace monitor -- train --password=***"
    assert load(tmp_path / "run").workload["name"] == "train --token ***"


def test_only_variables_that_matter_are_kept(monkeypatch):
    for name in ("TORCH_HUB_TOKEN", "NCCL_SECRET", "CUDA_PASSWORD", "OMP_X", "TRITON_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    assert environment()["NCCL_ALGO"] == "Ring"
    assert SECRET not in environment().values()


def test_the_command_line_is_kept_without_secrets(monkeypatch):
    monkeypatch.setattr("sys.argv", ["jouletrace", "monitor", "--", "train", "--password", "my secret", "-n", "3"])
    assert command_line() == "jouletrace monitor -- train --password *** -n 3"


def test_a_run_states_arguments_and_commit_unless_it_is_asked_not_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "prog.py").write_text("pass\n")
    for words in (["init", "-q"], ["add", "prog.py"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    number = head.stdout.strip()
    jouletrace = [sys.executable, "-m", "jouletrace"]

    def run_of(name, command, *options):
        typed = [*command, "-d", "cpu", *options, "-o", name, "--", "python", "prog.py", f"--api-key={SECRET}", "--n=3"]
        subprocess.run([*jouletrace, *typed], check=True, capture_output=True, timeout=100)
        return load(tmp_path / name)

    stated = run_of("stated", ["run"])
    assert stated.command == "jouletrace run -d cpu -o stated -- python prog.py --api-key=*** --n=3"
    assert stated.workload["commit"] == number
    (tmp_path / "prog.py").write_text("pass  # changed\n")
    assert run_of("changed", ["monitor"]).workload["commit"] == f"{number}, changed files"
    for command in ("run", "monitor"):
        left = run_of(f"left-{command}", [command], "--no-context")
        assert left.command == f"jouletrace {command} -d cpu --no-context -o left-{command} -- python"
        text = (tmp_path / f"left-{command}" / "run.json").read_text()
        assert "--n=3" not in text
        assert number not in text
    for form, holds in (("-v", f"Commit {number}"), ("--json", f'"commit": "{number}"')):
        shown = subprocess.run([*jouletrace, "show", form, "stated"], capture_output=True, text=True, check=True)
        assert holds in " ".join(shown.stdout.split())


@pytest.mark.thorough
@pytest.mark.parametrize(
    "piece", ["a-", "a_", "pass", "-", "a://", "eyJ", "--token ", "\"'", "x-", "?key=", "a:b@", "password ", "bearer "]
)
def test_time_goes_with_the_length_of_a_text(piece):
    def seconds(count):
        text = piece * count
        began = time.process_time()
        masked(text)
        return time.process_time() - began

    short = min(seconds(4000) for _ in range(3))
    assert min(seconds(32_000) for _ in range(2)) < 40 * max(short, 1e-3)  # 8 times the text; a square would be 64


KEY = "sk-7f9/3+c5-e1 a8"


def run_with(text):
    """A Run that has a text in each place where one may be."""
    run = Run(
        kind="bench",
        workload={"name": text, "serving": {"url": text, "levels": []}},
        devices=[DeviceInfo("gpu-0", text)],
    )
    run.warn("failed", text)
    run.requests = tables.from_rows(
        [{"id": 0, "level": 0, "sent_ns": 1, "last_ns": 2, "status": "failed", "error": text}], "requests"
    )
    run.units = tables.from_rows([{"id": 0, "level": "model", "name": text}], "units")
    run.spans = tables.from_rows([{"id": 0, "kind": "range", "name": text, "start_ns": 1, "end_ns": 2}], "spans")
    return run


def all_text(folder):
    """Texts in the files of a folder, tables unpacked."""
    found = []
    for path in sorted(folder.rglob("*.*")):
        if path.suffix == ".parquet":
            found.append(str(pq.read_table(path).to_pylist()))
        elif path.is_file():
            found.append(path.read_bytes().decode("utf-8", "replace"))
    return "\n".join(found)


SPELT = {
    "plain": KEY,
    "within": f"x{KEY}x",
    "address": f"http://host/?q={quote(KEY, safe='')}",
    "form": f"q={quote_plus(KEY)}",
    "json": json.dumps({"said": KEY}),
    "basic": b64encode(f"someone:{KEY}".encode()).decode(),
    "base64": b64encode(KEY.encode()).decode(),
}


@pytest.mark.thorough
@pytest.mark.parametrize("text", SPELT.values(), ids=SPELT)
def test_the_value_of_a_variable_is_masked_wherever_it_stands(tmp_path, monkeypatch, text):
    monkeypatch.setenv("SERVICE_API_KEY", KEY)
    save(run_with(text), tmp_path / "run")
    for form in ("csv", "parquet"):
        export(load(tmp_path / "run"), form, tmp_path / form)
    written = all_text(tmp_path)
    assert written.count("***") >= 8
    for part in (KEY, text, "-7f9", "c5-e1", quote_plus(KEY)[:8], b64encode(KEY.encode())[4:-4].decode()):
        assert part not in written


def test_a_run_of_others_is_masked_as_it_is_opened(tmp_path, monkeypatch):
    save(run_with(KEY), tmp_path / "run")
    assert KEY in all_text(tmp_path)
    monkeypatch.setenv("SERVICE_TOKEN", KEY)
    run = load(tmp_path / "run")
    assert run.requests["error"].to_pylist() == ["***"]
    assert run.workload["serving"]["url"] == run.devices[0].name == run.warnings[0].message == "***"
    for form in ("table", "json", "csv", "markdown", "latex"):
        assert "-7f9" not in render([run], form, verbose=True)
    monkeypatch.delenv("SERVICE_TOKEN")
    assert load(tmp_path / "run").requests["error"].to_pylist() == [KEY]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--password", KEY],
        [f"--api-key={KEY}"],
        ["env", f"HF_TOKEN={KEY}"],
        ["-H", f"Authorization: Bearer {KEY}"],
        ["--header", f"X-Api-Key: {KEY}"],
        ["--url", f"http://someone:{quote(KEY, safe='')}@host:80/x"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_secret_of_the_command_line_is_masked_wherever_it_stands(tmp_path, monkeypatch, arguments):
    monkeypatch.setattr("sys.argv", ["train.py", *arguments])
    save(run_with(f"the server said {KEY}"), tmp_path / "run")
    assert "-7f9" not in all_text(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X_TOKEN", "abc"),
        ("X_TOKEN", "power"),
        ("X_TOKEN", "GPU"),
        ("X_TOKEN", "energy_per_output_token_j"),
        ("X_SECRET", "0.125"),
        ("X_SECRET", "2026"),
        ("X_SECRET", "/usr/lib"),
        ("PWD", "/some/where/8"),
        ("PAD_TOKEN", "a1b2c3d4"),
        ("MONKEY", "a1b2c3d4"),
    ],
)
def test_what_may_be_in_any_text_is_left_there(tmp_path, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    save(run_with(f"of {value}, beside {value}"), tmp_path / "run")
    assert all_text(tmp_path).count(f"of {value}, beside {value}") >= 6
    assert "***" not in all_text(tmp_path)


@pytest.mark.parametrize(("value", "left"), [("907318245", True), ("9073182456", False)])
def test_a_number_of_ten_digits_that_is_a_key_is_masked(tmp_path, monkeypatch, value, left):
    """One of nine may be any number: a size, a time."""
    monkeypatch.setenv("SERVICE_TOKEN", value)
    save(run_with(f"refused: {value}, beside 1{value}1"), tmp_path / "run")
    assert (all_text(tmp_path).count(f"refused: {value}, ") >= 6) == left
    assert all_text(tmp_path).count(f"beside 1{value}1") >= 6, "a part of another number"


@pytest.mark.parametrize("value", ["power", "EMPTY", "abcd", "123456", "not-needed"])
def test_a_word_that_is_a_key_is_masked_where_it_is_announced(tmp_path, monkeypatch, value):
    monkeypatch.setenv("OPENAI_API_KEY", value)
    save(run_with(f"{value}: Incorrect API key provided: {value}."), tmp_path / "run")
    assert all_text(tmp_path).count(f"{value}: Incorrect API key provided: ***.") >= 6


def test_what_a_crash_leaves_is_masked(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", KEY)
    with SpoolWriter(tmp_path, "requests") as spool:
        spool.append({"id": [0, 1], "error": [None, f"bad {KEY}"]})
    assert KEY not in all_text(tmp_path)
    assert "bad ***" in all_text(tmp_path)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("Incorrect API key: sk-proj-Ab12cd34*****", "Incorrect API key: ***"),
        ("Incorrect API key provided: sk-pr**********kl78.", "Incorrect API key provided: ***."),
        ("key sk-p...kl78 is unknown", "key *** is unknown"),
        ("no key ends in 34ef56gh; none in gh78", "no key ends in ***; none in gh78"),
        ("proj-Ab12cd34 and 34ef56ghij", "*** and ***"),
        (
            "wait ... or re-try **twice**; sk-other1***2 isn't it",
            "wait ... or re-try **twice**; sk-other1***2 isn't it",
        ),
    ],
)
def test_a_part_of_a_known_secret_is_masked(monkeypatch, said, left):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-Ab12cd34ef56ghijkl78")
    refresh()
    assert masked(said) == left


@pytest.mark.parametrize(
    "text",
    [
        "training-loop and training-step",
        "the resnet50-fine batch",
        "tr... and training... and training…",
        "resnet50-train",
    ],
)
def test_words_that_share_a_beginning_with_a_secret_are_left(monkeypatch, text):
    monkeypatch.setenv("DB_PASSWORD", "training-Xy12Zq")
    monkeypatch.setenv("SERVICE_TOKEN", "resnet50-finetune-7Q4z1")
    refresh()
    assert masked(text) == text


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("training-Xy12Zq and xtraining-Xy12Zqx", "*** and x***x"),
        ("ning-Xy12Z and trainin***", "*** and ***"),
        ("training-Xy1... and tra...Zq", "*** and ***"),
        ("resnet50-finetune-7Q4 or resnet50-finetune", "*** or ***"),
        ("tune-7Q4z1XXXX", "***XXXX"),
        ("no key begins with qwertzuiop", "no key begins with ***"),
    ],
)
def test_parts_of_a_secret_of_words_are_masked(monkeypatch, said, left):
    monkeypatch.setenv("DB_PASSWORD", "training-Xy12Zq")
    monkeypatch.setenv("SERVICE_TOKEN", "resnet50-finetune-7Q4z1")
    monkeypatch.setenv("OTHER_TOKEN", "qwertzuiopasdfghjklyxcvbnm")
    refresh()
    assert masked(said) == left


def test_a_part_that_words_of_ours_hold_is_left(monkeypatch, tmp_path):
    monkeypatch.setenv("DB_PASSWORD", "energy_total_j-Xy12")
    refresh()
    assert masked("energy_total_j of energy_total_j-Xy12 and al_j-Xy12") == "energy_total_j of *** and ***"
