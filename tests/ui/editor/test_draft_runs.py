"""A draft of a code tool is run inside the sandbox before it is saved."""

import json
import re

import pytest
from django.test import Client

from audit.events import Event
from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.editor.test_editor import answers, argument
from tests.ui.pages import fields, notes, text
from tools.models import Execution, Organization, RateHit, Tool

pytestmark = pytest.mark.django_db

SAYS = """\
import sys
def main(parameters):
    print("hello")
    print("oh", file=sys.stderr)
    return {"sum": parameters["a"] + 1}
"""
FAILS = "def main(parameters):\n    a = 1\n    return a / 0\n"


def draft(source: str = SAYS, parameters: object = None, **more: str) -> dict[str, str]:
    given = {"a": 1} if parameters is None else parameters
    sent = {"test-parameters": json.dumps(given), "arguments": "1", "source": source, "do": "test"}
    return answers(**sent) | argument(0, "a", type="Integer") | more


def records(organization: Organization, code: str = Event.TOOL_DRAFT) -> list[AuditRecord]:
    found = AuditRecord.objects.filter(organization=organization.slug, code=code)
    return list(found.order_by("occurred_at"))


def test_what_it_gives_back_and_writes_is_shown_and_nothing_is_saved(
    admin_client: Client, organization: Organization
) -> None:
    page = text(admin_client.post("/editor/", draft()))
    assert "&quot;sum&quot;: 2" in page and "hello" in page and "oh" in page
    assert re.search(r"\d\.\d MiB<", page) and "Success" in page
    assert not Tool.objects.filter(organization=organization, name="fresh").exists()
    assert not Execution.objects.filter(organization=organization).exists()
    assert "fresh" not in {one.subject for one in records(organization, Event.TOOL_CREATE)}


def test_the_evidence_says_that_it_was_a_draft_and_what_was_run(
    admin_client: Client, organization: Organization
) -> None:
    admin_client.post("/editor/", draft())
    start, end = records(organization)
    assert (start.outcome, end.outcome) == ("started", "success")
    assert start.details["draft"] is True and start.subject == "fresh"
    assert end.details["status"] == "Success" and end.details["isolation"] == "Standard"


def test_a_draft_that_is_sent_twice_is_run_once_and_kept(
    admin_client: Client, organization: Organization
) -> None:
    sent = draft(one_time_key="a" * 22)
    first, second = (text(admin_client.post("/editor/", sent)) for _ in range(2))
    assert len(records(organization)) == 2, "its begin and its end"
    assert "&quot;sum&quot;: 2" in first and "run-already" not in notes(first)
    assert "run-already" in notes(second) and fields(second)["name"] == "fresh"


def test_an_error_is_shown_with_its_line(admin_client: Client) -> None:
    page = text(admin_client.post("/editor/", draft(FAILS)))
    assert "(line 3)" in page and "Failed" in page


def test_a_draft_of_a_saved_tool_runs_as_it_stands_in_the_form(
    admin_client: Client, organization: Organization
) -> None:
    tool = factories.tool(organization)
    sent = draft(name="echo")
    assert "&quot;sum&quot;: 2" in text(admin_client.post("/editor/echo/", sent))
    assert tool.versions.count() == 1 and Tool.objects.get(pk=tool.pk).version == tool.version


def test_what_it_requires_is_ready_to_be_filled_in(
    admin_client: Client, organization: Organization
) -> None:
    rows = [{"name": "n", "type": "Integer", "description": "N.", "required": True},
            {"name": "o", "type": "String", "description": "O."}]  # fmt: skip
    factories.tool(organization, parameters=rows)
    assert fields(text(admin_client.get("/editor/echo/")))["test-parameters"] == '{\n  "n": 0\n}'


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"requires_confirmation": "yes"}, "draft_needs_confirmation"),
        ({"test-parameters": '{"a": "x"}'}, "invalid_parameters"),
        ({"available_in_states_kind": "none"}, "tool_not_in_state"),
    ],
)
def test_what_would_hold_a_call_holds_the_draft(
    admin_client: Client, organization: Organization, more: dict[str, str], code: str
) -> None:
    page = text(admin_client.post("/editor/", draft() | more))
    assert f"<code>{code}</code>" in page
    assert [one.outcome for one in records(organization)] == ["denied"]


@pytest.mark.parametrize("given", ["[1]", "{", "[" * 5000])
def test_parameters_that_cannot_be_read_run_nothing(
    admin_client: Client, organization: Organization, given: str
) -> None:
    response = admin_client.post("/editor/", draft(**{"test-parameters": given}))
    assert response.status_code == 200 and 'id="i-test-parameters"' in text(response)
    assert records(organization) == []


def test_what_saving_refuses_is_not_run_either(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    page = text(admin_client.post("/editor/", draft(name="echo")))
    assert records(organization) == [] and 'data-tone="bad"' in page
    page = text(admin_client.post("/editor/", draft(name="new", sandbox_profile="none")))
    assert records(organization) == [] and "sandbox_profile</code>" in page


def test_who_holds_no_group_of_the_draft_does_not_run_it(
    client_of: Grant, organization: Organization
) -> None:
    page = text(client_of("tools.add_tool").post("/editor/", draft()))
    assert "<code>tool_not_granted</code>" in page
    assert [one.outcome for one in records(organization)] == ["denied"]


def test_who_may_not_write_tools_runs_no_draft(
    client_of: Grant, organization: Organization
) -> None:
    assert client_of().post("/editor/", draft()).status_code == 403
    assert records(organization) == []


def test_drafts_are_run_ten_times_a_minute(
    admin_client: Client, admin_user: object, organization: Organization
) -> None:
    hits = [
        RateHit(user=admin_user, organization=organization, tool_name="a draft") for _ in range(10)
    ]
    RateHit.objects.bulk_create(hits)
    page = text(admin_client.post("/editor/", draft()))
    assert "<code>rate_limited</code>" in page and "10" in notes(page)["not-run"][0].split()


def test_other_types_have_no_test_run(admin_client: Client) -> None:
    assert 'id="run-test"' not in text(admin_client.get("/editor/?type=http"))
    sent = draft(type="http", implementation="{}")
    assert admin_client.post("/editor/", sent).status_code in {200, 400}
