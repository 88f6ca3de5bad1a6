"""Our own SPARQL server among the processes of the product."""

import json
import os
from pathlib import Path

import httpx2
import pytest
from django.conf import settings as configured
from django.test import Client

from config.local import process_specs
from config.local.oxigraph import BINARY
from tools.web import probes

pytestmark = pytest.mark.usefixtures("crib", "db")


def test_readiness_asks_the_sparql_endpoint(settings):
    probes._readiness.forget()
    assert json.loads(Client().get("/readyz").content)["checks"]["knowledge"] == "ok"
    settings.SPARQL_URL = "http://127.0.0.1:1/query"
    probes._readiness.forget()
    answer = Client().get("/readyz")
    probes._readiness.forget()
    checks = json.loads(answer.content)["checks"]
    assert (answer.status_code, checks["knowledge"]) == (503, "the SPARQL endpoint does not answer")


def test_it_runs_as_a_user_without_rights(crib):
    process = _server(crib)
    status = Path(f"/proc/{process}/status").read_text()
    uid = int(status.split("Uid:")[1].split()[0])
    assert uid == process_specs.knowledge(crib.data).account.uid
    assert uid or os.geteuid()


@pytest.mark.part("generated")
def test_a_long_chain_does_not_fill_its_stack(crib):
    """Of a stack of the usual size about every fifth of these is the end."""
    before = _server(crib)
    query = "SELECT * { FILTER(" + "!" * 4_000 + "true) }"
    for _ in range(50):
        assert httpx2.post(configured.SPARQL_URL, data={"query": query}).status_code == 200
    assert _server(crib) == before


def _server(crib) -> str:
    (process,) = [pid for pid in _running(str(BINARY)) if str(crib.data) in _words(pid)]
    return process


def _running(program: str) -> list[str]:
    every = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in every if _words(pid).startswith(program)]


def _words(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
