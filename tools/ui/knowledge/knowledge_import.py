"""`/knowledge/import/`: submit a document, preview what it adds, and import exactly that."""

from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.catalog.knowledge_graphs import (
    GraphImportPreview,
    GraphImportResult,
    import_graph,
    preview_import,
)
from tools.definitions.texts.lookalikes import make_visible
from tools.errors import Malformed, TooLarge, ToolcribError
from tools.knowledge.entity_index import local_name
from tools.knowledge.graph_documents import MOST_FLAWS, Syntax
from tools.ui import sealed_forms
from tools.ui.knowledge.knowledge import entity_url
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

TEMPLATE = "knowledge/knowledge_import.html"
MOST_BYTES = 4 * 1024 * 1024  # the command allows more: here the browser carries the document
_FORM_NAME = "knowledge import"
_MOST_SHOWN = 20
_SYNTAX_BY_SUFFIX = {".ttl": Syntax.TURTLE, ".jsonld": Syntax.JSON_LD, ".json": Syntax.JSON_LD}
_NO_DOCUMENT = "Give a document: choose a file, or paste it."
_NOT_UTF8 = "The document is not UTF-8."
_TOO_LARGE = f"The document is longer than {MOST_BYTES} bytes: manage.py import_knowledge takes it."


@dataclass(frozen=True)
class KnowledgeImportInput:
    text: str
    syntax: Syntax
    name: str = ""

    @property
    def raw(self) -> dict[str, str]:
        return {"text": self.text, "syntax": str(self.syntax), "name": self.name}


@dataclass
class KnowledgeImportPage:
    given: KnowledgeImportInput | None = None
    preview: GraphImportPreview | None = None
    done: GraphImportResult | None = None
    flaw: str = ""
    errors: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def import_page(request: PageRequest) -> HttpResponse:
    require(request.caller, "add_knowledgeentry")
    shown = KnowledgeImportPage()
    if request.method == "POST":
        try:
            _handle_form(request, shown)
        except ToolcribError as refusal:
            shown.flaw, shown.status = refusal.message, refusal.http_status
            shown.errors = refusal.details.get("errors") or []
    return _render_page(request, shown)


def _handle_form(request: PageRequest, shown: KnowledgeImportPage) -> None:
    """Raises `ToolcribError`; its message says whether it is unknown if the import was applied."""
    writes = request.POST.get("do") == "write"
    given = shown.given = _previewed_document(request) if writes else _submitted_document(request)
    common: dict[str, Any] = {
        "organization": request.user.organization,
        "data": given.text.encode(),
        "syntax": given.syntax,
        "collection": None,
    }
    if writes:
        shown.done = import_graph(**common, by=actor_of(request.caller))
    else:
        shown.preview = preview_import(**common)


def _previewed_document(request: PageRequest) -> KnowledgeImportInput:
    """The document of the preview. Raises `Malformed`."""
    raw = sealed_forms.open_state(request.POST.get("kept", ""), request.user, _FORM_NAME)
    return KnowledgeImportInput(raw["text"], Syntax(raw["syntax"]), raw["name"])


def _submitted_document(request: PageRequest) -> KnowledgeImportInput:
    """The submitted document. Raises `Malformed`."""
    file, name = request.FILES.get("file"), ""
    if file is not None:
        name, data = (file.name or "")[:200], file.read(MOST_BYTES + 1)
    else:
        data = request.POST.get("text", "").replace("\r\n", "\n").encode("utf-8", "replace")
    if len(data) > MOST_BYTES:
        raise TooLarge(_TOO_LARGE, code="too_large")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Malformed(_NOT_UTF8, code="not_text") from None
    if not text.strip():
        raise Malformed(_NO_DOCUMENT, code="nothing_given")
    return KnowledgeImportInput(
        text, _detect_syntax(request.POST.get("format", ""), name, text), make_visible(name)
    )


def _detect_syntax(chosen: str, name: str, text: str) -> Syntax:
    """The chosen syntax; else by the file's name; else by its content."""
    if chosen in set(Syntax):
        return Syntax(chosen)
    for ending, syntax in _SYNTAX_BY_SUFFIX.items():
        if name.lower().endswith(ending):
            return syntax
    return Syntax.JSON_LD if text.lstrip()[:1] in {"{", "["} else Syntax.TURTLE


def _render_page(request: PageRequest, shown: KnowledgeImportPage) -> HttpResponse:
    preview = shown.preview
    context: dict[str, Any] = {
        "shown": shown,
        "errors": [{**one, "message": make_visible(str(one["message"]))} for one in shown.errors],
        "all_errors": len(shown.errors) < MOST_FLAWS,
        "text": shown.given.text if shown.given and not (shown.given.name or preview) else "",
        "chosen": request.POST.get("format", ""),
        "formats": [(Syntax.TURTLE, "Turtle"), (Syntax.JSON_LD, "JSON-LD")],
        "most_mib": MOST_BYTES // 1024 // 1024,
    }
    if preview is not None and shown.given is not None:
        context |= _preview_context(preview)
        context["kept"] = sealed_forms.seal_state(shown.given.raw, request.user, _FORM_NAME)
    return render(request, TEMPLATE, context, status=shown.status)


def _preview_context(preview: GraphImportPreview) -> dict[str, Any]:
    found = preview.contents
    return {
        "contents": found,
        "new": len(found.entities) - len(preview.known),
        "known": len(preview.known),
        "types": [
            (make_visible(local_name(one)), count) for one, count in found.types[:_MOST_SHOWN]
        ],
        "entities": [_entity_row(one, preview) for one in found.entities[:_MOST_SHOWN]],
        "more_entities": max(0, len(found.entities) - _MOST_SHOWN),
    }


def _entity_row(iri: str, preview: GraphImportPreview) -> dict[str, Any]:
    known = iri in preview.known
    return {
        "name": make_visible(local_name(iri)),
        "iri": make_visible(iri),
        "known": known,
        "url": entity_url(iri) if known else "",
    }
