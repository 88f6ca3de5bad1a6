"""The list of every kind of row: its database queries, and what no user may do there."""

from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib import admin
from django.db import connection, transaction
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from audit.models import (
    Alert,
    AlertDelivery,
    AlertRule,
    AuditKey,
    AuditLeaf,
    AuditLog,
    AuditNode,
    AuditPayload,
    AuditRecord,
    AuditSegment,
    Checkpoint,
    CheckpointKey,
)  # fmt: skip
from tests import factories
from tests.tools.api.test_authorization_matrix import Side
from tests.ui.pages import POLICY, inline_code, text
from tools import models
from tools.admin.base import MOST_COUNTED, ReadOnly
from tools.execution.admit import admit
from tools.models import (
    Agent,
    Confirmation,
    Execution,
    ExecutionEvent,
    LicenseTier,
    McpAuthorization,
    McpCredential,
    McpServer,
    Message,
    Organization,
    PersonSession,
    Session,
    StateTransition,
    Token,
    Tool,
    ToolGroup,
    ToolVersion,
    User,
)
from tools.workflows import session_actions

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


def test_a_person_who_is_no_administrator_is_refused(organization: Organization) -> None:
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
    """They are stored by id, which is not readable."""
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


NOT_REGISTERED = {
    AuditRecord: "read at /audit/, where it is on record that it was",
    AuditPayload: "what a record said: the same, and encrypted",
    AuditKey: "the keys that payloads are encrypted with",
    AuditLeaf: "hashes of the log's tree; /audit/ proves with them",
    AuditNode: "hashes of the log's tree; /audit/ proves with them",
    models.RateHit: "one a call, for a minute; the limits stand at tools and agents",
    models.ExecutionKey: "what must be unique of executions, which are registered",
    models.StoredEvent: "shown as events of executions, which are registered",
    models.OpenExecution: "executions that have not ended, which are registered",
    models.DayOfCalls: "made of the executions; /usage/ shows it",
    models.DayFigures: "made of the executions; /usage/ shows it",
    models.RecoveryCode: "digests of what people keep; the profile says how many are left",
    models.CacheEntry: "hashes that lead to executions, which are registered",
    models.IdempotencyKey: "answers for a day, of which secrets were taken out",
    models.KnowledgeEntry: "made of the graph; /knowledge/ asks who may see which",
    models.KnowledgePending: "for the seconds of a write to a graph",
    models.UsedName: "written by the database; the page of a person says the name they have",
    models.McpConsent: "a person on the way to an authorization server, for minutes",
    models.CatalogNames: "a list of names that filters of requests refer to",
    models.ToolWords: "made of the tools, for search",
    models.ToolSearch: "made of the tools, for search",
    models.ToolQuestion: "made of the tools, for search",
}
GRANT_ROWS = "GroupObjectPermission", "UserObjectPermission"  # at each row's object permissions
MATRICES = pytest.mark.part("matrices")
LISTED = sorted(
    (model for model in admin.site._registry if model._meta.app_label in ("tools", "audit")),
    key=lambda model: model._meta.label,
)
FEW_ROWS = {AlertRule, models.ConfirmationRule, models.MessageChannel}  # for an installation
SUPERUSER_ONLY = {models.ToolFilter}
MOST_QUERIES = 14  # who it is, the notices, and the rows with what their filters offer


def queries(client: Client) -> dict[type[Model], list[str]]:
    """Of each list."""
    found = {}
    for model in LISTED:
        with CaptureQueriesContext(connection) as caught:
            assert client.get(place(model, "changelist")).status_code == 200, model
        found[model] = [one["sql"] for one in caught.captured_queries]
    return found


def fill(label: str) -> None:
    """An organization with one of everything, and more of what there is most of."""
    organization = factories.organization(f"lists-{label}-{uuid4().hex[:8]}")
    side = Side(organization, label)
    _ = side.execution, side.confirmation, side.change, side.run
    alert = Alert.objects.get(pk=side.alert.pk)
    AlertDelivery.objects.create(alert=alert, channel=side.channel)
    log, _ = AuditLog.objects.get_or_create(name=organization.slug)
    Checkpoint.objects.create(log=log, size=1, root=b"r" * 32, note="n")
    AuditSegment.objects.create(log=log, first=0, end=1, file=f"{label}.jsonl", note="n")
    CheckpointKey.objects.create(key_id=uuid4().hex[:8], name="key", public=b"p" * 32)


