"""People, and the groups that Django keeps of them. Service accounts are edited as agents."""

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from audit.actions import record
from audit.events import Event, Outcome
from tools.admin.base import LinesField, OwnOrganization, actor
from tools.models import Organization, User

POWERS = ("is_staff", "is_superuser", "groups", "user_permissions")


class PersonForm(UserChangeForm):
    granted_groups = LinesField(help_text='Tool groups, one a line; "*" is all.')
    granted_permissions = LinesField(help_text="What tools require, one a line.")

    class Meta(UserChangeForm.Meta):
        model = User


class NewPersonForm(AdminUserCreationForm):
    class Meta(AdminUserCreationForm.Meta):
        model = User


@admin.register(User)
class PersonAdmin(OwnOrganization, UserAdmin):
    form = PersonForm
    add_form = NewPersonForm
    list_display = ("username", "organization", "email", "is_active", "is_staff", "last_login")
    list_filter = ("is_active", "is_staff")
    list_select_related = ("organization",)
    filter_horizontal = ("groups", "user_permissions")
    fieldsets = (
        (None, {"fields": ("username", "organization", "password", "is_active")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
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
        """Nobody but a superuser hands out power over the administration, or moves people."""
        moved = ("organization",) if obj or not _superuser(request) else ()
        return self._always_read + moved + (() if _superuser(request) else POWERS)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        beyond = obj is not None and obj.is_superuser and not _superuser(request)
        return not beyond and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # evidence names people; who leaves is made inactive

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        if not change and not _superuser(request):
            obj.organization = request.user.organization  # type: ignore[union-attr]
        super().save_model(request, obj, form, change)

    @transaction.atomic
    def user_change_password(
        self, request: HttpRequest, id: str, form_url: str = ""
    ) -> HttpResponse:
        return super().user_change_password(request, id, form_url)

    def log_addition(self, request: HttpRequest, obj: User, message: Any) -> Any:
        _note(request, obj, message)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: User, message: Any) -> Any:
        """Every change comes by here, the password's too, once everything is saved."""
        _note(request, obj, message)
        return super().log_change(request, obj, message)


admin.site.unregister(Group)


@admin.register(Group)
class PeopleGroupAdmin(GroupAdmin):
    """Groups of people reach across organizations, so superusers alone see to them."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return _superuser(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _superuser(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _superuser(request)

    def log_addition(self, request: HttpRequest, obj: Group, message: Any) -> Any:
        _note_group(request, obj, message)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Group, message: Any) -> Any:
        _note_group(request, obj, message)
        return super().log_change(request, obj, message)

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        _note_group(request, obj, "deleted")
        super().delete_model(request, obj)


def _superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_superuser)


def _note(request: HttpRequest, user: User, message: Any) -> None:
    """What a person may do can have changed: count the revision and record it."""
    Organization.objects.next_revision(user.organization_id)
    record(
        Event.ROW_CHANGE,
        by=actor(request, user.organization),
        outcome=Outcome.CHANGED,
        subject=f"user:{user.username}",
        details={"change": message},
    )


def _note_group(request: HttpRequest, group: Group, message: Any) -> None:
    """Its members may be anywhere: each of their organizations is told."""
    for organization in Organization.objects.filter(users__groups=group).distinct().order_by("pk"):
        Organization.objects.next_revision(organization.pk)
    record(
        Event.ROW_CHANGE,
        by=actor(request),
        outcome=Outcome.CHANGED,
        subject=f"group:{group.name}",
        details={"change": message},
    )
