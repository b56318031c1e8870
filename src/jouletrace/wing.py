"""Wings: what a package adds to the core, by one object that is called ``WING``.

Each folder in ``jouletrace.wings`` is a wing. Other packages name theirs by an entry point:

    [project.entry-points."jouletrace.wings"]
    mine = "my_package:WING"

A wing names modules, which are imported at first use. A wing that isn't there is missing from all tables, and nothing
else changes; one that can't be imported is left out with a warning. Words and rules of warnings
(``words.reasons``, ``analysis.rules``) stay in the core, since a Run can be read without the wing that made it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

ENTRY_POINTS = "jouletrace.wings"
"""The group of entry points, and the package of the wings that come with jouletrace."""


@dataclass(frozen=True)
class Wing:
    """Additions of a package to the core, by name; its code is named by modules.

    Attributes:
        commands: Command of ``jouletrace``: module with a ``COMMAND`` (``cli.command.Command``).
        formats: Format of files: module with ``sniff`` and ``read`` (``formats.importers.registry.Importer``).
        tables: Package with a file ``tools.toml`` of other tools' files (``formats.importers.tools.KnownTool``).
        converted_by: Suffix of reports that only their own tool reads: the command whose output is read.
        backends: Value of ``--backend``: module that prepares workloads (``profiler.prepare.Backend``).
        model_files: Suffix of files of models that torch can't run: value of ``--backend`` that runs them.
        engines: Value of ``--backend`` for files of engines, which a tool times: module with ``profile_engine``.
        kinds: Fact of the workload of a Run: module that determines and words its figures (``report.kinds.KindOfRun``).
        targets: What ``tune`` can measure besides workloads and programs: module (``campaign.targets.MoreTargets``).
        clusters: Value of ``--on``: module that carries out campaigns on the nodes of a cluster
            (``campaign.cluster.Cluster``).
        publishers: Option of ``monitor``: module with ``publish`` (``profiler.monitoring.watch.Publisher``).
        observers: Option of ``monitor``: module with ``observe`` (``profiler.monitoring.watch.Observer``).
        devices: Modules whose ``VENDOR`` opens devices (``devices.base.Vendor``).
        names: Name in ``jouletrace`` (``jt.NAME``): module that has it.
        libraries: Library of others that it needs: for what, and how it is installed, in ``jouletrace doctor``.
        tools: Program of others that it starts: for what, in ``jouletrace doctor``.
    """

    commands: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    converted_by: Mapping[str, str] = field(default_factory=dict)
    backends: Mapping[str, str] = field(default_factory=dict)
    model_files: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    publishers: Mapping[str, str] = field(default_factory=dict)
    observers: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)


@cache
def wings() -> dict[str, Wing]:
    """All wings that can be imported, by name: those that come with jouletrace, then those of other packages."""
    found: dict[str, Wing] = {}
    for name, load in (*_shipped(), *_of_packages()):
        try:
            wing = load()
            if not isinstance(wing, Wing):
                raise TypeError(f"WING is a {type(wing).__name__}")
            if name in found:
                raise ValueError("another wing has this name")
        except Exception as error:  # of a stranger's code: any
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            warnings.warn(f"the wing {name} can't be used and is left out: {said}", RuntimeWarning, stacklevel=2)
            continue
        found[name] = wing
    return found


def registered(kind: str, core: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Modules (or texts) of a kind, a field of ``Wing``, by name: those of the ``core``, then those of wings.

    Where several have a name, the core's counts, else the first wing's.
    """
    found = dict(core)
    for wing in wings().values():
        found |= {name: module for name, module in getattr(wing, kind).items() if name not in found}
    return found


def modules(kind: str, core: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Modules of a kind that can be imported, by name; one of a wing that can't is left out with a warning."""
    imported: dict[str, Any] = {}
    for name, module in registered(kind, core).items():
        try:
            imported[name] = import_module(module)
        except Exception as error:  # of a stranger's code: any
            if core.get(name) == module:
                raise
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            warnings.warn(f"{module} of a wing can't be used and is left out: {why}", RuntimeWarning, stacklevel=2)
    return imported


def kind_of(facts: Mapping[str, object]) -> Any:
    """The module of ``kinds`` for the facts of a Run's workload, a ``report.kinds.KindOfRun``; None if none does."""
    kinds = registered("kinds")
    return next((import_module(kinds[fact]) for fact in kinds if fact in facts), None)


def lacking(facts: Mapping[str, object], lent: Iterable[str]) -> str:
    """The first of facts that wings read (``lent``) that is there while its wing isn't; "" for none."""
    return next((fact for fact in lent if fact in facts and fact not in registered("kinds")), "")


def _shipped() -> Iterator[tuple[str, Callable[[], object]]]:
    spec = find_spec(ENTRY_POINTS)
    for module in iter_modules(None if spec is None else spec.submodule_search_locations) if spec else ():
        if module.ispkg:
            yield module.name, partial(_wing_of, module.name)


def _wing_of(folder: str) -> object:
    return import_module(f"{ENTRY_POINTS}.{folder}").WING


def _of_packages() -> Iterator[tuple[str, Callable[[], object]]]:
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=ENTRY_POINTS)):
        yield point.name, point.load
