"""What an administrator changes is on record as it was before and as it is after."""

from decimal import Decimal
from uuid import uuid4

import pytest

from audit.actions import difference, redactor_of
from audit.events import Event
from audit.models import AuditRecord
from tests import factories
from tools.accounts import account_actions
from tools.accounts.environment_settings import record_settings
from tools.accounts.grants.grant_actions import set_grants
from tools.approvals import confirmation_rules
from tools.catalog import actions as catalog
from tools.catalog.groups import delete_group, save_group
from tools.catalog.mcp import mcp_servers
from tools.catalog.sandbox import content_schemas, credentials, profiles
from tools.catalog.services import services
from tools.catalog.services.services import save_source
from tools.catalog.signatures import drift
from tools.licensing import tiers
from tools.limits import allowances
from tools.messaging import message_channels
from tools.models import LicenseTier, McpServer, Token

pytestmark = pytest.mark.django_db
# They say what is about nothing that was there before: a login, a key that was forgotten.
NO_CHANGE = {Event.TOKEN_REFUSED, Event.CACHE_INVALIDATE}
ELSEWHERE = {
    # Their own tests: what it takes is more than one line.
    Event.LICENSE_INSTALL, Event.LICENSE_REMOVE, Event.LICENSE_EXPIRE, Event.ROW_CHANGE,
    Event.ALERT_RULE_CHANGE, Event.ALERT_CHANNEL_CHANGE, Event.ALERT_CHANNEL_DELETE,
    Event.MCP_SERVER_REFRESH, Event.TOOL_QUARANTINE,
    Event.SIGNING_KEY_RETIRE, Event.SIGNING_KEY_DISTRUST, Event.TOOL_RESIGN,
    Event.ROLLBACK_ACCEPT, Event.PIN_CHANGE,
}  # fmt: skip
PROFILE = {"name": "small", "max_files": 10}


def test_a_difference_holds_only_changed_fields():
    changes = difference({"a": 1, "b": 2, "gone": 3}, {"a": 1, "b": 5, "new": Decimal("1.5")})
    assert changes == {"before": {"b": 2, "gone": 3}, "after": {"b": 5, "new": "1.5"}}


def test_what_was_made_has_no_before_and_what_was_removed_no_after():
    assert difference(None, {"a": {2, 1}}) == {"before": {}, "after": {"a": ["1", "2"]}}
    assert difference({"a": None}, None) == {"before": {"a": None}, "after": {}}


def administered(organization):
    """One of every change that an administrator can make to an organization."""
    by = factories.actor(organization)
    _tools(organization, by)
    _places(organization, by)
    _agents(organization, by)
    _rules(organization, by)
    record_settings()


def _tools(organization, by):
    tool = factories.tool(organization)
    catalog.update_tool(tool=tool, definition=factories.definition(description="Other."), by=by)
    tool = catalog.restore_version(tool=tool, label=tool.versions.earliest("number").label, by=by)
    for enabled in (False, True):
        catalog.set_enabled(tool=tool, enabled=enabled, by=by)
    catalog.set_critical(tool=tool, critical=True, by=by)
    _upstream(tool, by)
    catalog.delete_tool(tool=tool, by=by)
    group = save_group(organization=organization, name="desk", by=by, description="d")
    delete_group(group=group, by=by)
    service = {"id": "s", "request_queue": "q", "response_queue": "r"}
    row = services.create_service(organization=organization, service=service, by=by)
    services.delete_service(row=row, by=by)
    save_source(kind=McpServer, organization=organization, name="m", by=by, default_groups=["desk"])
    server = {"name": "far", "url": "https://mcp.example/mcp", "headers": {"X-Key": "swordfish"}}
    row = mcp_servers.create_server(organization=organization, server=server, by=by)
    mcp_servers.change_server(row=row, changes={"headers": {"X-Key": "swordfish2"}}, by=by)
    mcp_servers.delete_server(row=row, by=by)


