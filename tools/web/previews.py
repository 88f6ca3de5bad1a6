"""`PreviewForm`: a form that shows what would follow, and then writes exactly that.

A page with a preview carries, sealed, what would be written and what its reader was told would
follow. It is written where both are the same when the writers' lock is held. Else the answer is
409: the preview as it is now, what is different, and everything that was typed. The seal hides
documents, which may hold secrets; it is of one user and one action, and the page is as large as
what was sent.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import render

from tools.errors import Conflict, Malformed, ToolcribError
from tools.web import sealed_forms
from tools.web.forms import ActionForm
from tools.web.pages import PageRequest

FIELD = "preview"
NOT_SEEN, FORM_CHANGED, OUTDATED, BLOCKED = (
    "preview_needed", "form_changed", "preview_outdated", "preview_blocked",
)  # fmt: skip
MOST_LINES, MOST_SHOWN, _LONGEST = 1_000, 50, 160
_LOOKS = frozenset({"look", "preview", "review"})  # buttons that write nothing
_WORDS = {
    NOT_SEEN: "This was not shown yet. Look at what would follow, then write it.",
    FORM_CHANGED: "What you ask for is another than what was shown. Look at it again.",
    OUTDATED: "What would follow has changed since you looked. Look at it again.",
}
_DIFFERS = "changed meanwhile"


@dataclass(frozen=True, slots=True)
class PreviewDifference:
    """What would follow otherwise than it was shown."""

    name: str
    shown: str
    now: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the page carries. `lines`: of each consequence its text, shortened, and a digest."""

    carried: Any
    asked: str
    told: str
    lines: Mapping[str, list[str]]


class PreviewForm(ActionForm):
    """`look` and `act` are its subject. A form without fields writes what it carries."""

    details: ClassVar[str]  # template of what would follow
    target: ClassVar[str] = ""  # id of the part that htmx swaps
    optional: ClassVar[bool] = False  # whether it may be saved without a preview
    outdated: ClassVar[str] = OUTDATED
    title = "What would change"
    submit = "Save"
    leave = "Leave it as it is"
    back = ""  # address of the page that `leave` leads to
    danger = False
    warnings: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()  # why it cannot be written
    writes = True  # whether there is something to write
    shown = False
    differences: tuple[PreviewDifference, ...] = ()
    _seen: _Seen | None = None
    _asked, _told, _lines = "", "", dict[str, list[str]]()
    _unreadable: Malformed | None = None

    def __init__(
        self, request: PageRequest, row: Any = None, *, carried: Any = None, **options: Any
    ) -> None:
        """`carried`: what would be written beside the fields, as JSON; a sent form has its own."""
        self.carried, self._purpose = carried, f"{type(self).__name__} {getattr(row, 'pk', '')}"
        if request.method == "POST" and (sealed := request.POST.get(FIELD)):
            try:
                self._seen = _Seen(*sealed_forms.open_state(sealed, request.user, self._purpose))
                self.carried = self._seen.carried
            except Malformed as error:
                self._unreadable = error
        super().__init__(request, row, **options)

    def look(self, values: dict[str, Any]) -> Mapping[str, Any]:
        """What would follow, by name: what the reader decides by, as a text or as (text, more).
        It may complete `values` with what it assumed, and keeps what its template shows. Raises
        `ToolcribError`."""
        raise NotImplementedError

    def stored_values(self) -> dict[str, Any]:
        return {}  # unless the fields are the row's

    def asked(self, values: Mapping[str, Any]) -> Any:
        """The values on which the preview depends."""
        return self._texts(values)

    @property
    def wants_look(self) -> bool:
        return self.request.POST.get("do") in _LOOKS

    def save(self) -> bool:
        if self.is_bound and self._unreadable is not None:
            self.refuse(self._unreadable)
            return False
        if self.is_bound and self.wants_look:
            self.show_preview()
            return False
        return super().save()

    def show_preview(self) -> bool:
        """Look at the typed values, or at the initial ones. Else errors are set."""
        if self.is_bound and not self.is_valid():
            self._refuse(400)
            return False
        try:
            self.preview(self.plain_values() if self.is_bound else dict(self.initial))
        except ToolcribError as refusal:
            self.refuse(refusal)
        return self.shown

    def write(self, values: dict[str, Any]) -> Any:
        with transaction.atomic():
            self.lock_unchanged(values)
            if self._seen is not None or not self.optional:
                self.preview(values)
                self.check_seen()
            return super().write(values)

    def preview(self, values: dict[str, Any]) -> None:
        self.tell(values, self.look(values))

    def tell(self, values: dict[str, Any], said: Mapping[str, Any]) -> None:
        """Show what would follow."""
        self._lines, told = {}, hashlib.sha256()
        for name, value in said.items():
            text, digest = str(value[0] if isinstance(value, tuple) else value), _digest(value)
            told.update(f"{name}\n{digest}\n".encode(errors="replace"))
            if len(self._lines) < MOST_LINES:
                self._lines[name[:_LONGEST]] = [_shorten(text), digest[:16]]
        self._told, self._asked = told.hexdigest(), _digest(self.asked(values))
        self.shown = True

    def check_seen(self) -> None:
        """Raises `Conflict` where the reader has seen something else, or nothing."""
        seen = self._seen
        if seen is None:
            raise _conflict(NOT_SEEN)
        if seen.asked != self._asked:
            raise _conflict(FORM_CHANGED)
        if seen.told != self._told:
            self.differences = tuple(islice(_differences(seen.lines, self._lines), MOST_SHOWN))
            raise Conflict(_WORDS[OUTDATED], code=self.outdated)
        if self.blocked:
            raise Conflict(" ".join(self.blocked), code=BLOCKED)

    def show(self, template: str, context: Mapping[str, Any] | None = None) -> HttpResponse:
        htmx = self.request.htmx
        if not (self.target and htmx and htmx.target == self.target):
            return super().show(template, context)
        # A refusal within the part is a part like any other, which htmx swaps in.
        return render(self.request, f"{template}#work", {"form": self, **(context or {})})

    @property
    def sealed(self) -> str:
        """What the page carries."""
        state = [self.carried, self._asked, self._told, self._lines]
        return sealed_forms.seal_state(state, self.request.user, self._purpose)


def _conflict(code: str) -> Conflict:
    return Conflict(_WORDS[code], code=code)


def _differences(
    seen: Mapping[str, list[str]], now: Mapping[str, list[str]]
) -> Iterable[PreviewDifference]:
    for name in dict.fromkeys((*seen, *now)):
        before, after = seen.get(name, ["", ""]), now.get(name, ["", ""])
        if before != after:
            changed = after[0] if after[0] != before[0] else _DIFFERS
            yield PreviewDifference(name, before[0], changed)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
