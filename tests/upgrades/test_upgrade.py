"""The product starts on the data of an earlier release, and goes on where that one ended."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from config.local import embedded, postgres
from tests import crib
from tests.journeys.client import Http
from tests.journeys.test_floods import logged_in

pytestmark = pytest.mark.part("walks")
# The data is of the day it was made: tokens and executions have a term.
NOT_OVER = "UPDATE tools_token SET expires_at = now() + interval '1 hour'"
ENVIRONMENT = {"DATABASE_URL": "", "REDIS_URL": "", "RETENTION_DAYS": "executions=3650"}
EARLIER = Path(__file__).with_name("8380e10")  # made by make.py from that commit


@pytest.fixture(scope="module")
def earlier_facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EARLIER / "facts.json").read_text())
    return found


@pytest.fixture(scope="module")
def upgraded() -> Iterator[crib.Crib]:
    data = Path(tempfile.mkdtemp(prefix="tc-"))
    data.chmod(0o711)
    shutil.copytree(EARLIER, data, dirs_exist_ok=True, ignore=lambda *_: ["facts.json"])
    for path in (data / "secret_key", *(data / "keys").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    with embedded.running_servers(data), psycopg.connect(embedded.database_url(data)) as database:
        database.autocommit = True
        postgres.load_dump(database, data / "database.dump")
        database.execute(NOT_OVER)
    (data / "database.dump").unlink()
    with crib.running(data, ENVIRONMENT) as running:
        yield running
    crib.remove(data)


@pytest.fixture(scope="module")
def agent(upgraded: crib.Crib, earlier_facts: dict[str, Any]) -> Http:
    return Http(upgraded.url, earlier_facts["token"])


def manage(upgraded: crib.Crib, *words: str) -> str:
    environment = os.environ | {"TOOLCRIB_DATA": str(upgraded.data)}
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "manage.py", *words], cwd=crib.CHECKOUT, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_tools_are_listed_and_called(agent: Http, earlier_facts: dict[str, Any]) -> None:
    listed = agent("GET", "/api/v1/tools?group=upgrade").json()["results"]
    assert {one["name"] for one in listed} == {"shout", "shout_asking"}
    options = {"group": ["upgrade"], "options": {"wait_s": 30}}
    called = agent.execute("shout", {"text": "after"}, **options)
    assert (called.status_code, called.json()["output"]) == (200, "AFTER")
    before = agent("GET", f"/api/v1/executions/{earlier_facts['before']}").json()
    assert (before["status"], before["output"]) == ("Success", "BEFORE")


def test_a_call_that_awaited_approval_is_approved_and_made(
    upgraded: crib.Crib, agent: Http, earlier_facts: dict[str, Any]
) -> None:
    entered = logged_in(Http(upgraded.url), "admin", earlier_facts["password"])
    assert entered.status_code == 302, entered.content[:300]
    cookies = "; ".join(
        one.partition(";")[0] for one in entered.headers.get_all("Set-Cookie") or []
    )
    csrf = re.search(r"csrf[a-z]*=(\w+)", cookies)
    assert csrf
    person = Http(upgraded.url)
    head = {"Cookie": cookies, "X-CSRFToken": csrf[1], "Referer": upgraded.url}
    found = person("GET", "/api/v1/confirmations", **head).json()["results"]
    (held,) = [one for one in found if one["execution_id"] == earlier_facts["open"]]
    body = {"bound_hash": held["bound_hash"], "reason": "as before"}
    answer = person("POST", f"/api/v1/confirmations/{held['id']}/approve", body, **head)
    assert answer.status_code == 200, answer.content
    ended = agent("GET", f"/api/v1/executions/{earlier_facts['open']}?wait_s=30").json()
    assert (ended["status"], ended["output"]) == ("Success", "APPROVED")


def test_its_records_are_a_partition_and_the_next_months_have_theirs(
    upgraded: crib.Crib, earlier_facts: dict[str, Any]
) -> None:
    statement = """
        SELECT tableoid::regclass::text FROM tools_execution WHERE id = %(execution)s UNION
        SELECT tableoid::regclass::text FROM audit_auditrecord WHERE execution_id = %(execution)s
        UNION SELECT count(*)::text FROM pg_inherits
        WHERE inhparent IN ('audit_auditrecord'::regclass, 'audit_auditpayload'::regclass,
            'tools_execution'::regclass, 'tools_executionevent'::regclass,
            'tools_requestrecord'::regclass)
        UNION SELECT tableoid::regclass::text FROM tools_executionevent
        WHERE execution_id = %(execution)s
        UNION SELECT tableoid::regclass::text FROM tools_requestrecord
        WHERE execution_id = %(execution)s
    """
    with psycopg.connect(embedded.database_url(upgraded.data)) as database:
        found = database.execute(statement, {"execution": earlier_facts["before"]}).fetchall()
    # Beside the month that it includes: the next two, and one for ids of no month.
    tables = ("audit_auditrecord", "tools_execution", "tools_executionevent", "tools_requestrecord")
    assert {text for (text,) in found} == {*(f"{table}_earlier" for table in tables), "20"}


def test_its_evidence_and_its_tools_verify(upgraded: crib.Crib) -> None:
    found = json.loads(manage(upgraded, "audit_verify", "--json"))
    assert [(one["log"], one["findings"]) for one in found] == [("default", [])]
    manage(upgraded, "verify_tools")
