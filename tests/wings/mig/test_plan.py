"""Planning a division: what fits, where, and what is left, against the placement rules of real GPUs."""

from itertools import product

import pytest

from fake_mig_nvml import FakeMigNvml
from jouletrace.devices.nvml import Nvml
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.wings.mig import NvmlMigBackend, SimulatedMig, make_plan
from jouletrace.wings.mig.partition import Placement
from jouletrace.wings.mig.plan import place, room
from jouletrace.wings.mig.simulated import compute_placements, profiles
from jouletrace.wings.mig.tables import listing, render, render_plan

BOARDS = ("a100-40", "a100-80", "h100-80", "h200-141")


def plan(*items, board="a100-80"):
    return make_plan(items, SimulatedMig(f"sim:{board}"))


def test_the_plan_of_the_documentation_fits():
    found = plan("3g.40gb", "2g.20gb", "1g.10gb")
    assert [p.start for p in found.placements] == [4, 0, 2]
    assert found.left["1g.10gb"] == 1
    assert found.left["2g.20gb"] == 0


def test_a_plan_is_a_search_and_not_greedy():
    # put where it fits first, a 3g.40gb would be at 0:4, the only place of the 4g.40gb
    found = plan("3g.40gb", "4g.40gb")
    assert list(map(str, found.placements)) == ["4:4", "0:4"]


def test_what_is_left_is_for_the_largest_instance_possible():
    found = plan("1g.10gb", "1g.10gb")
    assert found.left["4g.40gb"] == 1, "both are above 4, where they leave a 4g.40gb alone"


@pytest.mark.parametrize("board", BOARDS)
def test_a_combination_fits_exactly_if_some_placement_without_overlap_exists(board):
    table = profiles(board)
    for wanted in product(table, repeat=3):
        if any(sum(w == one for w in wanted) > one.total for one in wanted):
            expected = False
        else:
            expected = any(
                not (a.overlaps(b) or a.overlaps(c) or b.overlaps(c))
                for a, b, c in product(*(one.placements for one in wanted))
            )
        found = place(wanted, table)
        assert (found is not None) == expected, [one.name for one in wanted]
        if found is not None:
            assert all(p in one.placements for p, one in zip(found, wanted, strict=True))
            assert not any(found[i].overlaps(found[j]) for i in range(3) for j in range(i))


def test_what_is_left_can_really_be_created():
    backend = SimulatedMig("sim:a100-80")
    backend.set_mode(True)
    found = make_plan(["3g.40gb", "1g.10gb"], backend)
    for request, where in zip(found.requests, found.placements, strict=True):
        backend.create(request.profile, where)
    assert {one.name: one.free for one in backend.profiles()} == found.left


@pytest.mark.parametrize("board", BOARDS)
def test_seven_of_the_smallest_fit_and_eight_do_not(board):
    small = profiles(board)[0].name
    assert len(plan(*[small] * 7, board=board).placements) == 7
    with pytest.raises(BadInputError, match="7 times at most, not 8"):
        plan(*[small] * 8, board=board)


def test_media_extensions_go_to_one_instance():
    found = plan("1g.10gb+me", "1g.10gb", "1g.10gb")
    assert len({p.start for p in found.placements}) == 3
    with pytest.raises(BadInputError, match=r"1g\.10gb\+me 1 times at most"):
        plan("1g.10gb+me", "1g.10gb+me")


def test_what_does_not_fit_says_what_does():
    with pytest.raises(BadInputError, match=r"the most that fits of them is 4g\.40gb 3g\.40gb"):
        plan("4g.40gb", "3g.40gb", "1g.10gb")


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("5g.50gb", r"no such profile(; did you mean [\w.+]+\?|\.) The profiles are: "),
        ("9g", r"no such profile\. The profiles are: "),
        ("1g", r"may mean 1g\.10gb or 1g\.20gb"),
        ("3g.40g", "PROFILE"),
        ("1g.10gb+gfx", r"no such profile; did you mean 1g\.10gb\?"),
        ("77", "no profile has this id"),
        ("4c.3g", "3 compute slices, not 4"),
        ("3x1c.2g", "2 compute slices, not 3"),
        ("0c.2g", "compute slices"),
        ("", "no profile is named"),
    ],
)
def test_a_wrong_request_gets_one_line_that_says_why(item, says):
    with pytest.raises(BadInputError, match=says) as error:
        plan(item)
    assert "\n" not in str(error.value)


def test_a_profile_may_be_named_by_its_beginning_its_id_or_with_mig_before_it():
    assert [w.profile.name for w in plan("3g", "14", "MIG 1g.10gb").requests] == ["3g.40gb", "2g.20gb", "1g.10gb"]


