"""What is watched for: rules are written where they say what they would have caught."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import Alert, AlertRule, AuditRecord
from tests.ui.conftest import Grant
from tests.ui.pages import htmx, inline_code, notes, text
from tools.models import Organization, User

NEW = "/audit/alerts/rules/new/"
GIVEN = {
    "kind": "by_actor", "name": "many-denials", "description": "was refused often",
    "severity": "warning", "window": "1", "window_unit": "hours", "least": "2", "enabled": "yes",
    "list.codes": "TOOL.DENY", "list.reasons": "", "list.outcomes": "",
}  # fmt: skip


@pytest.fixture
def denials(organization: Organization) -> None:
    for name, times in (("magpie", 3), ("crow", 1)):
        for _ in range(times):
            by = Actor("agent", name, organization.slug)
            record(Event.TOOL_DENY, by=by, outcome=Outcome.DENIED, subject="shiny")
    record(Event.TOOL_DENY, by=Actor("agent", "stranger", "else"), outcome=Outcome.DENIED)


def address(rule: AlertRule) -> str:
    return f"/audit/alerts/rules/{rule.pk}/"


def test_every_rule_is_listed_with_its_open_alerts(
    admin_client: Client, organization: Organization
) -> None:
    page = text(admin_client.get("/audit/alerts/rules/"))
    for rule in AlertRule.objects.all():
        assert rule.name in page
    assert "always-on" in notes(page)


def test_a_draft_counts_what_it_would_have_caught_in_ones_own_place(
    admin_client: Client, denials: None
) -> None:
    part = text(admin_client.get(NEW, GIVEN, headers=htmx("caught")))
    assert notes(part)["caught"] == ["1"] and ">magpie<" in part
    assert "crow" not in part and "stranger" not in part and "<html" not in part
    assert not AlertRule.objects.filter(name="many-denials").exists()


def test_it_is_counted_without_a_script_and_nothing_is_written(
    admin_client: Client, denials: None
) -> None:
    page = text(admin_client.post(NEW, GIVEN | {"do": "count", "least": "1"}))
    assert notes(page)["caught"] == ["2"]
    assert not AlertRule.objects.filter(name="many-denials").exists()


def test_a_rule_is_written_on_record(admin_client: Client, admin_user: User) -> None:
    page = admin_client.post(NEW, GIVEN, follow=True)
    assert "many-denials" in notes(page)["message-success"][0]
    rule = AlertRule.objects.get(name="many-denials")
    assert (rule.window_s, rule.least, rule.values) == (3600, 2, {"codes": ["TOOL.DENY"]})
    found = AuditRecord.objects.get(code="ADMIN.ALERT_RULE_CHANGE", subject="many-denials")
    assert found.actor == admin_user.username


def test_a_rule_of_the_product_is_changed(admin_client: Client) -> None:
    rule = AlertRule.objects.get(kind="hasty_approval")
    given = {"severity": "critical", "window": "10", "window_unit": "minutes", "least": "3",
             "number.seconds": "4"}  # fmt: skip
    admin_client.post(address(rule), given)
    rule.refresh_from_db()
    assert (rule.severity, rule.window_s, rule.least) == ("critical", 600, 3)
    assert rule.values == {"seconds": 4} and not rule.enabled


@pytest.mark.parametrize("rule", ["unusual_usage", "first_use", "unusual_group", "unusual_step",
                                  "every_group", "possible_effect", "hasty_approval"])  # fmt: skip
def test_every_kind_can_be_counted(admin_client: Client, denials: None, rule: str) -> None:
    row = AlertRule.objects.filter(kind=rule).first()
    assert row is not None
    said = notes(admin_client.get(address(row)))
    assert "caught" in said and "not-counted" not in said


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    ("given", "note"),  # its name, and what it names
    [
        ({"window": "9999999999"}, "flaw-window"), ({"window": "0"}, "flaw-window"),
        ({"window": "169"}, "flaw-window 7"), ({"window_unit": "years"}, "flaw-window minutes"),
        ({"least": "\u0663"}, "flaw-least"), ({"severity": "grave"}, "flaw-severity"),
        ({"list.codes": ""}, "flaw-list.codes"), ({"name": "a b"}, "flaw-name"),
        ({"name": ""}, "flaw-name"), ({"list.codes": "x" * 500}, "flaw-list.codes"),
        ({"name": "untold"}, "flaw-name"), ({"list.codes": "a b"}, ""),
        ({"kind": "first_use"}, ""),
    ],
)  # fmt: skip
def test_bad_input_is_refused_without_a_server_error(
    admin_client: Client, given: dict[str, str], note: str
) -> None:
    response = admin_client.post(NEW, GIVEN | given)
    assert response.status_code in (302, 400)
    name, _, value = note.partition(" ")
    assert not name or value in notes(response)[name][0]
    assert admin_client.get(NEW, GIVEN | given).status_code == 200
    assert inline_code(admin_client.get(NEW, GIVEN | given)) == []


@pytest.mark.parametrize("text_", ["nan", "inf", "1e999", "-1", "x", ""])
def test_invalid_numbers_are_refused(admin_client: Client, text_: str) -> None:
    rule = AlertRule.objects.get(kind="hasty_approval")
    given = {"severity": "info", "window": "1", "window_unit": "hours", "least": "1"}
    response = admin_client.post(address(rule), given | {"number.seconds": text_})
    assert response.status_code == 400


def test_who_may_read_evidence_sees_rules_and_changes_none(client_of: Grant) -> None:
    client = client_of("audit.view_auditrecord", "audit.change_alertrule")
    assert client.get("/audit/alerts/rules/").status_code == 200
    rule = AlertRule.objects.earliest("pk")
    for path in (NEW, address(rule)):
        assert client.get(path).status_code == 403
        assert client.post(path, GIVEN).status_code == 403


def alert(organization: Organization, **fields: Any) -> Alert:
    now = timezone.now()
    said = {"rule": "r", "severity": "info", "actor": "magpie", "message": "m", "count": 1}
    return Alert.objects.create(
        organization=organization.slug, first_at=now, last_at=now, **said | fields
    )


def test_an_alert_is_acknowledged_with_a_note(
    admin_client: Client, organization: Organization
) -> None:
    found = alert(organization)
    note = "It was a drill." + "x" * 600
    admin_client.post(f"/audit/alerts/{found.pk}/acknowledge/", {"note": note})
    found.refresh_from_db()
    assert found.note.startswith("It was a drill.x") and len(found.note) == 500
    assert "It was a drill." in text(admin_client.get("/audit/alerts/?show=acknowledged"))
    record_ = AuditRecord.objects.get(code="ALERT.ACKNOWLEDGE", organization=organization.slug)
    assert record_.details["note"] == found.note


def test_alerts_are_narrowed_by_rule_and_severity(
    admin_client: Client, organization: Organization
) -> None:
    alert(organization, rule="one", message="first of all")
    alert(organization, rule="two", severity="critical", message="second to none")
    page = text(admin_client.get("/audit/alerts/?rule=one"))
    assert "first of all" in page and "second to none" not in page
    assert "none-matches" in notes(admin_client.get("/audit/alerts/?rule=none"))


def test_acknowledged_alerts_are_paged(admin_client: Client, organization: Organization) -> None:
    for number in range(27):
        alert(organization, rule=f"r{number}", acknowledged_at=timezone.now())
    for place, numbers in (("", ["1", "25", "27"]), ("&page=2", ["26", "27", "27"])):
        [shown] = notes(admin_client.get(f"/audit/alerts/?show=acknowledged{place}"))["range"]
        assert re.findall(r"\d+", shown) == numbers
