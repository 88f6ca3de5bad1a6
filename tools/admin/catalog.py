"""Django admin of tools, their versions, their groups and their sources."""

import json
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
from tools.admin.base import ActionAdmin, ActionForm, Guarded, LinesField, ReadOnly, actor, giver
from tools.catalog import actions
from tools.catalog.groups import delete_group
from tools.catalog.registry import registry
from tools.catalog.services.services import save_source
from tools.definitions.callers import Caller
from tools.definitions.values import strict_json
from tools.errors import ToolcribError
from tools.insight.workflow_findings import findings_about
from tools.models import McpServer, Organization, Tool, ToolGroup, ToolService, ToolVersion
from tools.models.source import Source

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


class ToolForm(ActionForm):
    flawed_field = "definition"
    definition = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 30, "spellcheck": "false", "class": "json"}),
        help_text="The tool as JSON. Saving a changed one writes a new, signed version.",
    )
    max_concurrency = forms.IntegerField(
        required=False,
        min_value=1,
        help_text="How many of its calls run at once; empty: no limit.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        version = self.instance.version
        self.initial["definition"] = _format_json(
            _editable_definition(version.definition) if version else EXAMPLE
        )

    def clean_definition(self) -> Any:
        try:
            return strict_json.parse(self.cleaned_data["definition"])
        except strict_json.BadJson as error:
            raise forms.ValidationError(f"The definition is {error}.") from None

    def act(self, data: dict[str, Any]) -> Tool:
        definition = data["definition"]
        if self.instance._state.adding:
            tool = actions.register_tool(organization=self.home, definition=definition, by=self.by)
        else:
            tool = actions.update_tool(tool=self.instance, definition=definition, by=self.by)
        if "max_concurrency" in self.changed_data:
            tool = actions.set_concurrency(tool=tool, most=data["max_concurrency"], by=self.by)
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

    @admin.action(description="Enable the selected tools", permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Tool]) -> None:
        self._switch(request, queryset, enabled=True)

    @admin.action(description="Disable the selected tools", permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Tool]) -> None:
        self._switch(request, queryset, enabled=False)

    @admin.action(description="Ask two people for every call", permissions=["change"])
    def mark_critical(self, request: HttpRequest, queryset: QuerySet[Tool]) -> None:
        self._mark(request, queryset, critical=True)

    @admin.action(description="Ask two people no more", permissions=["change"])
    def unmark_critical(self, request: HttpRequest, queryset: QuerySet[Tool]) -> None:
        self._mark(request, queryset, critical=False)

    def _mark(self, request: HttpRequest, queryset: QuerySet[Tool], *, critical: bool) -> None:
        for tool in queryset.select_related("organization"):
            by = actor(request, tool.organization)
            actions.set_critical(tool=tool, critical=critical, by=by)

    def delete(self, row: Tool, request: HttpRequest) -> None:
        actions.delete_tool(tool=row, by=actor(request, row.organization))

    def _switch(self, request: HttpRequest, tools: QuerySet[Tool], *, enabled: bool) -> None:
        for tool in tools:
            by = actor(request, tool.organization)
            try:
                actions.set_enabled(tool=tool, enabled=enabled, by=by, reason="admin")
            except ToolcribError as refusal:
                messages.error(request, refusal.message, extra_tags=refusal.code)


@admin.register(ToolVersion)
class ToolVersionAdmin(ReadOnly):
    place = "tool__organization"
    list_display = ("tool", "label", "number", "created_by", "created_at")
    list_filter = ("created_at",)
    list_select_related = ("tool",)
    search_fields = ("tool__name", "digest__exact")
    fields = (
        "tool", "number", "label", "shown_definition", "digest", "key_id", "signature",
        "created_at", "created_by", "origin",
    )  # fmt: skip
    ordering = ("-created_at",)

    @admin.display(description="definition")
    def shown_definition(self, version: ToolVersion) -> SafeString:
        return _render_json(version.definition)


class WindowsField(LinesField):
    """One opening window per line: weekdays (none for every day), start and end."""

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return "\n".join(
            " ".join([*window.get("days", ()), f"{window['from']}-{window['to']}"])
            for window in value
        )

    def to_python(self, value: Any) -> Any:
        """An invalid window is left for the action to refuse."""
        return [_parse_window(line.split()) for line in super().to_python(value) if line.strip()]


def _parse_window(words: list[str]) -> dict[str, Any]:
    *days, hours = words
    begin, _, end = hours.partition("-")
    return {**({"days": days} if days else {}), "from": begin, "to": end}


class OwnedForm(ActionForm):
    """A row that is created in the administrator's own organization, and keeps its name."""

    @property
    def place(self) -> Organization:
        return self.home if self.instance._state.adding else self.instance.organization

    def name_of(self, data: dict[str, Any]) -> str:
        return str(data["name"] if self.instance._state.adding else self.instance.name)


class GroupForm(OwnedForm):
    giver: Caller
    permissions = LinesField(help_text="Held by whoever is granted the group; one a line.")
    parent = forms.ModelChoiceField(
        ToolGroup.objects.none(),
        required=False,
        help_text="A tool in this group is also in its parent.",
    )
    schedule = WindowsField(
        label="Open",
        help_text="One window a line, such as 22:00-06:00, or mon tue wed thu fri 09:00-17:00, in "
        "the organization's time zone; no line is always.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "parent" in self.fields:
            others = ToolGroup.objects.filter(organization=self.place).exclude(pk=self.instance.pk)
            self.fields["parent"].queryset = others  # type: ignore[attr-defined]

    def act(self, data: dict[str, Any]) -> ToolGroup:
        said = {name: value for name, value in data.items() if name not in ("name", "parent")}
        parent = data["parent"].name if data["parent"] else None
        return save_group(
            giver=self.giver,
            organization=self.place,
            name=self.name_of(data),
            by=self.by,
            parent=parent,
            **said,
        )


@admin.register(ToolGroup)
class ToolGroupAdmin(Guarded, DeletingAdmin):  # type: ignore[misc]
    form = GroupForm
    fields = (
        "name", "description", "permissions", "parent", "schedule", "max_queue_age_s",
        "max_cpu_percent",
    )  # fmt: skip
    list_display = ("name", "organization", "parent", "description")
    list_select_related = ("organization", "parent")
    search_fields = ("name",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()  # tools and grants name it

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any
    ) -> Any:
        made = super().get_form(request, obj, change, **options)
        made.giver = giver(request, obj.organization if obj else None)
        return made

    def delete(self, row: ToolGroup, request: HttpRequest) -> None:
        delete_group(group=row, by=actor(request, row.organization))


class SourceForm(OwnedForm):
    unnamed = forms.BooleanField(
        required=False,
        label="No groups of its own",
        help_text="Its tools that name none are in default, and the list below says nothing.",
    )
    default_groups = LinesField(
        help_text="Groups of its tools that name none, one a line. An empty list: only through *."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["unnamed"] = self.instance.default_groups is None

    def act(self, data: dict[str, Any]) -> Source:
        return save_source(
            kind=type(self.instance),
            organization=self.place,
            name=self.name_of(data),
            by=self.by,
            default_groups=None if data["unnamed"] else data["default_groups"],
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
