"""Loads the modules of `web_fetch` in this process, under the names they have inside the
sandbox."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from sandbox.egress.rules.egress_policy import HostRule
from tests.sandbox.egress.conftest import NAME, Place, placed
from tests.stubs.web import Web, serving
from tests.tools.builtin.conftest import loaded

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


SENTENCES = (
    "The bridge was closed in March, when an inspection found cracks in two of its pillars. "
    "Repairs were planned for the summer and took until the following spring, because the steel "
    "came late. Since then lorries use the road along the river, which was not built for them."
)
ARTICLE = f"""<!DOCTYPE html>
<html lang="en">
<head>
  <title>Bridges &amp; roads
     in 2031</title>
  <style>p {{ color: red }}</style>
  <script>var hidden = "<p>never shown</p>";</script>
</head>
<body>
  <nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav>
  <main>
    <article>
      <h1>A bridge reopens</h1>
      <p>{SENTENCES} Read <a href="report?page=2">the report</a> or
         <a href="javascript:alert(1)">press here</a>.</p>
      <h2>What it cost</h2>
      <table><tr><th>Year</th><th>Cost</th></tr><tr><td>2030</td><td>12</td></tr></table>
      <ul><li>Steel</li><li>Concrete</li></ul>
      <pre><code>for pillar in bridge:
    inspect(pillar)</code></pre>
      <p>{SENTENCES} That is <b>all</b>.</p>
    </article>
  </main>
  <footer>Copyright by nobody. Cookies, terms, imprint.</footer>
</body>
</html>
"""


def page(body: str) -> str:
    return f"<html><head><title>t</title></head><body>{body}</body></html>"