def test_profiles_of_a_simulated_h100_are_those_that_its_driver_lists():
    """``nvidia-smi mig -lgip`` of an H100 80GB: number, instances, SMs, and engines to copy, decode, JPEG, flow."""
    listed = {
        "1g.10gb": (19, 7, 16, 1, 1, 1, 0),
        "1g.10gb+me": (20, 1, 16, 1, 1, 1, 1),
        "1g.20gb": (15, 4, 26, 1, 1, 1, 0),
        "2g.20gb": (14, 3, 32, 2, 2, 2, 0),
        "3g.40gb": (9, 2, 60, 3, 3, 3, 0),
        "4g.40gb": (5, 1, 64, 4, 4, 4, 0),
        "7g.80gb": (0, 1, 132, 8, 7, 7, 1),
    }
    found = {p.name: (p.id, p.total, p.multiprocessors, p.copy, p.decoders, p.jpeg, p.ofa) for p in profiles("h100-80")}
    assert found == listed


@pytest.mark.parametrize(
    ("whole", "slices"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (7, [1, 2, 3, 4, 7])]
)
def test_compute_instances_have_the_slices_that_nvidia_lists(whole, slices):
    """``nvidia-smi mig -lcip`` of an A100 (NVIDIA's MIG user guide)."""
    assert [number for number in range(1, 9) if compute_placements(whole, number)] == slices


def test_compute_instances_share_a_gpu_instance():
    found = plan("2x1c.3g.40gb", "1c.2g")
    assert [w.compute for w in found.requests] == [(1, 1), (1,)]
    assert str(found.requests[0]) == "2x1c.3g.40gb"
    assert found.layout.parts[0].placement == Placement(0, 2)


def test_a_gpu_without_mig_says_so():
    with pytest.raises(NotPossibleError, match="no MIG"):
        SimulatedMig("sim:v100")


def test_room_counts_each_profile_by_itself():
    table = profiles("a100-40")
    assert room(table, []) == {one.name: one.total for one in table}
    assert room(table, [Placement(0, 4)])["3g.20gb"] == 1
    assert not any(room(table, [Placement(0, 8)]).values())


def nvml_backend(fake):
    return NvmlMigBackend(fake.board.uuid, Nvml(fake))


@pytest.mark.parametrize("board", BOARDS)
def test_nvml_reports_every_profile_with_all_its_placements(board):
    fake = FakeMigNvml(board)
    assert nvml_backend(fake).profiles() == SimulatedMig(f"sim:{board}").profiles()


def test_free_instances_are_those_the_driver_counts():
    fake = FakeMigNvml()
    backend = nvml_backend(fake)
    assert {one.free for one in backend.profiles()} == {None}, "with MIG off nothing is free or taken"
    backend.set_mode(True)
    backend.create(backend.profiles()[4], Placement(0, 4))
    assert {one.name: one.free for one in backend.profiles()}["3g.40gb"] == 1


def test_a_driver_without_profile_names_gets_names_from_slices_and_memory():
    fake = FakeMigNvml("a100-80")
    fake.old_driver = True
    assert [one.name for one in nvml_backend(fake).profiles()][-1] == "7g.79gb"


def test_placements_kept_from_the_user_are_no_placements():
    fake = FakeMigNvml()
    fake.board.errors["nvmlDeviceGetGpuInstancePossiblePlacements"] = 4
    backend = nvml_backend(fake)
    assert backend.profiles()[0].placements == ()
    assert "not reported" in render(listing(backend))
    with pytest.raises(NotPossibleError, match="root may help"):
        make_plan(["3g.40gb"], backend)


def test_instances_kept_from_the_user_are_reported_to_be():
    fake = FakeMigNvml()
    backend = nvml_backend(fake)
    backend.set_mode(True)
    fake.board.errors["nvmlDeviceGetGpuInstances"] = 4
    found = listing(backend)
    assert found["instances"] is None
    assert "needs root" in found["instances_reason"]
    assert "needs root" in render(found)


def test_a_gpu_that_knows_no_mig_is_refused():
    fake = FakeMigNvml()
    fake.board.errors["nvmlDeviceGetMigMode"] = 3
    with pytest.raises(NotPossibleError, match="no MIG"):
        listing(nvml_backend(fake))


def test_the_listing_shows_profiles_instances_and_uuids():
    fake = FakeMigNvml()
    backend = nvml_backend(fake)
    backend.set_mode(True)
    number = backend.create(backend.profiles()[3], Placement(2, 2))
    backend.create_compute(number, 1)
    backend.create_compute(number, 1)
    found = listing(backend)
    (instance,) = found["instances"]
    assert (instance["profile"], instance["placement"]) == ("2g.20gb", "2:2")
    assert [c["placement"] for c in instance["compute_instances"]] == ["0:1", "1:1"]
    text = render(found)
    assert all(c["uuid"] in text for c in instance["compute_instances"])
    assert "{0,2,4}:2" in text
    assert "19.62" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_plan_is_printed_with_what_is_left():
    assert "room left for one of: 1 × 1g.10gb" in render_plan(plan("3g.40gb", "2g.20gb", "1g.10gb"))
