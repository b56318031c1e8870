"""The reader's tables of the files that the native library writes."""

from jouletrace.tracer import read


def named(traced):
    return [traced.work.names[one] for one in traced.work.name]


def test_a_traced_program_is_read_as_it_ran(bench):
    words = "launch 3 push a copy 1 9 push-ex b launch 2 pop pop device 1 set 8 sync"
    bench.one(words)
    (found,) = read(bench.traces)
    assert found.name == "program"
    assert sorted(named(found)) == sorted([*("alpha", "beta", "alpha"), "memcpy HtoD", *("beta", "alpha"), "memset"])
    paths = [found.work.paths[one] for one in found.work.path]
    assert paths == [*3 * [()], ("a",), *2 * [("a", "b")], ()]
    assert found.work.device.tolist() == [*6 * [0], 1]
    assert found.devices == ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "MIG-10111213-1415-1617-1819-1a1b1c1d1e1f"]
    assert (len(found.segments), len(found.syncs), found.notes, found.dropped) == (1, 1, [], 0)
    assert set(found.work.label) == {0}
    (begin, end) = found.segments[0]
    assert begin < found.work.start_ns.min() < found.work.end_ns.max() < end
