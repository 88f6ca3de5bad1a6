"""A form that is sent twice, by a double click or a reload, acts once (review 1.5)."""

import re
from typing import Any

import pytest
from django.test import Client

from tests.ui.pages import notes, text
from tools.messaging import message_channels
from tools.models import Agent, MessageChannel, Organization

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


@pytest.mark.parametrize("address", ["/agents/new/", "/channels/new/", "/profile/"])
def test_every_form_has_a_key_of_its_own(admin_client: Client, address: str) -> None:
    forms = re.findall(
        r'<form\b[^>]*method="post".*?</form>', text(admin_client.get(address)), re.S
    )
    keys = [re.findall(r'name="one_time_key" value="([^"]*)"', form) for form in forms]
    assert keys and all(len(found) == 1 and len(found[0]) == 22 for found in keys)
    assert len({found[0] for found in keys}) == len(keys)
