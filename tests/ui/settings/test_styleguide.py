import re

import pytest
from django.conf import settings
from django.test import Client

from tests.ui.conftest import Grant
from tests.ui.pages import inline_code, notes
from tools.ui.settings.styleguide import (
    MIN_CONTRAST,
    PAIRS,
    ContrastPair,
    contrast_pairs,
    contrast_ratio,
    read_static,
)


def test_the_style_guide_shows_every_pair_of_colours_measured(admin_client: Client) -> None:
    said = notes(admin_client.get("/ui/styleguide/"))
    assert set(PAIRS) <= set(zip(said["color"], said["ground"], strict=True))


def test_the_style_guide_runs_no_inline_code(admin_client: Client) -> None:
    assert inline_code(admin_client.get("/ui/styleguide/")) == []


def test_staff_see_the_style_guide_and_others_do_not(client_of: Grant) -> None:
    assert client_of().get("/ui/styleguide/").status_code == 403
    assert client_of(is_staff=True).get("/ui/styleguide/").status_code == 200


RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
TEXT = re.compile(r"(?<![a-z-])color:\s*var\(--([a-z-]+)\)")
GROUND = re.compile(r"(?<![a-z-])background(?:-color)?:\s*var\(--([a-z-]+)\)")


def paired() -> dict[tuple[str, str], str]:
    """The pairs that rules of ours name together, and where."""
    found = {}
    for sheet in sorted((settings.BASE_DIR / "static" / "css").glob("*.css")):
        for selector, body in RULE.findall(sheet.read_text()):
            text, ground = TEXT.search(body), GROUND.search(body)
            if text and ground:
                found[text[1], ground[1]] = f"{sheet.name}: {selector.strip()}"
    return found


def test_black_on_white_is_twenty_one_to_one() -> None:
    assert contrast_ratio("#000000", "#ffffff") == pytest.approx(21)
    assert contrast_ratio("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("pair", contrast_pairs(), ids=lambda pair: f"{pair.text} on {pair.ground}")
def test_a_text_is_read_on_its_ground(pair: ContrastPair) -> None:
    assert pair.light >= MIN_CONTRAST
    assert pair.dark >= MIN_CONTRAST


def test_every_pair_that_a_rule_names_is_measured() -> None:
    assert paired(), "no rule names a text and its ground: is the pattern still right?"
    strangers = {pair: where for pair, where in paired().items() if pair not in PAIRS}
    assert not strangers, "add these to PAIRS of tools/ui/settings/styleguide.py"


def test_only_the_tokens_name_a_colour() -> None:
    for name in ("base", "parts", "pages", "live", "operations"):
        assert not re.findall(r"#[0-9a-f]{3,8}\b(?=[;,)\s])", read_static(f"css/{name}.css"))
