"""Calls that the process which accepted them performs: those that go out, while a caller waits."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore, Event

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit.log import log_status
from audit.models import AuditLog, AuditRecord
from config.settings import WORKER_THREADS
from tests import factories
from tests.api import Api
from tests.conditions import until
from tests.stubs.mcp import McpStub
from tools.execution import answer as actions
from tools.execution import dispatch, leases
from tools.execution.perform import hand_back_calls
from tools.models import Agent, Execution, McpServer, Tool, Transport

pytestmark = pytest.mark.usefixtures("without_workers", "loopback_is_open")


@pytest.fixture
def api(agent: Agent) -> Api:
    return factories.api(agent)


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The executions that are sent to workers."""
    found: list[object] = []
    monkeypatch.setattr(actions, "wake_workers", found.extend)
    return found


def status_of(api: Api, tool: str = "echo", **options: object) -> str:
    options = {"wait_s": 30, "timeout": "PT5S", **options}
    return api.execute(tool, {"a": 1} if tool == "echo" else {}, options=options).json()["status"]


def test_a_call_of_a_server_is_performed_by_who_accepted_it(
    api: Api, agent: Agent, imported: Callable[[], Tool], dispatched: list[object]
) -> None:
    imported()
    assert status_of(api) == "Success"
    assert dispatched == []
    execution = Execution.objects.filter(organization=agent.organization).latest("created_at")
    assert (execution.fence, execution.attempt) == (1, 1)
    records = AuditRecord.objects.filter(execution_id=execution.pk).order_by("id")
    codes = list(records.values_list("code", flat=True))
    assert codes == ["TOOL.ACCEPT", "TOOL.START", "TOOL.END"]


def test_it_is_three_statements_and_two_commits(
    api: Api, imported: Callable[[], Tool], dispatched: list[object]
) -> None:
    """Its caller is read, it begins with ACCEPT and START, and it ends with END."""
    imported()
    assert [status_of(api) for _ in range(3)] == ["Success"] * 3  # what is remembered is loaded
    with CaptureQueriesContext(connection) as captured:
        assert status_of(api) == "Success"
    statements = [one["sql"].split()[0] for one in captured]
    assert statements == ["SELECT", "WITH", "WITH"]


def test_its_answer_says_what_a_later_look_says(
    api: Api, imported: Callable[[], Tool], dispatched: list[object]
) -> None:
    imported()
    answer = api.execute("echo", {"a": 1}, options={"timeout": "PT5S"}).json()
    later = api.get(f"/executions/{answer['metadata']['execution_id']}").json()
    assert answer == later


def test_nothing_begins_where_the_log_was_halted_meanwhile(
    api: Api, agent: Agent, imported: Callable[[], Tool], stub: McpStub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What the gate reads is a second old; the statement that begins the call looks itself."""
    imported()
    halted = {"halted_at": timezone.now(), "halted_reason": "It was put back."}
    AuditLog.objects.update_or_create(name=agent.organization.slug, defaults=halted)
    monkeypatch.setattr(log_status, "check_halted_cached", lambda organization: None)
    answer = api.execute("echo", {"a": 1}, options={"timeout": "PT5S"})
    assert (answer.status_code, answer.json()["code"]) == (503, "audit_halted")
    assert stub.requests_for("tools/call") == []
    begun = Execution.objects.filter(organization=agent.organization, started_at__isnull=False)
    assert not begun.exists()
    AuditLog.objects.filter(name=agent.organization.slug).update(halted_at=None, halted_reason="")


def test_its_place_is_given_back_however_it_ends(
    api: Api, imported: Callable[[], Tool], stub: McpStub, dispatched: list[object]
) -> None:
    imported()
    stub.tools["echo"].does = lambda given: {"content": [], "isError": True}
    for _ in range(WORKER_THREADS + 1):
        assert status_of(api) == "Failed"
    assert dispatched == []


def test_its_failure_is_the_answer(
    api: Api, imported: Callable[[], Tool], stub: McpStub, dispatched: list[object]
) -> None:
    imported()
    stub.tools["echo"].does = lambda given: {"content": [], "isError": True}
    assert status_of(api) == "Failed"
    assert dispatched == []


def test_a_process_that_ends_hands_its_calls_back_and_performs_no_more(
    api: Api,
    agent: Agent,
    imported: Callable[[], Tool],
    stub: McpStub,
    dispatched: list[object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "stopping", Event())
    monkeypatch.setattr(dispatch, "_free_threads", BoundedSemaphore(WORKER_THREADS))
    monkeypatch.setattr(leases.LEASES, "_closing", False)
    imported()
    over = Event()
    stub.tools["echo"].does = lambda given: {"content": [], "isError": not over.wait(30)}
    with ThreadPoolExecutor(1) as clients:
        answer = clients.submit(status_of, api)
        until(lambda: stub.requests_for("tools/call"))
        assert hand_back_calls(10)
        execution = Execution.objects.get(organization=agent.organization)
        assert (execution.status, execution.error_code) == ("Failed", "OUTCOME_UNKNOWN")
        assert answer.result() == "Failed"
        over.set()
    assert status_of(api, wait_s=1, timeout="PT1S") == "Pending"
    assert len(dispatched) == 1


@pytest.mark.parametrize(
    ("options", "workers"),
    [({"wait_s": 0}, 1), ({"wait_s": 1}, 1), ({"wait_s": 0, "require_confirmation": True}, 0)],
    ids=["not waited for", "not to its end", "held"],
)
def test_workers_perform_what_may_outlast_its_caller(
    api: Api,
    imported: Callable[[], Tool],
    dispatched: list[object],
    options: dict[str, object],
    workers: int,
) -> None:
    imported()
    assert status_of(api, **options) in {"Pending", "RequiresConfirmation"}
    assert len(dispatched) == workers


def test_workers_perform_what_has_no_place_here(
    api: Api, imported: Callable[[], Tool], dispatched: list[object]
) -> None:
    imported()
    for _ in range(WORKER_THREADS):
        assert dispatch.take_thread(wait=False)
    try:
        answer = api.execute("echo", {"a": 1}, options={"wait_s": 1, "timeout": "PT1S"})
    finally:
        for _ in range(WORKER_THREADS):
            dispatch.release_thread()
    assert answer.json()["status"] == "Pending"
    assert len(dispatched) == 1


def test_workers_perform_all_calls_where_the_setting_says_so(
    api: Api, imported: Callable[[], Tool], dispatched: list[object], settings: object
) -> None:
    settings.EXECUTE_IN_PLACE = "none"  # type: ignore[attr-defined]
    imported()
    assert status_of(api, wait_s=1, timeout="PT1S") == "Pending"
    assert len(dispatched) == 1


def test_workers_perform_calls_of_servers_that_they_start(
    api: Api, imported: Callable[[], Tool], server: McpServer, dispatched: list[object]
) -> None:
    imported()
    McpServer.objects.filter(pk=server.pk).update(transport=Transport.STDIO, command="true", url="")
    server.organization.save()
    assert status_of(api, wait_s=1, timeout="PT1S") == "Pending"
    assert len(dispatched) == 1


def test_workers_perform_what_runs_in_the_sandbox(
    api: Api, agent: Agent, dispatched: list[object]
) -> None:
    factories.tool(agent.organization, "echo")
    answer = api.execute("echo", {"text": "x"}, options={"wait_s": 1, "timeout": "PT1S"})
    assert answer.json()["status"] == "Pending"
    assert len(dispatched) == 1
