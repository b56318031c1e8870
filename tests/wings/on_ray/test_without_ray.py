"""Without Ray installed ``--on ray`` says how it is installed, and leaves nothing behind."""

import sys

import pytest

import jouletrace as jt


def test_without_ray_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(jt.NotPossibleError, match=r"pip install 'jouletrace\[ray\]'"):
        jt.sweep("resnet50", device="sim:h100", folder=tmp_path / "grid", on="ray", progress=False)
    assert not (tmp_path / "grid").exists()
