"""The official conformance suite, with this client in the client's role."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".venv" / "upstreams"
SUITE = PLACE / "node" / "node_modules" / "@modelcontextprotocol" / "conformance"
# What is required there and not offered here, with the reason.
EXCEPTIONS = {
    "2025-11-25": {
        # The client must declare that it can elicit: no person attends a call of an
        # agent who could fill in a form, so this one declares that it cannot.
        "elicitation-sep1034-client-defaults",
    },
    "2026-07-28": set(),
}
_LINE = re.compile(r"^(?:\x1b\[[0-9;]*m)*([✓✗]) ([^:\s]+): ", re.MULTILINE)

pytestmark = [
    pytest.mark.part("conformance"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (PLACE / "installed").exists(),
        reason="THE CONFORMANCE SUITE IS NOT INSTALLED: sh tests/upstreams.sh",
    ),
]


@pytest.mark.parametrize("revision", EXCEPTIONS)
def test_every_required_scenario_passes(revision, tmp_path):
    required = yaml.safe_load((SUITE / "requirements" / f"{revision}.yaml").read_text())["client"]

    output = conformance(revision, tmp_path)

    passed = {name for mark, name in _LINE.findall(output) if mark == "✓"}
    assert set(required) - passed == EXCEPTIONS[revision], output[-10_000:]


def conformance(revision, place):
    """The suite starts all scenarios at once; the lock lets one client speak at a time, since on
    a small machine dozens would keep each other waiting beyond what they wait for a server."""
    client = [sys.executable, str(ROOT / "tests" / "conformance" / "client.py")]
    run = [
        *(str(ROOT / ".venv" / "bin" / "deno"), "run", "-A", "--node-modules-dir=manual"),
        *(str(SUITE / "dist" / "index.js"), "client", "--requirements", revision),
        *("--command", shlex.join(["flock", str(place / "turn"), *client])),
        *("--timeout", "500000", "-o", str(place / "results")),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        run, cwd=PLACE / "node", env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
