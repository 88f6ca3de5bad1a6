"""Requests that Schemathesis makes from the API's document, to the running product: no fault of
ours, and no answer that the document does not have."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import factories
from tests.crib import CHECKOUT
from tests.journeys.client import Http
from tests.tools.api.document import document
from tests.tools.api.test_authorization_matrix import Side
from tools.api.urls import urlpatterns

RESOURCES = sorted({str(url.pattern).partition("/")[0] for url in urlpatterns})
SHARED = {"/api/v1/tiers/{name}"}  # all organizations of the installation have them
# The same requests in every run of the part `contract`; others, and more, in `exploring`, which
# shares its product with other tests: there, no request changes a tier.
CONTRACT = pytest.param(1, 1, marks=pytest.mark.part("contract"), id="contract")
EXPLORING = pytest.param(None, 4, marks=pytest.mark.part("exploring"), id="exploring")
pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("committed"),
]


@pytest.mark.parametrize(
    ("resource", "seed", "times"),
    [
        pytest.param(resource, *way.values, marks=way.marks, id=f"{resource}-{way.id}")
        for resource in RESOURCES
        for way in ((CONTRACT,) if resource == "tiers" else (CONTRACT, EXPLORING))
    ],
)
def test_an_administrator_gets_what_the_document_has(
    crib: Any, organization: Any, admin_user: Any, tmp_path: Path, resource: str,
    seed: int | None, times: int,
) -> None:  # fmt: skip
    token = factories.token(admin_user, scopes=["read", "execute", "manage"])
    places = _places(Side(organization, "axe"), f"/api/v1/{resource}/")
    of = (f"--include-tag={resource}", "--phases=examples,coverage,fuzzing")
    _run(crib.url, tmp_path, token, places, seed, 100 * times, *of)


@pytest.mark.parametrize(("seed", "times"), [CONTRACT, EXPLORING])
def test_a_narrow_agent_gets_what_the_document_has(
    crib: Any, organization: Any, tmp_path: Path, seed: int | None, times: int
) -> None:
    side = Side(organization, "axe")
    token = factories.token(side.agent.service_account, scopes=["read", "execute"])
    places = _places(side, "/api/v1/")
    _run(crib.url, tmp_path, token, places, seed, 10 * times, "--phases=fuzzing")


def _places(side: Side, under: str) -> dict[str, dict[str, str]]:
    """What is there, by the documented path."""
    found = {}
    for url in urlpatterns:
        path = "/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", str(url.pattern))
        if path.startswith(under) and "{" in path and path not in SHARED:
            found[path] = {name: str(one) for name, one in side.place(str(url.name)).items()}
    return found


def _run(
    url: str, place: Path, token: str, places: dict[str, dict[str, str]], seed: int | None,
    count: int, *options: str,
) -> None:  # fmt: skip
    """`count` requests of each operation. A failure prints its seed, and `--seed` repeats it."""
    assert Http(url, token)("GET", "/api/v1/tools").status_code == 200
    written = place / "openapi.json"
    written.write_text(json.dumps(document()))
    seed = seed or random.SystemRandom().randrange(2**32)
    ran = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "--no-color",
            f"--config-file={CHECKOUT / 'tests/contract/schemathesis.toml'}", "run", str(written),
            f"--url={url}", f"--header=Authorization: Bearer {token}",
            f"--max-examples={count}", f"--seed={seed}",
            "--continue-on-failure", "--generation-database=none", "--request-timeout=70",
            "--suppress-health-check=all", *options,
        ],
        cwd=place,  # what it found is kept there
        env=os.environ
        | {
            "PYTHONPATH": str(CHECKOUT),
            "SCHEMATHESIS_HOOKS": "tests.contract.hooks",
            "CONTRACT_PLACES": json.dumps(places),
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]
