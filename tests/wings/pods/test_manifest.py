"""The example of a DaemonSet: what it mounts, and its command line as the command reads it."""

import pytest
import yaml

from commands import command
from places import REPOSITORY

FILE = REPOSITORY / "examples" / "kubernetes" / "daemonset.yaml"


@pytest.fixture
def pod():
    (manifest,) = yaml.safe_load_all(FILE.read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "DaemonSet")
    template = manifest["spec"]["template"]
    assert manifest["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    return template["spec"]


@pytest.mark.thorough
def test_its_command_records_and_serves(pod, capsys, workspace):
    (monitor,) = pod["containers"]
    program, *words = monitor["command"] + monitor["args"]
    address = words[words.index("--serve") + 1]
    assert program == "jouletrace"
    assert int(address.rpartition(":")[2]) == monitor["ports"][0]["containerPort"]
    here = {"all": "sim:h100", address: "127.0.0.1:0", "86400": "1"}
    said = command(capsys, *(here.get(word, word) for word in words))
    assert said.code == 0
    assert "serving http://127.0.0.1:" in said.err
    mounts = {mount["mountPath"]: mount for mount in monitor["volumeMounts"]}
    (folder,) = (path for path in mounts if f"{path}/kubelet.sock" in said.err)
    assert mounts[folder]["readOnly"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    assert paths[mounts[folder]["name"]] == folder
    assert set(paths) == {mount["name"] for mount in mounts.values()}


def test_it_takes_no_gpu_and_may_not_more_than_it_needs(pod):
    (monitor,) = pod["containers"]
    assert "resources" not in monitor
    assert not monitor["securityContext"]["allowPrivilegeEscalation"]
    assert monitor["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not pod["automountServiceAccountToken"]
