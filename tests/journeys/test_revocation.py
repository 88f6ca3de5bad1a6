"""What one process takes away, the next call of every process is refused: over real HTTP."""

import threading
from typing import Any

import pytest

from tests import factories
from tests.conditions import until
from tests.journeys.client import Answer, Http
from tests.tools.execution.workers import stopped
from tests.tools.shapes import check_error
from tools.models import Execution


@pytest.fixture
def worker_agent(committed: None, organization: Any) -> Any:
    factories.tool(organization)
    return factories.agent(organization, tools=["echo"])


def call(http: Http) -> Answer:
    return http.execute("echo", {"text": "x"})


def at_once(http: Http, times: int = 8) -> list[Answer]:
    """Many calls at one moment, so that more than one thread and process answers."""
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda: answers.append(call(http))) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def grant_of(admin: Http, slug: str, **wanted: str) -> str:
    query = "&".join(f"{name}={value}" for name, value in wanted.items())
    (row,) = admin("GET", f"/api/v1/grants?agent={slug}&{query}").json()["results"]
    return str(row["id"])


def test_a_grant_that_was_taken_is_refused_with_the_very_next_call(crib, admin, worker_agent):
    http = Http(crib.url, factories.token(worker_agent.service_account))
    assert {answer.json()["status"] for answer in at_once(http)} == {"Success"}
    grant = grant_of(admin, worker_agent.slug, tool="echo")
    assert admin("DELETE", f"/api/v1/grants/{grant}").status_code == 204
    for answer in at_once(http):
        check_error(answer, 403, "tool_not_granted")
    assert http("GET", "/api/v1/tools").json()["results"] == []


@pytest.mark.part("walks")
def test_what_is_given_back_counts_at_once_too(crib, admin, worker_agent):
    http = Http(crib.url, factories.token(worker_agent.service_account))
    grant = grant_of(admin, worker_agent.slug, group="default")
    admin("DELETE", f"/api/v1/grants/{grant}")
    for answer in at_once(http):
        check_error(answer, 403, "group_not_granted")
    admin("POST", "/api/v1/grants", {"agent": worker_agent.slug, "groups": ["default"]})
    assert {answer.json()["status"] for answer in at_once(http)} == {"Success"}


@pytest.mark.part("walks")
def test_a_call_that_waits_in_the_queue_is_refused_when_its_grant_is_taken(
    crib, admin, worker_agent
):
    """It was admitted, and is asked again when it is claimed."""
    http = Http(crib.url, factories.token(worker_agent.service_account))
    grant = grant_of(admin, worker_agent.slug, tool="echo")
    with stopped(crib):
        waiting = [
            http.execute("echo", {"text": "x"}, options={"wait_s": 0}).json()["execution_id"]
            for _ in range(20)
        ]
        assert admin("DELETE", f"/api/v1/grants/{grant}").status_code == 204
    rows = Execution.objects.filter(pk__in=waiting)
    until(lambda: not rows.filter(status__in=("Pending", "Running")).exists())
    ended = set(rows.values_list("status", "error_code"))
    assert ended == {("PermissionDenied", "tool_not_granted")}
