"""`/schemas/`: the named schemas that `validate_content` uses, their versions, and their editor."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.catalog.sandbox import content_schemas
from tools.definitions.values import strict_json
from tools.errors import Malformed, ToolcribError
from tools.models import ContentSchema, ContentSchemaVersion, SchemaKind
from tools.ui.display import diff_texts, mixed_words, pretty, visible_pieces
from tools.ui.inputs import FormInput, Widget, choices, form_values, place_errors
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

LIST, ONE = "editor/content_schemas.html", "editor/content_schema.html"
FORM, REMOVE = "editor/content_schema_form.html", "editor/content_schema_remove.html"
PAGE_SIZE = 50


@require_safe
@page
def schema_list(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_contentschema")
    rows = ContentSchema.objects.with_latest().filter(
        organization_id=request.caller.organization_id
    )
    found = Paginator(rows.order_by("name"), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"page": found, "may_add": may(request.caller, "add_contentschema")}
    return render(request, LIST, context)


@require_safe
@page
def schema_page(request: PageRequest, name: str) -> HttpResponse:
    """The version of `?version=`, else the newest, beside the previous one."""
    require(request.caller, "view_contentschema")
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


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def create_schema(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_contentschema")
    inputs = _form_inputs(None)
    if request.method != "POST":
        return _render_form(request, inputs, None)
    given = _fill_inputs(inputs, request)
    kind = SchemaKind(given["kind"]) if given["kind"] in SchemaKind.values else SchemaKind.JSON
    try:
        document = _parse_document(kind, given["document"])
        row = content_schemas.create_schema(
            organization=request.user.organization,
            schema=given | {"document": document},
            by=actor_of(request.caller),
        )
    except ToolcribError as error:
        return _render_form(request, inputs, None, error)
    messages.success(request, f"{row.name} is kept: validate_content knows it by that name.")
    return redirect("schema", name=row.name)


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_schema(request: PageRequest, name: str) -> HttpResponseBase:
    """Save a new version; existing versions are never edited."""
    require(request.caller, "change_contentschema")
    row = content_schemas.find_schema(request.user.organization, name)
    inputs = _form_inputs(row)
    if request.method != "POST":
        return _render_form(request, inputs, row)
    given = _fill_inputs(inputs, request)
    try:
        change = given | {"document": _parse_document(SchemaKind(row.kind), given["document"])}
        version = content_schemas.add_version(row=row, change=change, by=actor_of(request.caller))
    except ToolcribError as error:
        return _render_form(request, inputs, row, error)
    messages.success(request, f"Version {version.number} of {row.name} holds from the next call.")
    return redirect("schema", name=row.name)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def remove_schema(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "delete_contentschema")
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


def _form_inputs(row: ContentSchema | None) -> list[FormInput]:
    about = _KIND_HELP.get(row.kind, _ANY_KIND_HELP) if row else _ANY_KIND_HELP
    text = document_text(content_schemas.newest(row)) if row else ""
    inputs = [
        FormInput("document", "Schema", Widget.CODE, required=True, help=about, value=text),
        FormInput("note", "Note", help="Why; stands beside the version."),
    ]  # fmt: skip
    if row is not None:
        return inputs
    return [
        FormInput("name", "Name", required=True, help="Letters, digits, '_', '.' and '-'."),
        FormInput("kind", "Kind", Widget.SELECT, options=choices(SchemaKind.values),
              value=SchemaKind.JSON),
        FormInput("description", "Description"),
        *inputs,
    ]  # fmt: skip


_KIND_HELP: dict[str, str] = {
    SchemaKind.JSON: "A JSON Schema.",
    SchemaKind.TABLE: "A table schema as JSON, its fields in “fields”.",
    SchemaKind.XML: "An XSD as XML.",
}
_ANY_KIND_HELP = "A JSON Schema or a table schema as JSON; an XSD as XML."


def _fill_inputs(inputs: list[FormInput], request: PageRequest) -> dict[str, Any]:
    given = form_values(request.POST)
    for one in inputs:
        one.value = given.get(one.key, "").replace("\r\n", "\n")
    return {one.key: one.value.strip() for one in inputs}


def _parse_document(kind: SchemaKind, text: str) -> Any:
    """Raises `Malformed` where the text is not JSON."""
    if kind == SchemaKind.XML:
        return text
    try:
        return strict_json.parse(text)
    except strict_json.BadJson as error:
        raise Malformed(f"is {error}") from None


def _render_form(
    request: PageRequest,
    inputs: list[FormInput],
    row: ContentSchema | None,
    error: ToolcribError | None = None,
) -> HttpResponse:
    flaws: list[dict[str, str]] = []
    if error is not None:
        errors = error.details.get("errors") or [{"field": "document", "message": error.message}]
        flaws = place_errors(errors, inputs)
    context = {"inputs": inputs, "row": row, "flaws": flaws, "refused": error is not None}
    return render(request, FORM, context, status=error.http_status if error else 200)
