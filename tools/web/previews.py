"""`PreviewForm`: a form that shows what would follow, and then writes exactly that.

The page carries, sealed, what would be written and the consequences that its reader saw. It is
written where both are the same under the lock that its writers take. Else the answer is 409: the
preview as it is now, what is different, and everything that was typed. It is sealed and not only
signed, since documents may hold secrets; it is of one user, one form and one row, and as large as
what was sent and `MOST_LINES` short texts.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from django.db import transaction
from django.http import HttpResponse

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
_NOT_SEEN = "Look at what would follow first. This is the preview."
_FORM_CHANGED = "The form differs from the one that was previewed. Look at the preview again."
_OUTDATED = "The consequences have changed since the preview was shown. Look at it again."
_CHANGED = "changed meanwhile"


@dataclass(frozen=True, slots=True)
class PreviewDifference:
    """A consequence that is not what was shown."""

    name: str
    shown: str
    now: str


class PreviewForm(ActionForm):
    """`look` and `act` are its subject. What it `carries` is written beside its fields."""

    details: ClassVar[str]  # template of the consequences
    target: ClassVar[str] = ""  # id of the part that htmx swaps
    optional: ClassVar[bool] = False  # whether it may be saved without a preview
    outdated: ClassVar[str] = OUTDATED  # error code
    title, submit, leave = "What would change", "Save", "Leave it as it is"
    back = ""  # address of the page that `leave` leads to
    danger, writes, shown = False, True, False  # `writes`: whether there is something to write
    warnings: tuple[str, ...] = ()
    differences: tuple[PreviewDifference, ...] = ()
    unreadable: Malformed | None = None
    _seen: list[Any] | None = None  # what the sent form was shown with
    _now: list[Any] = []  # digests of values and consequences, and of each its text and digest

    def __init__(
        self, request: PageRequest, row: Any = None, *, carries: Any = None, **options: Any
    ) -> None:
        """`carries` is JSON; a sent form has its own."""
        self.carries, self._purpose = carries, f"{type(self).__name__} {getattr(row, 'pk', '')}"
        if request.method == "POST" and (sealed := request.POST.get(FIELD)):
            try:
                self._seen = sealed_forms.open_state(sealed, request.user, self._purpose)
                self.carries = self._seen[0]
            except Malformed as error:
                self.unreadable = error
        super().__init__(request, row, **options)

    def look(self, values: dict[str, Any]) -> Mapping[str, Any]:
        """The consequences by name: what the reader decides by, each a text or (text, the rest).
        Keeps what its template shows. Raises `ToolcribError`."""
        raise NotImplementedError

    def stored_values(self) -> dict[str, Any]:
        return {}  # unless the fields are the row's

    def premises(self, values: Mapping[str, Any]) -> Any:
        """The values on which the consequences depend."""
        return self._texts(values)

    @property
    def wants_look(self) -> bool:
        return self.request.POST.get("do") in _LOOKS

    def save(self) -> bool:
        if self.is_bound and self.unreadable is not None:
            self.refuse(self.unreadable)
        elif self.is_bound and self.wants_look:
            self.show_preview()
        else:
            return super().save()
        return False

    def show_preview(self) -> None:
        """Of the typed values, or of the initial ones. Else errors are set."""
        if self.is_bound and not self.is_valid():
            return self._refuse(400)
        try:
            self.preview(self.plain_values() if self.is_bound else dict(self.initial))
        except ToolcribError as refusal:
            self.refuse(refusal)

    def write(self, values: dict[str, Any]) -> Any:
        with transaction.atomic():
            self.lock_unchanged(values)
            if self._seen is not None or not self.optional:
                self.preview(values)
                self.check_seen()
            return super().write(values)

    def preview(self, values: dict[str, Any]) -> None:
        self.show_consequences(values, self.look(values))

    def show_consequences(self, values: dict[str, Any], found: Mapping[str, Any]) -> None:
        pairs = {
            name: (str(value[0] if isinstance(value, tuple) else value), _digest(value))
            for name, value in found.items()
        }
        lines = {name: [_shorten(text), digest[:16]] for name, (text, digest) in pairs.items()}
        kept = dict(islice(lines.items(), MOST_LINES))
        self._now = [_digest(self.premises(values)), _digest(pairs), kept]
        self.shown = True

    def check_seen(self) -> None:
        """Raises `Conflict` where the reader saw other consequences, or none."""
        if self._seen is None:
            raise Conflict(_NOT_SEEN, code=NOT_SEEN)
        _, values, consequences, lines = self._seen
        if values != self._now[0]:
            raise Conflict(_FORM_CHANGED, code=FORM_CHANGED)
        if consequences != self._now[1]:
            self.differences = tuple(islice(_differences(lines, self._now[2]), MOST_SHOWN))
            raise Conflict(_OUTDATED, code=self.outdated)

    def show(self, template: str, context: Mapping[str, Any] | None = None) -> HttpResponse:
        htmx = self.request.htmx
        if self.target and htmx and htmx.target == self.target:
            # A refusal within the part is a part like any other, which htmx swaps in.
            template, self.status = f"{template}#work", 200
        return super().show(template, context)

    @property
    def sealed(self) -> str:
        """What the page carries."""
        state = [self.carries, *self._now]
        return sealed_forms.seal_state(state, self.request.user, self._purpose)


def _differences(
    seen: Mapping[str, list[str]], now: Mapping[str, list[str]]
) -> Iterator[PreviewDifference]:
    for name in {**seen, **now}:
        before, after = seen.get(name, ["", ""]), now.get(name, ["", ""])
        if before != after:
            text = after[0] if after[0] != before[0] else _CHANGED
            yield PreviewDifference(name[:_LONGEST], before[0], text)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
