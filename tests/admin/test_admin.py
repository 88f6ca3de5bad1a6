"""The administration as a whole: who gets in, what is registered, what is only to be read."""

from uuid import uuid4

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from audit.models import AuditRecord
from tests import factories
from tests.ui.pages import POLICY, inline_code, text
from tools.execution import session_actions
from tools.execution.pipeline import admit
from tools.models import (
    Agent,
    Execution,
    ExecutionEvent,
    LicenseTier,
    McpAuthorization,
    McpCredential,
    McpServer,
    Message,
    Organization,
    Session,
    StateTransition,
    Token,
    Tool,
    ToolGroup,
    ToolVersion,
    User,
)

EVIDENCE = (ToolVersion, Execution, ExecutionEvent, Session, StateTransition)
CHANGEABLE = (Agent, LicenseTier, Organization, Tool, ToolGroup, User)


def place(model, what: str, *args) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{what}", args=args)


@pytest.fixture
def execution(organization: Organization, agent: Agent) -> Execution:
    factories.tool(organization)
    caller = factories.caller(agent)
    session, _ = session_actions.open_session(caller=caller, group=None, state=None)
    made = admit(caller, factories.call("echo", {"text": "x"}, session=str(session.pk)))
    StateTransition.objects.create(
        organization=organization, session=session, execution=made, tool_name="echo",
        from_state="undefined", to_state="analysis",
    )  # fmt: skip
    return made


def test_everything_is_registered() -> None:
    for model in (*EVIDENCE, *CHANGEABLE, Token):
        assert admin.site.is_registered(model), model


@pytest.mark.parametrize("model", [*EVIDENCE, *CHANGEABLE, Token])
def test_each_list_obeys_the_policy(admin_client: Client, execution: Execution, model) -> None:
    page = admin_client.get(place(model, "changelist"))
    assert page.status_code == 200
    assert POLICY in page["Content-Security-Policy"]
    assert inline_code(page) == []
    assert "no-store" in page["Cache-Control"]


@pytest.mark.parametrize("model", [*EVIDENCE, *CHANGEABLE, Token])
def test_each_row_obeys_the_policy(admin_client: Client, execution: Execution, model) -> None:
    people = {"is_service_account": False} if model is User else {}
    row = model.objects.order_by("-pk").filter(**people).first()
    if model is ExecutionEvent:
        return  # none before it runs
    page = admin_client.get(place(model, "change", row.pk))
    assert page.status_code == 200
    assert inline_code(page) == []


@pytest.mark.parametrize("model", EVIDENCE)
def test_evidence_is_only_to_be_read(admin_client: Client, execution: Execution, model) -> None:
    row = model.objects.order_by("-pk").first()
    assert admin_client.get(place(model, "add")).status_code == 403
    if row is not None:
        assert admin_client.post(place(model, "change", row.pk), {}).status_code == 403
        assert admin_client.post(place(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    doomed = {"action": "delete_selected", "_selected_action": str(row and row.pk), "post": "yes"}
    admin_client.post(place(model, "changelist"), doomed)
    assert row is None or model.objects.filter(pk=row.pk).exists()


def test_a_visitor_is_led_to_our_login(client: Client, db: None) -> None:
    response = client.get("/admin/", follow=True)
    assert response.redirect_chain[-1][0] == "/login/?next=/admin/"


def test_a_person_who_is_no_administrator_is_told_so(organization: Organization) -> None:
    client = Client()
    person = factories.person(organization)
    client.force_login(person, backend="tools.accounts.login.login.PeopleBackend")
    assert client.get("/admin/", follow=True).status_code == 403


def test_logging_out_here_is_recorded(admin_client: Client, admin_user: User) -> None:
    admin_client.post("/admin/logout/", follow=True)
    assert AuditRecord.objects.filter(code="AUTH.LOGOUT", actor=admin_user.username).exists()


@pytest.mark.parametrize("model", [Agent, Tool, ToolGroup, User, ToolVersion, Organization])
def test_staff_see_their_own_organization_alone(staff_client, model) -> None:
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    factories.agent(other)
    factories.tool(other, "theirs")
    foreign = {
        Agent: other.agents.first,
        Tool: other.tools.first,
        ToolGroup: other.groups.first,
        User: lambda: factories.person(other),
        ToolVersion: lambda: other.tools.first().version,
        Organization: lambda: other,
    }[model]()
    client = staff_client(f"view_{model._meta.model_name}", f"change_{model._meta.model_name}")
    assert str(foreign.pk) not in text(client.get(place(model, "changelist")))
    assert client.get(place(model, "change", foreign.pk)).status_code == 302


def test_staff_without_a_permission_are_refused(staff_client) -> None:
    client = staff_client("view_agent")
    assert client.get(place(Tool, "changelist")).status_code == 403
    assert client.get(place(Agent, "add")).status_code == 403


def test_records_are_read_where_reading_is_recorded_and_not_here(admin_client: Client) -> None:
    assert AuditRecord not in admin.site._registry
    assert admin_client.get("/admin/audit/auditrecord/").status_code == 404


def test_an_execution_is_shown_without_its_secrets(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    factories.tool(organization)
    made = admit(factories.caller(agent), factories.call("echo", {"text": "token=c4nary-9137"}))
    page = text(admin_client.get(place(Execution, "change", made.pk)))
    assert "[redacted" in page
    assert "c4nary" not in page


def test_an_identifier_that_is_none_is_no_fault_of_ours(admin_client: Client) -> None:
    assert admin_client.get("/admin/tools/tool/garbage/change/").status_code == 302
    assert admin_client.get("/admin/tools/tool/garbage/permissions/").status_code == 404


def test_owners_and_addressees_are_shown_by_name(admin_client, organization, agent, staff):
    """They are kept by id, which nobody reads."""
    made = {"organization": organization, "name": "far", "url": "https://mcp.example/mcp"}
    server = McpServer.objects.create(**made)
    own = {"server": server, "sealed": b"x"}
    McpCredential.objects.create(owner=f"user:{staff.pk}", **own)
    McpAuthorization.objects.create(owner=f"agent:{agent.pk}", url=server.url, **own)
    sent = Message.objects.create(
        organization=organization, channel_name="way", kind="inbox", sender="agent:bot",
        subject="Words", body="Words.", addressees=[staff.pk],
    )  # fmt: skip
    for model, said in (
        (McpCredential, f"user:{staff.username} ({staff.pk})"),
        (McpAuthorization, f"agent:{agent.slug} ({agent.pk})"),
    ):
        listed, row = (
            place(model, "changelist"),
            place(model, "change", model.objects.get(server=server).pk),
        )
        pages = [listed, row, f"{listed}?q={said.split()[0]}", f"{listed}?q=nobody"]
        assert [said in text(admin_client.get(one)) for one in pages] == [True, True, True, False]
    page = text(admin_client.get(place(Message, "change", sent.pk)))
    assert f"{staff.username} ({staff.pk})" in page
