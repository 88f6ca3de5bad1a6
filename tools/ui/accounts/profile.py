"""`/profile/`: a user's own account, permissions, second factors, tokens and browser sessions."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import Permission
from django.db import transaction
from django.db.models import Q
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from audit.actions import difference, record
from audit.events import Event, Outcome
from tools.accounts import account_actions
from tools.accounts.callers import actor_of
from tools.accounts.login import single_sign_on
from tools.accounts.login.lockout import limit_attempts
from tools.accounts.login.login import end_sessions, record_session
from tools.accounts.roles import role_of
from tools.definitions.callers import Scope
from tools.errors import NotFound, ToolcribError
from tools.models import PersonSession, SingleSignOn
from tools.ui.accounts import login, second_factors
from tools.ui.inputs import FormInput, Widget
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

PAGE, PASSWORD = "accounts/profile.html", "accounts/profile_password.html"
MOST_ROWS = 100
LONGEST_LABEL = 100
MOST_DAYS = 365
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


@require_safe
@page
def profile_page(request: PageRequest) -> HttpResponseBase:
    return render(request, PAGE, _profile_context(request, _token_inputs()))


@proof(Proof.NEEDED)
@require_POST
@page
def create_token(request: PageRequest) -> HttpResponseBase:
    """Create a token; the page shows it once, or the error."""
    inputs, scopes = _token_inputs(), [one for one in Scope if one in request.POST.getlist("scope")]
    label, days = (_form_value(request, one.key) for one in inputs)
    for one, typed in zip(inputs, (label, days), strict=True):
        one.value = typed
    flaw = _check_token_inputs(inputs, scopes)
    if flaw or any(one.errors for one in inputs):
        context = _profile_context(request, inputs, scopes) | {"scope_flaw": flaw}
        return render(request, PAGE, context, status=400)
    token, text = account_actions.create_token(
        user=request.user,
        by=actor_of(request.caller),
        giver=request.caller,
        scopes=scopes,
        label=label,
        days=int(days),
    )
    return render(
        request, PAGE, _profile_context(request, _token_inputs()) | {"made": token, "text": text}
    )


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def revoke_token(request: PageRequest, token_id: UUID) -> HttpResponseBase:
    token = request.user.tokens.filter(pk=token_id).first()
    if token is None:
        raise NotFound("You have no such token.", code="token_not_found")
    account_actions.revoke_token(token=token, by=actor_of(request.caller))
    messages.success(request, f"{token.label or token} is refused from now on.")
    return redirect("profile")


@proof(Proof.NOT_NEEDED)
@require_POST
@page
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


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def end_other_sessions(request: PageRequest) -> HttpResponseBase:
    here = record_session(request, request.user)
    ended = end_sessions(user=request.user, by=actor_of(request.caller), except_for=here)
    word = "No other browser was logged in."
    if ended:
        word = f"{ended} other browser{' is' if ended == 1 else 's are'} logged out."
    messages.success(request, word)
    return redirect("profile")


@proof(Proof.NOT_NEEDED)
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_password(request: PageRequest) -> HttpResponseBase:
    """Wrong old passwords count as login attempts."""
    if request.method != "POST":
        return render(request, PASSWORD, {"form": PasswordChangeForm(request.user)})
    form = PasswordChangeForm(request.user, request.POST)
    try:
        good = _check_old_password(request, form)
    except ToolcribError as refusal:
        return login.render_refusal(
            request, PASSWORD, {"form": PasswordChangeForm(request.user)}, refusal
        )
    if not good:
        return render(request, PASSWORD, {"form": form}, status=400)
    return _save_password(request, form)


def _first_match(known: tuple[tuple[str, str], ...], text: str) -> str:
    return next((word for mark, word in known if mark in text), "")


def _check_old_password(request: PageRequest, form: PasswordChangeForm) -> bool:
    with limit_attempts(
        username=request.user.username, source_ip=request.caller.source_ip
    ) as attempt:
        good = form.is_valid()
        if "old_password" not in form.errors:
            attempt.succeeded()
    return good


@transaction.atomic
def _save_password(request: PageRequest, form: PasswordChangeForm) -> HttpResponse:
    """Change the password and log every other browser out."""
    by = actor_of(request.caller)
    form.save()
    update_session_auth_hash(request, request.user)
    here = record_session(request, request.user)
    end_sessions(user=request.user, by=by, except_for=here)
    said = {"change": "own password", **difference({}, {})}
    subject = f"user:{request.user.username}"
    record(Event.ROW_CHANGE, by=by, outcome=Outcome.CHANGED, subject=subject, details=said)
    messages.success(request, "Your password is changed, and other browsers are logged out.")
    return redirect("profile")


def _profile_context(
    request: PageRequest, inputs: list[FormInput], scopes: list[Scope] | None = None
) -> dict[str, Any]:
    user = request.user
    chosen = [Scope.READ, Scope.EXECUTE] if scopes is None else scopes
    names = user.groups.order_by("name").values_list("name", flat=True)
    found = [(role_of(name), name) for name in names]
    tokens = [*user.tokens.usable(timezone.now())[: MOST_ROWS + 1]]
    return {
        "roles": [role for role, _ in found if role],
        "groups": [name for role, name in found if not role],
        "permitted": () if user.is_superuser else _permission_sentences(request),
        "tokens": tokens[:MOST_ROWS],
        "more_tokens": len(tokens) > MOST_ROWS,
        "inputs": inputs,
        "scopes": [(one.value, SCOPES[one], one in chosen) for one in Scope],
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


def _token_inputs() -> list[FormInput]:
    days = f"At most {MOST_DAYS}."
    return [
        FormInput("label", "Name", help="What it is for: a script, a machine.", required=True),
        FormInput("days", "Days until it ends", Widget.TEXT, days, value=str(settings.TOKEN_DAYS)),
    ]


def _form_value(request: PageRequest, key: str) -> str:
    return request.POST.get(key, "").strip()


def _check_token_inputs(inputs: list[FormInput], scopes: list[Scope]) -> str:
    """The error of the scopes; other errors are set at their inputs."""
    label, days = inputs
    if not 0 < len(label.value) <= LONGEST_LABEL:
        label.errors.append(f"A name of 1 to {LONGEST_LABEL} characters is needed.")
    if not (days.value.isascii() and days.value.isdecimal() and len(days.value) <= 3
            and 0 < int(days.value) <= MOST_DAYS):  # fmt: skip
        days.errors.append(f"A number from 1 to {MOST_DAYS} is needed.")
    return "" if scopes else "Choose at least one: a token that may do nothing is good for nothing."
