"""Lists whose partial `results` is reloaded by filters, links and live updates."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django_htmx.http import push_url, replace_url

from tools.ui.access import PageRequest


def wants_results(request: PageRequest) -> bool:
    """Whether the request is for the partial, and not for the page."""
    return bool(request.htmx) and request.htmx.target == "results"


def page_or_results(
    request: PageRequest, template: str, context: Mapping[str, Any], *, here: str
) -> HttpResponse:
    """The page; or its partial `results`, with the URL of the same results for the history.

    Typing creates one history entry, not one per letter; a click creates a new one. A live update
    (`seen`) creates none.
    """
    if not wants_results(request):
        return render(request, template, dict(context))
    part = render(request, f"{template}#results", dict(context))
    if "seen" in request.GET:
        return part
    remember = replace_url if request.htmx.trigger == "filters" else push_url
    return remember(part, here)
