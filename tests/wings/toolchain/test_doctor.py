"""``jouletrace doctor`` looks for the tools that are started."""

import pytest

from commands import command
from jouletrace.profiler import doctor


@pytest.mark.thorough
def test_tools_say_where_they_are_or_what_they_would_serve(monkeypatch, capsys):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/opt/nsys" if name == "nsys" else None)
    extras = doctor.diagnose("sim:h100").extras
    assert extras["nsys"] == {"available": True, "note": "/opt/nsys"}
    assert "not on the PATH" in extras["ncu"]["note"]
    said = command(capsys, "doctor", "-d", "sim:h100").out
    assert all(name in said for name in ("nsys", "ncu", "trtexec"))
