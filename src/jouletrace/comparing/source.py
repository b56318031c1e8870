"""The sides of a comparison: the independent runs of each, and its parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from jouletrace.run import DeviceInfo, Run
from jouletrace.run.parts import Part


@dataclass(frozen=True)
class Listed:
    """A part in the list of a level: that of kernels holds operators, too, whose kernels aren't known.

    Attributes:
        level: "model", "load", "phase", "layer", "op", "kernel" or "range".
        part: The part; of a row, that of B.
    """

    level: str
    part: Part = field(repr=False)

    @property
    def name(self) -> str:
        """Label of a range, qualified name of a layer, name of a kernel or operator."""
        return _plain((self.part.level == "op" and self.part.op) or self.part.name)

    @property
    def called(self) -> str:
        """Its name, behind that of the device of several."""
        return ": ".join(filter(None, (self.part.gpu, self.name)))

    @property
    def where(self) -> str:
        """The device of several, and the module it is in; "" if that says nothing."""
        module = _plain(self.part.module)
        return " ".join(filter(None, (self.part.gpu, module if module != self.name else "")))

    @property
    def shapes(self) -> str:
        """Shapes of an operator's inputs; "" for none."""
        return _plain(self.part.shapes)


@dataclass(frozen=True)
class SourceRun:
    """An independent run of a side.

    Attributes:
        run: The Run, with its figures.
        place: Path, or a description.
        whole: The model, or all that was recorded, with its figures; its name is that of the workload.
        watched: True if devices were watched, without iterations: the figures are those of all its devices together.
    """

    run: Run
    place: str
    whole: Part
    watched: bool = False


@dataclass(frozen=True)
class Side:
    """One side of a comparison: runs of one thing.

    Attributes:
        name: "A" or "B".
        sources: Its independent runs.
        title: Of a side within one Run: its workload; "" where the Run says it.
        only: Parts of this side only.
    """

    name: str
    sources: tuple[SourceRun, ...] = field(repr=False)
    title: str = ""
    only: tuple[Listed, ...] = field(default=(), repr=False)

    @property
    def run(self) -> Run:
        """Its first Run."""
        return self.sources[0].run

    @property
    def runs(self) -> tuple[str, ...]:
        """Where the runs are from."""
        return tuple(source.place for source in self.sources)

    @property
    def boards(self) -> dict[str, DeviceInfo]:
        """The devices of its runs, by id."""
        return {device.id: device for source in self.sources for device in source.run.devices}

    @property
    def count(self) -> int:
        """Number of independent runs."""
        return len(self.sources)

    @property
    def watched(self) -> bool:
        """True if devices were watched, without iterations."""
        return all(source.watched for source in self.sources)

    @property
    def timed(self) -> bool:
        """True if what was recorded ended by itself; an imported log, or a monitor without a program, was ended."""
        runs = [source.run for source in self.sources]
        programs = ["command" in run.spans["lane"].unique().to_pylist() for run in runs]
        return all(
            run.kind not in ("import", "monitor") or is_program for run, is_program in zip(runs, programs, strict=True)
        )


def _plain(text: str | None) -> str:
    """A text on one line, without spaces that say nothing."""
    return " ".join((text or "").split())
