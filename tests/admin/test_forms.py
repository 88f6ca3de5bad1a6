"""Forms of the administration: another person's change is not taken back, a form that is sent twice
acts once, and actions say what they did (review 1.2, 1.5, 1.14)."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from audit.alerts import alert_channels
from audit.models import AlertChannel, AlertRule, AuditRecord
from tests import factories
from tests.admin.test_site import place
from tests.ui.pages import notes, text
from tools.approvals.confirmation_rules import create_rule
from tools.catalog.groups import save_group
from tools.catalog.sandbox import credentials, profiles
from tools.models import (
    Agent,
    ConfirmationRule,
    EgressCredential,
    LicenseTier,
    McpServer,
    Organization,
    SandboxProfile,
    Token,
    Tool,
    ToolGroup,
    User,
)

KEY = "k" * 22


def filled(page: Any) -> dict[str, Any]:
    """What a browser would send of the form."""
    form = page.context["adminform"].form
    found = {}
    for name, field in form.fields.items():
        shown = form[name].value()
        if field.disabled or shown in (None, "", False):
            continue
        shown = [getattr(one, "pk", one) for one in shown] if isinstance(shown, list) else shown
        found[name] = "on" if shown is True else shown
    return found | {"filled_from": form.filled_from}


def agent(home: Organization) -> Agent:
    return factories.agent(home)


def tool(home: Organization) -> Tool:
    return factories.tool(home)


def group(home: Organization) -> ToolGroup:
    return save_group(organization=home, name="night", by=factories.actor(home))


def rule(home: Organization) -> ConfirmationRule:
    by, wanted = factories.actor(home), {"tool": "write_file"}
    return create_rule(organization=home, name="big", wanted=wanted, by=by)


def profile(home: Organization) -> SandboxProfile:
    by = factories.actor(home)
    return profiles.create_profile(organization=home, profile={"name": "mine"}, by=by)


def credential(home: Organization) -> EgressCredential:
    by = factories.actor(home)
    wanted = {"name": "key", "header": "X-Key", "value": "c4nary"}
    return credentials.create_credential(organization=home, credential=wanted, by=by)


def channel(home: Organization) -> AlertChannel:
    made, _ = alert_channels.create_channel(
        organization=home.slug, name="ops", kind="webhook", target="https://hooks.example/a",
        least="critical", by=factories.actor(home),
    )  # fmt: skip
    return made


EDITS: dict[str, tuple[Callable[[Organization], Any], dict[str, Any], dict[str, Any]]] = {
    "agent": (agent, {"active": ""}, {"description": "Counts parts"}),
    "tool": (tool, {"max_concurrency": "3"}, {"max_concurrency": "4"}),
    "group": (group, {"schedule": "mon-fri 09:00-17:00"}, {"description": "At night"}),
    "source": (
        lambda home: McpServer.objects.create(organization=home, name="far"),
        {"default_groups": "fun", "unnamed": ""}, {"default_groups": "work"},
    ),
    "organization": (
        lambda home: home, {"minimum_isolation": "Restricted"}, {"name": "Another"},
    ),
    "tier": (
        lambda home: LicenseTier.objects.create(name="Spare", rank=77, max_custom_tools=5),
        {"max_custom_tools": "4"}, {"rank": "78"},
    ),
    "confirmation rule": (rule, {"approvals_needed": "2"}, {"group_name": "default"}),
    "sandbox profile": (profile, {"allow_network": "on"}, {"description": "Mine"}),
    "credential": (credential, {"value": "other"}, {"header": "X-Other"}),
    "alert rule": (
        lambda home: AlertRule.objects.get(name="refused_groups"), {"least": "9"}, {"window_s": 60},
    ),
    "alert channel": (channel, {"least": "info"}, {"target": "https://hooks.example/b"}),
    "person": (
        factories.person, {"is_active": ""}, {"email": "ada@example.org"},
    ),
}  # fmt: skip


def records(home: Organization) -> int:
    made = AuditRecord.objects.filter(organization=home.slug)
    return made.exclude(code__startswith="AUTH.").count()


def sent(form: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (form | change).items() if value != ""}


@pytest.mark.parametrize("name", EDITS)
def test_what_another_person_saved_meanwhile_is_not_taken_back(
    name: str, admin_client: Client, organization: Organization
) -> None:
    make, theirs, yours = EDITS[name]
    row = make(organization)
    address = place(type(row), "change", row.pk)
    first, second = (filled(admin_client.get(address)) for _ in range(2))
    assert admin_client.post(address, sent(first, theirs)).status_code == 302
    answer = admin_client.post(address, sent(second, yours))
    assert answer.status_code == 409 and "conflict" in notes(answer)
    both = filled(answer)
    if name == "source":  # one's own choice of the other field is shown, and left to be made
        return
    for field, value in yours.items():
        assert str(both[field]) == str(value)
    assert admin_client.post(address, both).status_code == 302
    now = filled(admin_client.get(address))
    for field, value in {**theirs, **yours}.items():
        if field != "value":
            assert now.get(field, "") == both.get(field, ""), (field, value)


@pytest.mark.parametrize("name", EDITS)
def test_a_form_that_is_saved_unchanged_says_so_and_records_nothing(
    name: str, admin_client: Client, organization: Organization
) -> None:
    row = EDITS[name][0](organization)
    address = place(type(row), "change", row.pk)
    form = filled(admin_client.get(address))
    before = records(organization)
    answer = admin_client.post(address, form, follow=True)
    assert [said.message for said in answer.context["messages"]] == ["Nothing changed."]
    if name != "person":  # whose page records each visit, with an empty difference
        assert records(organization) == before


@pytest.mark.parametrize(
    ("model", "form"),
    [
        (Agent, {"slug": "magpie", "groups": "default", "tools": "*"}),
        (User, {"username": "ada", "usable_password": "true", "password1": "a good long one 7",
                "password2": "a good long one 7"}),
        (Group, {"name": "Night shift"}),
        (ToolGroup, {"name": "night"}),
        (AlertChannel, {"name": "ops", "kind": "webhook", "target": "https://hooks.example/a",
                        "least": "critical"}),
    ],
)  # fmt: skip
def test_a_form_that_is_sent_twice_adds_one_row(
    admin_client: Client, organization: Organization, model: Any, form: dict[str, Any]
) -> None:
    before = model.objects.count()
    if model is User:
        form |= {"organization": str(organization.pk)}
    page = text(admin_client.get(place(model, "add")))
    assert page.count('name="one_time_key"') == 1
    answers = [
        admin_client.post(place(model, "add"), form | {"one_time_key": KEY}) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [302, 302]
    assert answers[0]["Location"] == answers[1]["Location"]
    assert model.objects.count() == before + 1


def test_a_secret_that_was_refused_is_typed_again(
    admin_client: Client, organization: Organization
) -> None:
    row = credential(organization)
    address = place(EgressCredential, "change", row.pk)
    page = admin_client.post(address, {"header": "Host", "value": "Bearer n3w"})
    assert page.context["adminform"].form.errors["value"] == [
        "It is not kept in the page: type it again."
    ]
    assert "n3w" not in text(page)


def run(client: Client, model: Any, action: str, *rows: Any) -> list[tuple[str, str]]:
    data = {"action": action, "_selected_action": [str(row.pk) for row in rows]}
    page = client.post(place(model, "changelist"), data, follow=True)
    return [(said.level_tag, said.message) for said in page.context["messages"]]


@pytest.mark.parametrize(
    ("make", "there", "back"),
    [
        (tool, "disable", "enable"),
        (tool, "mark_critical", "unmark_critical"),
        (agent, "suspend", "resume"),
    ],
)
def test_an_action_says_what_it_did_and_that_nothing_changed(
    admin_client: Client, organization: Organization, make: Any, there: str, back: str
) -> None:
    row = make(organization)
    for action in (there, back):
        [(level, said)] = run(admin_client, type(row), action, row)
        assert level == "success" and str(row) in said
        before = records(organization)
        assert run(admin_client, type(row), action, row) == [("info", "Nothing changed.")]
        assert records(organization) == before


def test_a_revoked_token_is_not_revoked_again(
    admin_client: Client, organization: Organization
) -> None:
    holder = factories.agent(organization).service_account
    factories.token(holder)
    row = Token.objects.get(user=holder)
    assert run(admin_client, Token, "revoke", row)[0][0] == "success"
    assert run(admin_client, Token, "revoke", row) == [("info", "Nothing changed.")]


def test_a_refusal_of_one_row_is_a_message_and_the_others_are_done(
    admin_client: Client, organization: Organization
) -> None:
    good, bad = factories.tool(organization), factories.tool(organization, "odd")
    Tool.objects.filter(pk=bad.pk).update(status="quarantined")
    levels = [level for level, _ in run(admin_client, Tool, "disable", good, bad)]
    assert levels == ["error", "success"]


@pytest.mark.parametrize("change", [{"is_active": ""}, {"is_superuser": ""}])
def test_the_last_superuser_stays_one(
    admin_client: Client, admin_user: User, organization: Organization, change: dict[str, str]
) -> None:
    User.objects.filter(is_superuser=True).exclude(pk=admin_user.pk).update(is_active=False)
    address = place(User, "change", admin_user.pk)
    form = filled(admin_client.get(address))
    page = admin_client.post(address, sent(form, change))
    assert page.status_code == 200 and "last active superuser" in text(page)
    factories.superuser(organization)
    assert admin_client.post(address, sent(form, change)).status_code == 302


def test_a_tier_is_not_changed_here_where_tools_would_be_disabled(
    admin_client: Client, organization: Organization
) -> None:
    for name in ("one", "two"):
        factories.tool(organization, name)
    small = LicenseTier.objects.create(
        name="Small", rank=78, max_custom_tools=1, isolation_levels=["Standard"], builtin_tools=[]
    )
    address = place(Organization, "change", organization.pk)
    page = admin_client.post(
        address, {"name": "Renamed", "tier": small.pk, "minimum_isolation": "Standard"}
    )
    [said] = page.context["adminform"].form.errors["tier"]
    assert f"/licenses/?organization={organization.slug}&amp;tier=Small" in said
    organization.refresh_from_db()
    assert organization.tier != small and organization.name != "Renamed"
    assert admin_client.get("/licenses/", {"organization": organization.slug, "tier": "Small"})


def test_the_terms_of_a_tier_are_not_changed_here_where_something_follows(
    admin_client: Client, organization: Organization
) -> None:
    tier = organization.tier
    address = place(LicenseTier, "change", tier.pk)
    data = {"name": tier.name, "rank": tier.rank, "builtin_tools": "read_file", "every_level": "on"}
    page = admin_client.post(address, data)
    [said] = page.context["adminform"].form.non_field_errors()
    assert f'href="/licenses/tiers/{tier.pk}/"' in said
    before = tier.builtin_tools
    tier.refresh_from_db()
    assert tier.builtin_tools == before
