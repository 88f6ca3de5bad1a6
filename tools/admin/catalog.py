"""Tools, their versions and groups."""

import json
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tools.admin.base import ActionAdmin, ActionForm, Guarded, LinesField, ReadOnly, actor
from tools.catalog import actions
from tools.definitions import strict_json
from tools.errors import ToolcribError
from tools.models import Tool, ToolGroup, ToolVersion

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


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _block(value: Any) -> SafeString:
    return format_html('<pre class="json">{}</pre>', _pretty(value))


class ToolForm(ActionForm):
    flawed_field = "definition"
    definition = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 30, "spellcheck": "false", "class": "json"}),
        help_text="The tool as JSON. Saving a changed one writes a new, signed version.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        version = self.instance.version
        self.initial["definition"] = _pretty(_editable(version.definition) if version else EXAMPLE)

    def clean_definition(self) -> Any:
        try:
            return strict_json.parse(self.cleaned_data["definition"])
        except strict_json.BadJson as error:
            raise forms.ValidationError(f"The definition is {error}.") from None

    def act(self, data: dict[str, Any]) -> Tool:
        definition = data["definition"]
        if self.instance._state.adding:
            return actions.register_tool(organization=self.home, definition=definition, by=self.by)
        return actions.update_tool(tool=self.instance, definition=definition, by=self.by)


def _editable(definition: dict[str, Any]) -> dict[str, Any]:
    """In an order that reads well, as PostgreSQL keeps none, and without the schema that its
    parameters stand for: one of the two is written."""
    derived = "input_schema" if definition["parameters"] else ""
    order = [*EXAMPLE, *(name for name in definition if name not in EXAMPLE)]
    return {name: definition[name] for name in order if name != derived}


class RefusesAloud(ActionAdmin):
    """Deletes through an action; what it refuses is a sentence, and the row stays."""

    def delete(self, row: Any, request: HttpRequest) -> None:
        raise NotImplementedError

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super(ActionAdmin, self).has_delete_permission(request, obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Only the row itself: what refers to it stays."""
        return [str(row) for row in objs], {}, set(), []

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self.delete(obj, request)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        try:
            return super().delete_view(request, object_id, extra_context)
        except ToolcribError as refusal:
            messages.error(request, refusal.message)
            name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
            return redirect(reverse(name, args=[object_id]))


@admin.register(Tool)
class ToolAdmin(Guarded, RefusesAloud):  # type: ignore[misc]
    form = ToolForm
    fields = ("definition",)
    list_display = ("name", "organization", "type", "status", "version_label", "updated_at")
    list_filter = ("status", "type")
    list_select_related = ("organization", "version")
    search_fields = ("name",)
    actions = ("enable", "disable")
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tool]:
        rows: QuerySet[Tool] = super().get_queryset(request)  # type: ignore[no-untyped-call]
        return rows.select_related("version", "organization").filter(deleted_at__isnull=True)

    @admin.display(description="version", ordering="version__label")
    def version_label(self, tool: Tool) -> str:
        return tool.version.label if tool.version else ""

    def definition(self, tool: Tool) -> SafeString:
        """For who may look and not change."""
        return _block(tool.version.definition if tool.version else {})

    @admin.action(description="Enable the selected tools", permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Tool]) -> None:
        self._switch(request, queryset, enabled=True)

    @admin.action(description="Disable the selected tools", permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Tool]) -> None:
        self._switch(request, queryset, enabled=False)

    def delete(self, row: Tool, request: HttpRequest) -> None:
        actions.delete_tool(tool=row, by=actor(request, row.organization))

    def _switch(self, request: HttpRequest, tools: QuerySet[Tool], *, enabled: bool) -> None:
        for tool in tools:
            by = actor(request, tool.organization)
            try:
                actions.set_enabled(tool=tool, enabled=enabled, by=by, reason="admin")
            except ToolcribError as refusal:
                messages.error(request, refusal.message)


@admin.register(ToolVersion)
class ToolVersionAdmin(ReadOnly):
    place = "tool__organization"
    list_display = ("tool", "label", "number", "created_by", "created_at")
    list_select_related = ("tool",)
    search_fields = ("tool__name", "digest")
    fields = (
        "tool", "number", "label", "shown_definition", "digest", "key_id", "signature",
        "created_at", "created_by", "origin",
    )  # fmt: skip
    ordering = ("-created_at",)

    @admin.display(description="definition")
    def shown_definition(self, version: ToolVersion) -> SafeString:
        return _block(version.definition)


class GroupForm(ActionForm):
    permissions = LinesField(help_text="Held by whoever is granted the group; one a line.")

    def act(self, data: dict[str, Any]) -> ToolGroup:
        adding = self.instance._state.adding
        place = self.home if adding else self.instance.organization
        name = data["name"] if adding else self.instance.name
        return actions.save_group(
            organization=place,
            name=name,
            by=self.by,
            description=data["description"],
            permissions=data["permissions"],
        )


@admin.register(ToolGroup)
class ToolGroupAdmin(Guarded, RefusesAloud):  # type: ignore[misc]
    form = GroupForm
    fields = ("name", "description", "permissions")
    list_display = ("name", "organization", "description")
    list_select_related = ("organization",)
    search_fields = ("name",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()  # tools and grants name it

    def delete(self, row: ToolGroup, request: HttpRequest) -> None:
        actions.delete_group(group=row, by=actor(request, row.organization))
