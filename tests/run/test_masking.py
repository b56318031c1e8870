"""What looks secret is stored nowhere; what only sounds like it stays."""

import json
import time

import pytest

from jouletrace.recording.environment import environment
from jouletrace.recording.session import command_line
from jouletrace.run import DeviceInfo, Run, load, save
from jouletrace.run.masking import masked, masked_all, masked_arguments

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
