"""`/knowledge/import/`: submit a document, preview what it adds, and import exactly that."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpResponse
from django.urls import reverse

from tools.accounts.callers import actor_of
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
from tools.ui.knowledge.knowledge import entity_url
from tools.web.form_fields import OpenChoiceField
from tools.web.pages import PageRequest, form_page
from tools.web.previews import PreviewForm
from tools.web.reauthentication import Proof

TEMPLATE = "knowledge/knowledge_import.html"
MOST_BYTES = 4 * 1024 * 1024  # the command allows more: here the browser carries the document
_MOST_SHOWN = 20
_SYNTAX_BY_SUFFIX = {".ttl": Syntax.TURTLE, ".jsonld": Syntax.JSON_LD, ".json": Syntax.JSON_LD}
_NO_DOCUMENT = "Give a document: choose a file, or paste it."
_NOT_UTF8 = "The document is not UTF-8."
_TOO_LARGE = f"The document is longer than {MOST_BYTES} bytes: manage.py import_knowledge takes it."


class KnowledgeImportForm(PreviewForm):
    """It carries the document from the preview to the import."""

    details = f"{TEMPLATE}#contents"
    title, leave = "What would be added", "Leave it"
    file = forms.FileField(
        label="A file",
        required=False,
        allow_empty_file=True,
        widget=forms.FileInput({"accept": ".ttl,.jsonld,.json,text/turtle,application/ld+json"}),
        help_text=f"UTF-8, up to {MOST_BYTES // 1024 // 1024} MiB; manage.py import_knowledge "
        "takes more.",
    )
    format = OpenChoiceField(
        label="Format",
        required=False,
        choices=[
            ("", "What it looks like"), (Syntax.TURTLE, "Turtle"), (Syntax.JSON_LD, "JSON-LD"),
        ],
    )  # fmt: skip
    text = forms.CharField(
        label="Or paste it",
        required=False,
        strip=False,
        widget=forms.Textarea({"rows": 8, "class": "mono", "spellcheck": "false"}),
    )
    line_errors: tuple[dict[str, Any], ...] = ()

    def build(self) -> None:
        self.back = reverse("knowledge-import")

    def premises(self, values: Mapping[str, Any]) -> None:
        """Nothing but what is carried."""

    def look(self, values: dict[str, Any]) -> dict[str, Any]:
        if self.wants_look or self.carries is None:
            self.carries = _submitted_document(values)
        if name := self.carries["name"]:
            self.title = f"What would be added from {name}"
        found = preview_import(**self._document())
        self.contents = contents = found.contents
        self.known, self.new = len(found.known), len(contents.entities) - len(found.known)
        self.types = [
            (make_visible(local_name(one)), count) for one, count in contents.types[:_MOST_SHOWN]
        ]
        self.entities = [_entity_row(one, found) for one in contents.entities[:_MOST_SHOWN]]
        self.more_entities = max(0, len(contents.entities) - _MOST_SHOWN)
        count = contents.statements
        self.submit = f"Add {count:,} statement{'' if count == 1 else 's'}"
        return {
            "statements": f"{count:,}",
            "already there": (f"{self.known:,} entities", sorted(found.known)),
        }

    def write(self, values: dict[str, Any]) -> GraphImportResult:
        """In no transaction: the record of an update whose answer was lost outlives the refusal."""
        self.preview(values)
        self.check_seen()
        return self.act(values)

    def act(self, changes: dict[str, Any]) -> GraphImportResult:
        return import_graph(**self._document(), by=actor_of(self.request.caller))

    def place_refusal(self, refusal: ToolcribError) -> None:
        """Its errors are of lines. Its message says whether the import may have been applied."""
        self.line_errors = tuple(
            {**one, "message": make_visible(str(one["message"]))}
            for one in refusal.details.get("errors") or ()
        )
        self.add_error(None, refusal.message)

    def _document(self) -> dict[str, Any]:
        return {
            "organization": self.request.user.organization,
            "data": self.carries["text"].encode(),
            "syntax": Syntax(self.carries["syntax"]),
            "collection": None,
        }


@form_page(Proof.NOT_NEEDED, "add_knowledgeentry")
def import_page(request: PageRequest) -> HttpResponse:
    form = KnowledgeImportForm(request)
    form.save()
    whole = len(form.line_errors) < MOST_FLAWS
    return form.show(TEMPLATE, {"done": form.result, "all_errors": whole})


def _submitted_document(values: Mapping[str, Any]) -> dict[str, str]:
    """The submitted document. Raises `Malformed`."""
    file, name = values.get("file"), ""
    if file:
        name, data = (file.name or "")[:200], file.read(MOST_BYTES + 1)
    else:
        data = values.get("text", "").encode("utf-8", "replace")
    if len(data) > MOST_BYTES:
        raise TooLarge(_TOO_LARGE, code="too_large")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Malformed(_NOT_UTF8, code="not_text") from None
    if not text.strip():
        raise Malformed(_NO_DOCUMENT, code="nothing_given")
    syntax = _detect_syntax(values.get("format", ""), name, text)
    return {"text": text, "syntax": str(syntax), "name": make_visible(name)}


def _detect_syntax(chosen: str, name: str, text: str) -> Syntax:
    """The chosen syntax; else by the file's name; else by its content."""
    if chosen in set(Syntax):
        return Syntax(chosen)
    for ending, syntax in _SYNTAX_BY_SUFFIX.items():
        if name.lower().endswith(ending):
            return syntax
    return Syntax.JSON_LD if text.lstrip()[:1] in {"{", "["} else Syntax.TURTLE


def _entity_row(iri: str, preview: GraphImportPreview) -> dict[str, Any]:
    known = iri in preview.known
    return {
        "name": make_visible(local_name(iri)),
        "iri": make_visible(iri),
        "known": known,
        "url": entity_url(iri) if known else "",
    }
