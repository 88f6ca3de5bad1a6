"""Loads the modules of `web_fetch` in this process, under the names they have inside the
sandbox."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from sandbox.egress.rules.egress_policy import HostRule
from tests.sandbox.egress.conftest import NAME, Place, placed
from tests.stubs.web import Web, serving
from tests.tools.builtin.in_process import loaded

type Inside = dict[str, ModuleType]
type Fetch = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def inside() -> Inside:
    return loaded("web_fetch")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """An egress broker that resolves one name."""
    with placed() as one:
        yield one


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as one:
        yield one


@pytest.fixture
def fetch(inside: Inside, place: Place, web: Web) -> Fetch:
    """Calls the tool; the organization allows the stub server under its name."""

    def call(path: str = "/", *, host: str = NAME, **parameters: Any) -> dict[str, Any]:
        defaults = {"format": "text", "max_bytes": 1_000_000}
        asked = {"url": web.url(path, host=host), **defaults, **parameters}
        with place.run(HostRule(NAME, ports=(web.port,))):
            return inside["web_fetch"].main(asked)

    return call
