"""The table of a fit: a row for each thing or pool that the readings resolve, the unresolved rest, and idle."""

from dataclasses import dataclass

from jouletrace.attribution.contrasts import IDLE, METHOD, Contrasts, Row, pools
from jouletrace.run import Estimate


@dataclass(frozen=True)
class Named(Row):
    """A row with the names of what it is of; the rest has no figures."""

    names: tuple[str, ...]

    @property
    def pooled(self):
        return len(self.names) > 1

    @property
    def power(self):
        """Mean power while it ran, W."""
        return self.energy.scaled(1 / self.seconds)


def energy_table(fit, group, near=lambda name: ""):
    """The rows of a grouping, which last as long as the recording: largest energy first, idle last."""
    contrasts = Contrasts(fit, group)
    found = pools(fit, group, near)
    there = [name for name, seconds in zip(contrasts.names[:-1], contrasts.seconds, strict=False) if seconds > 0]
    rest = tuple(name for name in there if not any(name in names for names in found))
    return [_row(contrasts, names) for names in (*found, *([rest] if rest else []), (IDLE,))]


def _row(contrasts, names):
    which = [contrasts.names.index(name) for name in names]
    row = contrasts.row(which)
    energy = row.energy if contrasts.resolved(which) else Estimate.null("not_resolved", METHOD)
    return Named(row.seconds, energy, row.overlapped, names)
