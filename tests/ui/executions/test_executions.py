from uuid import uuid4

import pytest
from django.db.models.functions import Now
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.pages import htmx, notes, text
from tools.execution.admit import admit
from tools.execution.events import append_event
from tools.models import Agent, Execution, Organization, Session, StateTransition
from tools.workflows import session_actions


@pytest.fixture
def waiting(organization: Organization, agent: Agent) -> Execution:
    """Accepted, and never run: it was dispatched to no worker."""
    factories.tool(organization)
    return admit(factories.caller(agent), factories.call("echo", {"text": "<b>hi"}))


def test_the_list_shows_who_called_what(admin_client: Client, waiting: Execution) -> None:
    page = text(admin_client.get("/executions/"))
    assert "echo" in page
    assert waiting.agent.slug in page
    assert 'data-status="Pending"' in page


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("query", "there"),
    [("status=Pending", True), ("status=Success", False), ("tool=echo", True), ("tool=x", False),
     ("agent=nobody", False), ("before=garbage", False),
     ("since=2000-01-01T00:00Z", True), ("since=2999-01-01T00:00Z", False),
     ("status=failed", False)],
)  # fmt: skip
def test_the_list_is_filtered(
    admin_client: Client, waiting: Execution, query: str, there: bool
) -> None:
    assert (f"row-{waiting.pk}" in text(admin_client.get(f"/executions/?{query}"))) is there


@pytest.mark.parametrize("status", ["Failed", "Timeout", "SandboxError"])
def test_failures_of_every_kind_are_one_filter(
    admin_client: Client, waiting: Execution, status: str
) -> None:
    factories.end_execution(waiting, status=status)
    page = text(admin_client.get("/executions/?status=failed"))
    assert f"row-{waiting.pk}" in page and '<option value="failed" selected>' in page


@pytest.mark.parametrize(
    "wrong",
    ["yesterday", "2026-02-30T00:00Z", "2026-01-31T12:00", "0001-01-01T00:00%2B23:59"],
)
def test_a_moment_that_is_none_is_said(admin_client: Client, wrong: str) -> None:
    response = admin_client.get(f"/executions/?since={wrong}")
    assert response.status_code == 400 and "since" in notes(response)["refused"][0]


def test_the_list_tells_htmx_when_nothing_changed(admin_client: Client, waiting: Execution) -> None:
    page = text(admin_client.get("/executions/"))
    address = page.split('data-every="2" hx-get="')[1].split('"')[0]
    assert admin_client.get(address, headers=htmx("results")).status_code == 204
    Execution.objects.filter(pk=waiting.pk).update(status="Cancelled", completed_at=Now())
    part = admin_client.get(address, headers=htmx("results"))
    assert 'data-status="Cancelled"' in text(part)


