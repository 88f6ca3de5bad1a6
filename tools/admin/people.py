"""Django admin of users and of Django's groups of users. Service accounts are edited as agents."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q, QuerySet
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse

from audit.actions import difference, record
from audit.events import Event, Outcome
from tools.accounts.grants.grant_actions import check_grantable
from tools.accounts.grants.impersonation import check_may_impersonate
from tools.accounts.login import login, second_factors
from tools.accounts.roles import grantable_roles, role_of, roles
from tools.accounts.superusers import check_superuser_left
from tools.accounts.user_permissions import increment_revisions
from tools.admin.base import (
    FilledModelForm,
    ForSuperusers,
    OwnOrganization,
    actor,
    giver,
    row_action,
)
from tools.definitions.callers import Caller
from tools.errors import Forbidden, ToolcribError
from tools.models import (
    AgentGroupObjectPermission,
    Organization,
    OrganizationGroupObjectPermission,
    ToolGroupGroupObjectPermission,
    ToolGroupObjectPermission,
    User,
)
from tools.web.form_fields import LinesField

ROLES = "roles"
POWERS = ("is_staff", "is_superuser", "groups", "user_permissions")
GRANTS = frozenset({*POWERS, ROLES, "granted_groups", "granted_permissions", "permissions"})
SECRET = frozenset({"password", "password1", "password2", "usable_password"})
GRANTED_ROWS = {
    ToolGroupObjectPermission: "content_object__organization",
    ToolGroupGroupObjectPermission: "content_object__organization",
    AgentGroupObjectPermission: "content_object__organization",
    OrganizationGroupObjectPermission: "content_object",
}
TOOLS = {"groups": "granted_groups", "permissions": "granted_permissions"}


class RolesField(forms.ModelMultipleChoiceField):
    """The roles: groups that the product creates, each with its purpose."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("required", False)
        options.setdefault("widget", forms.CheckboxSelectMultiple)
        super().__init__(Group.objects.none(), **options)

    def label_from_instance(self, obj: Any) -> str:
        role = role_of(obj.name)
        return f"{role.label}: {role.says}" if role else str(obj)


