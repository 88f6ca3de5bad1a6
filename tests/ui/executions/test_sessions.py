"""`/sessions/<id>/`: one workflow of one caller."""

from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.pages import notes, text
from tools.execution import session_actions
from tools.models import Agent, Organization, Session


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
