"""Base classes of the Django admin: rows of the user's own organization, changed by actions."""

from collections.abc import Callable, Collection
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group
from django.core.exceptions import (
    BadRequest,
    FieldDoesNotExist,
    PermissionDenied,
    ValidationError,
)
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import QuerySet
from django.forms.models import ModelForm, model_to_dict
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.functional import cached_property
from guardian.admin import GuardedModelAdminMixin, UserManage
from guardian.shortcuts import (
    assign_perm,
    get_group_perms,
    get_perms_for_model,
    get_user_perms,
    remove_perm,
)

from audit.actions import Actor, difference, record
from audit.errors import AuditFlaw
from audit.events import Event, Outcome
from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.grants.grant_actions import check_changeable, check_grantable
from tools.definitions.callers import Caller
from tools.definitions.texts.names import SLUG, join_names
from tools.errors import Conflict, Forbidden, ToolcribError
from tools.models import Organization, User
from tools.web.forms import FILLED_FROM, NOTHING_CHANGED, ActionForm, FilledForm, notify
from tools.web.one_time import act_once
from tools.web.pages import address_of


def actor(request: HttpRequest, organization: Organization | None = None) -> Actor:
    """The actor of a change, in the organization whose evidence the change belongs to."""
    user = request.user
    assert isinstance(user, User)
    return actor_of(caller_of_user(user, organization=organization, source_ip=address_of(request)))


def giver(request: HttpRequest, organization: Organization | None = None) -> Caller:
    """The user who grants something, with their own permissions."""
    user = request.user
    assert isinstance(user, User)
    return caller_of_user(user, organization=organization)


MOST_NAMED = 10  # in a message


def row_action(
    description: str,
    said: str,
    act: Callable[[HttpRequest, Any, Any], object],
    permission: str = "change",
) -> Any:
    """An action of a list. `act` gets the request, each selected row and its organization, and
    returns False where nothing changed. A refusal becomes a message, and the other rows continue.
    """

    @admin.action(description=description, permissions=[permission])
    def run(self: "OwnOrganization", request: HttpRequest, queryset: QuerySet[Any]) -> None:
        done, refused = list[str](), False
        for row in queryset.select_related(*self.way_to_organization):
            try:
                if act(request, row, self.organization_of(row)) is not False:
                    done.append(str(row))
            except ToolcribError as refusal:
                refused = True
                messages.error(request, f"{row}: {refusal.message}", extra_tags=refusal.code)
        if done:
            messages.success(request, f"{said}: {join_names(done, MOST_NAMED)}.")
        elif not refused:
            messages.info(request, NOTHING_CHANGED)

    return run


class FilledModelForm(FilledForm, ModelForm):
    """A form that is filled from a row."""

    place: Organization | None  # whose row it is; None for rows of the installation

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not self.is_new:
            self.stored = self.stored_values()
            self.initial = {**self.initial, **self.stored}
            self.read_filled_from(str(self.data.get(FILLED_FROM, "")))

    @property
    def is_new(self) -> bool:
        return bool(self.instance._state.adding)

    def stored_values(self) -> dict[str, Any]:
        return model_to_dict(self.instance, [*self.fields])

    def lock(self) -> None:
        if self.place is not None:
            rows = Organization.objects.select_for_update(no_key=True)
            rows.values_list("pk").get(pk=self.place.pk)
        elif not self.is_new:
            rows = type(self.instance)._default_manager.select_for_update(no_key=True)
            rows.values_list("pk").get(pk=self.instance.pk)
        if not self.is_new:
            self.instance.refresh_from_db()


class AdminActionForm(FilledModelForm):
    """A form that calls an action; a refusal of the action is shown at the form."""

    by: Actor
    giver: Caller
    home: Organization  # of the administrator
    saved: Any = None
    changed = True

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if not self.errors:
            self._write(data)
        if self.errors or self.conflicts:
            self.ask_secrets_again()
        return data

    def _write(self, data: dict[str, Any]) -> None:
        try:
            with transaction.atomic():
                self.saved = self.write(data)
        except ToolcribError as refusal:
            if not self.conflicts:
                self.place_refusal(refusal)
        except AuditFlaw as flaw:
            self.add_error(flaw.field if flaw.field in self.fields else None, str(flaw))
        self.changed = self.saved is not None
        self.saved = self.saved or self.instance

    def _post_clean(self) -> None:
        """The action has validated everything and has written the row."""


