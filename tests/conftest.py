"""What every test runs under: a cache of its own, and one thread for torch and NumPy, since tests run side by side."""

import os

import pytest

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Nothing that is learned about a board reaches another test, or the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("JOULETRACE_CACHE", str(folder))
    return folder


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """An empty folder to work in: commands write ``runs/`` where they are called."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def no_rapl(tmp_path, monkeypatch):
    """A machine whose CPU tells nothing of its power."""
    from jouletrace.devices.rapl import CpuHost

    monkeypatch.setattr(CpuHost.__init__, "__defaults__", (tmp_path / "no-powercap", None))
