"""The form of an import, whose documents are kept from one step to the next without being shown.

The browser carries them encrypted: they may hold secrets, they may be uploaded files, which a
browser does not send twice, and what is written must be what the user saw.
"""

import re
from dataclasses import asdict, dataclass, field

from django.core.files.uploadedfile import UploadedFile

from tools.catalog.imports.import_preview import Choices
from tools.definitions.dialects.import_documents import MAX_BYTES
from tools.definitions.dialects.import_entries import (
    MAX_ITEMS,
    ImportFile,
    ImportSource,
    decode_file,
)
from tools.errors import Malformed, TooLarge
from tools.models import User
from tools.ui import sealed_forms as kept
from tools.web.pages import PageRequest

MOST_FILES = 100
CREDENTIAL = "credential "  # prefix of the name of an input for a credential
VARIABLE = "variable "  # prefix of the name of an input for a variable in a server's URL
_GAP = re.compile(r"[\s,]+")
_NUL = "\x00"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FORM = "import"


@dataclass(frozen=True)
class ImportFormState:
    """`echoed`: whether the pasted text was shown again, so that an empty field means none."""

    given: tuple[ImportFile, ...]
    source: str
    choices: Choices
    digest: str = ""
    echoed: bool = False

    def sealed(self, user: User) -> str:
        raw = asdict(self)
        taken = self.choices.taken
        raw["choices"]["taken"] = None if taken is None else sorted(taken)
        raw["choices"]["read"] = sorted(self.choices.read)
        return kept.seal_state(raw, user, _FORM)

    @classmethod
    def opened(cls, text: str, user: User) -> "ImportFormState":
        """Raises `Malformed` for a text that was not sealed here, for this user."""
        raw = kept.open_state(text, user, _FORM)
        taken, read = raw["choices"].pop("taken"), frozenset(raw["choices"].pop("read"))
        taken = None if taken is None else frozenset(taken)
        choices = Choices(**raw["choices"], taken=taken, read=read)
        given = tuple(ImportFile(**one) for one in raw["given"])
        return cls(given, raw["source"], choices, raw["digest"], raw["echoed"])


@dataclass
class ImportFormInput:
    """The submitted form. `flaws` are its errors."""

    given: tuple[ImportFile, ...] = ()
    source: str = ""
    choices: Choices = field(default_factory=Choices)
    kept: ImportFormState | None = None
    flaws: list[str] = field(default_factory=list)

    @property
    def is_unchanged(self) -> bool:
        """Whether it is what the user saw."""
        previous = self.kept and (self.kept.given, self.kept.source, self.kept.choices)
        return previous == (self.given, self.source, self.choices)


def read_form(request: PageRequest) -> ImportFormInput:
    form = ImportFormInput(source=_source_choice(request.POST.get("source", "")))
    try:
        if request.POST.get("kept"):
            form.kept = ImportFormState.opened(request.POST["kept"], request.user)
    except Malformed as error:
        form.flaws.append(error.message)
    form.given = _read_text(request, form.kept) + _read_files(request, form)
    form.choices = _read_choices(request, form)
    return form


def _read_text(request: PageRequest, kept: ImportFormState | None) -> tuple[ImportFile, ...]:
    text = request.POST.get("text", "").replace("\r\n", "\n")
    if text.strip():
        return (ImportFile("", text),)
    if kept is None or kept.echoed:
        return ()
    return tuple(one for one in kept.given if not one.name)


def _read_files(request: PageRequest, form: ImportFormInput) -> tuple[ImportFile, ...]:
    files = request.FILES.getlist("files")
    if not files and form.kept:
        return tuple(one for one in form.kept.given if one.name)
    if len(files) > MOST_FILES:
        form.flaws.append(f"More than {MOST_FILES} files; import them in parts.")
    given = []
    for file in files[:MOST_FILES]:
        try:
            given.append(ImportFile(_file_name(file), decode_file(file.read(MAX_BYTES + 1))))
        except (Malformed, TooLarge) as error:
            form.flaws.append(f"{_file_name(file)}: {error.message}")
    return tuple(given)


def _file_name(file: UploadedFile) -> str:
    return (file.name or "").replace(_NUL, "\ufffd")[:200] or "file"


def _source_choice(source: str) -> str:
    return source if source in set(ImportSource) else ""


def _read_choices(request: PageRequest, form: ImportFormInput) -> Choices:
    said = {key: str(value).replace(_NUL, "\ufffd") for key, value in request.POST.items()}
    server = said.get("server", "").strip()[:128]
    groups = [one for one in _GAP.split(said.get("group", "")) if one]
    credentials, variables = _prefixed_values(CREDENTIAL, said), _prefixed_values(VARIABLE, said)
    before = form.kept.choices if form.kept else Choices()
    return Choices(
        group=groups or None,
        server=server,
        address=said.get("address", "").strip()[:2_000],
        credentials=credentials or before.credentials,
        variables=variables or before.variables,
        taken=_selected_items(request, form),
        read=frozenset(filter(_DIGEST.fullmatch, request.POST.getlist("read")[:MAX_ITEMS])),
    )


def _prefixed_values(mark: str, said: dict[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(mark): value.strip()[:500]
        for key, value in said.items()
        if key.startswith(mark)
    }


def _selected_items(request: PageRequest, form: ImportFormInput) -> frozenset[int] | None:
    """The selected items; None where their numbers refer to a list that has changed."""
    kept = form.kept
    before = kept and (kept.given, kept.source)
    if before != (form.given, form.source) or "listed" not in request.POST:
        return None
    return frozenset(
        int(one) for one in request.POST.getlist("take") if one.isascii() and one.isdigit()
        and len(one) < 5
    )  # fmt: skip
