"""`/profile/`: a user's own account, permissions, second factors, tokens and browser sessions."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordMixin
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.formats import date_format
from django.views.decorators.debug import sensitive_post_parameters

from audit.actions import difference, record
from audit.events import Event, Outcome
from tools.accounts import account_actions
from tools.accounts.callers import actor_of
from tools.accounts.login import single_sign_on
from tools.accounts.login.lockout import limit_attempts
from tools.accounts.login.login import end_sessions, record_session
from tools.accounts.roles import role_of
from tools.definitions.callers import Scope
from tools.errors import NotFound
from tools.models import PersonSession, SingleSignOn, Token
from tools.ui.accounts import second_factors
from tools.web.form_fields import WholeField
from tools.web.forms import ActionForm, notify
from tools.web.one_time import redirect_with_secrets, take_secrets
from tools.web.pages import PageRequest, action_page, form_page, page
from tools.web.reauthentication import Proof

PAGE, PASSWORD = "accounts/profile.html", "accounts/profile_password.html"
MOST_ROWS = 100
VERBS = {"view": "see", "add": "add", "change": "change", "delete": "remove"}
SCOPES = {
    Scope.READ: "Read: see what you may see",
    Scope.EXECUTE: "Execute: call tools that you were granted",
    Scope.CATALOG: "Catalog: change tools, chains, groups, schemas, servers, services and channels",
    Scope.AGENTS: "Agents: change agents, their tokens and grants, and end the calls of others",
    Scope.AUDIT: "Audit: erase evidence, acknowledge alerts",
    Scope.ORGANIZATION: "Organization: change organizations, tiers, people, keys and credentials",
    Scope.MANAGE: "Manage: all of these four",
}
# The first match counts: most browsers name others too.
_BROWSERS = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"),
             ("Safari/", "Safari"), ("curl/", "curl"))  # fmt: skip
_SYSTEMS = (("Windows", "Windows"), ("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"),
            ("Mac OS X", "macOS"), ("Linux", "Linux"))  # fmt: skip


class PasswordForm(SetPasswordMixin, ActionForm):
    """Every other browser is logged out."""

    old_password = forms.CharField(
        label="Old password",
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "current-password", "autofocus": True}),
    )
    new_password1, new_password2 = SetPasswordMixin.create_password_fields(
        "New password", "New password confirmation"
    )

    def clean_old_password(self) -> str:
        """A wrong one counts as a login attempt. Raises `TooManyAttempts`."""
        user, typed = self.request.user, self.cleaned_data["old_password"]
        place = self.request.caller.source_ip
        with limit_attempts(username=user.username, source_ip=place) as attempt:
            if good := user.check_password(typed):
                attempt.succeeded()
        if not good:
            code = "password_incorrect"
            raise ValidationError(PasswordChangeForm.error_messages[code], code=code)
        return str(typed)

    def clean(self) -> dict[str, Any]:
        self.validate_passwords("new_password1", "new_password2")
        self.validate_password_for_user(self.request.user, "new_password2")
        return super().clean() or self.cleaned_data

    @transaction.atomic
    def act(self, changes: dict[str, Any]) -> None:
        request, user, by = self.request, self.request.user, actor_of(self.request.caller)
        self.set_password_and_save(user, "new_password1")
        update_session_auth_hash(request, user)
        end_sessions(user=user, by=by, except_for=record_session(request, user))
        said, subject = {"change": "own password", **difference({}, {})}, f"user:{user.username}"
        record(Event.ROW_CHANGE, by=by, outcome=Outcome.CHANGED, subject=subject, details=said)


@dataclass(frozen=True)
class BrowserRow:
    """A session, its browser, and whether it is the session of this request."""

    session: PersonSession
    browser: str
    here: bool


def browser_name(user_agent: str) -> str:
    name = _first_match(_BROWSERS, user_agent)
    system = _first_match(_SYSTEMS, user_agent)
    if not name:
        return user_agent[:40] or "An unknown program"
    return f"{name} on {system}" if system else name


class PersonTokenForm(ActionForm):
    label = forms.CharField(
        label="Name",
        max_length=account_actions.LONGEST_TOKEN_LABEL,
        help_text="What it is for: a script, a machine.",
    )
    days = WholeField(
        label="Days until it ends",
        min_value=1,
        max_value=account_actions.MOST_TOKEN_DAYS,
        initial=lambda: settings.TOKEN_DAYS,
        help_text=f"At most {account_actions.MOST_TOKEN_DAYS}.",
    )
    scope = forms.MultipleChoiceField(
        label="What it may do",
        choices=[(one.value, says) for one, says in SCOPES.items()],
        initial=[Scope.READ.value, Scope.EXECUTE.value],
        widget=forms.CheckboxSelectMultiple,
        error_messages={
            "required": "Choose at least one: a token that may do nothing is good for nothing."
        },
    )

    def act(self, changes: dict[str, Any]) -> tuple[Token, str]:
        return account_actions.create_token(
            user=self.request.user,
            by=actor_of(self.request.caller),
            giver=self.request.caller,
            scopes=changes["scope"],
            label=changes["label"],
            days=changes["days"],
        )


@page()
def profile_page(request: PageRequest) -> HttpResponseBase:
    """After a token was created, shows it once."""
    return PersonTokenForm(request).show(PAGE, _profile_context(request) | take_secrets(request))


@action_page(Proof.NEEDED)
def create_token(request: PageRequest) -> HttpResponseBase:
    form = PersonTokenForm(request)
    if not form.save():
        return form.show(PAGE, _profile_context(request))
    token, text = form.result
    shown = {
        "token_text": text,
        "label": token.label,
        "ends": date_format(timezone.localtime(token.expires_at), "j M Y"),
    }
    return redirect_with_secrets(request, shown, "profile")


@action_page(Proof.NOT_NEEDED)
def revoke_token(request: PageRequest, token_id: UUID) -> HttpResponseBase:
    token = request.user.tokens.filter(pk=token_id).first()
    if token is None:
        raise NotFound("You have no such token.", code="token_not_found")
    revoked = account_actions.revoke_token(token=token, by=actor_of(request.caller))
    notify(request, f"{token.label or token} is refused from now on.", changed=revoked)
    return redirect("profile")


@action_page(Proof.NOT_NEEDED)
def end_session(request: PageRequest, session_id: UUID) -> HttpResponseBase:
    """End a session of the user; after the current one, the next page is the login."""
    ended = end_sessions(user=request.user, by=actor_of(request.caller), only=session_id)
    if not ended:
        raise NotFound("You have no such session.", code="session_not_found")
    if not request.session.exists(str(request.session.session_key)):
        request.session.flush()
        return redirect("login")
    messages.success(request, "That browser is logged out.")
    return redirect("profile")


@action_page(Proof.NOT_NEEDED)
def end_other_sessions(request: PageRequest) -> HttpResponseBase:
    here = record_session(request, request.user)
    ended = end_sessions(user=request.user, by=actor_of(request.caller), except_for=here)
    word = "No other browser was logged in."
    if ended:
        word = f"{ended} other browser{' is' if ended == 1 else 's are'} logged out."
    messages.success(request, word)
    return redirect("profile")


@sensitive_post_parameters()
@form_page(Proof.NOT_NEEDED)
def change_password(request: PageRequest) -> HttpResponseBase:
    form = PasswordForm(request)
    if not form.save():
        return form.show(PASSWORD)
    return form.redirect("Your password is changed, and other browsers are logged out.", "profile")


def _first_match(known: tuple[tuple[str, str], ...], text: str) -> str:
    return next((word for mark, word in known if mark in text), "")


def _profile_context(request: PageRequest) -> dict[str, Any]:
    user = request.user
    names = user.groups.order_by("name").values_list("name", flat=True)
    found = [(role_of(name), name) for name in names]
    tokens = [*user.tokens.usable(timezone.now())[: MOST_ROWS + 1]]
    return {
        "roles": [role for role, _ in found if role],
        "groups": [name for role, name in found if not role],
        "permitted": () if user.is_superuser else _permission_sentences(request),
        "tokens": tokens[:MOST_ROWS],
        "more_tokens": len(tokens) > MOST_ROWS,
        "sessions": _session_rows(request),
        **second_factors.factors_context(request),
        "provider": settings.OIDC_NAME if single_sign_on.is_configured() else "",
        "connected": SingleSignOn.objects.filter(user=user).exists(),
    }


def _permission_sentences(request: PageRequest) -> list[tuple[str, list[str]]]:
    """The permissions by action and kind of row, grouped by sentence."""
    held = Permission.objects.filter(Q(user=request.user) | Q(group__user=request.user))
    by_kind = dict[str, list[str]]()
    sentences = dict[str, list[str]]()
    for row in held.select_related("content_type").distinct():
        verb = row.codename.partition("_")[0]
        if verb in VERBS:
            by_kind.setdefault(_model_name(row), []).append(verb)
        else:
            sentences.setdefault(row.name.removeprefix("Can ").lower(), [])
    for kind, verbs in sorted(by_kind.items()):
        said = ", ".join(word for verb, word in VERBS.items() if verb in verbs)
        sentences.setdefault(said, []).append(kind)
    return [*sentences.items()]


def _model_name(permission: Permission) -> str:
    model = permission.content_type.model_class()
    return str(model._meta.verbose_name_plural if model else permission.content_type.model)


def _session_rows(request: PageRequest) -> list[BrowserRow]:
    here = record_session(request, request.user)
    found = (
        PersonSession.objects.lasting()
        .filter(user=request.user)
        .select_related("session")[:MOST_ROWS]
    )
    rows = [BrowserRow(one, browser_name(one.user_agent), one.pk == here.pk) for one in found]
    return sorted(rows, key=lambda row: not row.here)
