"""The form of an import. It carries the documents from one step to the next, sealed and not shown:
they may hold secrets, and files, which a browser does not send twice.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.urls import reverse
from django.utils.html import format_html

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.catalog.imports.catalog_import import permissions
from tools.catalog.imports.import_preview import UNREAD, Choices, ImportPreviewRow, perform
from tools.catalog.imports.import_results import CREATED, REFUSED, REVIEW, UPDATED
from tools.definitions.dialects.import_documents import MAX_BYTES
from tools.definitions.dialects.import_entries import (
    MAX_ITEMS,
    ImportContents,
    ImportEntry,
    ImportFile,
    ImportItemKind,
    ImportSelection,
    ImportSource,
    decode_file,
    parse_files,
)
from tools.errors import Conflict, Malformed, TooLarge, ToolcribError
from tools.models import EgressCredential
from tools.web.form_fields import NamesField
from tools.web.form_fields import choices as name_choices
from tools.web.previews import BLOCKED, PreviewForm

DIALECTS = {
    ImportSource.ITEMS: "TrustGraph items by key",
    ImportSource.DEFINITIONS: "definitions, or an export",
    ImportSource.MCP: "the tools/list of an MCP server",
    ImportSource.CLIENT: "MCP servers of a desktop client",
    ImportSource.OPENAPI: "OpenAPI",
}
TEMPLATE = "catalog/import.html"
MOST_FILES = 100
ALL, EACH = "all", "each"
NOT_WRITTEN = frozenset({REFUSED, UNREAD})
_ALWAYS = frozenset({"files", "source", "group", "server"})
_GAP = re.compile(r"[\s,]+")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# In a text that cannot be parsed, each of these may be followed by a secret.
_SECRET_WORDS = re.compile(
    r"mcpservers|headers|\benv\b|auth.?token|authorization|bearer|secret|password|api.?key|\bmcp/",
    re.IGNORECASE,
)
_ACCEPTED = ".json,.yaml,.yml,application/json,application/yaml"
_FILES_WANTED = "Several at once, such as all of a folder. No archives."
_FILES_KEPT = '<span data-note="files-kept">Kept: {}. Choose again to replace {}.</span>'
_IN_SERVER = '<span class="mono">{}</span> in the document’s server'
_NO_DOCUMENTS = "Give something to import: paste it, or choose files."
_SERVER_MISSING = "These are tools of an MCP server: say of which."
_ALL_OR_NOTHING = "Some items are wrong or unread, and you asked for all or nothing."


class SeveralFiles(forms.FileInput):
    allow_multiple_selected = True


class GroupNamesField(NamesField):
    def to_python(self, value: Any) -> Any:
        return [name for name in _GAP.split(str(value or "")) if name]


class ImportForm(PreviewForm):
    """It carries the documents, and whether the pasted text was shown again, so that an empty
    field means none."""

    details, target = f"{TEMPLATE}#items", "work"
    given: tuple[ImportFile, ...] = ()
    rows: list[ImportPreviewRow] = []
    title, leave = "What would happen", "Start again"
    source = forms.ChoiceField(
        label="Dialect", required=False, choices=[("", "What it looks like"), *DIALECTS.items()]
    )
    group = GroupNamesField(
        label="Groups where none is named", widget=forms.TextInput({"placeholder": "default"})
    )
    server = forms.CharField(
        label="MCP server where none is named",
        required=False,
        max_length=128,
        widget=forms.TextInput({"list": "servers"}),
    )
    address = forms.CharField(
        label="Server URL",
        required=False,
        max_length=2_000,
        widget=forms.TextInput({"inputmode": "url"}),
        help_text="Empty: the document's own.",
    )

    def build(self) -> None:
        self.found, self.flaws, self.back = ImportContents(), list[str](), reverse("import")
        if self.is_bound:
            self._read_documents()
        names = ", ".join(one.name for one in self.given if one.name)
        them = "it" if sum(bool(one.name) for one in self.given) == 1 else "them"
        self.fields["files"] = forms.Field(  # the attribute `files` of a form is what was sent
            label="Or choose files",
            required=False,
            widget=SeveralFiles({"accept": _ACCEPTED, "multiple": True}),
            help_text=format_html(_FILES_KEPT, names, them) if names else _FILES_WANTED,
        )
        kinds = {kind for kinds in self.found.sources.values() for kind in kinds}
        if ImportSource.MCP in kinds and not self.data.get("server", "").strip():
            self.flaws.append(_SERVER_MISSING)
        self._build_openapi(ImportSource.OPENAPI in kinds)

    @property
    def openapi_fields(self) -> list[forms.BoundField]:
        return [field for field in self if field.name not in _ALWAYS]

    @property
    def wants_look(self) -> bool:
        return self.request.POST.get("do") != "write"

    @property
    def hides_text(self) -> bool:
        """Whether the pasted text may hold a secret, and is not shown again."""
        items = [(entry.place, entry.item) for entry in self.found.entries]
        whole = any(not entry.place and entry.source for entry in self.found.entries)
        servers = any(item and item.kind == ImportItemKind.SERVER for _, item in items)
        odd = any(not place and item and item.flaw and not item.unread for place, item in items)
        return servers or ((odd or not whole) and bool(_SECRET_WORDS.search(self.pasted)))

    @property
    def pasted(self) -> str:
        return next((one.text for one in self.given if not one.name), "")

    @property
    def mode(self) -> str:
        """What happens to the rest where an item is wrong."""
        asked = "" if self.wants_look else self.request.POST.get("mode", "")
        wrong = any(row.result in NOT_WRITTEN for row in self.rows)
        return asked if asked in {ALL, EACH} else EACH if wrong and self.wants_look else ALL

    def clean(self) -> dict[str, Any]:
        if not self.given and not self.flaws and self.unreadable is None:
            self.flaws.append(_NO_DOCUMENTS)
        if self.found.empty:
            self.flaws += [error.message for error in self.found.unreadable]
        for flaw in self.flaws:
            self.add_error(None, flaw)
        return self.cleaned_data

    def premises(self, values: Mapping[str, Any]) -> Any:
        chosen = asdict(self.choices)
        sets = {name: sorted(chosen[name] or ()) for name in ("taken", "read")}
        return [[asdict(one) for one in self.given], values["source"], chosen | sets]

    def look(self, values: dict[str, Any]) -> dict[str, Any]:
        self._choose(values)
        self._perform(lambda rows: False)
        return self._consequences()

    def write(self, values: dict[str, Any]) -> list[ImportPreviewRow]:
        """The import is its own preview: what it would do is compared before it is committed."""

        def keep(rows: list[ImportPreviewRow]) -> bool:
            self.rows = rows
            self.show_consequences(values, self._consequences())
            self.check_seen()
            if self.mode == ALL and any(row.result in NOT_WRITTEN for row in rows):
                raise Conflict(_ALL_OR_NOTHING, code=BLOCKED)
            return True

        self._choose(values)
        self._perform(keep)
        return self.rows

    @property
    def sealed(self) -> str:
        self.carries = {
            "given": [asdict(one) for one in self.given],
            "source": self.data.get("source", ""),
            "echoed": not self.hides_text,
        }
        return super().sealed

    def _read_documents(self) -> None:
        post, kept = self.request.POST, self.carries or {"given": [], "source": "", "echoed": True}
        known = tuple(ImportFile(**one) for one in kept["given"])
        text = post.get("text", "").replace("\r\n", "\n")
        if text.strip():
            self.given = (ImportFile("", text),)
        elif not kept["echoed"]:
            self.given = tuple(one for one in known if not one.name)
        sent = self.request.FILES.getlist("files")
        self.given += self._decode(sent) if sent else tuple(one for one in known if one.name)
        self.read = frozenset(filter(_DIGEST.fullmatch, post.getlist("read")[:MAX_ITEMS]))
        same = (known, kept["source"]) == (self.given, post.get("source", ""))
        self.taken = None
        if same and "listed" in post:  # the numbers are of this list
            numbers = (one for one in post.getlist("take") if one.isascii() and len(one) < 5)
            self.taken = frozenset(int(one) for one in numbers if one.isdigit())
        source, server = post.get("source", ""), post.get("server", "").strip()[:128]
        known_source = ImportSource(source) if source in set(ImportSource) else None
        try:
            choice = ImportSelection(server, read=self.read)
            self.found = parse_files(self.given, known_source, choice)
        except ToolcribError as error:
            self.flaws.append(error.message)

    def _decode(self, files: list[UploadedFile]) -> tuple[ImportFile, ...]:
        if len(files) > MOST_FILES:
            self.flaws.append(f"More than {MOST_FILES} files; import them in parts.")
        given = []
        for file in files[:MOST_FILES]:
            name = (file.name or "")[:200] or "file"
            try:
                given.append(ImportFile(name, decode_file(file.read(MAX_BYTES + 1))))
            except (Malformed, TooLarge) as error:
                self.flaws.append(f"{name}: {error.message}")
        return tuple(given)

    def _build_openapi(self, present: bool) -> None:
        """The fields that an OpenAPI document asks for: its server, variables and credentials."""
        address = self.fields["address"]
        address.widget.attrs["placeholder"] = next(filter(None, self.found.addresses), "")
        if not present:
            address.widget = forms.HiddenInput()
        for one in self.found.variables.values():
            usual = f"{one.default}, the document's default" if one.default else "Choose"
            field: forms.Field = forms.CharField(max_length=500, required=False)
            if one.allowed:
                field = forms.ChoiceField(
                    required=False, choices=[("", usual), *name_choices(one.allowed)]
                )
            field.label = format_html(_IN_SERVER, one.name)
            field.help_text = one.description
            field.widget.attrs["placeholder"] = one.default
            self.fields[field_name("variable", one.name)] = field
        for name, header in self.found.schemes.items():
            field = self._credential_field(name, header)
            field.label = format_html('Credential for <span class="mono">{}</span>', name)
            field.help_text = f"Goes into the header {header}."
            self.fields[field_name("credential", name)] = field

    def _credential_field(self, name: str, header: str) -> forms.Field:
        """A choice of those that the reader may view; else the name is typed."""
        usual, caller = f"the one called {name}", self.request.caller
        if not may(caller, "view_egresscredential"):
            widget = forms.TextInput({"placeholder": usual})
            return forms.CharField(max_length=500, required=False, widget=widget)
        rows = EgressCredential.objects.filter(
            organization_id=caller.organization_id, header__iexact=header
        )
        names = rows.order_by("name").values_list("name", flat=True)
        return forms.ChoiceField(required=False, choices=[("", usual), *name_choices(names)])

    def _choose(self, values: Mapping[str, Any]) -> None:
        """The choices with the defaults that apply, so that the form is shown unchanged."""

        def typed(kind: str, names: Iterable[str]) -> dict[str, str]:
            return {name: values[field_name(kind, name)] for name in names}

        chosen = Choices(
            group=values["group"] or None,
            server=values["server"],
            address=values["address"],
            credentials=typed("credential", self.found.schemes),
            variables=typed("variable", self.found.variables),
            taken=self.taken,
        )
        taken = frozenset(one.number for one in self.found.entries if chosen.takes(one))
        reviews = (one.item.review for one in self.found.entries if one.item and one.item.review)
        approved = self.read & {one.digest for one in reviews}
        self.choices = replace(chosen, taken=taken, read=approved)

    def _perform(self, keep: Callable[[list[ImportPreviewRow]], bool]) -> None:
        """Raises `Forbidden`, and saves nothing, where the user lacks a permission for an item."""
        caller, organization = self.request.caller, self.request.user.organization
        taken = [one.item for one in self.found.entries if one.item and self.choices.takes(one)]
        for permission in permissions(organization, taken):
            require(caller, permission)

        def permitted(rows: list[ImportPreviewRow]) -> bool:
            if any(row.result in {UPDATED, REVIEW} and _is_tool(row.entry) for row in rows):
                require(caller, "change_tool")
            return keep(rows)

        self.rows = perform(
            organization=organization,
            read=self.found,
            choices=self.choices,
            by=actor_of(caller),
            keep=permitted,
        )

    def _consequences(self) -> dict[str, Any]:
        """Each row with all that is shown of it."""
        good = sum(row.result in {CREATED, UPDATED, REVIEW} for row in self.rows)
        self.good, self.writes = good, good > 0
        self.submit = f"Import {good:,} item{'' if good == 1 else 's'}"
        return {
            f"{row.entry.number + 1}. {row.name or row.entry.key}": (row.result, row.as_dict())
            for row in self.rows
        }


def _is_tool(entry: ImportEntry) -> bool:
    return entry.item is None or entry.item.kind == ImportItemKind.TOOL


def field_name(kind: str, name: str) -> str:
    """Of a credential or a variable, whatever a document calls it."""
    return f"{kind}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:12]}"
