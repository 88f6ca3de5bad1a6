"""Our own SPARQL server among the processes of the product."""

import json
import os
from pathlib import Path

import pytest
from django.test import Client

from config import processes
from config.oxigraph import BINARY

pytestmark = pytest.mark.usefixtures("crib", "db")


def test_readiness_asks_the_sparql_endpoint(settings):
    assert json.loads(Client().get("/readyz").content)["checks"]["knowledge"] == "ok"
    settings.SPARQL_URL = "http://127.0.0.1:1/query"
    answer = Client().get("/readyz")
    checks = json.loads(answer.content)["checks"]
    assert (answer.status_code, checks["knowledge"]) == (503, "the SPARQL endpoint does not answer")


def test_it_runs_as_a_user_without_rights(crib):
    (process,) = [pid for pid in _running(str(BINARY)) if str(crib.data) in _words(pid)]
    status = Path(f"/proc/{process}/status").read_text()
    uid = int(status.split("Uid:")[1].split()[0])
    assert uid == processes.knowledge(crib.data).account.uid
    assert uid or os.geteuid()


def _running(program: str) -> list[str]:
    every = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in every if _words(pid).startswith(program)]


def _words(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
