"""Rules and channels in the administration."""

import json

import pytest
from django.test import Client

from audit.models import AlertChannel, AlertRule, AuditRecord
from tests.ui.pages import text
from tools.models import Organization

RULES, CHANNELS = "/admin/audit/alertrule/", "/admin/audit/alertchannel/"
HOOK = {
    "name": "ops", "kind": "webhook", "target": "https://hooks.example/T0KEN", "least": "critical",
    "enabled": "on",
}  # fmt: skip


def add_channel(client: Client, organization: Organization, **fields: str):
    page = client.post(f"{CHANNELS}add/", HOOK | fields, follow=True)
    return page, AlertChannel.objects.filter(organization=organization.slug).first()


def test_a_superuser_changes_a_rule_on_record(admin_client: Client, organization) -> None:
    rule = AlertRule.objects.get(name="refused_groups")
    wanted = {"severity": "critical", "window_s": 60, "least": 2, "values": json.dumps(rule.values)}
    assert admin_client.post(f"{RULES}{rule.pk}/change/", wanted).status_code == 302
    rule.refresh_from_db()
    assert (rule.severity, rule.window_s, rule.least, rule.enabled) == ("critical", 60, 2, False)
    found = AuditRecord.objects.get(organization=organization.slug, code="ADMIN.ALERT_RULE_CHANGE")
    assert found.details["before"]["least"] == 3 and found.source_ip and found.request_id


def test_a_rule_of_ones_own_is_written(admin_client: Client) -> None:
    wanted = {
        "name": "deletions", "kind": "by_actor", "description": "deleted tools", "enabled": "on",
        "severity": "info", "window_s": 60, "least": 2, "values": '{"codes": ["REG.TOOL_DELETE"]}',
    }  # fmt: skip
    assert admin_client.post(f"{RULES}add/", wanted).status_code == 302
    assert AlertRule.objects.get(name="deletions").values == {"codes": ["REG.TOOL_DELETE"]}


@pytest.mark.parametrize(
    "values", ['{"sql": "1"}', "{}", "[]", "nonsense", '{"codes": ["\\u0000"]}']
)
def test_what_cannot_be_meant_is_reported_at_the_form(admin_client: Client, values: str) -> None:
    wanted = {"name": "r", "kind": "by_actor", "description": "d", "severity": "info",
              "window_s": 60, "least": 2, "values": values}  # fmt: skip
    page = admin_client.post(f"{RULES}add/", wanted)
    assert page.status_code == 200 and "errorlist" in text(page)


def test_staff_have_no_say_in_rules(staff_client) -> None:
    client = staff_client("view_alertrule", "change_alertrule", "add_alertrule")
    assert client.get(RULES).status_code == 403
    assert client.post(f"{RULES}add/", {}).status_code == 403


def test_a_webhooks_secret_is_shown_once(admin_client: Client, organization) -> None:
    page, channel = add_channel(admin_client, organization)
    assert page.status_code == 200 and "whsec_" in text(page)
    assert "no-store" in page["Cache-Control"]
    shown, _ = page.redirect_chain[-1]
    for address in (CHANNELS, f"{CHANNELS}{channel.pk}/change/", shown):
        assert "whsec_" not in text(admin_client.get(address, follow=True))
    assert "T0KEN" not in text(admin_client.get(CHANNELS))


def test_a_new_secret_replaces_it_on_record(admin_client: Client, organization) -> None:
    _, channel = add_channel(admin_client, organization)
    page = admin_client.post(f"{CHANNELS}{channel.pk}/secret/", follow=True)
    assert "whsec_" in text(page)
    records = AuditRecord.objects.filter(code="ADMIN.ALERT_CHANNEL_CHANGE").order_by("id")
    assert records.last().details["signing"] == "replaced"
    assert "whsec_" not in str(list(records.values_list("details")))


def test_a_test_says_why_no_channel_was_notified(admin_client: Client, organization) -> None:
    _, channel = add_channel(admin_client, organization, target="https://127.0.0.1/")
    page = admin_client.post(f"{CHANNELS}{channel.pk}/test/", follow=True)
    assert [m.message.partition(".")[0] for m in page.context["messages"]] == ["ops was not told"]


def test_a_channel_is_removed_on_record(admin_client: Client, organization) -> None:
    _, channel = add_channel(admin_client, organization)
    admin_client.post(f"{CHANNELS}{channel.pk}/delete/", {"post": "yes"})
    assert not AlertChannel.objects.filter(pk=channel.pk).exists()
    found = AuditRecord.objects.get(
        organization=organization.slug, code="ADMIN.ALERT_CHANNEL_DELETE"
    )
    assert found.details["before"]["name"] == "ops" and found.details["after"] == {}


def test_a_wrong_address_is_reported_at_the_form(admin_client: Client, organization) -> None:
    page, channel = add_channel(admin_client, organization, target="ftp://x")
    assert page.context["adminform"].form.errors["target"] and channel is None


def test_staff_see_the_channels_of_their_own_organization_alone(
    staff_client, admin_client: Client, organization
) -> None:
    _, channel = add_channel(admin_client, organization)
    AlertChannel.objects.filter(pk=channel.pk).update(organization="elsewhere")
    client = staff_client("view_alertchannel", "change_alertchannel")
    assert "ops" not in text(client.get(CHANNELS)).partition("changelist")[2]
    assert client.post(f"{CHANNELS}{channel.pk}/test/").status_code == 404
    assert client.post(f"{CHANNELS}{channel.pk}/secret/").status_code == 404


def test_who_may_only_look_sees_no_address_that_may_be_a_secret(
    staff_client, admin_client: Client, organization
) -> None:
    _, channel = add_channel(admin_client, organization)
    address = f"{CHANNELS}{channel.pk}/change/"
    looked = text(staff_client("view_alertchannel").get(address))
    assert "hooks.example" in looked and "T0KEN" not in looked
    assert "T0KEN" in text(admin_client.get(address))


def test_who_may_only_look_changes_nothing(
    staff_client, admin_client: Client, organization
) -> None:
    _, channel = add_channel(admin_client, organization)
    client = staff_client("view_alertchannel")
    for name in ("test", "secret"):
        assert client.post(f"{CHANNELS}{channel.pk}/{name}/").status_code == 403
    assert client.get(f"{CHANNELS}{channel.pk}/test/").status_code == 405
