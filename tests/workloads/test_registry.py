"""A name on the command line stands for a workload, and what is reported where it has no meaning."""

import subprocess
import sys

import pytest

from jouletrace.errors import BadInputError
from jouletrace.workloads import names, resolve
from places import REPOSITORY


@pytest.mark.parametrize(
    ("alias", "name"),
    [("deit-t", "deit-tiny"), ("deit-s", "deit-small"), ("deit-b", "deit-base"), ("BERT-L", "bert-large")],
)
def test_an_alias_stands_for_its_model(alias, name):
    assert resolve(alias).name == name


def test_every_name_resolves_to_itself():
    assert [resolve(name).name for name in names()] == names()
    assert {"deit-base", "bert-large", "resnet50", "vit-base", "swin-tiny", "gpt2", "gpt2-large", "dlrm"} <= set(
        names()
    )


def test_the_page_of_commands_lists_every_name():
    page = (REPOSITORY / "docs" / "reference" / "commands.md").read_text()
    assert [name for name in names() if f"`{name}`" not in page] == []


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(BadInputError, match=r"unknown workload 'diet-base'; did you mean 'deit-base'"):
        resolve("diet-base")


def test_a_name_near_to_nothing_offers_nothing_but_the_list():
    with pytest.raises(BadInputError, match=r"unknown workload 'qqqq' \(built in: deit-tiny"):
        resolve("qqqq")


def test_a_file_without_a_callable_says_how_to_name_one(tmp_path):
    with pytest.raises(BadInputError, match=r"m\.py: which callable in it\? Write .*m\.py:NAME"):
        resolve(str(tmp_path / "m.py"))


def test_a_missing_file_offers_the_nearest(tmp_path):
    (tmp_path / "mymodel.py").touch()
    with pytest.raises(BadInputError, match=r"no such file; did you mean 'mymodel.py'\?"):
        resolve(f"{tmp_path}/mymodle.py:make")


def test_a_folder_without_a_configuration_is_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"without config\.json"):
        resolve(str(tmp_path))


@pytest.mark.thorough
def test_neither_import_nor_resolve_imports_torch():
    code = (
        "import sys; from jouletrace import workloads; from jouletrace.execution import steps; "
        "workloads.resolve('deit-b'); workloads.names();"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