class PersonForm(FilledModelForm, UserChangeForm):
    """`groups` are those that an operator made; the product's own are the roles."""

    giver: Caller
    offered: QuerySet[Group]
    roles = RolesField(help_text="Whoever gives a role holds all that it holds.")
    granted_groups = LinesField(help_text='Tool groups, one a line; "*" is all.')
    granted_permissions = LinesField(help_text="What tools require, one a line.")

    class Meta(UserChangeForm.Meta):
        model = User

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if ROLES in self.fields:
            self.fields[ROLES].queryset = self.offered  # type: ignore[attr-defined]
        if "groups" in self.fields:
            others = Group.objects.exclude(pk__in=_role_groups())
            self.fields["groups"].queryset = others  # type: ignore[attr-defined]

    def stored_values(self) -> dict[str, Any]:
        held, ours = [*self.instance.groups.all()], _role_groups()
        return model_to_dict(self.instance, [*self.fields]) | {
            ROLES: [group for group in held if group in self.offered],
            "groups": [group for group in held if group not in ours],
        }

    def _save_m2m(self) -> None:
        """Roles that the administrator may not grant stay as they are."""
        held = {*self.instance.groups.filter(pk__in=_role_groups())}
        super()._save_m2m()  # type: ignore[misc]
        if ROLES in self.cleaned_data:
            held = held.difference(self.offered).union(self.cleaned_data[ROLES])
        others = self.instance.groups.exclude(pk__in=_role_groups())
        self.instance.groups.set([*others, *held])

    def clean(self) -> dict[str, Any]:
        """An administrator grants only what they hold themselves; a superuser is left."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return data
        try:
            self.lock_unchanged(data)
            more = {
                what: set(data[column]).difference(getattr(self.instance, column))
                for what, column in TOOLS.items()
                if column in data
            }
            check_grantable(self.giver, more)
            power = {name: getattr(self.instance, name) for name in ("is_active", "is_superuser")}
            power |= {name: data[name] for name in power if name in data}
            check_superuser_left(
                self.instance, active=power["is_active"], superuser=power["is_superuser"]
            )
        except ToolcribError as refusal:
            if not self.conflicts:
                self.place_refusal(refusal)
        return data


class NewPersonForm(AdminUserCreationForm):
    class Meta(AdminUserCreationForm.Meta):
        model = User


@admin.register(User)
class PersonAdmin(OwnOrganization, UserAdmin):
    form = PersonForm
    add_form = NewPersonForm
    list_display = ("username", "organization", "email", "is_active", "is_staff", "last_login")
    list_filter = ("is_active", "is_staff", "is_superuser", "last_login")
    list_select_related = ("organization",)
    actions = ("reset_second_factor",)
    filter_horizontal = ("groups", "user_permissions")
    raw_id_fields = ("organization",)
    fieldsets = (
        (None, {"fields": ("username", "organization", "password", "is_active")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("Roles", {"fields": (ROLES,)}),
        ("Tools", {"fields": ("granted_groups", "granted_permissions")}),
        ("Administration", {"fields": POWERS}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (
        (
            None,
            {"fields": ("username", "organization", "usable_password", "password1", "password2")},
        ),
    )
    _always_read: ClassVar[tuple[str, ...]] = ("last_login", "date_joined")

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        return super().get_queryset(request).filter(is_service_account=False)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Only a superuser grants access to the admin site, moves users to another organization,
        or changes their own grants."""
        superuser = _is_superuser(request)
        moved = ("organization",) if obj or not superuser else ()
        own = (ROLES, *TOOLS.values()) if obj and obj.pk == request.user.pk else ()
        return self._always_read + moved + (() if superuser else POWERS + own)

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any
    ) -> Any:
        made: Any = super().get_form(request, obj, change=change, **options)
        if obj:
            made.giver, made.place = giver(request, obj.organization), obj.organization
            made.offered = _offered_roles(request)
        return made

    reset_second_factor = row_action(
        "Take away the second factor (of who lost theirs)",
        "Have no second factor any more, and are logged out",
        lambda request, person, place: second_factors.reset_factors(
            person=person, giver=giver(request, place), by=actor(request, place)
        ),
    )  # refused for users with more permissions than the administrator

    @admin.display(description="roles")
    def roles(self, person: User) -> str:
        found = (role_of(group.name) for group in person.groups.order_by("name"))
        return ", ".join(role.label for role in found if role) or "none"

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        beyond = obj is not None and obj.is_superuser and not _is_superuser(request)
        return not beyond and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # evidence names users; a user who leaves is deactivated

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        if not change and not _is_superuser(request):
            obj.organization = request.user.organization  # type: ignore[union-attr]
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if change:
            person = form.instance
            _update_staff_access(request, form, person)
            _record_grant_changes(request, form, f"user:{person.username}", person.organization)
        _record_user_change(request, form.instance, **_changed_fields(form, change))

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        return self.once(request, lambda: self._change_password(request, id, form_url))

    @transaction.atomic
    def _change_password(self, request: HttpRequest, id: str, form_url: str) -> HttpResponse:
        user = self.get_object(request, unquote(id))
        if user is not None and user.pk != request.user.pk:
            _check_may_impersonate(request, user)
        response = super().user_change_password(request, id, form_url)
        if request.method == "POST" and response.status_code == 302 and user is not None:
            _record_user_change(request, user, change="password", **difference({}, {}))
            if user.pk != request.user.pk:
                login.end_sessions(user=user, by=actor(request, user.organization))
        return response


admin.site.unregister(Group)


