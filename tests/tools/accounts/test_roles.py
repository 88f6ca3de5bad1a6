"""Roles are groups that the product creates and keeps current; groups of operators are left
alone."""

from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.models import AuditRecord
from tests import factories
from tools.accounts.roles import grantable_roles, role_of, roles, update_roles
from tools.accounts.user_permissions import may
from tools.models import Organization, User

LABELS = ["Administrator", "Tool manager", "Approver", "Auditor", "Viewer"]
BEYOND = (
    "tools.act_in_organization", "tools.add_licensetier", "tools.change_licensetier",
    "tools.add_organization", "tools.change_organization", "tools.delete_user",
    "audit.change_alertrule", "audit.delete_auditpayload", "audit.delete_auditrecord",
)  # fmt: skip


def group(name: str) -> Group:
    return Group.objects.get(name=f"role:{name}")


def permissions_of(name: str) -> set[str]:
    rows = group(name).permissions.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in rows}


def test_a_new_installation_has_every_role_with_what_the_table_says(db: None) -> None:
    assert [role.label for role in roles()] == LABELS
    for role in roles():
        assert permissions_of(role.name) == role.permissions


def test_a_role_that_was_changed_is_put_right_at_the_next_start(organization: Organization) -> None:
    person, viewer = factories.person(organization), group("viewer")
    person.groups.add(viewer)
    before = Organization.objects.get(pk=organization.pk).revision
    viewer.permissions.set(Permission.objects.filter(codename__in=["delete_tool", "view_tool"]))
    update_roles()
    assert permissions_of("viewer") == role_of("role:viewer").permissions
    assert Organization.objects.get(pk=organization.pk).revision == before + 1
    record = AuditRecord.objects.filter(organization=organization.slug).latest("id")
    assert (record.code, record.subject) == ("ADMIN.ROW_CHANGE", "group:role:viewer")
    assert "tools.delete_tool" in record.details["before"]["permissions"]


def test_a_role_that_was_deleted_is_made_again(db: None) -> None:
    group("auditor").delete()
    update_roles()
    assert permissions_of("auditor") == role_of("role:auditor").permissions


def test_what_is_right_already_is_left_and_not_recorded(db: None) -> None:
    update_roles()
    with CaptureQueriesContext(connection) as asked:
        update_roles()
    written = ("INSERT", "UPDATE", "DELETE")
    assert not [one["sql"] for one in asked if one["sql"].startswith(written)]


@pytest.mark.parametrize("name", ["Approver", "viewer", "Night shift"])
def test_a_group_of_an_operator_is_left_alone(db: None, name: str) -> None:
    own = Group.objects.create(name=f"{name} {uuid4().hex[:6]}")
    own.permissions.set(Permission.objects.filter(codename="delete_agent"))
    update_roles()
    assert [row.codename for row in own.permissions.all()] == ["delete_agent"]


def test_an_administrator_holds_what_every_other_role_holds(db: None) -> None:
    administrator, *others = roles()
    for role in others:
        assert role.permissions < administrator.permissions, role.label


def test_no_role_reaches_beyond_its_organization_or_destroys_evidence(db: None) -> None:
    for role in roles():
        assert role.permissions.isdisjoint(BEYOND), role.label


def test_an_auditor_holds_every_view_and_nothing_else(db: None) -> None:
    views = Permission.objects.filter(
        content_type__app_label__in=("tools", "audit"), codename__startswith="view_"
    )
    assert permissions_of("auditor") == {
        f"{row.content_type.app_label}.{row.codename}"
        for row in views.select_related("content_type")
    }


def test_only_roles_within_a_users_own_permissions_are_offered(organization: Organization) -> None:
    assert grantable_roles(factories.person(organization)) == []
    assert [role.label for role in grantable_roles(factories.superuser(organization))] == LABELS
    for name, given in {
        "administrator": LABELS,
        "tool-manager": ["Tool manager", "Viewer"],
        "approver": ["Approver", "Viewer"],
        "auditor": ["Auditor", "Viewer"],
        "viewer": ["Viewer"],
    }.items():
        person = factories.person(organization)
        person.groups.add(group(name))
        assert [role.label for role in grantable_roles(person)] == given


def test_a_role_holds_for_a_person_and_never_for_an_agents_account(agent) -> None:
    caller = factories.caller(agent)
    User.objects.get(pk=caller.user_id).groups.add(group("administrator"))
    assert not may(caller, "view_tool")
