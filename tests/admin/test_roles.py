"""Roles are granted on a person's page, and no user grants or gains more than they hold."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse
from guardian.shortcuts import assign_perm

from audit.models import AlertRule, AuditRecord
from tests import factories
from tests.admin.test_changes import NEW, recorded
from tests.admin.test_site import place
from tests.ui.pages import text
from tests.ui.second_factors import with_app
from tools.accounts.roles import roles
from tools.models import (
    Agent,
    AuthenticatorApp,
    LicenseTier,
    Organization,
    RecoveryCode,
    User,
)

PASSWORD = {"usable_password": "true", "password1": NEW, "password2": NEW}
With = Callable[[str], User]
DATES = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}


def group(name: str) -> Group:
    return Group.objects.get(name=f"role:{name}")


@pytest.fixture
def person_with(organization: Organization) -> With:
    """Creates a user to whom a superuser granted a role."""

    def create_person(name: str) -> User:
        opens = next(role for role in roles() if role.name == name).opens_administration
        person = factories.person(organization, password="correct horse", is_staff=opens)
        person.groups.add(group(name))
        return person

    return create_person


def enter(person: User) -> Client:
    client = Client()
    client.force_login(person, backend="tools.accounts.login.login.PeopleBackend")
    return client


@pytest.fixture
def administrator(person_with: With) -> User:
    return person_with("administrator")


def save(client: Client, person: User, **fields: Any) -> Any:
    chosen = fields.pop("roles", [])
    data = {"username": person.username, "is_active": "on", "granted_groups": "default", **DATES}
    fields["roles"] = [group(name).pk for name in chosen]
    return client.post(place(User, "change", person.pk), data | fields)


def role_names(person: User) -> set[str]:
    return set(person.groups.values_list("name", flat=True))


def test_a_persons_page_offers_roles_in_words(
    administrator: User, organization: Organization
) -> None:
    page = enter(administrator).get(place(User, "change", factories.person(organization).pk))
    for role in roles():
        assert f"{role.label}: {role.says}" in text(page)


def test_a_role_is_given_recorded_and_counts(
    administrator: User, organization: Organization
) -> None:
    person = factories.person(organization)
    before = Organization.objects.get(pk=organization.pk).revision
    assert save(enter(administrator), person, roles=["approver"]).status_code == 302
    assert role_names(person) == {"role:approver"}
    assert Organization.objects.get(pk=organization.pk).revision > before
    record = recorded(organization, "ADMIN.GRANT_CHANGE")
    assert record.details["added"] == {"roles": ["role:approver"]}
    assert record.actor == administrator.username


def test_a_role_that_opens_the_administration_is_a_key_that_is_taken_back(
    administrator: User, organization: Organization
) -> None:
    person, client = factories.person(organization), enter(administrator)
    save(client, person, roles=["auditor"])
    assert enter(person).get("/admin/").status_code == 200
    save(client, person, roles=["viewer"])
    person.refresh_from_db()
    assert (person.is_staff, role_names(person)) == (False, {"role:viewer"})
    assert enter(person).get("/admin/").status_code != 200


def test_groups_of_an_operator_stay_when_roles_change(
    administrator: User, admin_user: User, organization: Organization
) -> None:
    person, own = factories.person(organization), Group.objects.create(name="Night shift")
    person.groups.add(own, group("viewer"))
    save(enter(administrator), person, roles=["approver"])
    assert role_names(person) == {"Night shift", "role:approver"}
    save(enter(admin_user), person, roles=["viewer"], groups=[own.pk])
    assert role_names(person) == {"Night shift", "role:viewer"}


def test_an_administrator_makes_no_superuser_and_gives_no_permission_by_hand(
    administrator: User, organization: Organization
) -> None:
    person = factories.person(organization)
    erase = Permission.objects.get(codename="delete_auditpayload")
    own = Group.objects.create(name="Keepers")
    own.permissions.add(erase)
    power = {"is_superuser": "on", "is_staff": "on", "user_permissions": [erase.pk]}
    save(enter(administrator), person, groups=[own.pk], **power)
    person.refresh_from_db()
    assert (person.is_superuser, person.is_staff) == (False, False)
    assert not person.groups.exists() and not person.user_permissions.exists()


@pytest.mark.parametrize("field", ["granted_groups", "granted_permissions"])
def test_an_administrator_gives_no_grant_beyond_its_own(
    administrator: User, organization: Organization, field: str
) -> None:
    person = factories.person(organization)
    page = save(enter(administrator), person, **{field: "*"})
    assert page.context["adminform"].form.non_field_errors()


def test_an_administrator_changes_nothing_of_its_own(
    administrator: User, organization: Organization
) -> None:
    erase = Permission.objects.get(codename="delete_auditpayload")
    power = {"is_superuser": "on", "user_permissions": [erase.pk], "granted_permissions": "*"}
    before = role_names(administrator)
    save(enter(administrator), administrator, roles=["viewer"], granted_groups="*", **power)
    administrator.refresh_from_db()
    assert (administrator.is_superuser, administrator.granted_groups) == (False, ["default"])
    assert administrator.granted_permissions == [] and role_names(administrator) == before
    assert not administrator.user_permissions.exists()


def test_who_may_change_people_gives_no_role_beyond_what_they_hold(
    staff_client, organization: Organization
) -> None:
    person, viewing = factories.person(organization), group("viewer").permissions.all()
    person.groups.add(group("auditor"))
    client = staff_client("view_user", "change_user", *(row.codename for row in viewing))
    page = client.get(place(User, "change", person.pk))
    labels = {role.name: f"{role.label}:" for role in roles()}
    assert labels["viewer"] in text(page) and labels["administrator"] not in text(page)
    assert "errorlist" in text(save(client, person, roles=["administrator"]))
    save(client, person, roles=["viewer"])
    assert role_names(person) == {"role:auditor", "role:viewer"}


def test_a_new_person_has_no_role_and_no_power(
    administrator: User, organization: Organization
) -> None:
    data = {"username": "ada", **PASSWORD, "is_superuser": "on", "roles": [group("viewer").pk]}
    enter(administrator).post(place(User, "add"), data)
    ada = User.objects.get(username="ada")
    assert (ada.organization, ada.is_superuser, ada.is_staff) == (organization, False, False)
    assert not ada.groups.exists()


def test_a_password_is_set_for_who_holds_no_more(
    administrator: User, organization: Organization
) -> None:
    person = factories.person(organization)
    person.groups.add(group("approver"))
    address = f"/admin/tools/user/{person.pk}/password/"
    assert enter(administrator).post(address, PASSWORD).status_code == 302
    person.refresh_from_db()
    assert person.check_password(NEW)


def more_permissions(person: User, organization: Organization) -> None:
    person.user_permissions.add(Permission.objects.get(codename="delete_auditpayload"))


def more_while_away(person: User, organization: Organization) -> None:
    more_permissions(person, organization)
    person.is_active = False


def more_groups(person: User, organization: Organization) -> None:
    person.granted_groups = ["*"]


def more_tool_permissions(person: User, organization: Organization) -> None:
    person.granted_permissions = ["tool.filesystem.write"]


def more_places(person: User, organization: Organization) -> None:
    assign_perm("tools.act_in_organization", person, factories.organization("elsewhere"))


def all_power(person: User, organization: Organization) -> None:
    person.is_superuser = True


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "more",
    [
        more_permissions,
        more_while_away,
        more_groups,
        more_tool_permissions,
        more_places,
        all_power,
    ],
)
def test_no_user_sets_the_password_of_who_holds_more(
    administrator: User, organization: Organization, more: Callable[[User, Organization], None]
) -> None:
    person = factories.person(organization, password="correct horse")
    more(person, organization)
    person.save()
    address = f"/admin/tools/user/{person.pk}/password/"
    assert enter(administrator).post(address, PASSWORD).status_code == 403
    person.refresh_from_db()
    assert person.check_password("correct horse")


def test_who_holds_a_tool_that_another_does_not_keeps_their_password(
    staff_client, organization: Organization
) -> None:
    person = factories.person(organization)
    assign_perm("tools.execute_tool", person, factories.tool(organization))
    address = f"/admin/tools/user/{person.pk}/password/"
    assert staff_client("view_user", "change_user").post(address, PASSWORD).status_code == 403


def test_an_administrator_sees_no_user_of_another_organization(administrator: User) -> None:
    stranger = factories.person(factories.organization("strangers"))
    client = enter(administrator)
    assert client.get(place(User, "change", stranger.pk)).status_code == 302
    save(client, stranger, roles=["administrator"])
    assert not stranger.groups.exists()
    assert client.post(f"/admin/tools/user/{stranger.pk}/password/", PASSWORD).status_code == 404


def test_an_administrator_changes_no_tier_organization_rule_or_group(
    administrator: User, organization: Organization
) -> None:
    client, tier = enter(administrator), LicenseTier.objects.get(name="Core")
    rule, own = AlertRule.objects.earliest("pk"), Group.objects.create(name="Keepers")
    for row in (tier, organization, rule, own, group("viewer")):
        address = place(type(row), "change", row.pk)
        assert client.post(address, {"name": "mine"}).status_code == 403, row


def test_a_role_is_shown_to_a_superuser_and_changed_by_no_user(admin_client: Client) -> None:
    viewer = group("viewer")
    address = place(Group, "change", viewer.pk)
    assert admin_client.get(address).status_code == 200
    assert admin_client.post(address, {"name": "mine", "permissions": []}).status_code == 403
    gone = admin_client.post(place(Group, "delete", viewer.pk), {"post": "yes"})
    assert gone.status_code == 403
    assert group("viewer").permissions.exists()


def test_an_auditor_reads_people_and_changes_nothing_in_the_administration(
    person_with: With, organization: Organization, agent
) -> None:
    factories.token(agent.service_account)
    client, person = enter(person_with("auditor")), factories.person(organization)
    assert person.username in text(client.get(place(User, "changelist")))
    assert client.get(place(User, "change", person.pk)).status_code == 200
    for model in admin.site._registry:
        assert client.post(place(model, "add"), {}).status_code in (403, 405), model
        row = model._default_manager.first()
        if row is not None:
            for what in ("change", "delete"):
                answer = client.post(place(model, what, row.pk), {"post": "yes"})
                gone = answer.status_code == 302 and answer["Location"] == reverse("admin:index")
                assert gone or answer.status_code == 403, (model, what)
    assert client.post(f"/admin/tools/user/{person.pk}/password/", PASSWORD).status_code == 403


def test_no_action_of_the_administration_is_an_auditors(
    person_with: With, organization: Organization, agent: Agent
) -> None:
    person = person_with("auditor")
    client = enter(person)
    factories.token(agent.service_account)
    changes = AuditRecord.objects.filter(actor=person.username, outcome="changed")
    for model, registered in admin.site._registry.items():
        row = model._default_manager.first()
        for name in registered.actions or ():
            data = {"action": name, "_selected_action": str(row.pk if row else 0)}
            client.post(place(model, "changelist"), data)
    assert not changes.exists()
    for row, name in ((agent, "suspend"), (agent.service_account.tokens.get(), "revoke")):
        data = {"action": name, "_selected_action": str(row.pk)}
        client.post(place(type(row), "changelist"), data)
    assert not changes.exists()


@pytest.mark.parametrize("name", ["tool-manager", "approver", "viewer"])
def test_other_roles_do_not_open_the_administration(person_with: With, name: str) -> None:
    assert enter(person_with(name)).get("/admin/").status_code != 200


def reset(client: Client, *people: User) -> Any:
    data = {"action": "reset_second_factor", "_selected_action": [one.pk for one in people]}
    return client.post(place(User, "changelist"), data, follow=True)


def test_an_administrator_takes_the_second_factor_of_who_lost_theirs(
    administrator: User, person_with: With
) -> None:
    person = person_with("approver")
    with_app(person)
    browser = enter(person)
    [said] = reset(enter(administrator), person).context["messages"]
    assert said.level_tag == "success" and person.username in said.message
    assert not AuthenticatorApp.objects.filter(user=person).exists()
    assert not RecoveryCode.objects.filter(user=person).exists()
    assert browser.get("/profile/").status_code == 302
    found = AuditRecord.objects.get(
        code="AUTH.SECOND_FACTOR_RESET", subject=f"user:{person.username}"
    )
    assert found.actor == administrator.username


def test_no_user_takes_the_second_factor_of_who_holds_more(
    administrator: User, organization: Organization
) -> None:
    chief = factories.superuser(organization)
    with_app(chief)
    [said] = reset(enter(administrator), chief).context["messages"]
    assert said.level_tag == "error" and chief.username in said.message
    assert AuthenticatorApp.objects.filter(user=chief).exists()


def test_no_user_takes_the_second_factor_of_another_organization(administrator: User) -> None:
    foreign = factories.person(factories.organization(f"org-{uuid4().hex[:12]}"))
    with_app(foreign)
    reset(enter(administrator), foreign)
    assert AuthenticatorApp.objects.filter(user=foreign).exists()


def test_an_auditor_takes_no_users_second_factor(person_with: With) -> None:
    person = person_with("viewer")
    with_app(person)
    reset(enter(person_with("auditor")), person)
    assert AuthenticatorApp.objects.filter(user=person).exists()
