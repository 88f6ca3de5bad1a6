"""Origin check of streams: only pages of the product may read them."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host


def is_own_origin(headers: Mapping[str, str]) -> bool:
    """Whether the request is from the product's own origin: by `Origin`, else `Sec-Fetch-Site`."""
    host = headers.get("host", "")
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        return False
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
    return origin in settings.CSRF_TRUSTED_ORIGINS or _is_same_host(origin, host, domain)


def _is_same_host(origin: str, host: str, domain: str) -> bool:
    """Whether the origin is this address, or that of the web process on the same host."""
    try:
        found = urlsplit(origin)
        port = found.port or {"http": 80, "https": 443}.get(found.scheme)
    except ValueError:
        return False
    if found.scheme not in {"http", "https"} or origin != f"{found.scheme}://{found.netloc}":
        return False
    at, _ = split_domain_port(found.netloc)
    return found.netloc.lower() == host.lower() or (at == domain and port == settings.WEB_PORT)
