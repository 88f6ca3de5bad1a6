"""Django admin of tools, their groups and their sources."""

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from tools.accounts.grants.grant_actions import save_group
from tools.admin.base import ActionAdmin, AdminActionForm, Guarded, actor, row_action
from tools.catalog import actions
from tools.catalog.groups import delete_group
from tools.catalog.registry import registry
from tools.catalog.services.services import save_source
from tools.errors import ToolcribError
from tools.insight.workflow_findings import findings_about
from tools.models import McpServer, Organization, Tool, ToolGroup, ToolService
from tools.models.source import Source
from tools.web.form_fields import JsonField, LinesField, OpeningHoursField

ToolSwitch = Callable[[HttpRequest, Tool, Organization], bool]
EXAMPLE = {
    "name": "shout",
    "type": "code",
    "description": "Returns a text in capitals.",
    "category": "System",
    "parameters": [
        {"name": "text", "type": "String", "description": "What to shout.", "required": True}
    ],
    "implementation": {"source": "def main(parameters):\n    return parameters['text'].upper()\n"},
    "group": ["default"],
    "delivery": "pure",
}


def _format_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _render_json(value: Any) -> SafeString:
    return format_html('<pre class="json">{}</pre>', _format_json(value))


class ToolForm(AdminActionForm):
    errors_at = "definition"
    definition = JsonField(
        required=True,
        initial=_format_json(EXAMPLE),
        widget=forms.Textarea(attrs={"rows": 30, "spellcheck": "false"}),
        help_text="The tool as JSON. Saving a changed one writes a new, signed version.",
    )
    max_concurrency = forms.IntegerField(
        required=False,
        min_value=1,
        help_text="How many of its calls run at once; empty: no limit.",
    )

    def stored_values(self) -> dict[str, Any]:
        version = self.instance.version
        definition = _editable_definition(version.definition) if version else EXAMPLE
        return super().stored_values() | {"definition": _format_json(definition)}

    def act(self, changes: dict[str, Any]) -> Tool:
        tool = self.instance
        if self.is_new:
            definition = changes["definition"]
            tool = actions.register_tool(organization=self.home, definition=definition, by=self.by)
        elif "definition" in changes:
            definition = changes["definition"]
            tool = actions.update_tool(tool=tool, definition=definition, by=self.by)
        most = changes.get("max_concurrency", tool.max_concurrency)
        if most != tool.max_concurrency:
            tool = actions.set_concurrency(tool=tool, most=most, by=self.by)
        return tool


def _editable_definition(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition in a readable order, as PostgreSQL keeps none, and without the schema that
    its parameters produce: an author writes one of the two."""
    derived = "input_schema" if definition["parameters"] else ""
    order = [*EXAMPLE, *(name for name in definition if name not in EXAMPLE)]
    return {name: definition[name] for name in order if name != derived}


class DeletingAdmin(ActionAdmin):
    """Deletes through an action; a refusal becomes a message, and the row stays."""

    def delete(self, row: Any, request: HttpRequest) -> None:
        raise NotImplementedError

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super(ActionAdmin, self).has_delete_permission(request, obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Only the row itself: rows that refer to it stay."""
        return [str(row) for row in objs], {}, set(), []

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self.delete(obj, request)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        try:
            return super().delete_view(request, object_id, extra_context)
        except ToolcribError as refusal:
            messages.error(request, refusal.message, extra_tags=refusal.code)
            name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
            return redirect(reverse(name, args=[object_id]))


def _switch(*, enabled: bool) -> ToolSwitch:
    def switch(request: HttpRequest, tool: Tool, place: Organization) -> bool:
        by = actor(request, place)
        done = actions.set_enabled(tool=tool, enabled=enabled, by=by, reason="admin")
        return done.status != tool.status

    return switch


def _mark(*, critical: bool) -> ToolSwitch:
    def mark(request: HttpRequest, tool: Tool, place: Organization) -> bool:
        by = actor(request, place)
        return actions.set_critical(tool=tool, critical=critical, by=by).critical != tool.critical

    return mark


@admin.register(Tool)
class ToolAdmin(Guarded, DeletingAdmin):  # type: ignore[misc]
    form = ToolForm
    readonly_fields = ("findings",)
    list_display = (
        "name", "organization", "type", "status", "critical", "version_label", "updated_at",
    )  # fmt: skip
    list_filter = ("status", "critical", "type")
    list_select_related = ("organization", "version")
    search_fields = ("name",)
    actions = ("enable", "disable", "mark_critical", "unmark_critical")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tool]:
        rows: QuerySet[Tool] = super().get_queryset(request)  # type: ignore[no-untyped-call]
        return rows.select_related("version", "organization").filter(deleted_at__isnull=True)

    @admin.display(description="version", ordering="version__label")
    def version_label(self, tool: Tool) -> str:
        return tool.version.label if tool.version else ""

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("definition", "max_concurrency", *(("findings",) if obj else ()))

    @admin.display(description="what is odd")
    def findings(self, tool: Tool) -> SafeString:
        """The linter's findings for the saved tool."""
        place = tool.organization
        found = findings_about(registry.snapshot(place.pk, place.revision), tool.name)
        rows = ((one.severity, one.message, one.remedy) for one in found)
        said = format_html_join("", "<p><strong>{}</strong> {} {}</p>", rows)
        return said or SafeString("Nothing.")

    def definition(self, tool: Tool) -> SafeString:
        """Read-only form of the field, for users who may only view."""
        return _render_json(tool.version.definition if tool.version else {})

    enable = row_action("Enable the selected tools", "Enabled", _switch(enabled=True))
    disable = row_action("Disable the selected tools", "Disabled", _switch(enabled=False))
    mark_critical = row_action(
        "Ask two people for every call", "Two people are asked", _mark(critical=True)
    )
    unmark_critical = row_action(
        "Ask two people no more", "Two people are asked no more", _mark(critical=False)
    )

    def delete(self, row: Tool, request: HttpRequest) -> None:
        actions.delete_tool(tool=row, by=actor(request, row.organization))


