"""`/login/sso/`: single sign-on at an identity provider: login, reauthentication, and linking."""

import time

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from sandbox.egress.rules.grammar import Url
from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.login import login, single_sign_on
from tools.accounts.login.single_sign_on import ProviderIdentity
from tools.errors import Forbidden, NotFound, ToolcribError
from tools.models import User
from tools.ui.accounts import reauthentication
from tools.ui.accounts.login import continue_login, next_address
from tools.web.pages import PageRequest, action_page, address_of
from tools.web.reauthentication import Proof

LOGIN_PAGE, REDIRECT_PAGE = "accounts/login.html", "accounts/single_sign_on.html"
METHOD = "single sign-on"
LOGIN_PURPOSE, REAUTHENTICATION_PURPOSE, LINK_PURPOSE = "enter", "again", "connect"
_JUST_NOW_S = 120


@never_cache
@require_safe
def begin_login(request: HttpRequest) -> HttpResponse:
    if not single_sign_on.is_configured():
        return redirect("login")
    onwards = next_address(request)
    proves = request.GET.get("again") == "1" and request.user.is_authenticated
    try:
        return redirect(
            _provider_address(
                request, REAUTHENTICATION_PURPOSE if proves else LOGIN_PURPOSE, onwards
            )
        )
    except ToolcribError as problem:
        return _render_failure(request, problem, onwards)


@never_cache
@require_safe
def finish_login(request: HttpRequest) -> HttpResponse:
    """The callback of the provider. Valid once, for the session that started the login."""
    if not single_sign_on.is_configured():
        return redirect("login")
    try:
        identity, purpose, onwards = single_sign_on.finish_login(request)
        if purpose == LOGIN_PURPOSE:
            user = single_sign_on.provision_user(identity, source_ip=address_of(request))
            return _log_in(request, user, identity, onwards)
        return _finish_for_user(request, identity, purpose, onwards)
    except ToolcribError as problem:
        return _render_failure(request, problem, reverse("home"))


@action_page(Proof.NEEDED)
def connect(request: PageRequest) -> HttpResponseBase:
    """Shows the address of the provider before the user is redirected to it."""
    if not single_sign_on.is_configured():
        raise NotFound("Single sign-on is not set up here.", code="not_configured")
    url = _provider_address(request, LINK_PURPOSE, reverse("profile"))
    context = {"url": url, "host": Url.parse(url).host.text, "provider": settings.OIDC_NAME}
    return render(request, REDIRECT_PAGE, context)


@action_page(Proof.NEEDED)
def disconnect(request: PageRequest) -> HttpResponseBase:
    single_sign_on.unlink_identity(user=request.user, by=actor_of(request.caller))
    messages.success(request, f"You come in by your password alone, not by {settings.OIDC_NAME}.")
    return redirect("profile")


def _provider_address(request: HttpRequest, purpose: str, onwards: str) -> str:
    back = request.build_absolute_uri(reverse("single-sign-on-back"))
    if settings.HTTPS:
        back = back.replace("http://", "https://", 1)
    return single_sign_on.begin_login(
        request, back, purpose=purpose, onwards=onwards, again=purpose == REAUTHENTICATION_PURPOSE
    )


def _log_in(
    request: HttpRequest, user: User, identity: ProviderIdentity, onwards: str
) -> HttpResponse:
    """Log in. The login is as recent as the provider's authentication."""
    answer = continue_login(
        request, user, onwards, how=METHOD, factor=METHOD if identity.strong else ""
    )
    if request.user.is_authenticated and identity.at:
        login.record_authentication(request.session, identity.at)
    return answer


def _finish_for_user(
    request: HttpRequest, identity: ProviderIdentity, purpose: str, onwards: str
) -> HttpResponse:
    user = request.user
    if not isinstance(user, User):
        raise Forbidden("You are logged out meanwhile. Log in and begin again.")
    if purpose == LINK_PURPOSE:
        by = actor_of(caller_of_user(user, source_ip=address_of(request)))
        single_sign_on.link_identity(user=user, identity=identity, by=by)
        messages.success(request, f"You come in by {settings.OIDC_NAME} from now on, too.")
        return redirect(onwards)
    if not single_sign_on.is_linked(user, identity):
        raise Forbidden("That is another person than the one who is logged in.")
    if abs(time.time() - identity.at) > _JUST_NOW_S:
        raise Forbidden("The identity provider did not ask you anew. Use another way.")
    reauthentication.record_reauthentication(request, user, METHOD)
    return redirect(onwards)


def _render_failure(request: HttpRequest, problem: ToolcribError, onwards: str) -> HttpResponse:
    if request.user.is_authenticated:
        messages.error(request, problem.message, extra_tags=problem.code)
        return redirect("profile")
    context = {"message": problem.message, "next": onwards, "provider": settings.OIDC_NAME}
    return render(request, LOGIN_PAGE, context, status=problem.http_status)
