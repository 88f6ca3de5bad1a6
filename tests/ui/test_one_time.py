"""A form that is sent twice, by a double click or a reload, acts once (review 1.5)."""

import re
import time
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import resolve

from audit.events import Outcome
from audit.models import AuditRecord
from tests import factories
from tests.tools.api.test_authorization_matrix import PAGES
from tests.ui.editor.test_editor import answers
from tests.ui.pages import notes, text
from tests.ui.post_forms import PostForm, every_form
from tests.ui.sources import server
from tools.catalog.registry import registry
from tools.messaging import message_channels
from tools.models import Agent, IdempotencyKey, MessageChannel, Organization, User
from tools.web import one_time

KEY = "a" * 22
NEW_CHANNEL = {
    "name": "hook", "url": "https://hooks.example/x", "most_an_hour": "60", "enabled": "yes",
    "subject_template": "{{ subject }}", "body_template": "{{ body }}",
}  # fmt: skip


def send(client: Client, address: str, form: dict[str, Any]) -> Any:
    return client.post(address, form | {"one_time_key": KEY})


def test_the_second_of_two_equal_forms_creates_nothing_and_says_so(
    admin_client: Client, organization: Organization
) -> None:
    form = {"slug": "counter", "groups": "default"}
    answers = [send(admin_client, "/agents/new/", form) for _ in range(2)]
    assert [answer["Location"] for answer in answers] == ["/agents/counter/"] * 2
    assert Agent.objects.filter(organization=organization, slug="counter").count() == 1
    assert "done once" in notes(admin_client.get("/agents/counter/"))["message-info"][0]


def test_the_same_key_with_other_content_is_another_form(
    admin_client: Client, organization: Organization
) -> None:
    for slug in ("one", "two"):
        assert send(admin_client, "/agents/new/", {"slug": slug}).status_code == 302
    assert organization.agents.count() == 2


def test_a_form_that_was_refused_can_be_sent_again(
    admin_client: Client, organization: Organization
) -> None:
    form = {"slug": "counter"}
    there = Agent.objects
    assert send(admin_client, "/agents/new/", {"slug": "-"}).status_code == 400
    assert send(admin_client, "/agents/new/", {"slug": "-"}).status_code == 400
    assert send(admin_client, "/agents/new/", form).status_code == 302
    assert there.filter(organization=organization).count() == 1


def test_a_secret_is_shown_once_by_the_page_that_follows(admin_client: Client) -> None:
    answers = [send(admin_client, "/channels/new/?kind=webhook", NEW_CHANNEL) for _ in range(2)]
    [shown] = {answer["Location"] for answer in answers}
    assert "whsec_" in text(admin_client.get(shown))
    assert "whsec_" not in text(admin_client.get(shown))


def test_a_key_that_is_replaced_twice_by_one_form_is_replaced_once(
    admin_client: Client, organization: Organization
) -> None:
    send(admin_client, "/channels/new/?kind=webhook", NEW_CHANNEL)
    for _ in range(2):
        answer = send(admin_client, "/channels/hook/key", {})
    row = MessageChannel.objects.get(organization=organization)
    key = message_channels.channel_secrets(row)["key"]
    assert key in text(admin_client.get(answer["Location"]))


def test_another_person_is_not_shown_the_secret(admin_client: Client, client_of: Any) -> None:
    shown = send(admin_client, "/channels/new/?kind=webhook", NEW_CHANNEL)["Location"]
    other = client_of("tools.change_messagechannel")
    assert "whsec_" not in text(other.get(shown))
    assert "whsec_" in text(admin_client.get(shown))


SERVER = {
    "name": "near", "url": "https://near.example/mcp", "credential_scope": "agent",
    "on_drift": "refuse", "check_every_s": "30", "group_kind": "default",
}  # fmt: skip
SERVICE = {
    "id": "rag", "request_queue": "asked", "response_queue": "answered", "groups_kind": "default"
}  # fmt: skip
HEADER = {"headers-0-name": "X-Key", "headers-0-kind": "value", "headers-0-value": "swordfish"}
ACTIONS = {  # those whose forms do nothing as they are shown: something must be typed
    "/agents/new/": {"slug": "counter", "groups": "default"},
    "/agents/{agent}/give": {"kind": "permission", "names": "mail.send"},
    "/agents/{agent}/tokens": {"label": "mail server", "days": "7", "scope": "execute"},
    "/channels/new/?kind=webhook": NEW_CHANNEL,
    "/channels/desk/key": {},
    "/editor/": answers(),
    "/groups/new/": {"name": "reading", "do": "save"},
    "/keys/": {},
    "/profile/tokens": {"label": "laptop", "days": "7", "scope": "read"},
    "/schemas/new/": {"name": "order", "kind": "json-schema", "document": "{{}}"},
    "/servers/far/client/": {
        "client_id": "me",
        "client_secret": "x",
        "grant": "client_credentials",
    },
    "/servers/far/credentials/": {"owner": "{agent}"} | HEADER,
    "/servers/new/": SERVER | HEADER,
    "/services/new/": SERVICE,
}


@pytest.mark.parametrize("address", ACTIONS)
def test_each_action_is_done_once_by_a_form_that_is_sent_twice(
    admin_client: Client, organization: Organization, agent: Agent, address: str
) -> None:
    server(organization, "far", "https://mcp.example/mcp", credential_scope="agent")
    said = {"name": "desk", "kind": "inbox", "recipients": ["ada"]}
    by = factories.actor(organization)
    message_channels.create_channel(organization=organization, channel=said, by=by)
    form = {name: value.format(agent=agent.slug) for name, value in ACTIONS[address].items()}
    records = AuditRecord.objects.filter(organization=organization.slug, outcome=Outcome.CHANGED)
    before = records.count()
    first = send(admin_client, address.format(agent=agent.slug), form)
    done = records.count()
    assert first.status_code == 302 and done > before
    second = send(admin_client, address.format(agent=agent.slug), form)
    assert second["Location"] == first["Location"] and records.count() == done