def _upstream(tool, by):
    definition = factories.definition()
    drift.note_upstream(tool=tool, seen=definition | {"description": "a"}, by=by)
    drift.note_upstream(tool=tool, seen=definition, by=by)
    change = drift.note_upstream(tool=tool, seen=definition | {"description": "b"}, by=by)
    drift.reject_change(change=change, read_digest=change.digest, by=by, reason="No.")
    change = drift.note_upstream(tool=tool, seen=definition | {"description": "c"}, by=by)
    drift.approve_change(change=change, read_digest=change.digest, by=by)


def _places(organization, by):
    tiers.set_tier(organization=organization, tier=LicenseTier.objects.get(name="Teams"), by=by)
    tiers.set_tier(
        organization=organization, tier=LicenseTier.objects.get(name="Enterprise"), by=by
    )
    account_actions.rename_organization(organization=organization, name="New", by=by)
    row = profiles.create_profile(organization=organization, profile=PROFILE, by=by)
    profiles.replace_profile(row=row, profile=PROFILE | {"max_files": 20}, by=by)
    profiles.delete_profile(row=row, by=by)
    _schema(organization, by)
    fields = {"name": "key", "header": "Authorization", "value": "Bearer swordfish"}
    credential = credentials.create_credential(organization=organization, credential=fields, by=by)
    credentials.replace_credential(row=credential, credential=fields | {"header": "X-Key"}, by=by)
    credentials.delete_credential(row=credential, by=by)
    fields = {"name": "hook", "kind": "webhook", "url": "https://hooks.example/swordfish"}
    channel, _ = message_channels.create_channel(organization=organization, channel=fields, by=by)
    message_channels.change_channel(row=channel, changes={"enabled": False}, by=by)
    message_channels.delete_channel(row=channel, by=by)


def _schema(organization, by):
    fields = {"name": "order", "document": {"type": "object"}}
    schema = content_schemas.create_schema(organization=organization, schema=fields, by=by)
    content_schemas.add_version(row=schema, change={"document": {"type": "array"}}, by=by)
    content_schemas.delete_schema(row=schema, by=by)


def _agents(organization, by):
    agent = account_actions.create_agent(organization=organization, slug="magpie", by=by)
    account_actions.change_agent(agent=agent, by=by, description="d")
    account_actions.change_agent(agent=agent, by=by, active=False)
    set_grants(agent=agent, by=by, groups=["write"])
    quota = {"tool": None, "kind": "calls", "period": "day", "amount": Decimal(5)}
    allowances.set_allowances(agent=agent, by=by, changes={"quotas": [quota]})
    factories.token(agent.service_account)
    account_actions.revoke_token(token=Token.objects.get(user=agent.service_account), by=by)


def _rules(organization, by):
    row = confirmation_rules.create_rule(
        organization=organization, name="r", wanted={"tool": "echo"}, by=by
    )
    confirmation_rules.delete_rule(row=row, by=by)


def test_every_administrative_change_says_before_and_after():
    organization = factories.organization(f"org-{uuid4().hex[:12]}")
    administered(organization)
    wanted = {
        event for event in Event if event.startswith(("ADMIN.", "REG.", "TOKEN.", "LICENSE."))
    }
    records = AuditRecord.objects.filter(organization=organization.slug, code__in=wanted)
    silent = [one.code for one in records if not {"before", "after"} <= one.details.keys()]
    assert silent == []
    assert wanted - {one.code for one in records} == NO_CHANGE | ELSEWHERE
    assert all(one.actor and one.actor_kind for one in records)
    assert "swordfish" not in str(list(records.values_list("details")))


@pytest.mark.parametrize(
    "kind", [list, lambda items: dict.fromkeys(items, 1), " ".join], ids=["list", "object", "text"]
)
def test_what_differs_beyond_the_cut_looks_different_on_record(kind):
    many = [f"word{n}" for n in range(500)]
    changes = difference({"held": kind(many)}, {"held": kind([*many[:-1], "other"])})
    cleaned = redactor_of("here").clean(changes)
    assert cleaned["before"] != cleaned["after"]
    assert cleaned == redactor_of("here").clean(changes)
    assert cleaned != redactor_of("there").clean(changes)
