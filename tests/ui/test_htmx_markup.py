"""The markup means the same to htmx 2 and to htmx 4, which inherits nothing by itself."""

import re
from pathlib import Path

import pytest
from django.conf import settings

TEMPLATES = sorted(Path(settings.BASE_DIR, "templates").rglob("*.html"))
ASKS = re.compile(r"<[a-z][^<>]*?\shx-(?:get|post)=(?:[^<>]|(?<=[%-])>)*>", re.DOTALL)
GONE = re.compile(
    r"\shx-(?:vars|params|prompt|ext|disinherit|inherit|request|history(?:-elt)?|disable"
    r"|disabled-elt|boost|delete|put|patch)="
)
OLD_SWAP = re.compile(r'hx-swap="[^"]*(?:show|scroll):[^"\s]*:')  # a selector before the place


def tags(template: Path) -> list[str]:
    """Those that ask the server, without what the template language says inside of them."""
    plain = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", "", template.read_text("utf-8"))
    return ASKS.findall(plain)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_an_element_that_asks_says_itself_where_the_answer_goes(template: Path) -> None:
    for tag in tags(template):
        assert "hx-target=" in tag and "hx-swap=" in tag, tag


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_nothing_is_written_that_htmx_4_reads_otherwise(template: Path) -> None:
    text = template.read_text("utf-8")
    assert not GONE.search(text) and not OLD_SWAP.search(text)


def test_the_templates_that_ask_are_found() -> None:
    assert sum(len(tags(template)) for template in TEMPLATES) > 25


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_each_time_is_in_the_readers_zone_which_it_tells(template: Path) -> None:
    """By `{% moment %}` (review 1.18)."""
    assert "<time" not in template.read_text("utf-8")
