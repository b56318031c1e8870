"""Where a study's commands run: a folder of its own for all its tests, so that they share what is costly to measure."""

import pytest


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The study's folder, which is the current one; its caches and locks are its own too."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("JOULETRACE_CACHE", str(folder / "cache"))
        patch.setenv("JOULETRACE_LOCKS", str(folder / "locks"))
        yield folder
