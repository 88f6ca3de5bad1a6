"""Base classes of the Django admin: rows of the user's own organization, changed by actions."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.contrib import messages
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
from django.db.models import Model, QuerySet
from django.forms.models import ModelForm
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.functional import cached_property
from guardian.admin import GuardedModelAdminMixin, UserManage
from guardian.shortcuts import get_group_perms, get_user_perms

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.grants.grant_actions import check_changeable, check_held
from tools.definitions.callers import Caller
from tools.definitions.texts.names import SLUG
from tools.definitions.values import strict_json
from tools.errors import Forbidden, ToolcribError
from tools.models import Organization, User


def actor(request: HttpRequest, organization: Organization | None = None) -> Actor:
    """The actor of a change, in the organization whose evidence the change belongs to."""
    user = request.user
    assert isinstance(user, User)
    address = str(request.META.get("REMOTE_ADDR", ""))
    return actor_of(caller_of_user(user, organization=organization, source_ip=address))


def giver(request: HttpRequest, organization: Organization | None = None) -> Caller:
    """The user who grants something, with their own permissions."""
    user = request.user
    assert isinstance(user, User)
    return caller_of_user(user, organization=organization)


class LinesField(forms.CharField):
    """A list of texts, one per line. Names match exactly, so nothing is trimmed."""

    widget = forms.Textarea

    def __init__(self, **options: Any) -> None:
        options.setdefault("required", False)
        super().__init__(strip=False, **options)
        self.widget.attrs.update({"rows": 4, "spellcheck": "false", "class": "vLargeTextField"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        return [line for line in str(value or "").splitlines() if line]


class HostsField(LinesField):
    """One host per line; a host with more than a name is written as JSON."""

    def __init__(self, **options: Any) -> None:
        options.setdefault(
            "help_text",
            'One a line: a host, *.suffix, * for every public one, or {"host": "api.example", '
            '"ports": [443], "methods": ["GET"], "paths": ["/v1"], "credential": "name"}.',
        )
        super().__init__(**options)

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return "\n".join(one if isinstance(one, str) else json.dumps(one) for one in value)

    def to_python(self, value: Any) -> Any:
        lines = [line.strip() for line in super().to_python(value)]
        return [_parse_host(line) for line in lines if line]


def run_for_each(
    request: HttpRequest, rows: Iterable[Any], act: Callable[[Any], object], said: str
) -> None:
    """Run an action for each row. A refusal becomes a message, and the other rows continue."""
    done = 0
    for row in rows:
        try:
            act(row)
        except ToolcribError as refusal:
            messages.error(request, f"{row}: {refusal.message}", extra_tags=refusal.code)
        else:
            done += 1
    if done:
        messages.success(request, f"{said}: {done}.")


def _parse_host(line: str) -> Any:
    if not line.startswith("{"):
        return line
    try:
        return strict_json.parse(line)
    except strict_json.BadJson as error:
        raise ValidationError(f"The line {line[:60]!r} is {error}.") from None


class ActionForm(ModelForm):
    """A form that calls an action; a refusal of the action is shown at the form."""

    by: Actor
    home: Organization
    saved: Model
    flawed_field: str | None = None  # where the errors of a definition are shown

    def act(self, data: dict[str, Any]) -> Model:
        raise NotImplementedError

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                with transaction.atomic():
                    self.saved = self.act(data)
            except ToolcribError as refusal:
                self._refuse(refusal)
        return data

    def _post_clean(self) -> None:
        """The action has validated everything and has written the row."""

    def _refuse(self, refusal: ToolcribError) -> None:
        flaws = refusal.details.get("errors")
        if not flaws:
            self.add_error(None, refusal.message)
        for flaw in flaws or []:
            self.add_error(self.flawed_field, f"{flaw['field']}: {flaw['message']}")


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
    """Validates what a URL or a form names before it queries the database."""

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


class OwnOrganization(StrictAdmin):
    """Staff see the rows of their own organization; superusers see all.

    `place` is the path from a row to its organization, "" where the row is one. Where rows name
    it by its slug, `by_slug` is true.
    """

    place = "organization"
    by_slug = False
    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 200

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if request.user.is_superuser:
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

    def organization_of(self, row: Any) -> Organization:
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
    """Evidence: no user may change it. `hidden` columns are never shown: secrets and binary
    data."""

    actions: Any = None
    hidden: tuple[str, ...] = ()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if self.fields:
            return self.fields
        return [one.name for one in self.opts.concrete_fields if one.name not in self.hidden]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ActionAdmin(OwnOrganization):
    """Rows that change only through actions, which increase the revision and write records."""

    form = ActionForm

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any
    ) -> Any:
        made: Any = super().get_form(request, obj, change, **options)
        home = request.user.organization  # type: ignore[union-attr]
        made.home, made.by = home, actor(request, self.organization_of(obj) if obj else home)
        return made

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
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

    @transaction.atomic
    def obj_perms_manage_user_view(
        self, request: HttpRequest, object_pk: str, user_id: str
    ) -> HttpResponse:
        row, user = self._guarded(request, object_pk), _get_or_404(User.objects.all(), user_id)
        superuser = request.user.is_superuser
        if not superuser and user.organization_id != self.organization_of(row).pk:
            raise Http404
        before = sorted(str(codename) for codename in get_user_perms(user, row))
        if request.method == "POST" and not superuser:
            self._check_giver(request, row, user, before)
        response: HttpResponse = super().obj_perms_manage_user_view(  # type: ignore[no-untyped-call]
            request, object_pk, user_id
        )
        self._granted(request, response, row, user.username, before)
        return response

    @transaction.atomic
    def obj_perms_manage_group_view(
        self, request: HttpRequest, object_pk: str, group_id: str
    ) -> HttpResponse:
        row = self._guarded(request, object_pk)
        _check_reaches_everywhere(request)
        group = _get_or_404(Group.objects.all(), group_id)
        before = sorted(str(codename) for codename in get_group_perms(group, row))
        response: HttpResponse = super().obj_perms_manage_group_view(  # type: ignore[no-untyped-call]
            request, object_pk, group_id
        )
        self._granted(request, response, row, f"group {group_id}", before)
        return response

    def _check_giver(self, request: HttpRequest, row: Any, user: User, before: list[str]) -> None:
        """Apply the rules of grants on this page too."""
        by = giver(request, self.organization_of(row))
        chosen = set(request.POST.getlist("permissions")).difference(before)
        kind = {"execute_tool": "tools", "execute_toolgroup": "tool_groups"}
        try:
            check_changeable(by, user)
            for codename in chosen:
                if codename in kind:
                    check_held(by, {kind[codename]: [row.name]})
                elif not request.user.has_perm(f"{row._meta.app_label}.{codename}"):
                    raise PermissionDenied
        except Forbidden:
            raise PermissionDenied from None

    def _guarded(self, request: HttpRequest, object_pk: str) -> Any:
        row = _get_or_404(self.get_queryset(request), object_pk)  # type: ignore[no-untyped-call]
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        return row

    def _granted(
        self, request: HttpRequest, response: HttpResponse, row: Any, whom: str, before: list[str]
    ) -> None:
        """Increase the revision and record: other processes cache grants by the revision."""
        if request.method != "POST" or response.status_code != 302:
            return  # nothing was saved
        organization = self.organization_of(row)
        Organization.objects.next_revision(organization.pk)
        chosen = request.POST.getlist("permissions")
        record(
            Event.GRANT_CHANGE,
            by=actor(request, organization),
            outcome=Outcome.CHANGED,
            subject=f"{row._meta.model_name}:{row}",
            details={
                "whom": whom,
                **difference({"permissions": before}, {"permissions": sorted(chosen)}),
            },
        )


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