@admin.register(Group)
class PeopleGroupAdmin(ForSuperusers, GroupAdmin):
    """Groups of users span organizations. Roles belong to the product: they are read-only here, and
    assigned at each user."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and not _is_role(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_superuser(request) and not _is_role(obj)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        places = _affected_organizations(form.instance, request)
        increment_revisions(User.objects.filter(groups=form.instance))
        _record_grant_changes(request, form, f"group:{form.instance.name}", *places)
        for place in places:
            _record_group_change(request, form.instance, place, **_changed_fields(form, change))

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        """Each organization gets a record of its own members of the group and its own grants."""
        increment_revisions(User.objects.filter(groups=obj))
        held = {"name": obj.name, "permissions": _describe_value(obj.permissions.all())}
        for place in _affected_organizations(obj, request):
            own = held | {
                "members": _group_members(obj, place),
                "granted": _granted_permissions(obj, place),
            }
            _record_group_change(request, obj, place, **difference(own, None))
        super().delete_model(request, obj)


def _is_superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_superuser)


def _is_role(group: Group | None) -> bool:
    return group is not None and role_of(group.name) is not None


def _role_groups() -> QuerySet[Group]:
    return Group.objects.filter(name__in=[role.group for role in roles()])


def _offered_roles(request: HttpRequest) -> QuerySet[Group]:
    assert isinstance(request.user, User)
    return Group.objects.filter(name__in=[role.group for role in grantable_roles(request.user)])


def _check_may_impersonate(request: HttpRequest, person: User) -> None:
    try:
        check_may_impersonate(giver(request, person.organization), person)
    except Forbidden as refusal:
        raise PermissionDenied(refusal.message) from None


def _update_staff_access(request: HttpRequest, form: Any, person: User) -> None:
    """A role that includes `/admin/` opens it, and removing the last such role closes it, unless
    a superuser sets access on the same page."""
    if ROLES not in form.changed_data or _is_superuser(request):
        opens = person.is_staff or _opens_administration(form.cleaned_data.get(ROLES, ()))
    else:
        opened = _opens_administration(form.initial[ROLES])
        opens = _opens_administration(person.groups.all()) or (person.is_staff and not opened)
    if opens != person.is_staff:
        said = difference({"is_staff": person.is_staff}, {"is_staff": opens})
        person.is_staff = opens
        person.save(update_fields=["is_staff"])
        by, changed = actor(request, person.organization), Outcome.CHANGED
        subject = f"user:{person.username}"
        record(Event.GRANT_CHANGE, by=by, outcome=changed, subject=subject, details=said)


def _opens_administration(groups: Iterable[Group]) -> bool:
    found = (role_of(group.name) for group in groups)
    return any(role.opens_administration for role in found if role)


def _record_grant_changes(
    request: HttpRequest, form: Any, subject: str, *places: Organization
) -> None:
    """Record the grants before and after, and their difference, which is short."""
    changed = [name for name in form.changed_data if name in GRANTS]
    before = {name: _describe_value(form.initial.get(name)) for name in changed}
    after = {name: _describe_value(form.cleaned_data[name]) for name in changed}
    said = {
        "before": before,
        "after": after,
        "added": _added_items(after, before),
        "removed": _added_items(before, after),
    }
    for place in places if changed else ():
        by = actor(request, place)
        record(Event.GRANT_CHANGE, by=by, outcome=Outcome.CHANGED, subject=subject, details=said)


def _added_items(some: dict[str, Any], others: dict[str, Any]) -> dict[str, list[str]]:
    """For each value that is a list: the items of `some` that `others` lacks."""
    return {
        name: more
        for name, value in some.items()
        if isinstance(value, list) and (more := sorted({*value}.difference(others[name])))
    }


def _describe_value(value: Any) -> Any:
    """A boolean as it is, anything else as the sorted names of what was chosen."""
    return value if isinstance(value, bool) else sorted(str(item) for item in value or ())


def _changed_fields(form: Any, change: bool) -> dict[str, Any]:
    """The fields that the administrator changed, without grants, which have their own record."""
    names = [name for name in form.changed_data if name not in GRANTS | SECRET]
    before = {name: form.initial.get(name) for name in names} if change else None
    after = {name: form.cleaned_data.get(name) for name in names}
    secret = {"change": "password"} if SECRET.intersection(form.changed_data) else {}
    return {**secret, **difference(before, after)}


def _record_user_change(request: HttpRequest, user: User, **details: Any) -> None:
    """The user's permissions may have changed: increase the revision and record the change."""
    increment_revisions(User.objects.filter(pk=user.pk), user.organization)
    record(
        Event.ROW_CHANGE,
        by=actor(request, user.organization),
        outcome=Outcome.CHANGED,
        subject=f"user:{user.username}",
        details=details,
    )


def _affected_organizations(group: Group, request: HttpRequest) -> list[Organization]:
    """The organizations of the group's members and grants, and the superuser's own."""
    home = request.user.organization_id  # type: ignore[union-attr]
    granted = [
        model.objects.filter(group=group).values(place) for model, place in GRANTED_ROWS.items()
    ]
    wanted = Q(pk=home) | Q(users__groups=group)
    for places in granted:
        wanted |= Q(pk__in=places)
    return [*Organization.objects.filter(wanted).distinct().order_by("pk")]


def _group_members(group: Group, place: Organization) -> list[str]:
    return sorted(
        User.objects.filter(groups=group, organization=place).values_list("username", flat=True)
    )


def _granted_permissions(group: Group, place: Organization) -> list[str]:
    """The group's permissions on rows of the organization, such as `execute_tool tool:echo`."""
    found = list[str]()
    for model, home in GRANTED_ROWS.items():
        rows: Any = model.objects.filter(group=group, **{home: place})
        for row in rows.select_related("permission", "content_object"):
            on = row.content_object
            found.append(f"{row.permission.codename} {on._meta.model_name}:{on}")
    return sorted(found)


def _record_group_change(
    request: HttpRequest, group: Group, place: Organization, **details: Any
) -> None:
    record(
        Event.ROW_CHANGE,
        by=actor(request, place),
        outcome=Outcome.CHANGED,
        subject=f"group:{group.name}",
        details=details,
    )