def test_older_pages_follow_the_last_row(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    caller = factories.caller(agent)
    made = [admit(caller, factories.call("echo", {"text": str(at)})) for at in range(51)]
    page = text(admin_client.get("/executions/"))
    assert f"row-{made[0].pk}" not in page
    older = text(admin_client.get(f"/executions/?before={made[1].pk}"))
    assert f"row-{made[0].pk}" in older
    assert "data-every" not in older


def test_an_open_execution_fills_live_and_a_finished_one_rests(
    admin_client: Client, waiting: Execution
) -> None:
    address = f"/executions/{waiting.pk}/"
    append_event(waiting.pk, "Warning", "<i>odd</i>")
    live = text(admin_client.get(address, headers=htmx("moving")))
    assert f'data-live="{waiting.pk}" data-every="1"' in live
    assert "&lt;i&gt;odd" in live
    assert "&lt;b&gt;hi" in live
    admin_client.post(f"{address}cancel")
    assert "data-every" not in text(admin_client.get(address))


def test_an_open_execution_is_sent_again_only_when_something_happened(
    admin_client: Client, waiting: Execution
) -> None:
    live = text(admin_client.get(f"/executions/{waiting.pk}/"))
    address = live.split('data-every="1" hx-get="')[1].split('"')[0].replace("&amp;", "&")
    assert admin_client.get(address, headers=htmx("moving")).status_code == 204
    append_event(waiting.pk, "Warning", "odd")
    assert "odd" in text(admin_client.get(address, headers=htmx("moving")))


def test_it_is_cancelled_with_a_button(admin_client: Client, waiting: Execution) -> None:
    response = admin_client.post(f"/executions/{waiting.pk}/cancel")
    assert response["Location"] == f"/executions/{waiting.pk}/"
    waiting.refresh_from_db()
    assert waiting.status == "Cancelled"
    assert admin_client.post(f"/executions/{waiting.pk}/cancel").status_code == 302


def test_its_page_leads_to_its_evidence(admin_client: Client, waiting: Execution) -> None:
    page = text(admin_client.get(f"/executions/{waiting.pk}/"))
    assert f"/audit/?execution={waiting.pk}" in page


def test_view_execution_shows_those_of_one_organization(client_of, waiting: Execution) -> None:
    assert f"row-{waiting.pk}" in text(client_of("tools.view_execution").get("/executions/"))
    stranger = factories.superuser(factories.organization(f"org-{uuid4().hex[:12]}"))
    client = Client()
    client.force_login(stranger, backend="tools.accounts.login.login.PeopleBackend")
    assert client.get(f"/executions/{waiting.pk}/").status_code == 404


def test_a_call_of_a_session_shows_where_its_workflow_stands(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    caller = factories.caller(agent)
    session, _ = session_actions.open_session(caller=caller, group=["default"], state="<draft>")
    call = factories.call("echo", {"text": "x"}, session=str(session.pk))
    execution = admit(caller, call)
    StateTransition.objects.create(
        organization=organization, session=session, execution=execution, tool_name="echo",
        from_state="<draft>", to_state="review",
    )  # fmt: skip
    page = text(admin_client.get(f"/executions/{execution.pk}/"))
    card = page.partition('id="session"')[2].partition("</section>")[0]
    assert str(session.pk) in card
    assert "&lt;draft&gt; → review" in card and 'aria-current="step"' in card
    assert "session-closed" not in notes(card)


def test_a_call_without_a_session_shows_none(admin_client: Client, waiting: Execution) -> None:
    assert 'id="session"' not in text(admin_client.get(f"/executions/{waiting.pk}/"))


@pytest.mark.parametrize(
    ("code", "details", "asked"),
    [
        ("OUTCOME_UNKNOWN", {}, True),
        ("TIMEOUT", {"effect_possible": True}, True),
        ("TIMEOUT", {}, False),
    ],
)
def test_where_an_effect_may_have_happened_a_person_is_asked_to_say_so(
    admin_client: Client, waiting: Execution, code: str, details: dict[str, bool], asked: bool
) -> None:
    Execution.objects.filter(pk=waiting.pk).update(
        status="Failed", completed_at=Now(), error_code=code, error_details=details
    )
    page = text(admin_client.get(f"/executions/{waiting.pk}/"))
    assert (f"/executions/{waiting.pk}/resolve" in page) is asked
    found = Execution.objects.unresolved().filter(pk=waiting.pk).exists()
    assert (found, Execution.objects.get(pk=waiting.pk).unresolved) == (asked, asked)


def test_a_large_output_is_led_to_and_an_expired_one_says_when(
    admin_client: Client, waiting: Execution
) -> None:
    digest, at = f"sha256:{'0' * 64}", f"/executions/{waiting.pk}/"
    factories.end_execution(
        waiting, output_digest=digest, output_type="application/json", output_bytes=9
    )
    page = text(admin_client.get(at))
    assert f"/api/v1/executions/{waiting.pk}/output" in page
    row = Execution.objects.filter(pk=waiting.pk)
    row.update(output_digest="", output_type="", output_expired_at=Now())
    page = text(admin_client.get(at))
    assert "output-expired" in notes(page) and "/output" not in page


def test_a_page_shows_a_reference_and_not_what_it_stood_for(
    admin_client: Client, waiting: Execution, agent: Agent
) -> None:
    factories.end_execution(waiting, output={"name": "swordfish"}, output_bytes=20)
    value = {"$result": str(waiting.pk), "path": "/output/name"}
    made = admit(factories.caller(agent), factories.call("echo", {"text": value}))
    assert made.parameters == {"text": "swordfish"}
    page = text(admin_client.get(f"/executions/{made.pk}/"))
    assert "$result" in page and "swordfish" not in page


def opened(agent: Agent) -> Session:
    session, _ = session_actions.open_session(
        caller=factories.caller(agent), group=["default"], state=None
    )
    return session


def test_a_session_shows_its_state_and_its_calls(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    factories.tool(organization)
    session = opened(agent)
    call = factories.execution(agent, session=str(session.pk))
    page = text(admin_client.get(f"/sessions/{session.pk}/"))
    assert agent.slug in page and "not-moved" in notes(page)
    assert f"/sessions/{session.pk}/end" in page
    assert f"/executions/{call.pk}/" in page
    assert f"/sessions/{session.pk}/" in text(admin_client.get(f"/agents/{agent.slug}/"))


def test_a_session_is_ended(admin_client: Client, agent: Agent) -> None:
    session = opened(agent)
    assert admin_client.post(f"/sessions/{session.pk}/end").status_code == 302
    session.refresh_from_db()
    assert session.closed_at is not None
    assert AuditRecord.objects.filter(code="SESSION.CLOSE", subject=str(session.pk)).exists()
    assert f"/sessions/{session.pk}/end" not in text(admin_client.get(f"/sessions/{session.pk}/"))


def test_who_sees_sessions_and_may_not_change_them_ends_none(client_of, agent: Agent) -> None:
    session, client = opened(agent), client_of("tools.view_session")
    assert f"/sessions/{session.pk}/end" not in text(client.get(f"/sessions/{session.pk}/"))
    assert client.post(f"/sessions/{session.pk}/end").status_code == 403
    session.refresh_from_db()
    assert session.closed_at is None
