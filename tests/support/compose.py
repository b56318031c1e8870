"""The compose file."""

import pytest

from places import REPOSITORY

COMPOSE = REPOSITORY / "docker" / "compose.yaml"


def service(name):
    """A service of the compose file."""
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(COMPOSE.read_text())["services"][name]