MOST_COUNTED = 5_000  # further rows are found by filters and search
MOST_OFFERED = 50  # organizations to filter by; any other is named in the URL


class BoundedPaginator(Paginator):
    """A paginator that counts at most `MOST_COUNTED` rows; further rows are found by search."""

    most = MOST_COUNTED

    @cached_property
    def count(self) -> int:
        return min(self._counted, self.most)

    @property
    def count_text(self) -> str:
        return f"{self.most:,}+" if self._counted > self.most else f"{self._counted:,}"

    @cached_property
    def _counted(self) -> int:
        """Count in the order of the list, which has an index; never count a whole table."""
        rows: Any = self.object_list
        return int(rows[: self.most + 1].count())


class OrganizationFilter(SimpleListFilter):
    """Filters by slug, so that no page lists every organization."""

    title = "organization"
    parameter_name = "organization"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        slugs = Organization.objects.order_by("slug").values_list("slug", flat=True)
        return [(slug, slug) for slug in slugs[:MOST_OFFERED]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        slug, place = self.value(), self.place
        if not slug:
            return queryset
        return queryset.filter(**{place: slug}) if SLUG.fullmatch(slug) else queryset.none()

    place = "organization__slug"


class StrictAdmin(ModelAdmin):
    """Validates what a URL or a form names before it queries the database. A form that is sent
    twice acts once, and one that was filled from older values answers 409."""

    def changeform_view(self, request: HttpRequest, *args: Any, **options: Any) -> Any:
        view = super().changeform_view
        return self.once(request, lambda: view(request, *args, **options))

    def once(self, request: HttpRequest, act: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        """The answer of `act`, or of the same form before."""
        asked: Any = request
        asked.caller = giver(request)
        try:
            return act_once(asked, act)
        except (Conflict, Forbidden) as refusal:
            messages.error(request, refusal.message, extra_tags=refusal.code)
            return redirect(request.get_full_path())

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        response = super().render_change_form(request, context, *args, **options)
        if getattr(context["adminform"].form, "conflicts", ()):
            response.status_code = 409
        return response

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        asked: Any = request
        asked.nothing_changed = not getattr(form, "changed", form.changed_data)
        return super().save_form(request, form, change)

    def message_user(
        self, request: HttpRequest, message: Any, level: Any = messages.INFO, *args: Any,
        **options: Any,
    ) -> None:  # fmt: skip
        if getattr(request, "nothing_changed", False):
            message, level = NOTHING_CHANGED, messages.INFO
        super().message_user(request, message, level, *args, **options)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Only columns of the list's filters: any other could be read letter by letter."""
        filters = self.get_list_filter(request)
        named = {getattr(one, "parameter_name", None) for one in filters}
        columns = [one[0] if isinstance(one, tuple) else one for one in filters]
        return super().lookup_allowed(lookup, value, request) and (
            lookup in named
            or any(isinstance(one, str) and f"{lookup}__".startswith(f"{one}__") for one in columns)
        )

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **options: Any
    ) -> Any:
        try:
            for one in request.POST.getlist(ACTION_CHECKBOX_NAME):
                self.opts.pk.to_python(one)
        except ValidationError:
            raise BadRequest("A row was picked that cannot be one.") from None
        return super().response_action(request, queryset, *args, **options)


class ForSuperusers(StrictAdmin):
    """What spans organizations, which only superusers see and change."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)


class OwnOrganization(StrictAdmin):
    """Staff see the rows of their own organization; superusers see all.

    `place` is the path from a row to its organization, "" where the row is one, and None where
    rows are of the whole installation. Where rows name it by its slug, `by_slug` is true.
    """

    place: str | None = "organization"
    by_slug = False
    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 200

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if request.user.is_superuser or self.place is None:
            return rows
        home: Any = request.user.organization  # type: ignore[union-attr]
        return rows.filter(**{self.place or "pk": home.slug if self.by_slug else home.pk})

    def get_list_filter(self, request: HttpRequest) -> Any:
        own = [*super().get_list_filter(request)]
        everywhere = request.user.is_superuser and self.place
        return [*own, self._by_organization()] if everywhere else own

    def _by_organization(self) -> type[OrganizationFilter]:
        path = self.place if self.by_slug else f"{self.place}__slug"
        return type("ByOrganization", (OrganizationFilter,), {"place": path})

    @property
    def way_to_organization(self) -> list[str]:
        """The rows to join, from a row to its organization."""
        place = self.place or ""
        return [way] if (way := place.rpartition("__")[0] if self.by_slug else place) else []

    def organization_of(self, row: Any) -> Any:
        """None for rows of the installation."""
        if self.place is None:
            return None
        for step in filter(None, self.place.split("__")):
            row = getattr(row, step)
        return Organization.objects.get(slug=row) if self.by_slug else row

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """None, hence a redirect with a message, also for an invalid identifier."""
        try:
            return super().get_object(request, object_id, from_field)
        except (ValidationError, FieldDoesNotExist):
            return None


class ReadOnly(OwnOrganization):
    """What is only looked at. `hidden` columns are never read: secrets and binary data; `more` are
    functions that show something of a row. Its one action needs the permission `action_needs`."""

    actions: Any = None
    hidden: Collection[str] = ()
    more: tuple[Callable[[Any], Any], ...] = ()
    action_needs = ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*self.hidden)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        columns = [one.name for one in self.opts.concrete_fields if one.name not in self.hidden]
        return self.fields or [*columns, *self.more]

    def has_act_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(self.action_needs))

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ActionAdmin(OwnOrganization):
    """Rows that change only through actions, which increase the revision and write records."""

    form = AdminActionForm

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any
    ) -> Any:
        made: Any = super().get_form(request, obj, change, **options)
        home = request.user.organization  # type: ignore[union-attr]
        made.home, made.place = home, self.organization_of(obj) if obj else home
        made.by, made.giver = actor(request, made.place), giver(request, made.place)
        return made

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        super().save_form(request, form, change)
        return form.saved

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Nothing: the form's action has saved the row."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Nothing: these rows have no related forms."""


class OwnUser(UserManage):
    """Picks the user to grant something: a user or service account of one organization."""

    organization: Organization

    def clean_user(self) -> User:
        user: User = super().clean_user()  # type: ignore[no-untyped-call]
        if user.organization_id != self.organization.pk:
            raise ValidationError("There is no such user in this organization.")
        return user


class PermissionsForm(ActionForm):
    """The permissions of a user, or of a group of users, on one row."""

    permissions = forms.MultipleChoiceField(required=False)

    def __init__(
        self, request: Any, row: Any, holder: User | Group, organization: Organization
    ) -> None:
        self.holder, self.organization = holder, organization
        super().__init__(request, row)

    def build(self) -> None:
        offered = [(one.codename, one.name) for one in get_perms_for_model(self.row)]
        self.fields["permissions"].choices = sorted(offered)  # type: ignore[attr-defined]

    def lock(self) -> None:
        rows = Organization.objects.select_for_update(no_key=True)
        rows.values_list("pk").get(pk=self.organization.pk)

    def clean_permissions(self) -> list[str]:
        return sorted(self.cleaned_data["permissions"])

    def stored_values(self) -> dict[str, Any]:
        read = get_user_perms if isinstance(self.holder, User) else get_group_perms
        return {"permissions": sorted(map(str, read(self.holder, self.row)))}

    def act(self, changes: dict[str, Any]) -> list[str]:
        """Other processes cache grants by the revision. Raises `PermissionDenied`."""
        before, chosen = self.stored_values()["permissions"], changes["permissions"]
        added, removed = set(chosen).difference(before), set(before).difference(chosen)
        if not self.request.user.is_superuser:
            self._check_giver(added)
        for codename in added:
            assign_perm(codename, self.holder, self.row)
        for codename in removed:
            remove_perm(codename, self.holder, self.row)
        Organization.objects.next_revision(self.organization.pk)
        holder = self.holder
        whom = holder.username if isinstance(holder, User) else f"group {holder.pk}"
        changed = difference({"permissions": before}, {"permissions": chosen})
        record(
            Event.GRANT_CHANGE,
            by=actor(self.request, self.organization),
            outcome=Outcome.CHANGED,
            subject=f"{self.row._meta.model_name}:{self.row}",
            details={"whom": whom, **changed},
        )
        return list(chosen)

    def _check_giver(self, added: Collection[str]) -> None:
        """The rules of grants hold here too."""
        by, row = giver(self.request, self.organization), self.row
        kinds = {"execute_tool": "tools", "execute_toolgroup": "tool_groups"}
        if not isinstance(self.holder, User):
            raise PermissionDenied
        try:
            check_changeable(by, self.holder)
            for codename in added:
                if codename in kinds:
                    check_grantable(by, {kinds[codename]: [row.name]})
                elif not self.request.user.has_perm(f"{row._meta.app_label}.{codename}"):
                    raise PermissionDenied
        except Forbidden:
            raise PermissionDenied from None


class Guarded(GuardedModelAdminMixin, ActionAdmin):  # type: ignore[misc]
    """Rows with permissions of their own (django-guardian)."""

    def get_obj_perms_user_select_form(self, request: HttpRequest) -> type[forms.Form]:
        if request.user.is_superuser:
            return UserManage
        organization = request.user.organization  # type: ignore[union-attr]
        return type("OwnUser", (OwnUser,), {"organization": organization})

    def obj_perms_manage_view(self, request: HttpRequest, object_pk: str) -> HttpResponse:
        self._guarded(request, object_pk)
        if "submit_manage_group" in request.POST:
            _check_reaches_everywhere(request)
        return super().obj_perms_manage_view(request, object_pk)  # type: ignore[no-untyped-call]

    def obj_perms_manage_user_view(
        self, request: HttpRequest, object_pk: str, user_id: str
    ) -> HttpResponseBase:
        row, user = self._guarded(request, object_pk), _get_or_404(User.objects.all(), user_id)
        own = request.user.is_superuser or user.organization_id == self.organization_of(row).pk
        if not own:
            raise Http404
        return self.once(request, lambda: self._manage(request, row, user))

    def obj_perms_manage_group_view(
        self, request: HttpRequest, object_pk: str, group_id: str
    ) -> HttpResponseBase:
        row = self._guarded(request, object_pk)
        _check_reaches_everywhere(request)
        group = _get_or_404(Group.objects.all(), group_id)
        return self.once(request, lambda: self._manage(request, row, group))

    def _manage(self, request: HttpRequest, row: Any, holder: User | Group) -> HttpResponse:
        form = PermissionsForm(request, row, holder, self.organization_of(row))
        if form.save():
            notify(form.request, "Permissions saved.", changed=form.changed)
            return HttpResponseRedirect(request.path)
        context = self.get_obj_perms_base_context(request, row)  # type: ignore[no-untyped-call]
        return form.show("admin/guardian/model/permissions.html", {**context, "holder": holder})

    def _guarded(self, request: HttpRequest, object_pk: str) -> Any:
        row = _get_or_404(self.get_queryset(request), object_pk)  # type: ignore[no-untyped-call]
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        return row


def _check_reaches_everywhere(request: HttpRequest) -> None:
    """Groups of users span organizations, so only superusers grant to them."""
    if not request.user.is_superuser:
        raise PermissionDenied


def _get_or_404(rows: QuerySet[Any], identifier: str) -> Any:
    try:
        row = rows.filter(pk=identifier).first()
    except (ValidationError, ValueError):
        row = None
    if row is None:
        raise Http404
    return row
