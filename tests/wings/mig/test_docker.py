"""The container sweeps over slices."""

import re

from commands import command
from compose import service


def test_the_sweep_of_the_compose_file_is_understood(capsys):
    arguments = service("jouletrace")["command"]
    assert arguments[:2] == ["mig", "sweep"]
    known = command(capsys, "mig", "sweep", "--help").out
    for argument in arguments[2:]:
        assert argument.partition("=")[0] in known
    profiles = next(one for one in arguments if one.startswith("--profiles=")).partition("=")[2]
    said = command(capsys, "mig", "list", "-d", "sim:a100-80")
    assert all(re.search(rf"^{re.escape(name)} ", said.out, flags=re.MULTILINE) for name in profiles.split(","))
