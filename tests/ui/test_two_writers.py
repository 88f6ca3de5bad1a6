"""Two administrators have the same form open. What the first one saved is never taken back by the
second one's, who sees it beside their own and loses nothing that was typed (review 1.2)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.test import Client

from tests import factories
from tests.ui.pages import form_fields, notes, text
from tests.ui.post_forms import every_form
from tests.ui.sources import server
from tools.catalog.groups import save_group
from tools.catalog.mcp import mcp_consents
from tools.catalog.mcp.mcp_catalog import catalog_servers
from tools.catalog.mcp.mcp_values import opened_values
from tools.catalog.sandbox import content_schemas
from tools.catalog.services import services
from tools.catalog.workflow.chain_texts import read_text
from tools.messaging import message_channels
from tools.models import Agent, McpServer, Organization, User


@dataclass(frozen=True)
class EditForm:
    """`theirs` and `yours` are different fields of one form, each with a value it does not have."""

    address: str
    theirs: dict[str, str]
    yours: dict[str, str]
    make: Callable[[Organization], Any] = lambda organization: None
    also: dict[str, str] = field(default_factory=dict)  # what the reader of forms does not see


def make_channel(organization: Organization) -> None:
    said = {"name": "desk", "kind": "inbox", "recipients": ["ada"]}
    by = factories.actor(organization)
    message_channels.create_channel(organization=organization, channel=said, by=by)


def make_server(organization: Organization) -> None:
    server(organization, "far", "https://mcp.example/mcp")


def make_client(organization: Organization) -> None:
    make_server(organization)
    row = McpServer.objects.get(organization=organization, name="far")
    given = {"client_id": "me", "client_secret": "swordfish"}
    mcp_consents.set_client(row=row, client=given, by=factories.actor(organization))


def make_service(organization: Organization) -> None:
    said = {"id": "rag", "request_queue": "asked", "response_queue": "answered"}
    by = factories.actor(organization)
    services.create_service(organization=organization, service=said, by=by)


def make_schema(organization: Organization) -> None:
    said = {"name": "order", "document": {"type": "object"}}
    by = factories.actor(organization)
    content_schemas.create_schema(organization=organization, schema=said, by=by)


def make_group(organization: Organization) -> None:
    save_group(organization=organization, name="reading", by=factories.actor(organization))


CHAIN = """\
name: twice
description: Says it twice.
parameters:
- {name: text, type: String, description: Anything., required: true}
group:
- talk
steps:
- id: first
  tool_name: echo
  parameters:
    text: {$input: /text}