# Forms whose second answer is not the first one's, by why.
CALLS_A_TOOL = {"tool-call", "playground", "tool-try"}  # tests/ui/playground
LOGS_OUT = {"logout", "profile-session-end"}  # the second one leads to the login
PROVES = {"factor-app", "login", "login-again", "profile-password", "second-factor"}
LISTS_OF_ADMIN = "_changelist"  # actions on rows: the second one says that nothing changed
ANSWERED_OTHERWISE = CALLS_A_TOOL | LOGS_OUT | PROVES
# Shown in states that no page of the test is in, or by another way than a form.
ELSEWHERE = {
    "agent-request-new",  # where there is a model
    "alert-rule", "alert-rule-new", "catalog-change", "import", "knowledge-import",  # as previewed
    "audit-export-remove",  # of an export that is ready
    "catalog-undo", "licenses-undo",  # after a change
    "chain-check",  # while a text is typed; it saves nothing
    "execution-resolve", "execution-retry",  # of a call whose outcome is unknown, or that failed
    "factor-app-remove", "factor-codes", "factor-key-remove", "factor-key",  # of who has one
    "server-import",  # of what a server lists
    "service-decide",  # of an announcement
    "single-sign-on-connect", "single-sign-on-disconnect",  # none is configured
    "tool-drift", "tool-restore",  # of a tool of a server, and of an earlier version
}  # fmt: skip


def send_twice(client: Client, form: PostForm, button: tuple[str, str]) -> tuple[bool, str]:
    """Whether the form did something, and what is wrong with the second answer. All of it is taken
    back."""
    records = AuditRecord.objects.filter(outcome=Outcome.CHANGED)
    sent, wrong = form.sent | dict([button]), ""
    client.cookies.pop("messages", None)
    with transaction.atomic():
        before = records.count()
        first = client.post(form.address, sent)
        done, leads = records.count(), first.get("Location")
        if leads:
            client.get(leads)
        second = client.post(form.address, sent)
        if records.count() != done:
            wrong = "it acted twice"
        elif leads and second.get("Location") != leads:
            wrong = f"{leads}, then {second.status_code} {second.get('Location')}"
        elif leads and one_time.REPEATED not in text(client.get(leads)):
            wrong = "the second answer does not say so"
        elif not leads and done != before:
            wrong = "it acted, and shows the form again"
        transaction.set_rollback(True)
    registry.forget()  # what was read of a revision that is not there any more
    return bool(leads), wrong


@pytest.mark.timeout(300)
def test_each_form_of_each_page_is_done_once_and_the_second_answer_says_so(
    organization: Organization, admin_user: User, admin_client: Client
) -> None:
    done, wrong = {*ANSWERED_OTHERWISE, *ELSEWHERE}, []
    done |= {resolve(address.partition("?")[0]).view_name for address in ACTIONS}
    for form in every_form(organization, admin_user, admin_client):
        if form.view.endswith(LISTS_OF_ADMIN):
            continue
        if form.keys != 1 and not form.page.startswith("admin"):
            wrong.append((form.page, form.view, f"{form.keys} keys"))
        for button in form.buttons or [("", "")]:
            if form.view in ANSWERED_OTHERWISE:
                continue
            acted, flaw = send_twice(admin_client, form, button)
            done |= {form.view} if acted else set()
            wrong += [(form.page, form.view, button, flaw)] if flaw else []
    assert wrong == [], wrong
    left = {name for name, methods in PAGES.items() if "post" in methods} - done
    assert left == set(), left


@pytest.mark.parametrize("address", ["/agents/new/", "/channels/new/", "/profile/"])
def test_every_form_has_a_key_of_its_own(admin_client: Client, address: str) -> None:
    forms = re.findall(
        r'<form\b[^>]*method="post".*?</form>', text(admin_client.get(address)), re.S
    )
    keys = [re.findall(r'name="one_time_key" value="([^"]*)"', form) for form in forms]
    assert keys and all(len(found) == 1 and len(found[0]) == 22 for found in keys)
    assert len({found[0] for found in keys}) == len(keys)


def test_the_second_click_waits_for_the_answer_to_the_first(
    admin_client: Client, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {"slug": "counter"}
    first = send(admin_client, "/agents/new/", form)
    IdempotencyKey.objects.filter(organization=organization).update(status=None)

    def goes_on(seconds: float) -> None:
        IdempotencyKey.objects.filter(organization=organization).update(status=303)

    monkeypatch.setattr(time, "sleep", goes_on)
    assert send(admin_client, "/agents/new/", form)["Location"] == first["Location"]


def test_a_first_click_that_takes_too_long_is_said(
    admin_client: Client, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_time, "PATIENCE_S", 0)
    send(admin_client, "/agents/new/", {"slug": "counter"})
    IdempotencyKey.objects.filter(organization=organization).update(status=None)
    assert send(admin_client, "/agents/new/", {"slug": "counter"}).status_code == 409


def test_a_form_whose_action_was_refused_leaves_its_key_free(
    admin_client: Client, organization: Organization
) -> None:
    assert send(admin_client, "/channels/none/key", {}).status_code == 404
    assert not IdempotencyKey.objects.filter(organization=organization).exists()