def test_every_kind_of_row_is_registered_or_has_its_reason() -> None:
    ours = [one for one in apps.get_models() if one._meta.app_label in ("tools", "audit")]
    missing = {
        model
        for model in ours
        if model not in admin.site._registry and not model.__name__.endswith(GRANT_ROWS)
    }
    assert missing == set(NOT_REGISTERED)


def test_the_first_page_shows_every_kind_of_row_in_a_section(admin_client: Client) -> None:
    shown = admin_client.get("/admin/").context["app_list"]
    names = [one["object_name"] for section in shown for one in section["models"]]
    assert sorted(names) == sorted(model.__name__ for model in admin.site._registry)
    assert "Other" not in [section["name"] for section in shown]


@MATRICES  # tests/ui/test_queries.py asks one of these lists
@pytest.mark.usefixtures("crib")  # a `Side` tries a schema in the sandbox
def test_a_list_asks_for_one_page_and_no_query_for_each_row(admin_client: Client) -> None:
    fill("a")
    queries(admin_client)  # what processes keep is kept from now on
    few = queries(admin_client)
    for label in "bcd":
        fill(label)
    many = queries(admin_client)
    assert [flaw for model in LISTED for flaw in flaws(model, few[model], many[model])] == []


def flaws(model: type[Model], few: list[str], many: list[str]) -> list[str]:
    """What a list asks too much with few rows or with many."""
    own = [sql for sql in many if f'FROM "{model._meta.db_table}"' in sql]
    counting = [sql for sql in own if sql.startswith("SELECT COUNT(")]
    found = []
    if len(many) > len(few):
        found += ["a query for each row", *many[len(few) :]]
    if len(many) > MOST_QUERIES:
        found += [f"{len(many)} queries"]
    if not counting or not all(f"LIMIT {MOST_COUNTED + 1}" in sql for sql in counting):
        found += ["counts further than pages go", *counting]
    if model not in FEW_ROWS:
        found += [sql for sql in own if "DISTINCT" in sql or "MIN(" in sql]
    if admin.site._registry[model].list_per_page > 50:
        found += ["a long page"]
    return [f"{model._meta.label}: {flaw}" for flaw in found]


@pytest.mark.parametrize(
    "searched",
    [['% a"' + "9" * 40], pytest.param(["x", "%", "a b", '"', "9" * 40], marks=MATRICES)],
)
def test_a_list_can_be_searched_without_fault(admin_client: Client, searched: list[str]) -> None:
    admin_client.raise_request_exception = False
    wrong = []
    for model, words in product(LISTED, searched):
        page = get_list(admin_client, model, q=words)
        if page.status_code != 200 or inline_code(page) != []:
            wrong.append((model, words, page.status_code, inline_code(page)))
    assert wrong == []


def get_list(client: Client, model: type[Model], **query: str) -> Any:
    """The list, so that a fault of the database does not outlast it."""
    with transaction.atomic():
        page = client.get(place(model, "changelist"), query)
        transaction.set_rollback(True)
    return page


@pytest.mark.parametrize(
    "slugs",
    [["<script>"], pytest.param(["default", "nobody", "<script>"], marks=MATRICES)],
)
def test_a_list_is_narrowed_to_one_organization(admin_client: Client, slugs: list[str]) -> None:
    admin_client.raise_request_exception = False
    narrowed = [model for model in LISTED if admin.site._registry[model].place]  # type: ignore[attr-defined]
    wrong = []
    for model, slug in product(narrowed, slugs):
        page = get_list(admin_client, model, organization=slug)
        if page.status_code != 200 or "<script>" in text(page).partition("<main")[2]:
            wrong.append((model, slug, page.status_code))
    assert narrowed and wrong == []


@pytest.mark.part("matrices")
@pytest.mark.usefixtures("crib")  # a `Side` tries a schema in the sandbox
def test_rows_of_others_are_not_there_for_staff(staff_client: Any) -> None:
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    side = Side(other, "x")
    _ = side.execution, side.confirmation, side.change
    names = [f"view_{model._meta.model_name}" for model in LISTED]
    client = staff_client(*names)
    for model in set(LISTED) - SUPERUSER_ONLY - {models.LicenseTier, CheckpointKey}:
        page = client.get(place(model, "changelist"))
        if page.status_code == 200:
            home_of = admin.site._registry[model].organization_of  # type: ignore[attr-defined]
            found = page.context["cl"].queryset
            assert not any(home_of(row) == other for row in found), model