output: {$step: first}
"""


def make_chain(organization: Organization) -> None:
    factories.tool(organization, group=["talk"])
    factories.register(organization, read_text(organization, CHAIN).raw)


# Forms with fields that carry nothing that they were filled from, by what they do.
CREATES = {
    "agent-new", "agent-request-new", "agent-token-new", "alert-rule-new", "audit-exports",
    "chain-new", "channel-new", "group-new", "import", "knowledge-import", "profile-token-new",
    "execution-retry", "schema-new", "server-new", "service-new", "tool-new",
}  # fmt: skip
ADDS = {"agent-give", "server-credentials"}  # to what there is; what is not named stays
CALLS_A_TOOL = {"tool-call"}
ASKS_OTHERS = {"channel-try", "server-connect", "server-refresh"}
# What is decided is named by its digest or identifier, and is refused once it is decided.
DECIDES = {
    "alert-acknowledge", "agent-resume", "agent-suspend", "batch-cancel", "change-decide",
    "confirmations-decide", "execution-resolve",
}  # fmt: skip
PROVES = {"factor-app", "factor-key", "login-again", "profile-password"}  # by a password or a code
# New rows; lists, whose actions are about rows by name; a password, which is replaced.
ADMIN_CREATES = ("_add", "_changelist", "_password_change")
FILLED_FROM_NOTHING = CREATES | ADDS | CALLS_A_TOOL | ASKS_OTHERS | DECIDES | PROVES


@pytest.mark.timeout(300)
def test_each_form_that_changes_a_row_carries_what_it_was_filled_from(
    organization: Organization, admin_user: User, admin_client: Client
) -> None:
    wrong = [
        (form.page, form.view, form.visible)
        for form in every_form(organization, admin_user, admin_client)
        if form.visible
        and "filled_from" not in form.sent
        and form.view not in FILLED_FROM_NOTHING
        and not (form.view.startswith("admin:") and form.view.endswith(ADMIN_CREATES))
    ]
    assert wrong == []


EDIT_FORMS = {
    "chain": EditForm(
        "/chains/twice/edit/",
        {"text": CHAIN.replace("Says it twice.", "Says it again.")},
        {"text": CHAIN.replace("id: first", "id: once").replace("step: first", "step: once")},
        make_chain,
    ),
    "client": EditForm(
        "/servers/far/client/", {"client_id": "you"}, {"grant": "client_credentials"}, make_client
    ),
    "group": EditForm(
        "/groups/change/reading",
        {"schedule": "mon,tue 09:00-17:00"},
        {"description": "Reads"},
        make_group,
        {"do": "save"},
    ),
    "limits": EditForm(
        "/agents/{agent}/bounds/",
        {"allowances-0-amount": "5", "allowances-0-kind": "cost"},
        {"allowances-0-amount": "7", "allowances-0-kind": "calls"},
    ),
    "organization": EditForm(
        "/settings/organization/", {"minimum_isolation": "Restricted"}, {"name": "Rocket"}
    ),
    "schema": EditForm(
        "/schemas/order/edit/",
        {"document": '{\n  "type": "array"\n}'},
        {"document": '{\n  "type": "string"\n}'},
        make_schema,
    ),
    "server": EditForm(
        "/servers/far/edit/",
        {"on_drift": "serve", "group_kind": "these", "group": "a, b"},
        {"check_every_s": "45"},
        make_server,
    ),
    "service": EditForm(
        "/services/rag/edit/",
        {"request_queue": "other"},
        {"config_params": "language optional"},
        make_service,
    ),
    "tool": EditForm(
        "/editor/echo/",
        {"title": "Parrot", "group_kind": "these", "group": "a, b"},
        {"argument-0-name": "words", "description": "Says it again."},
        factories.tool,
    ),
    "agent": EditForm(
        "/agents/{agent}/edit/", {"max_in_flight": "3"}, {"description": "Counts parts"}
    ),
    "channel": EditForm(
        "/channels/desk/edit/", {"recipients": "bob"}, {"most_an_hour": "7"}, make_channel
    ),
}


@pytest.fixture(params=EDIT_FORMS)
def edit_form(request: pytest.FixtureRequest, organization: Organization, agent: Agent) -> EditForm:
    form = EDIT_FORMS[request.param]
    form.make(organization)
    address = form.address.format(agent=agent.slug)
    return EditForm(address, form.theirs, form.yours, also=form.also)


def test_what_another_person_saved_meanwhile_is_not_taken_back(
    edit_form: EditForm, admin_client: Client
) -> None:
    first, second = (form_fields(admin_client.get(edit_form.address)) for _ in range(2))
    assert not edit_form.theirs.items() <= first.items()
    theirs = first | edit_form.also | edit_form.theirs
    assert admin_client.post(edit_form.address, theirs).status_code == 302
    yours = second | edit_form.also | edit_form.yours
    answer = admin_client.post(edit_form.address, yours)
    assert answer.status_code == 409 and "conflict" in notes(answer)
    shown = form_fields(answer)
    both = edit_form.theirs | edit_form.yours
    assert {name: shown[name] for name in both} == both
    assert admin_client.post(edit_form.address, shown | edit_form.also).status_code == 302
    now = form_fields(admin_client.get(edit_form.address))
    assert {name: now[name] for name in both} == both


def test_a_form_that_is_saved_unchanged_says_so(edit_form: EditForm, admin_client: Client) -> None:
    same = form_fields(admin_client.get(edit_form.address)) | edit_form.also
    answer = admin_client.post(edit_form.address, same, follow=True)
    assert "Nothing changed." in notes(answer)["message-info"][0]


def test_a_form_with_an_altered_memory_writes_nothing(
    edit_form: EditForm, admin_client: Client
) -> None:
    sent = form_fields(admin_client.get(edit_form.address)) | edit_form.also | edit_form.yours
    answer = admin_client.post(edit_form.address, sent | {"filled_from": "forged"})
    assert answer.status_code == 409


def key_row(at: int, value: str) -> dict[str, str]:
    key = f"headers-{at}"
    return {f"{key}-name": "X-Key", f"{key}-kind": "value", f"{key}-value": value}


def test_a_secret_that_another_person_replaced_is_not_taken_back(
    admin_client: Client, organization: Organization
) -> None:
    make_server(organization)
    address = "/servers/far/edit/"
    admin_client.post(address, form_fields(admin_client.get(address)) | key_row(0, "swordfish"))
    before = form_fields(admin_client.get(address))
    admin_client.post(address, before | key_row(0, "hammerhead"))
    answer = admin_client.post(address, before | {"check_every_s": "45"})
    assert answer.status_code == 409 and "X-Key" in text(answer)
    assert "swordfish" not in text(answer) and "hammerhead" not in text(answer)
    assert admin_client.post(address, form_fields(answer)).status_code == 302
    own = catalog_servers(organization.pk)["far"].own
    assert opened_values(own, organization.pk)[0] == {"X-Key": "hammerhead"}
