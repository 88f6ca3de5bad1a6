"""Color contrast (WCAG) of the color tokens in `static/css/tokens.css`."""

import re
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from django.contrib.staticfiles import finders

LEAST = 4.5  # contrast of text and background: WCAG 2, level AA
GROUNDS = ("ground", "sheet", "sunken")
TEXTS = ("ink", "ink-soft", "accent", "accent-strong", "good", "warn", "bad", "calm")
# Colored texts on their washes, and texts on the accent color.
WASHED = (
    ("good", "good-wash"),
    ("warn", "warn-wash"),
    ("bad", "bad-wash"),
    ("calm", "calm-wash"),
    ("accent-strong", "accent-wash"),
    ("ink", "calm-wash"),
    ("ink-soft", "calm-wash"),
    ("ink", "bad-wash"),
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
    ("ground", "ink"),
)
PAIRS = (*product(TEXTS, GROUNDS), *WASHED)
_COLOUR = re.compile(r"--([a-z-]+):\s*(#[0-9a-f]{6});")

Palette = dict[str, str]


@dataclass(frozen=True)
class Pair:
    text: str
    ground: str
    light: float
    dark: float


def measured() -> list[Pair]:
    """Every used pair of text and background, in both schemes."""
    light, dark = palettes()
    return [
        Pair(text, ground, contrast(light[text], light[ground]), contrast(dark[text], dark[ground]))
        for text, ground in PAIRS
    ]


@cache
def palettes() -> tuple[Palette, Palette]:
    """The light scheme, and the dark one, which defines only what differs."""
    light, _, dark = part_of_product("css/tokens.css").partition("prefers-color-scheme: dark")
    base = dict(_COLOUR.findall(light))
    return base, base | dict(_COLOUR.findall(dark))


def part_of_product(name: str) -> str:
    """The text of a static file of the product."""
    found = finders.find(name)
    assert found, f"static/{name} is part of the product"
    return Path(str(found)).read_text()


def contrast(one: str, other: str) -> float:
    """The contrast ratio, from 1 (same color) to 21 (black on white)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
