"""Linear algebra of an analysis runs in one thread, and the program's own afterwards as before."""

import subprocess
import sys
import threading

import pytest
import scipy.linalg  # noqa: F401  # its BLAS is one of those that are limited

from jouletrace.analysis import analyse
from jouletrace.attribution import attribute as estimator
from jouletrace.stats.one_thread import one_thread
from records import make_run, phases, readings

threadpoolctl = pytest.importorskip("threadpoolctl")


def threads():
    return {one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"}


@pytest.fixture
def two():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield


@pytest.mark.thorough
@pytest.mark.usefixtures("two")
def test_an_analysis_takes_one_thread_and_gives_the_others_back(monkeypatch):
    seen = []
    look_first = estimator.first_look

    def look(*given):
        seen.append(threads())
        return look_first(*given)

    monkeypatch.setattr(estimator, "first_look", look)
    analyse(make_run(readings(300.0, 5.0), kind="monitor", spans=phases(("monitor", 0.1, 4.0))))
    assert seen
    assert all(one == {1} for one in seen)
    assert threads() == {2}


LATE = """
from jouletrace.stats.one_thread import one_thread
import threadpoolctl
threadpoolctl.threadpool_limits(2, user_api="blas")
with one_thread:
    import scipy.linalg
    print({one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"})
"""


@pytest.mark.thorough
def test_a_library_that_an_analysis_loads_takes_one_thread_too():
    environment = {"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    found = subprocess.run([sys.executable, "-c", LATE], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "{1}\n"


@pytest.mark.usefixtures("two")
def test_within_one_another_the_outermost_gives_them_back():
    with one_thread:
        with one_thread:
            pass
        assert threads() == {1}
    assert threads() == {2}


@pytest.mark.usefixtures("two")
def test_other_threads_change_nothing():
    """OpenBLAS would not take from them what the main thread has set."""
    inside, leave = threading.Event(), threading.Event()

    def work():
        with one_thread:
            inside.set()
            leave.wait(60)

    other = threading.Thread(target=work)
    with one_thread:
        other.start()
        assert inside.wait(60)
    assert threads() == {2}
    leave.set()
    other.join()
    assert threads() == {2}


@pytest.mark.usefixtures("two")
def test_an_error_gives_them_back():
    with pytest.raises(ValueError, match="wrong"), one_thread:
        raise ValueError("wrong")
    assert threads() == {2}
