"""`/schemas/`: the named schemas that `validate_content` uses, their versions, and their editor."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may
from tools.catalog.sandbox import content_schemas
from tools.definitions.values import strict_json
from tools.errors import ToolcribError
from tools.models import ContentSchema, ContentSchemaVersion, SchemaKind
from tools.ui.display import diff_texts, mixed_words, pretty, visible_pieces
from tools.web.form_fields import OpenChoiceField, choices
from tools.web.forms import ActionForm
from tools.web.listing import Column, Filters, Listing, choice_field, search_field
from tools.web.pages import PageRequest, form_page, page
from tools.web.reauthentication import Proof

LIST, ONE = "editor/content_schemas.html", "editor/content_schema.html"
FORM, REMOVE = "editor/content_schema_form.html", "editor/content_schema_remove.html"
PAGE_SIZE = 50
_KIND_HELP: dict[str, str] = {
    SchemaKind.JSON: "A JSON Schema.",
    SchemaKind.TABLE: "A table schema as JSON, its fields in “fields”.",
    SchemaKind.XML: "An XSD as XML.",
}
_ANY_KIND_HELP = "A JSON Schema or a table schema as JSON; an XSD as XML."


class SchemaFilters(Filters):
    q = search_field("Name or what it is for")
    kind = choice_field("Kind", SchemaKind.choices)


class SchemaListing(Listing):
    view, template, noun, filters = "schemas", LIST, "schema", SchemaFilters
    order, place, page_size = "schema", "name", PAGE_SIZE
    columns = [
        Column("schema", "Schema", lambda row: row.name, sort="name"),
        Column("description", "", lambda row: row.description),
        Column("kind", "Kind", lambda row: row.kind, sort="kind"),
        Column("versions", "Versions", lambda row: row.latest, css="number"),
        Column("changed", "Changed", lambda row: row.updated_at, sort="updated_at", css="number"),
    ]

    def rows(self) -> QuerySet[ContentSchema]:
        rows = ContentSchema.objects.with_latest()
        rows = rows.filter(organization_id=self.caller.organization_id)
        if words := self.values.get("q"):
            rows = rows.filter(Q(name__icontains=words) | Q(description__icontains=words))
        if kind := self.values.get("kind"):
            rows = rows.filter(kind=kind)
        return rows

    def context(self) -> dict[str, Any]:
        return {"may_add": may(self.caller, "add_contentschema")}


@page("view_contentschema")
def schema_list(request: PageRequest) -> HttpResponseBase:
    return SchemaListing(request).respond()


@page("view_contentschema")
def schema_page(request: PageRequest, name: str) -> HttpResponse:
    """The version of `?version=`, else the newest, beside the previous one."""
    row = content_schemas.find_schema(request.user.organization, name)
    version = _find_version(row, request.GET.get("version", ""))
    before = row.versions.filter(number__lt=version.number).order_by("-number").first()
    context = {
        "row": row,
        "version": version,
        "before": before,
        "document": visible_pieces(document_text(version)),
        "mixed": mixed_words(document_text(version)),
        "lines": diff_texts(_document_lines(before), _document_lines(version)) if before else [],
        "versions": row.versions.order_by("-number")[:PAGE_SIZE],
        "may_change": may(request.caller, "change_contentschema"),
        "may_remove": may(request.caller, "delete_contentschema"),
    }
    return render(request, ONE, context)


class SchemaForm(ActionForm):
    """A new schema; of one that there is, a new version."""

    row: ContentSchema | None
    name = forms.CharField(
        label="Name", max_length=63, help_text="Letters, digits, '_', '.' and '-'."
    )
    kind = OpenChoiceField(
        label="Kind", choices=choices(SchemaKind.values), initial=SchemaKind.JSON
    )
    description = forms.CharField(label="Description", max_length=500, required=False)
    document = forms.CharField(
        label="Schema",
        widget=forms.Textarea(attrs={"rows": 8, "class": "mono", "spellcheck": "false"}),
        error_messages={"required": f"Give it: {_ANY_KIND_HELP}"},
    )
    note = forms.CharField(
        label="Note", max_length=1000, required=False, help_text="Why; stands beside the version."
    )

    def build(self) -> None:
        about = _ANY_KIND_HELP
        if self.row is not None:
            about = _KIND_HELP.get(self.row.kind, about)
            for name in ("name", "kind", "description"):
                del self.fields[name]
        self.fields["document"].help_text = about

    def stored_values(self) -> dict[str, Any]:
        assert self.row is not None
        return {"document": document_text(content_schemas.newest(self.row)), "note": ""}

    def clean_document(self) -> str:
        text: str = self.cleaned_data["document"].replace("\r\n", "\n")
        self.parsed: Any = text
        kind = self.row.kind if self.row else self.cleaned_data.get("kind")
        if kind != SchemaKind.XML:
            try:
                self.parsed = strict_json.parse(text)
            except strict_json.BadJson as error:
                raise ValidationError(f"is {error}") from None
        return text

    def write(self, values: dict[str, Any]) -> Any:
        """A schema is tried for seconds, during which no row is locked."""
        if self.row is not None:
            content_schemas.try_version(row=self.row, change=values | {"document": self.parsed})
        return super().write(values)

    def act(self, changes: dict[str, Any]) -> Any:
        by, given = actor_of(self.request.caller), changes | {"document": self.parsed}
        if self.row is None:
            organization = self.request.user.organization
            return content_schemas.create_schema(organization=organization, schema=given, by=by)
        number = content_schemas.newest(self.row).number
        version = content_schemas.keep_version(row=self.row, change=given, by=by)
        return version if version.number != number else None

    def place_refusal(self, refusal: ToolcribError) -> None:
        """What is of no field is of the schema itself."""
        if refusal.details.get("errors"):
            super().place_refusal(refusal)
        else:
            self.add_error("document", refusal.message)


@form_page(Proof.NOT_NEEDED, "add_contentschema")
def create_schema(request: PageRequest) -> HttpResponseBase:
    form = SchemaForm(request)
    if not form.save():
        return form.show(FORM)
    made = form.result.name
    said = f"{made} is kept: validate_content knows it by that name."
    return form.redirect(said, "schema", name=made)


@form_page(Proof.NOT_NEEDED, "change_contentschema")
def change_schema(request: PageRequest, name: str) -> HttpResponseBase:
    """Save a new version; existing versions are never edited."""
    row = content_schemas.find_schema(request.user.organization, name)
    form = SchemaForm(request, row)
    if not form.save():
        return form.show(FORM, {"row": row})
    number = form.result.number if form.changed else ""
    said = f"Version {number} of {row.name} holds from the next call."
    return form.redirect(said, "schema", name=row.name)


@form_page(Proof.NEEDED, "delete_contentschema")
def remove_schema(request: PageRequest, name: str) -> HttpResponseBase:
    row = content_schemas.find_schema(request.user.organization, name)
    if request.method != "POST":
        return render(request, REMOVE, {"row": row})
    content_schemas.delete_schema(row=row, by=actor_of(request.caller))
    messages.success(request, f"{row.name} is removed.")
    return redirect("schemas")


def document_text(version: ContentSchemaVersion) -> str:
    """A document as text to read and edit."""
    return version.document if isinstance(version.document, str) else pretty(version.document)


def _document_lines(version: ContentSchemaVersion) -> list[str]:
    return document_text(version).splitlines()


def _find_version(row: ContentSchema, number: str) -> ContentSchemaVersion:
    """Raises `NotFound`."""
    if not number:
        return content_schemas.newest(row)
    plain_number = number.isascii() and number.isdecimal() and len(number) <= 9
    return content_schemas.find_version(row, int(number) if plain_number else 0)
