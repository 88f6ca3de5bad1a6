"""`/profile/factors/`: a user sets up, views and removes their second factors."""

from typing import Any
from uuid import UUID

import segno
from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.debug import sensitive_post_parameters

from tools.accounts.callers import actor_of
from tools.accounts.login import login, second_factors, security_keys
from tools.errors import Conflict, ToolcribError
from tools.web import sealed_forms
from tools.web.forms import ActionForm
from tools.web.one_time import redirect_with_secrets, take_secrets
from tools.web.pages import PageRequest, action_page, form_page, page
from tools.web.reauthentication import Proof

PAGE, APP_PAGE, KEY_PAGE, CODES_PAGE = (
    f"accounts/{name}.html" for name in ("factors", "factor_app", "factor_key", "factor_codes")
)
_FORM = "authenticator app"
_LONGEST_NAME = 60


class AuthenticatorAppForm(ActionForm):
    """The secret is kept in the page, encrypted, until a code proves that the app has it."""

    code = forms.CharField(
        label="Type the six digits that it shows now",
        max_length=20,
        widget=forms.TextInput({
            "class": "mono code", "inputmode": "numeric", "autocomplete": "one-time-code",
            "maxlength": 10, "autofocus": True,
        }),
    )  # fmt: skip

    def build(self) -> None:
        user = self.request.user
        kept = self.data.get("kept", "")
        self.secret = second_factors.new_app_secret()
        if self.is_bound:
            self.secret = sealed_forms.open_state(kept, user, _FORM)

    def act(self, changes: dict[str, Any]) -> list[str]:
        """The recovery codes that come with a first factor."""
        user, by = self.request.user, actor_of(self.request.caller)
        code = "".join(changes["code"].split())
        return second_factors.add_authenticator_app(user=user, secret=self.secret, code=code, by=by)


class SecurityKeyForm(ActionForm):
    name = forms.CharField(
        label="Name",
        max_length=_LONGEST_NAME,
        widget=forms.TextInput({"autofocus": True}),
        help_text="By which you tell it from others: the blue one, this laptop.",
        error_messages={"required": f"A name of 1 to {_LONGEST_NAME} characters is needed."},
    )
    key = forms.CharField(widget=forms.HiddenInput, required=False)

    def act(self, changes: dict[str, Any]) -> list[str]:
        """The recovery codes that come with a first factor."""
        return security_keys.add_security_key(
            user=self.request.user,
            name=changes["name"],
            answer=changes["key"],
            place=security_keys.relying_party(self.request),
            session=self.request.session,
            by=actor_of(self.request.caller),
        )

    def place_refusal(self, refusal: ToolcribError) -> None:
        self.add_error("name", refusal.message)


@page()
def factors_page(request: PageRequest) -> HttpResponseBase:
    """Users who must have a second factor and have none are redirected here."""
    return render(request, PAGE, factors_context(request))


@sensitive_post_parameters("code", "kept")
@form_page(Proof.ALWAYS)
def app_page(request: PageRequest) -> HttpResponseBase:
    if request.method == "GET" and second_factors.factors_of(request.user).app:
        raise Conflict("You have an authenticator app. Remove it first.", code="app_exists")
    form = AuthenticatorAppForm(request)
    if not form.save():
        secret = form.secret
        return form.show(APP_PAGE, {
            "square": _qr_code(second_factors.provisioning_uri(secret, request.user)),
            "secret": " ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
            "kept": sealed_forms.seal_state(secret, request.user, _FORM),
        })  # fmt: skip
    return _confirm_setup(request, second_factors.APP, form.result)


@sensitive_post_parameters("key")
@form_page(Proof.ALWAYS)
def key_page(request: PageRequest) -> HttpResponseBase:
    form = SecurityKeyForm(request)
    if not form.save():
        place, options = security_keys.relying_party(request), ""
        if place.has_keys:
            options = security_keys.begin_registration(request.user, place, request.session)
        return form.show(KEY_PAGE, {"options": options, "host": place.host})
    return _confirm_setup(request, second_factors.KEY, form.result)


@action_page(Proof.NEEDED)
def remove_app(request: PageRequest) -> HttpResponseBase:
    second_factors.remove_authenticator_app(user=request.user, by=actor_of(request.caller))
    return _confirm_removal(request, "The authenticator app is removed.")


@action_page(Proof.NEEDED)
def remove_key(request: PageRequest, factor_id: UUID) -> HttpResponseBase:
    second_factors.remove_security_key(
        user=request.user, key_id=factor_id, by=actor_of(request.caller)
    )
    return _confirm_removal(request, "The security key is removed.")


@form_page(Proof.NEEDED)
def recovery_codes(request: PageRequest) -> HttpResponseBase:
    """POST creates new recovery codes; the old ones become invalid. The page that follows this, or
    the first second factor, shows the codes once."""
    if request.method != "POST":
        shown = take_secrets(request)
        if not shown:
            return redirect("factors")
        return render(request, CODES_PAGE, shown | {"codes": shown["codes"].split()})
    if not second_factors.has_factor(request.user):
        raise Conflict("Set up a second factor first.", code="no_second_factor")
    codes = second_factors.make_recovery_codes(user=request.user, by=actor_of(request.caller))
    return _to_codes(request, codes)


def factors_context(request: PageRequest) -> dict[str, Any]:
    """The profile's section about second factors."""
    user = request.user
    return {
        "factors": second_factors.factors_of(user),
        "must_have": second_factors.requires_factor(user)
        and not login.has_proven_factor(request.session),
        "keys_possible": security_keys.relying_party(request).has_keys,
        "most_codes": second_factors.RECOVERY_CODES,
    }


def _confirm_setup(request: PageRequest, factor: str, codes: list[str]) -> HttpResponse:
    """Log out other browsers that have not proven it; the first factor comes with codes."""
    login.record_factor(request.session, factor)
    if not codes:
        messages.success(request, f"The {factor} is set up.")
        return redirect("profile")
    here = login.record_session(request, request.user)
    login.end_sessions(user=request.user, by=actor_of(request.caller), except_for=here)
    return _to_codes(request, codes, factor)


def _to_codes(request: PageRequest, codes: list[str], factor: str = "") -> HttpResponse:
    shown = {"codes": " ".join(codes), "factor": factor}
    return redirect_with_secrets(request, shown, "factor-codes")


def _confirm_removal(request: PageRequest, said: str) -> HttpResponse:
    if not second_factors.has_factor(request.user):
        request.session.pop(login.FACTOR, None)
    messages.success(request, said)
    return redirect("profile")


def _qr_code(text: str) -> SafeString:
    """A QR code, dark on light in both schemes, so that cameras can read it."""
    drawn = segno.make(text, error="m").svg_inline(
        scale=5, border=4, dark="#000", light="#fff", omitsize=True
    )
    return mark_safe(drawn)  # noqa: S308  # drawn from modules, contains no text
