"""What one call costs the database, in figures that do not depend on the machine: statements of one
call from its request to its answer, commits, WAL, and updates that are HOT."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from tests import factories
from tests.api import Api
from tests.tools.limits import allowance_fixtures
from tools.execution import answer as actions
from tools.execution.perform import perform
from tools.models import Agent, Organization

# The best of the rounds: a checkpoint makes one write whole pages, and PostgreSQL counts the
# updates of other tests beside those of the calls.
CALLS, ROUNDS = 10, 4
_COUNTS = """
    SELECT (SELECT wal_bytes FROM pg_stat_get_backend_wal(pg_backend_pid())),
        sum(n_tup_upd), sum(n_tup_hot_upd)
    FROM pg_stat_user_tables JOIN pg_inherits ON inhrelid = relid
    WHERE inhparent = 'tools_execution'::regclass
"""


@dataclass(frozen=True)
class CallCost:
    """Of one call, in the mean."""

    statements: float
    commits: float
    wal_bytes: float
    hot_share: float


@pytest.fixture
def performed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This thread performs what it dispatches, and keeps its connection: PostgreSQL counts the WAL
    of each."""
    monkeypatch.setattr(connections["default"], "close", lambda: None)

    def dispatch(execution_ids: Iterable[UUID]) -> None:
        for execution_id in execution_ids:
            perform(execution_id)

    monkeypatch.setattr(actions, "wake_workers", dispatch)


def cost_of(api: Api, name: str, body: dict[str, object]) -> CallCost:
    for number in range(5):  # what is remembered by the process is loaded
        call(api, name, body, f"warm-{number}")
    rounds = [round_of(api, name, body) for _ in range(ROUNDS)]
    least = min(rounds, key=lambda cost: cost.wal_bytes)
    return replace(least, hot_share=max(cost.hot_share for cost in rounds))


def round_of(api: Api, name: str, body: dict[str, object]) -> CallCost:
    before = read_counts()
    with CaptureQueriesContext(connection) as captured:
        for _ in range(CALLS):
            call(api, name, body, str(uuid4()))
    wal, updates, hot = (
        after - earlier for after, earlier in zip(read_counts(), before, strict=True)
    )
    texts = [one["sql"] for one in captured]
    return CallCost(
        len(texts) / CALLS, commits_of(texts) / CALLS, wal / CALLS, hot / max(updates, 1)
    )


def commits_of(statements: Iterable[str]) -> int:
    """Of what changes rows: a statement outside a transaction is one by itself."""
    commits, within = 0, False
    for statement in statements:
        if statement in {"BEGIN", "COMMIT", "ROLLBACK"}:
            within = statement == "BEGIN"
            commits += statement == "COMMIT"
        elif not within:
            commits += bool(re.search(r"\b(INSERT|UPDATE|DELETE)\b", statement))
    return commits


def call(api: Api, name: str, body: dict[str, object], key: str) -> None:
    headers = {"Idempotency-Key": key} if "session" in body else {}
    answer = api.post(f"/tools/{name}/execute", body, **headers)
    assert answer.json()["status"] == "Success", answer.json()


def read_counts() -> tuple[float, ...]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(_COUNTS)
        return tuple(map(float, cursor.fetchone()))


@pytest.mark.usefixtures("without_workers", "performed_here")
def test_a_plain_call_stays_within_its_budget(organization: Organization, agent: Agent) -> None:
    factories.tool(organization)
    cost = cost_of(factories.api(agent), "echo", {"parameters": {"text": "x"}})
    assert cost.statements < 6  # beside what is read once a second
    assert cost.hot_share >= 0.95
    assert cost.commits <= 3
    assert cost.wal_bytes <= 11_700


@pytest.mark.usefixtures("without_workers", "performed_here")
def test_a_limited_call_in_a_session_stays_within_its_budget(
    organization: Organization, agent: Agent
) -> None:
    factories.tool(organization, rate_limit_per_minute=1_000, cost_per_invocation="0.01")
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("1000"))
    session = factories.api(agent).post("/sessions", {}).json()["id"]
    body = {"parameters": {"text": "x"}, "session": session}
    cost = cost_of(factories.api(agent), "echo", body)
    assert cost.statements < 8
    assert cost.hot_share >= 0.95
    assert cost.commits <= 3
    assert cost.wal_bytes <= 14_500
