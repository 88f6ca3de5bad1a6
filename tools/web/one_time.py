"""One-time keys of forms: a form that is sent twice, by a double click or a reload, acts once.

`{% form_token %}` puts the key into each form. The first answer that leads on, or that gives the
page another address, is stored under it, as the API's answers are under an `Idempotency-Key`; the
same form sent again is led there, and does nothing. With other content it is another form. A secret
that the action made is stored with the answer, encrypted, and shown by the page that follows: once.
An action without such an address says `done_here`; its view then sees that the form is repeated.
"""

import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect

from tools.accounts import idempotency
from tools.accounts.idempotency import IdempotentRequest, IdempotentResponse, InProgress
from tools.errors import Conflict
from tools.models.idempotency_key import Attempt

if TYPE_CHECKING:
    from tools.web.pages import PageRequest

FIELD, CSRF_FIELD = "one_time_key", "csrfmiddlewaretoken"
SHOWN = "shown"  # parameter of the page that shows a secret
_SECRETS, _DONE_HERE = "once_secrets", "once_done"  # attributes of a response
_LEADING_HEADERS = ("HX-Redirect", "Location", "HX-Replace-Url")
_KEY = re.compile(r"[A-Za-z0-9_-]{22}")
_IN_PROGRESS = "This form was sent a moment ago and is being handled. Look again in a few seconds."
PATIENCE_S = 10
_LOOK_AGAIN_S = 0.1
REPEATED = "This form was sent twice. It was done once."


def new_key() -> str:
    return secrets.token_urlsafe(16)


def key_of(request: "PageRequest") -> str:
    """The key of the submitted form; "" without a usable one."""
    key = request.POST.get(FIELD, "")
    return key if _KEY.fullmatch(key) else ""


def act_once(request: "PageRequest", act: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """The answer of `act`; or of the first request with the same form, while it is kept.

    Raises `Conflict` where the first one is running for longer than a reader waits, and `Forbidden`
    where its answer may not be given any more.
    """
    if request.method != "POST" or not (key := key_of(request)):
        return act()
    claimed = _claim(_keyed(request, key))
    if isinstance(claimed, IdempotentResponse):
        if not claimed.headers["Location"]:
            request.repeated = True
            return act()
        messages.info(request, REPEATED)
        return _lead_to(request, claimed.headers["Location"])
    with ExitStack() as undo:
        undo.callback(idempotency.release_key, claimed)
        response = act()
        undo.pop_all()
    _keep(claimed, response)
    return response


def done_here[Shown: HttpResponseBase](response: Shown) -> Shown:
    """The answer shows the form again, though its action is done: sent again, the form is
    `repeated`, and its view does not act."""
    setattr(response, _DONE_HERE, True)
    return response


def redirect_with_secrets(
    request: "PageRequest", shown: Mapping[str, str], view: str, **address: Any
) -> HttpResponse:
    """Leads to a page that shows the secrets once, by `take_secrets`."""
    key = key_of(request) or new_key()
    response = HttpResponseRedirect(f"{reverse(view, kwargs=address)}?{SHOWN}={key}")
    setattr(response, _SECRETS, dict(shown))
    if not key_of(request):  # not sent by a form of ours, so nothing else stores them
        with transaction.atomic():
            claimed = idempotency.claim_key(_keyed(request, key))
        assert isinstance(claimed, Attempt)
        _keep(claimed, response)
    return response


def take_secrets(request: "PageRequest") -> dict[str, str]:
    """The secrets that the form before has made; empty where they were shown already."""
    key = request.GET.get(SHOWN, "")
    if request.method != "GET" or not _KEY.fullmatch(key):
        return {}
    return idempotency.take_secrets(request.caller, key)


def _claim(form: IdempotentRequest) -> Attempt | IdempotentResponse:
    """A browser shows the answer to the second of two clicks: it waits for the first one's."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with transaction.atomic():
                return idempotency.claim_key(form)
        except InProgress:
            if time.monotonic() > deadline:
                raise Conflict(_IN_PROGRESS, code="form_in_progress") from None
            time.sleep(_LOOK_AGAIN_S)


def _keyed(request: "PageRequest", key: str) -> IdempotentRequest:
    """The form's content is part of its address, so that the same key with other content, as
    after a step back, is another request."""
    content = sorted(
        (name, *values) for name, values in request.POST.lists() if name not in {FIELD, CSRF_FIELD}
    )
    files = [
        (name, file.name, file.size)
        for name in sorted(request.FILES)
        for file in request.FILES.getlist(name)
    ]
    sent = idempotency.fingerprint(repr(content), repr(files))
    return IdempotentRequest(request.caller, key, ("POST", request.path, sent), sent)


def _keep(claimed: Attempt, response: HttpResponseBase) -> None:
    """Store where the answer leads; a form that is shown again has done nothing."""
    leads = (response.headers.get(name, "") for name in _LEADING_HEADERS)
    to = next(filter(None, leads), "")
    if not to and not hasattr(response, _DONE_HERE):
        idempotency.release_key(claimed)
        return
    hidden = getattr(response, _SECRETS, {})
    idempotency.store_response(
        claimed,
        status=idempotency.FORM_DONE,
        answer=hidden or None,
        headers={"Location": to},
        secret=hidden.keys(),
        relied_on=(),
    )


def _lead_to(request: "PageRequest", address: str) -> HttpResponse:
    return HttpResponseClientRedirect(address) if request.htmx else HttpResponseRedirect(address)