def test_what_is_read_only_is_added_changed_and_deleted_by_no_user(admin_client: Client) -> None:
    evidence = [one for one in LISTED if isinstance(admin.site._registry[one], ReadOnly)]
    added = {one: admin_client.post(place(one, "add"), {}).status_code for one in evidence}
    assert added == dict.fromkeys(evidence, 403)
    request = _request(admin_client)
    actions = {one: dict(admin.site._registry[one].get_action_choices(request)) for one in evidence}
    assert [one for one, offered in actions.items() if "delete_selected" in offered] == []


def _request(client: Client) -> Any:
    return client.get("/admin/").wsgi_request


def test_no_page_shows_what_is_sealed(admin_client: Client, organization: Organization) -> None:
    request = _request(admin_client)
    for model in LISTED:
        registered = admin.site._registry[model]
        shown = {*registered.get_fields(request), *registered.list_display}
        assert not shown & {"sealed", "secret", "secret_hash", "content", "wrapped", "session_key"}


def test_an_execution_is_cancelled_by_the_action_of_everywhere_else(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, "held", requires_confirmation=True)
    made = factories.execution(factories.agent(organization), "held")
    data = {"action": "cancel", "_selected_action": str(made.pk)}
    admin_client.post(place(Execution, "changelist"), data)
    made.refresh_from_db()
    assert made.status == "Cancelled"
    assert AuditRecord.objects.filter(organization=organization.slug, execution_id=made.pk).exists()


def test_who_may_only_look_cancels_and_acknowledges_nothing(
    staff_client: Any, organization: Organization
) -> None:
    made = factories.execution(factories.agent(organization), factories.tool(organization).name)
    client = staff_client("view_execution", "view_alert", "view_personsession")
    for model, action in ((Execution, "cancel"), (Alert, "acknowledge"), (PersonSession, "end")):
        data = {"action": action, "_selected_action": str(made.pk)}
        client.post(place(model, "changelist"), data)
    made.refresh_from_db()
    assert made.status == "Pending"


def test_a_rule_of_confirmations_is_written_changed_and_removed_on_record(
    admin_client: Client, organization: Organization
) -> None:
    rule = {"name": "big", "enabled": "on", "tool_name": "write_file", "approvals_needed": 2}
    model = models.ConfirmationRule
    admin_client.post(place(model, "add"), rule)
    row = model.objects.get(organization=organization)
    admin_client.post(place(model, "change", row.pk), rule | {"approvals_needed": 1})
    refused = text(admin_client.post(place(model, "change", row.pk), {"approvals_needed": 1}))
    admin_client.post(place(model, "delete", row.pk), {"post": "yes"})
    codes = AuditRecord.objects.filter(organization=organization.slug, subject="big")
    assert codes.count() == 3 and not model.objects.filter(pk=row.pk).exists()
    assert "errornote" in refused


def test_no_user_decides_a_confirmation_in_the_administration(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, "held", requires_confirmation=True)
    made = factories.execution(factories.agent(organization), "held")
    held = Confirmation.objects.get(execution=made)
    page = admin_client.get(place(Confirmation, "change", held.pk))
    assert page.status_code == 200 and 'name="_save"' not in text(page)
    assert admin_client.post(place(Confirmation, "change", held.pk), {}).status_code == 403


@pytest.mark.parametrize(
    ("model", "lookup"),
    [
        (models.Token, "digest__startswith"), (models.User, "password__startswith"),
        (models.User, "organization__name__startswith"), (models.Execution, "parameters__text"),
        (models.Message, "body__contains"), (models.Organization, "slug__gte"),
        (models.User, "granted_groups__exact"),
    ],
)  # fmt: skip
def test_no_column_is_read_by_a_lookup_that_no_filter_offers(admin_client, model, lookup):
    answer = admin_client.get(place(model, "changelist"), {lookup: "a"})
    assert answer.status_code == 400
