"""Units number themselves."""

from jouletrace.run import Units


def test_new_units_have_ids_after_all_that_are_there():
    units = Units()
    assert [units.add("op", "a"), units.add("op", "b", id=7), units.add("op", "c")] == [1, 7, 8]
    units.keep([{"id": 20, "parent": 0, "level": "op", "name": "d"}, {**units.rows[1], "name": "e"}])
    assert units.add("op", "f") == 21
    assert [row["name"] for row in units.table().to_pylist()] == ["e", "b", "c", "d", "f"]
    assert Units(units).add("op", "of another table") == 22
    units.after([40, 30])
    assert [units.add("op", "g"), units.add("op", "h", id=30)] == [41, 30]


def test_a_unit_of_a_key_is_added_once_and_counts_how_often_it_runs():
    units = Units()
    assert [units.once(("k",), "kernel", "k", 0, count) for count in (2, 3)] == [1, 1]
    assert units.once(("op",), "op", "op", 0) == 2
    assert [row["count"] for row in units.table().to_pylist()] == [5, None]