class GroupAdminForm(AdminActionForm):
    place: Organization
    permissions = LinesField(help_text="Held by whoever is granted the group; one a line.")
    parent = forms.ModelChoiceField(
        ToolGroup.objects.none(),
        required=False,
        help_text="A tool in this group is also in its parent.",
    )
    schedule = OpeningHoursField(
        label="Open",
        help_text="One window a line, such as 22:00-06:00, or mon-fri 09:00-17:00, in the "
        "organization's time zone; no line is always.",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "parent" in self.fields:
            others = ToolGroup.objects.filter(organization=self.place).exclude(pk=self.instance.pk)
            self.fields["parent"].queryset = others  # type: ignore[attr-defined]

    def act(self, changes: dict[str, Any]) -> ToolGroup:
        whole = self.cleaned_data | {"parent": None, "name": self.instance.name} | changes
        if parent := self.cleaned_data["parent"]:
            whole["parent"] = parent.name
        return save_group(giver=self.giver, organization=self.place, by=self.by, **whole)


@admin.register(ToolGroup)
class ToolGroupAdmin(Guarded, DeletingAdmin):  # type: ignore[misc]
    form = GroupAdminForm
    fields = (
        "name", "description", "permissions", "parent", "schedule", "max_queue_age_s",
        "max_cpu_percent",
    )  # fmt: skip
    list_display = ("name", "organization", "parent", "description")
    list_select_related = ("organization", "parent")
    search_fields = ("name",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()  # tools and grants name it

    def delete(self, row: ToolGroup, request: HttpRequest) -> None:
        delete_group(group=row, by=actor(request, row.organization))


class SourceForm(AdminActionForm):
    unnamed = forms.BooleanField(
        required=False,
        initial=True,
        label="No groups of its own",
        help_text="Its tools that name none are in default, and the list below says nothing.",
    )
    default_groups = LinesField(
        help_text="Groups of its tools that name none, one a line. An empty list: only through *."
    )

    def stored_values(self) -> dict[str, Any]:
        groups = self.instance.default_groups
        return super().stored_values() | {"unnamed": groups is None, "default_groups": groups or []}

    def act(self, changes: dict[str, Any]) -> Source:
        said = self.cleaned_data
        assert self.place is not None
        return save_source(
            kind=type(self.instance),
            organization=self.place,
            name=changes["name"] if self.is_new else self.instance.name,
            by=self.by,
            default_groups=None if said["unnamed"] else said["default_groups"],
        )


class SourceAdmin(ActionAdmin):
    """Only the groups of a source; its other fields are on the product's pages, which test them."""

    form = SourceForm
    fields = ("name", "unnamed", "default_groups")
    list_select_related = ("organization",)
    search_fields = ("name",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()  # definitions name it

    @admin.display(description="No groups of its own", boolean=True)
    def unnamed(self, source: Source) -> bool:
        """Read-only form of the field, for users who may only view."""
        return source.default_groups is None


@admin.register(ToolService)
class ToolServiceAdmin(SourceAdmin):
    list_display = ("name", "organization", "status", "serving", "last_seen", "default_groups")
    list_filter = ("status", "serving")


@admin.register(McpServer)
class McpServerAdmin(SourceAdmin):
    list_display = (
        "name", "organization", "transport", "enabled", "last_seen_at", "last_error",
        "default_groups",
    )  # fmt: skip
    list_filter = ("enabled", "transport", ("dead_since", admin.EmptyFieldListFilter))
