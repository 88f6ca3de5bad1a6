"""Headers that tell browsers what pages may do, and the URL of live updates."""

import re
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port
from django.middleware.csp import ContentSecurityPolicyMiddleware
from django.utils.csp import CSP
from django.utils.http import url_has_allowed_host_and_scheme

_OFF = "off"
# The clipboard and security keys are used, and stay with our own pages by default.
_PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer", "browsing-topics", "camera", "display-capture", "geolocation", "gyroscope",
        "magnetometer", "microphone", "midi", "payment", "serial", "usb", "xr-spatial-tracking",
    )
)  # fmt: skip
_LONGEST = 2_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


def live_url(request: HttpRequest) -> str:
    """The address of the live process for this page; nothing where there is none to be reached."""
    if settings.LIVE_URL:
        return "" if settings.LIVE_URL == _OFF else str(settings.LIVE_URL)
    if settings.HTTPS:
        return "/live/"
    try:
        domain, _ = split_domain_port(request.get_host())
    except DisallowedHost:
        return ""
    return f"{request.scheme}://{domain}:{settings.LIVE_PORT}/live/" if settings.LIVE_PORT else ""


def live_context(request: HttpRequest) -> dict[str, Any]:
    """For every template of a logged-in user."""
    user = getattr(request, "user", None)
    return {"live_at": live_url(request) if user is not None and user.is_authenticated else ""}


class ContentSecurityPolicy(ContentSecurityPolicyMiddleware):
    """Django's, with the live process among what a page may reach; and no page uses a device of
    the reader or is loaded into another site."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        found = urlsplit(live_url(request))
        if found.netloc and not hasattr(response, "_csp_config"):
            reached = [CSP.SELF, f"{found.scheme}://{found.netloc}"]
            allowed = settings.SECURE_CSP | {"connect-src": reached}
            response._csp_config = allowed  # type: ignore[attr-defined]
        answered: HttpResponse = super().process_response(request, response)
        answered.headers.setdefault("Permissions-Policy", _PERMISSIONS_POLICY)
        answered.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return answered


def safe_redirect_path(wanted: str, otherwise: str) -> str:
    """`wanted` where it is a path of ours, with its query; else `otherwise`."""
    ours = (
        wanted.startswith("/")
        and len(wanted) <= _LONGEST
        and not _CONTROL.search(wanted)
        and url_has_allowed_host_and_scheme(wanted, allowed_hosts=None)
    )
    return wanted if ours else otherwise
