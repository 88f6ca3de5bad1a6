"""`ActionForm`: a form of a page or of the Django admin that calls an action.

Each form carries what it was filled from, signed. Where another person has changed one of its
fields meanwhile, nothing is written: the answer is 409 and shows the three values side by side,
with what was typed. Changes of other columns of the row are no conflict. Only what differs reaches
the action, in one transaction that holds the lock that every change of the organization takes, as
for `If-Match` in the API.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.core import signing
from django.db import transaction
from django.db.models import Model
from django.forms.renderers import TemplatesSetting
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect

from tools.errors import ChangedMeanwhile, ToolcribError
from tools.models import Organization
from tools.web.form_fields import (
    MARKED_ROWS,
    TYPE_AGAIN,
    RowsField,
    SecretField,
    shown_text,
    text_of,
)
from tools.web.pages import PageRequest
from tools.web.secret_values import SecretValuesField

FILLED_FROM = "filled_from"
NOTHING_CHANGED = "Nothing changed."
_SALT = "tools.web.forms"


class Renderer(TemplatesSetting):
    form_template_name = "_parts/form.html"
    field_template_name = "_parts/field.html"


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field that another person has changed since the form was shown."""

    label: str
    before: str
    theirs: str
    yours: str


class FilledForm(forms.BaseForm):
    """A form that knows what it was filled from. `stored_values` and `act` are its subject."""

    stored: Mapping[str, Any] = {}  # what it is filled from
    sent: dict[str, str] | None = None  # the values that the submitted form was filled from
    conflicts: tuple[FieldConflict, ...] = ()
    error_fields: ClassVar[Mapping[str, str]] = {}  # from a field of the API to one of the form
    errors_at: ClassVar[str | None] = None  # where errors of fields that it does not have are shown

    def stored_values(self) -> dict[str, Any]:
        """The fields' values as they are in the database now; empty for a new row."""
        raise NotImplementedError

    def act(self, changes: dict[str, Any]) -> Any:
        """Call the action with the fields that differ; for a new row with all. Raises
        `ToolcribError`."""
        raise NotImplementedError

    @property
    def is_new(self) -> bool:
        raise NotImplementedError

    def lock(self) -> None:
        """Take the lock that every writer of the row takes."""
        raise NotImplementedError

    @property
    def filled_from(self) -> str:
        """What the form carries: the values it was filled from, signed."""
        values = self.sent if self.sent is not None else self._texts(self.stored or self.initial)
        return signing.dumps(values, salt=_SALT, compress=True)

    def read_filled_from(self, token: str) -> None:
        try:
            self.sent = signing.loads(token, salt=_SALT) if token else None
        except signing.BadSignature:
            self.sent = {}  # nothing that can be compared: each field counts as changed

    def write(self, values: dict[str, Any]) -> Any:
        """What `act` returns, None where nothing differs. Raises `ToolcribError`: one of them is
        `ChangedMeanwhile`, with `conflicts` set."""
        if self.is_new:
            return self.act(values)
        with transaction.atomic():
            now = self.lock_unchanged(values)
            changes = {
                name: value for name, value in values.items() if self._differs(name, value, now)
            }
            return self.act(changes) if changes else None

    def is_valid(self) -> bool:
        return super().is_valid() and not self.conflicts

    def lock_unchanged(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The stored values, locked. Raises `ChangedMeanwhile`."""
        self.lock()
        now = {} if self.is_new else self.stored_values()
        self._check_unchanged(now, values)
        return now

    def place_refusal(self, refusal: ToolcribError) -> None:
        """Show each error at its field; the error of a nested field at the nearest one around."""
        for flaw in refusal.field_errors():
            name, inside = self._field_of(flaw["field"])
            if name and self._mark_row(name, inside, flaw["message"]):
                continue
            words = f"{inside} {flaw['message']}".strip() if name else flaw["message"]
            if not name and flaw["field"]:
                words = f"{flaw['field']}: {words}"
            self.add_error(name or (self.errors_at if flaw["field"] else None), words)

    def ask_secrets_again(self) -> None:
        """The page that shows the refused form does not hold them."""
        for name, field in self.fields.items():
            sent = self[name].data
            if isinstance(field, SecretValuesField) and field.ask_again(sent):
                self._add_once(name, MARKED_ROWS)
            elif isinstance(field, SecretField) and sent:
                field.help_text = TYPE_AGAIN
                if self.is_bound:
                    self.add_error(name, TYPE_AGAIN)

    def _mark_row(self, name: str, inside: str, error: str) -> bool:
        field = self.fields[name]
        if not isinstance(field, RowsField) or not field.marks(self[name].value(), inside, error):
            return False
        self._add_once(name, MARKED_ROWS)
        return True

    def _add_once(self, name: str, error: str) -> None:
        if error not in self.errors.get(name, ()):
            self.add_error(name, error)

    def _differs(self, name: str, value: Any, now: Mapping[str, Any]) -> bool:
        field = self.fields[name]
        if isinstance(field, SecretField) and not value:
            return False  # the stored one is kept
        return name not in now or text_of(field, value) != text_of(field, now[name])

    def _check_unchanged(self, now: Mapping[str, Any], typed: Mapping[str, Any]) -> None:
        if self.sent is None:
            return
        texts, found = self._texts(now), []
        for name, theirs in texts.items():
            if theirs == self.sent.get(name):
                continue
            field, before = self.fields[name], self.sent.get(name, "")
            yours = text_of(field, typed[name]) if name in typed else before
            if isinstance(field, SecretField):
                shown = ["set" if before else "", "another one", "typed" if yours else ""]
            elif isinstance(field, RowsField):
                shown = field.conflict_texts(before, theirs, yours)
            else:
                shown = [shown_text(field, text) for text in (before, theirs, yours)]
            found.append(FieldConflict(str(field.label), *shown))
        if found:
            self._keep_typed(now, typed)
            self.conflicts, self.sent = tuple(found), texts
            raise ChangedMeanwhile("Another person has changed it since this form was shown.")

    def _keep_typed(self, now: Mapping[str, Any], typed: Mapping[str, Any]) -> None:
        """Show what was typed where it differs from what the form was filled with, else theirs."""
        before = self.sent or {}
        self.initial = {
            name: value
            if name not in now or text_of(self.fields[name], value) != before.get(name, "")
            else now[name]
            for name, value in typed.items()
        }
        self.is_bound = False

    def _texts(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {
            name: text_of(field, values[name])
            for name, field in self.fields.items()
            if name in values and not field.disabled
        }

    def _field_of(self, place: str) -> tuple[str | None, str]:
        """The form's field for a place such as `headers[0].name`, and the place inside it."""
        whole, inside = place, ""
        while whole:
            name = self.error_fields.get(whole, whole)
            if name in self.fields:
                return name, inside.lstrip(".")
            cut = max(whole.rfind("."), whole.rfind("["))
            if cut < 0:
                break
            whole, inside = whole[:cut], place[cut:]
        return None, ""


class ActionForm(FilledForm, forms.Form):
    """A form of a page. A view says `if form.save(): return form.redirect(…)`, else
    `form.show(…)`."""

    default_renderer = Renderer
    sections: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()  # titles and their fields
    row: Any
    result: Any = None  # of the action
    changes: dict[str, Any] = {}  # that it was called with
    status = 200
    refused = False
    refusal_code = ""
    wait_s: int | None = None

    def __init__(
        self, request: PageRequest, row: Any = None, *, sent: bool = True, **options: Any
    ) -> None:
        """`sent` where the request, if it is a POST, is of this form of the page; `data` else."""
        posted = sent and request.method == "POST"
        self.request, self.row = request, row
        given = options.pop("data", None)
        super().__init__(
            request.POST if posted else given,
            request.FILES if posted else None,
            auto_id="i-%s", label_suffix="", **options,
        )  # fmt: skip
        self.build()
        for field in self.fields.values():
            if isinstance(field.widget, forms.TextInput):
                field.widget.attrs = {"autocomplete": "off", "spellcheck": "false"} | (
                    field.widget.attrs
                )
        if not self.is_new:
            self.stored = self.stored_values()
            self.initial = self.stored | (options.get("initial") or {})
            for name, field in self.fields.items():
                if isinstance(field, SecretValuesField):
                    field.stored = self.stored[name]
        if posted and not self.is_new:
            self.read_filled_from(request.POST.get(FILLED_FROM, ""))

    def build(self) -> None:
        """Where fields depend on the row or the request."""

    @property
    def is_new(self) -> bool:
        return self.row is None

    def lock(self) -> None:
        rows = Organization.objects.select_for_update(no_key=True)
        rows.values_list("pk").get(pk=self.request.caller.organization_id)
        if isinstance(self.row, Model) and not self.is_new:
            self.row.refresh_from_db()

    def save(self) -> bool:
        """Whether the action was called, or nothing differs. Else errors or conflicts are set."""
        if not self.is_bound:
            return False
        try:
            if self.is_valid():
                self.result = self.write(self.plain_values())
            else:
                self._refuse(400)
        except ToolcribError as refusal:
            self.refuse(refusal)
        return not self.refused

    def with_values[Seen](self, look: Callable[[dict[str, Any]], Seen]) -> Seen | None:
        """What `look` returns of the typed values, of which nothing is saved. Else errors are
        set."""
        try:
            if self.is_valid():
                return look(self.plain_values())
            self._refuse(400)
        except ToolcribError as refusal:
            self.refuse(refusal)
        return None

    def plain_values(self) -> dict[str, Any]:
        """The cleaned values with plain ends of lines: browsers send CRLF."""
        return {
            name: value.replace("\r\n", "\n") if isinstance(value, str) else value
            for name, value in self.cleaned_data.items()
        }

    def refuse(self, refusal: ToolcribError) -> None:
        """Show the form again, with what was refused."""
        self.refusal_code, self.wait_s = refusal.code, refusal.wait_s
        if not self.conflicts:
            self.place_refusal(refusal)
        self._refuse(409 if self.conflicts else refusal.http_status)

    @property
    def changed(self) -> bool:
        return self.result is not False and (self.is_new or self.result is not None)

    def redirect(self, said: str, view: str, **address: Any) -> HttpResponse:
        """To the page that shows what was done, with what was done; or that nothing was."""
        notify(self.request, said, changed=self.changed)
        leads = HttpResponseClientRedirect if self.request.htmx else HttpResponseRedirect
        return leads(reverse(view, kwargs=address))

    def show(self, template: str, context: Mapping[str, Any] | None = None) -> HttpResponse:
        shown = {"form": self, **(context or {})}
        response = render(self.request, template, shown, status=self.status)
        if self.wait_s:
            response["Retry-After"] = str(self.wait_s)
        return response

    @property
    def parts(self) -> list[tuple[str, list[forms.BoundField]]]:
        """The visible fields by section; without sections, one without a title."""
        if not self.sections:
            return [("", self.visible_fields())]
        return [
            (title, [self[name] for name in names if name in self.fields])
            for title, names in self.sections
        ]

    def _refuse(self, status: int) -> None:
        self.refused, self.status = True, status
        self.ask_secrets_again()


def notify(request: PageRequest, said: str, *, changed: bool, tags: str = "") -> None:
    """A message on the next page: what was done, or that nothing was."""
    if changed:
        messages.success(request, said, extra_tags=tags)
    else:
        messages.info(request, NOTHING_CHANGED)
