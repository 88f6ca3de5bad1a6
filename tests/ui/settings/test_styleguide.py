from django.test import Client

from tests.ui.conftest import Grant
from tests.ui.pages import inline_code, notes
from tools.ui.settings.styleguide import PAIRS


def test_the_style_guide_shows_every_pair_of_colours_measured(admin_client: Client) -> None:
    said = notes(admin_client.get("/ui/styleguide/"))
    assert set(PAIRS) <= set(zip(said["color"], said["ground"], strict=True))


def test_the_style_guide_runs_no_inline_code(admin_client: Client) -> None:
    assert inline_code(admin_client.get("/ui/styleguide/")) == []


def test_staff_see_the_style_guide_and_others_do_not(client_of: Grant) -> None:
    assert client_of().get("/ui/styleguide/").status_code == 403
    assert client_of(is_staff=True).get("/ui/styleguide/").status_code == 200
