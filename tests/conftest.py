"""Surroundings of every test: a cache of its own, and one thread for torch and NumPy, since tests run side by side."""

import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from copy import copy
from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

# The same examples each time, and none too slow for a busy machine.
settings.register_profile("ours", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")

# Each test makes and removes some twenty folders: 2 ms each on a disk, 0.02 ms in memory.
MEMORY, ENOUGH_BYTES = "/dev/shm", 8 << 30
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # behind & in a script, or under some runners
    signal.signal(signal.SIGINT, signal.default_int_handler)

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ["JOULETRACE_PROGRESS"] = "0"  # what commands print on stderr is compared
os.environ["JOULETRACE_SIMULATED_START"] = "1767225600"  # 2026-01-01: what is simulated is the same every time


def pytest_configure(config):
    """Keep pytest's loader for plug-ins off our package, which has one: it can't run a module as ``python -m`` does."""
    hook = config.pluginmanager.rewrite_hook
    hook._must_rewrite.discard("jouletrace")
    hook._marked_for_rewrite_cache.clear()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Fork workers from one process that collects the tests, where the system can."""
    import forked_worker

    if hasattr(os, "pidfd_open") and all(spec.popen and not spec.python for spec in specs):
        forked_worker.start(specs, config.args)


def pytest_collection_finish(session):
    """Modules and tests live to the end: the collector of garbage need not go through them again and again."""
    gc.collect()
    gc.freeze()
    if session.items and not session.config.option.collectonly:
        import preloaded

        preloaded.copy_worker()


@pytest.fixture(scope="session", autouse=True)
def no_power_cut():
    """Nothing waits for the disk: that files outlive a power cut is tested by whether ``os.fsync`` is called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # a handle that isn't open is refused still
        yield


@pytest.fixture(scope="session", autouse=True)
def caches(tmp_path_factory):
    """Where tests have their caches: making each by ``mktemp`` would read the names of all before it.

    Fixtures of a module have one of the session in place of the user's.
    """
    folder = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOULETRACE_CACHE", str(folder / "modules"))
        yield (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def own_cache(caches, monkeypatch):
    """Nothing that is learned about a GPU reaches another test, or the user's cache."""
    folder = next(caches)
    folder.mkdir()
    monkeypatch.setenv("JOULETRACE_CACHE", str(folder))
    monkeypatch.setenv("JOULETRACE_LOCKS", str(folder / "locks"))
    return folder


@pytest.fixture(autouse=True)
def interrupts_raise():
    """Ctrl-C raises in each test: a command that failed in this process lets the next one end it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_recording_left():
    """A test that fails within a recording leaves none active for the tests after it."""
    yield
    module = sys.modules.get("jouletrace.profiler.record.recording")
    while module and module.Recording.active is not None:
        module.Recording.active.close()


@pytest.fixture
def small_files(monkeypatch):
    """Files of more than 2000 bytes can't be written."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python 3.11 keeps a module that was written in part
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


@pytest.fixture(scope="session", autouse=True)
def preloaded_children():
    """Recorders, clients of servers and what ``tune`` starts are forked from one that has imported what they need."""
    import preloaded
    from jouletrace.campaign import targets
    from jouletrace.processes import children
    from jouletrace.recording import process

    preloaded.start()
    with pytest.MonkeyPatch.context() as patch:
        for module, popen in ((children, preloaded.child), (targets, preloaded.child), (process, preloaded.Popen)):
            patch.setattr(module, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
        yield


@pytest.fixture(scope="module")
def started_by_python():
    """A module that tests how these processes start and end: Python itself starts them."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("processes.children", "recording.process"):
            patch.setattr(f"jouletrace.{module}.subprocess", subprocess)
        yield


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A folder with the native tracer, a fake driver, CUPTI and program."""
    from traced import compile_into

    if not shutil.which("gcc"):
        pytest.skip("gcc builds the fakes, and isn't here")
    folder = tmp_path_factory.mktemp("native")
    compile_into(folder)
    return folder


@pytest.fixture
def bench(built, tmp_path):
    """Runs programs on a GPU that isn't there."""
    from traced import Bench

    return Bench(built, tmp_path)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """An empty folder to work in: commands write ``runs/`` where they are called."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def said(workspace, capsys):
    """Imports a text; returns what is printed in one line, and the JSON of the same."""
    from commands import command

    def read(text, *more, name="log.csv"):
        (workspace / name).write_text(text)
        printed = command(capsys, "import", name, *more, "-o", f"run-{name}").out
        found = json.loads(command(capsys, "show", f"run-{name}", "--json").out)
        return " ".join(printed.split()), found

    return read


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A folder, the current one, that all tests of a study share: they share what is costly to measure."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("JOULETRACE_CACHE", str(folder / "cache"))
        patch.setenv("JOULETRACE_LOCKS", str(folder / "locks"))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def common(tmp_path_factory):
    """A folder that all workers of a run of the tests share."""
    import shared

    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "common"
    folder.mkdir(exist_ok=True)
    shared.FOLDER = folder
    return folder


@pytest.fixture(scope="session", autouse=True)
def fits_once(common):
    """Recordings with the same timeline and readings are fitted once, in whichever worker."""
    import fits

    with fits.fits_once(common):
        yield


@pytest.fixture(scope="module")
def short_passes():
    """A module whose profiles on the CPU take real time, and need no more latencies than the thirty of a slow one."""
    from dataclasses import replace

    from jouletrace.profiler import passes

    latency = passes.latency

    def short(session, step, settings, *others):
        latency(session, step, replace(settings, latency_s=0.01), *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "latency", short)
        yield


@pytest.fixture(scope="module")
def known_rates():
    """A module that knows the sample rates of the simulated GPUs that it records on."""
    import fits

    with fits.known_rates():
        yield


@pytest.fixture(scope="module")
def known_average():
    """A module that knows how many samples the sensors of its recordings average, and looks for no other number."""
    from jouletrace.attribution import lock

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "AVERAGES", ())
        yield


@pytest.fixture(scope="session")
def torchlib_once():
    """torch reads the sources of its ONNX functions again for each export, which takes longer than the rest of it."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:  # without torch, or in one that has it elsewhere, each export reads them
        yield
        return
    read, made = ONNXRegistry.from_torchlib, {}

    def once(*of, **options):
        key = (of, *options.items())
        if key not in made:
            made[key] = read(*of, **options)
        found = copy(made[key])
        found.functions = {name: list(forms) for name, forms in made[key].functions.items()}
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(once))
        yield


@pytest.fixture
def first_range_only(monkeypatch):
    """A recording that is refused in the first range of sample rates is not looked for in others too."""
    import fits

    fits.first_range_only(monkeypatch)


@pytest.fixture
def no_rapl(tmp_path, monkeypatch):
    """A machine whose CPU reports nothing of its power."""
    monkeypatch.setenv("JOULETRACE_SYSFS", str(tmp_path / "no-sysfs"))
