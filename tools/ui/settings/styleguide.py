"""`/ui/styleguide/`: every component of the design system, from the classes that the pages use.

For staff only. It shows no data of an organization.
"""

import re

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from tools.errors import Forbidden
from tools.ui.access import PageRequest, page
from tools.ui.settings.contrast import MIN_CONTRAST, contrast_pairs, read_static

STATUSES = (
    "Success", "Running", "Pending", "RequiresConfirmation", "Failed", "Timeout", "Cancelled",
    "active", "disabled", "quarantined",
)  # fmt: skip
_SIZE = re.compile(r"--((?:text|title)[a-z-]*):\s*([0-9.]+rem);")
_SPACE = re.compile(r"--(space-\d):\s*([0-9.]+rem);")
_ICON = re.compile(r'<symbol id="([a-z-]+)"')
_DENSITY = re.compile(r"--(row|control|cell):\s*([0-9.]+rem);")


@require_safe
@page
def styleguide_page(request: PageRequest) -> HttpResponse:
    if not (request.user.is_staff or request.user.is_superuser):
        raise Forbidden("The style guide is shown to staff.", code="not_permitted")
    said = read_static("css/tokens.css")
    context = {
        "sizes": _SIZE.findall(said),
        "spaces": _SPACE.findall(said),
        "densities": _DENSITY.findall(said),
        "drawn": _ICON.findall(read_static("img/icons.svg")),
        "pairs": contrast_pairs(),
        "least": MIN_CONTRAST,
        "statuses": STATUSES,
        "tones": ("good", "calm", "warn", "bad"),
    }
    return render(request, "settings/styleguide.html", context)
