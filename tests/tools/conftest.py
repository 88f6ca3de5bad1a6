"""Fixtures that tests of several packages of `tools` use."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import factories
from tools.catalog.sandbox import profiles
from tools.models import Organization, Tool

_WAITS = """
import os, time
def main(parameters):
    while not os.path.exists("{place}/open"):
        time.sleep(0.02)
    return "done"
"""


class Gate:
    """Closed until `open()`. Its place is shown to runs of the profile `gate`."""

    def __init__(self, organization: Organization, place: Path) -> None:
        self.organization, self._place = organization, place
        place.chmod(0o755)
        shown = {"path": str(place), "mode": "ro"}
        profiles.create_profile(
            organization=organization,
            profile={"name": "gate", "allow_filesystem": True, "allowed_paths": [shown]},
            by=factories.actor(organization),
            everywhere=True,
        )

    def tool(self, name: str, **fields: Any) -> Tool:
        """It runs while the gate is closed, and then returns "done"."""
        constraints = {"sandbox_profile": "gate"} | fields.pop("constraints", {})
        source = _WAITS.replace("{place}", str(self._place))
        return factories.tool(
            self.organization, name, implementation={"source": source}, constraints=constraints,
            **fields,
        )  # fmt: skip

    def open(self) -> None:
        (self._place / "open").touch()


@pytest.fixture
def gate(organization: Organization) -> Iterator[Gate]:
    with tempfile.TemporaryDirectory(prefix="tc-gate-", dir="/var/tmp") as place:
        made = Gate(organization, Path(place))
        yield made
        made.open()


__all__ = ["gate"]


@pytest.fixture
def scout(organization):
    return factories.agent(organization, "scout", groups=["default", "read"])
