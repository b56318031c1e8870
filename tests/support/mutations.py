"""Families of changes, each of one kind, to the files of ``mutable``: a family is None where it doesn't fit a file."""

from __future__ import annotations

from random import Random

import mutations_of_json as timelines
import mutations_of_losses as losses
import mutations_of_sections as structure
import mutations_of_tables as tables
import mutations_of_times as times
from mutable import samples
from mutation import Family, Mutation

FAMILIES: dict[str, Family] = {
    "a blank in a cell": tables.blank_cell,
    "a blank throughout": tables.blank_column,
    "zeros": tables.zeros,
    "unit word": tables.unit_word,
    "column twice": tables.column_twice,
    "column more": tables.column_more,
    "column less": tables.column_less,
    "columns reordered": tables.columns_reordered,
    "rows twice": times.rows_twice,
    "far stamp": times.far_stamp,
    "hour twice": times.hour_twice,
    "AM and PM": times.twelve_hours,
    "no device column": times.no_device,
    "one device shorter": times.one_shorter,
    "energy counter": times.counter,
    "layout of JSON": timelines.json_layout,
    "kernels at 0": timelines.kernels_at_zero,
    "kernel over others": timelines.kernel_over_others,
    "annotation without device": timelines.annotation_without_device,
    "quotation marks": tables.quotation_marks,
    "trailing commas": tables.trailing_commas,
    "ends of lines": tables.ends_of_lines,
    "held readings": losses.held_readings,
    "one device much shorter": losses.one_much_shorter,
    "counter falls": losses.counter_falls,
    "headings again": structure.headings_again,
    "sections": structure.sections,
    "another section": structure.other_section,
    "lines of times": structure.time_lines,
    "place of a GPU": structure.place_of_gpu,
    "stray mark": structure.stray_mark,
    "sessions": times.sessions,
    "irregular times": times.irregular,
    "order of date": times.order_of_date,
    "kernels lost": losses.kernels_lost,
    "trackers of one machine": losses.trackers_of_one_machine,
    "0 J of a GPU": losses.gpu_of_nothing,
    "PUE": losses.power_usage_effectiveness,
}


def fitting(form: str) -> list[str]:
    """The families that fit a file of that format."""
    return [name for name in FAMILIES if any(FAMILIES[name](one, Random(0)) is not None for one in samples()[form])]


def drawn(form: str, name: str, number: int) -> Mutation:
    """The ``number``th change of a family to a file of that format."""
    draw = Random(f"{form} {name} {number}")
    for sample in draw.sample(samples()[form], len(samples()[form])):
        changed = FAMILIES[name](sample, draw)
        if changed is not None:
            return changed
    raise LookupError(f"{name} fits no file of {form}")
