"""The native library, and a GPU that isn't there."""

import shutil

import pytest

from traced import Bench, compile_into


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A folder with the library, the fakes and the program."""
    if not shutil.which("gcc"):
        pytest.skip("gcc builds the fakes, and isn't here")
    folder = tmp_path_factory.mktemp("native")
    compile_into(folder)
    return folder


@pytest.fixture
def bench(built, tmp_path):
    return Bench(built, tmp_path)
