from uuid import uuid4

import pytest
from django.test import Client

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tests.ui.pages import text
from tools.models import Organization


@pytest.fixture
def execution_id(organization: Organization):
    """One refused call on record."""
    identifier = uuid4()
    record(
        Event.TOOL_DENY,
        by=Actor("agent", "magpie", organization.slug),
        outcome=Outcome.DENIED,
        subject="shiny",
        reason="tool_not_granted",
        execution_id=identifier,
        details={"note": "<script>alert(1)</script>"},
    )
    return identifier


@pytest.mark.parametrize(
    ("query", "there"),
    [
        ("code=TOOL.DENY", True), ("code=TOOL.", True), ("code=AUTH.LOGIN", False),
        ("outcome=denied", True), ("outcome=success", False), ("actor=magpie", True),
        ("agent=magpie", True), ("actor=crow", False), ("tool=shiny", True), ("tool=dull", False),
        ("q=tool_not_granted", True), ("q=nothing-such", False),
        ("since=2020-01-01T00:00", True), ("since=2999-01-01T00:00Z", False), ("since=never", True),
        ("execution=garbage", True), ("before=garbage", True), ("q=%00", True),
    ],
)  # fmt: skip
def test_records_are_searched(admin_client: Client, execution_id, query: str, there: bool) -> None:
    page = admin_client.get(f"/audit/?{query}")
    assert page.status_code == 200
    assert ("tool_not_granted" in text(page).split("<ol")[-1]) is there


def test_an_execution_leads_to_its_records(admin_client: Client, execution_id) -> None:
    assert "magpie" in text(admin_client.get(f"/audit/?execution={execution_id}"))
    assert "No record matches" in text(admin_client.get(f"/audit/?execution={uuid4()}"))


def test_details_are_text(admin_client: Client, execution_id) -> None:
    page = text(admin_client.get("/audit/"))
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


def test_evidence_needs_its_permission(client_of, execution_id) -> None:
    assert client_of().get("/audit/").status_code == 403
    assert "magpie" in text(client_of("audit.view_auditrecord").get("/audit/"))


def test_who_may_not_read_is_offered_no_link(client_of) -> None:
    assert 'href="/audit/"' not in text(client_of().get("/"))


def test_another_organizations_records_stay_there(
    admin_client: Client, organization: Organization
) -> None:
    record(Event.LOGIN, by=Actor("person", "stranger", "elsewhere"), outcome=Outcome.SUCCESS)
    assert "stranger" not in text(admin_client.get("/audit/"))


def test_older_pages_follow_the_last_record(
    admin_client: Client, organization: Organization
) -> None:
    for at in range(51):
        by = Actor("agent", f"crow-{at:02}", organization.slug)
        record(Event.TOOL_END, by=by, outcome=Outcome.SUCCESS)
    page = text(admin_client.get("/audit/?code=TOOL.END"))
    older = page.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    assert "crow-00" not in page
    assert "crow-00" in text(admin_client.get(older))
