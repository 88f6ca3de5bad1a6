"""Two administrators have the same form open. What the first one saved is never taken back by the
second one's, who sees it beside their own and loses nothing that was typed (review 1.2)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.test import Client

from tests import factories
from tests.ui.pages import form_fields, notes
from tools.messaging import message_channels
from tools.models import Agent, Organization


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


EDIT_FORMS = {
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
