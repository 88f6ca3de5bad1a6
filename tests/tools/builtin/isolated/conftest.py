"""The modules of `web_fetch` in this process, under the names they have inside the sandbox."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from sandbox.egress.policy import HostRule
from sandbox.inside import sandbox_http, template, toolcrib
from tests.sandbox.egress.conftest import NAME, Place, placed
from tests.stubs.web import Web, serving
from tools.builtin.manifest import ISOLATED

type Inside = dict[str, ModuleType]
type Fetch = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def inside() -> Iterator[Inside]:
    """Loaded as a template loads them."""
    ours = {"toolcrib": toolcrib, "sandbox_http": sandbox_http}
    sys.modules.update(ours)
    preload = ISOLATED["web_fetch"].profile("acme").preload
    yield {name: template.preload(name, source) for name, source in preload}
    for name in [*ours, *dict(preload)]:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A broker that knows one name."""
    with placed() as one:
        yield one


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as one:
        yield one


@pytest.fixture
def fetch(inside: Inside, place: Place, web: Web) -> Fetch:
    """One call of the tool, whose organization allows the stub under its name."""

    def call(path: str = "/", *, host: str = NAME, **parameters: Any) -> dict[str, Any]:
        defaults = {"format": "text", "max_bytes": 1_000_000}
        asked = {"url": web.url(path, host=host), **defaults, **parameters}
        with place.run(HostRule(NAME, ports=(web.port,))):
            return inside["web_fetch"].main(asked)

    return call
