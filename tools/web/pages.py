"""The decorator of every page: it requires a login, acts once for each form, renders refusals, and
forbids caching. Lists reload their partial `results` by filters, links and live updates.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.http import HttpResponseClientRedirect, push_url, replace_url
from django_htmx.middleware import HtmxDetails

from config.http import errors, request_queue
from tools.accounts.callers import caller_of_user
from tools.accounts.user_permissions import require
from tools.authorization.pins import snapshot_for
from tools.catalog.registry import registry
from tools.catalog.snapshot import Snapshot
from tools.definitions.callers import Caller
from tools.errors import ToolcribError
from tools.models import Organization, User
from tools.web.one_time import act_once
from tools.web.reauthentication import ProofMark
from tools.web.reauthentication import proof as mark_proof

View = Callable[..., HttpResponseBase]


class PageRequest(HttpRequest):
    """A request of a logged-in user, as `page` passes it to a view."""

    user: User
    htmx: HtmxDetails
    caller: Caller
    repeated: bool  # the form was sent before, and its action is done


def page(needs: str = "", *, proof: ProofMark | None = None) -> Callable[[View], View]:
    """A page that is only read, by users with the permission `needs`; see `_guard`."""
    return _guard(require_safe, needs, proof)


def form_page(proof: ProofMark, needs: str = "") -> Callable[[View], View]:
    """A page with a form of its own address: GET shows it, POST acts."""
    return _guard(require_http_methods(["GET", "HEAD", "POST"]), needs, proof)


def action_page(proof: ProofMark, needs: str = "") -> Callable[[View], View]:
    """An action of another page's form or button: POST alone."""
    return _guard(require_POST, needs, proof)


def _guard(
    methods: Callable[[View], View], needs: str, proof: ProofMark | None
) -> Callable[[View], View]:
    """Requires a login and the permission, and answers HEAD as GET. A `ToolcribError` of the view
    becomes a page, or a notice in the page. The middleware reads `proof`."""

    def guard(view: View) -> View:
        @wraps(view)
        @never_cache
        def guarded(request: PageRequest, *args: object, **kwargs: object) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _redirect_to_login(request)
            if request.method == "HEAD":
                request.method = "GET"  # the server sends no content
            request.caller = caller_of_user(request.user, source_ip=address_of(request))
            request.repeated = False
            request_queue.set_organization(request.caller.organization_id)
            with in_reader_zone(request):
                try:
                    return act_once(request, lambda: permitted(request, *args, **kwargs))
                except ToolcribError as refusal:
                    return errors.error_response(request, refusal.http_status, refusal.message)

        def permitted(request: PageRequest, *args: object, **kwargs: object) -> HttpResponseBase:
            if needs:
                require(request.caller, needs)
            return view(request, *args, **kwargs)

        return mark_proof(proof)(methods(guarded)) if proof else methods(guarded)

    return guard


def in_reader_zone(request: HttpRequest) -> timezone.override:
    """Within it templates show times in the organization's time zone, as charts do. CSV is UTC."""
    return timezone.override(ZoneInfo(request.user.organization.time_zone))  # type: ignore[union-attr]


def address_of(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))


def snapshot_of(request: PageRequest) -> Snapshot:
    return snapshot_for(request.caller)


def current_snapshot(request: PageRequest) -> Snapshot:
    """The catalog, including changes of this request."""
    revision = Organization.objects.values_list("revision", flat=True)
    organization_id = request.caller.organization_id
    return registry.snapshot(organization_id, revision.get(pk=organization_id))


def wants_results(request: PageRequest) -> bool:
    """Whether the request is for the partial, and not for the page."""
    return bool(request.htmx) and request.htmx.target == "results"


def page_or_results(
    request: PageRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    here: str,
    results: str = "",
) -> HttpResponse:
    """The page; or its partial `results`, with the URL of the same results for the history.

    Typing creates one history entry, not one per letter; a click creates a new one. A live update
    (`seen`) creates none.
    """
    if not wants_results(request):
        return render(request, template, dict(context))
    part = render(request, results or f"{template}#results", dict(context))
    if "seen" in request.GET:
        return part
    remember = replace_url if request.htmx.trigger == "filters" else push_url
    return remember(part, here)


def _redirect_to_login(request: PageRequest) -> HttpResponse:
    if not request.htmx:
        return redirect_to_login(request.get_full_path())
    # The whole page is redirected, so that the login page does not replace only a part of it.
    back = request.htmx.current_url_abs_path or "/"
    return HttpResponseClientRedirect(redirect_to_login(back)["Location"])
