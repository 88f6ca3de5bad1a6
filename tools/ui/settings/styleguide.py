"""`/ui/styleguide/`: every component of the design system, from the classes that the pages use, and
the contrast (WCAG) of the color tokens in `static/css/tokens.css`.

For staff only. It shows no data of an organization.
"""

import re
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from django.contrib.staticfiles import finders
from django.http import HttpResponse
from django.shortcuts import render

from tools.errors import Forbidden
from tools.web.pages import PageRequest, page

STATUSES = (
    "Success", "Running", "Pending", "RequiresConfirmation", "Failed", "Timeout", "Cancelled",
    "active", "disabled", "quarantined",
)  # fmt: skip
_SIZE = re.compile(r"--((?:text|title)[a-z-]*):\s*([0-9.]+rem);")
_SPACE = re.compile(r"--(space-\d):\s*([0-9.]+rem);")
_ICON = re.compile(r'<symbol id="([a-z-]+)"')
_DENSITY = re.compile(r"--(row|control|cell):\s*([0-9.]+rem);")
MIN_CONTRAST = 4.5  # contrast of text and background: WCAG 2, level AA
BACKGROUNDS = ("background", "surface", "surface-sunken")
TEXT_COLORS = (
    "foreground", "foreground-soft", "accent", "accent-strong", "good", "warn", "bad", "calm",
)  # fmt: skip
# Colored texts on their backgrounds, and texts on the accent color.
COLORED_PAIRS = (
    ("good", "good-background"),
    ("warn", "warn-background"),
    ("bad", "bad-background"),
    ("calm", "calm-background"),
    ("accent-strong", "accent-background"),
    ("foreground", "calm-background"),
    ("foreground-soft", "calm-background"),
    ("foreground", "bad-background"),
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
    ("background", "foreground"),
)
PAIRS = (*product(TEXT_COLORS, BACKGROUNDS), *COLORED_PAIRS)
_COLOR = re.compile(r"--([a-z-]+):\s*(#[0-9a-f]{6});")
Palette = dict[str, str]


@dataclass(frozen=True)
class ContrastPair:
    text: str
    ground: str
    light: float
    dark: float


@page()
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


def contrast_pairs() -> list[ContrastPair]:
    """Every used pair of text and background, in both schemes."""
    light, dark = palettes()
    return [
        ContrastPair(
            text,
            ground,
            contrast_ratio(light[text], light[ground]),
            contrast_ratio(dark[text], dark[ground]),
        )
        for text, ground in PAIRS
    ]


@cache
def palettes() -> tuple[Palette, Palette]:
    """The light scheme, and the dark one, which defines only what differs."""
    light, _, dark = read_static("css/tokens.css").partition("prefers-color-scheme: dark")
    base = dict(_COLOR.findall(light))
    return base, base | dict(_COLOR.findall(dark))


def read_static(name: str) -> str:
    """The text of a static file of the product."""
    found = finders.find(name)
    assert found, f"static/{name} is part of the product"
    return Path(str(found)).read_text()


def contrast_ratio(one: str, other: str) -> float:
    """The contrast ratio, from 1 (same color) to 21 (black on white)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
