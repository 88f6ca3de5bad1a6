"""The pages of tool services: who is there, what was announced, and who decided."""

import json
import re
from html import unescape

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import htmx, notes, text
from tests.ui.sources import Author, announced_tool, lease
from tools.models import Organization, Tool, ToolService
from tools.ui.servers.services import ServiceToolListing, service_status

FORM = {
    "id": "rag", "request_queue": "q", "response_queue": "r",
    "config_params": "collection\nlanguage optional\n", "groups_kind": "default", "groups": "",
}  # fmt: skip


@pytest.fixture
def author(organization: Organization) -> Author:
    return Author(organization)


def row_of(organization: Organization, name: str = "jokes") -> ToolService:
    return ToolService.objects.get(organization=organization, name=name)


def decide(client: Client, row: ToolService, word: str, digest: str = "") -> str:
    sent = {"do": word, "digest": digest or row.announced_digest, "reason": "Not ours."}
    return text(client.post(f"/services/{row.name}/decide", sent, follow=True))


def test_the_list_says_who_waits_who_serves_and_who_fell_silent(
    admin_client: Client, author: Author
) -> None:
    waiting = author.says("waiting", [announced_tool("a", "waiting")])
    lease(author.approved("living", [announced_tool("b", "living")]), 60)
    silent = author.approved("silent", [announced_tool("c", "silent")])
    lease(silent, 60)
    lease(silent, 0)
    silent.refresh_from_db()
    page = text(admin_client.get("/services/"))
    assert notes(page)["source-status"] == ["available", "lapsed", "announced"]  # by name
    about = [service_status(row, None).about for row in (silent, waiting)]
    assert all(about) and notes(page)["standing-about"] == about
    assert notes(page)["announcements-waiting"] == ["1"] and 'href="/tools/c/"' in page


def test_a_lapsed_lease_closes_the_tools_where_everybody_sees_it(
    admin_client: Client, author: Author, organization: Organization
) -> None:
    row = author.approved("jokes", [announced_tool("tell", "jokes")])
    lease(row, 60)
    assert ">closed<" not in text(admin_client.get("/services/jokes/"))
    lease(row, 0)
    page = text(admin_client.get("/services/jokes/"))
    assert notes(page)["closed-because"] == [row_of(organization).closed_because]
    assert ">closed<" in page


def test_htmx_gets_the_list_alone(admin_client: Client, author: Author) -> None:
    author.says("jokes", [announced_tool("tell", "jokes")])
    part = text(admin_client.get("/services/", headers=htmx("results")))
    assert "jokes" in part and "<html" not in part


def test_an_announcement_is_shown_whole_with_its_key(admin_client: Client, author: Author) -> None:
    row = author.says(
        "jokes",
        [announced_tool("tell", "jokes", description="First."), announced_tool("two", "jokes")],
    )
    page = text(admin_client.get("/services/jokes/"))
    assert "First." in page and notes(page)["tools-announced"] == ["2"] and "q-jokes" in page
    assert row.announced_digest in page
    assert author.key.replace("+", "&#x2B;") in page or author.key in page


def test_invisible_characters_are_marked(admin_client: Client, author: Author) -> None:
    words = {"note": "Harm\u202eless\u200b."}
    author.says("jokes", [announced_tool("tell", "jokes", metadata=words)])
    page = text(admin_client.get("/services/jokes/"))
    assert "U+202E" in page and "U+200B" in page and "RIGHT-TO-LEFT OVERRIDE" in page
    assert "\u202e" not in page and notes(page)["hidden-characters"] == ["2"]


def test_what_was_read_is_approved(
    admin_client: Client, author: Author, organization: Organization
) -> None:
    row = author.says("jokes", [announced_tool("tell", "jokes")])
    assert "jokes" in notes(decide(admin_client, row, "approve"))["message-success"][0]
    assert row_of(organization).digest == row.announced_digest
    assert Tool.objects.filter(organization=organization, name="tell").exists()
    seen = AuditRecord.objects.filter(organization=organization.slug, code="SERVICE.APPROVE")
    assert seen.count() == 1


def test_another_announcement_since_then_is_shown_and_nothing_is_decided(
    admin_client: Client, author: Author, organization: Organization
) -> None:
    stale = author.says("jokes", [announced_tool("tell", "jokes")]).announced_digest
    row = author.says("jokes", [announced_tool("tell", "jokes", description="Steals.")])
    sent = {"do": "approve", "digest": stale}
    response = admin_client.post("/services/jokes/decide", sent)
    assert response.status_code == 409
    assert "announced-since" in notes(response) and "Steals." in text(response)
    assert row.announced_digest in text(response)
    assert row_of(organization).digest == ""


def test_a_changed_announcement_shows_what_is_other_than_before(
    admin_client: Client, author: Author
) -> None:
    author.approved("jokes", [announced_tool("tell", "jokes"), announced_tool("old", "jokes")])
    author.says("jokes", [announced_tool("tell", "jokes", description="Sings.")])
    page = text(admin_client.get("/services/jokes/"))
    assert page.count('data-kind="removed"') == 1 and "Sings." in page
    assert "old" in notes(page)["no-longer-announced"][0]


def test_a_rejection_is_on_record_with_its_reason(
    admin_client: Client, author: Author, organization: Organization
) -> None:
    decide(admin_client, author.says("jokes", [announced_tool("tell", "jokes")]), "reject")
    assert row_of(organization).status == "rejected"
    seen = AuditRecord.objects.get(organization=organization.slug, code="SERVICE.REJECT")
    assert "Not ours." in json.dumps(seen.details)


def test_an_impossible_approval_is_explained(
    admin_client: Client, author: Author, organization: Organization
) -> None:
    factories.tool(organization, "tell")
    page = decide(admin_client, author.says("jokes", [announced_tool("tell", "jokes")]), "approve")
    assert "tell" in notes(page)["message-error"][0]


def test_a_service_is_written_by_hand_changed_and_removed(
    admin_client: Client, organization: Organization
) -> None:
    made = admin_client.post("/services/new/", FORM, follow=True)
    assert made.redirect_chain == [("/services/rag/", 302)] and "silent" in text(made)
    assert row_of(organization, "rag").config_params == [
        {"name": "collection", "required": True}, {"name": "language", "required": False}
    ]  # fmt: skip
    admin_client.post("/services/rag/edit/", FORM | {"groups_kind": "these", "groups": "a, b"})
    assert row_of(organization, "rag").default_groups == ["a", "b"]
    assert "named-by-none" in notes(admin_client.get("/services/rag/remove/"))
    admin_client.post("/services/rag/remove/")
    assert admin_client.get("/services/rag/").status_code == 404


def test_what_is_wrong_stands_at_its_question_and_what_was_typed_stays(
    admin_client: Client, organization: Organization
) -> None:
    wrong = FORM | {"id": "a b", "config_params": "3x"}
    response = admin_client.post("/services/new/", wrong)
    page = text(response)
    assert response.status_code == 400 and page.count('aria-invalid="true"') == 2
    assert 'value="a b"' in page
    assert not ToolService.objects.filter(organization=organization, name="a b").exists()


@pytest.mark.parametrize("sent", [{}, {"do": "dance"}, {"id": "\x00", "groups_kind": "x"}])
def test_nonsense_is_refused_and_nothing_falls_over(
    admin_client: Client, author: Author, sent: dict[str, str]
) -> None:
    author.says("jokes", [announced_tool("tell", "jokes")])
    for place in ("/services/new/", "/services/jokes/edit/", "/services/jokes/decide"):
        assert admin_client.post(place, sent).status_code in {302, 400, 404, 409}


def test_who_may_look_looks_and_changes_nothing(client_of: Grant, author: Author) -> None:
    row = author.says("jokes", [announced_tool("tell", "jokes")])
    client = client_of("tools.view_toolservice")
    page = text(client.get("/services/jokes/"))
    assert "Tells one." in page and 'value="approve"' not in page
    assert "/services/jokes/remove/" not in page
    assert 'href="/services/new/"' not in text(client.get("/services/"))
    refused = client.post(
        "/services/jokes/decide", {"do": "approve", "digest": row.announced_digest}
    )
    assert refused.status_code == 403
    for place in ("new/", "jokes/edit/", "jokes/remove/"):
        assert client.post(f"/services/{place}", FORM).status_code == 403


def test_the_tools_of_a_service_are_pages(
    admin_client: Client, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Review 1.17."""
    monkeypatch.setattr(ServiceToolListing, "page_size", 10)
    author.approved("jokes", [announced_tool(f"t-{at:02}", "jokes") for at in range(12)])
    page = text(admin_client.get("/services/jokes/"))
    assert page.count('<a class="name" href="/tools/t-') == 10
    assert notes(page)["range"] == ["1 to 10 of 12 tools"]
    [following] = re.findall(r'id="next"[^>]* href="([^"]*)"', page)
    last = text(admin_client.get(unescape(following)))
    assert last.count('<a class="name" href="/tools/t-') == 2
    found = text(admin_client.get("/services/jokes/", {"q": "T-07"}))
    assert found.count('<a class="name" href="/tools/t-') == 1


def test_a_decision_on_what_was_not_read_shows_the_page_again(
    admin_client: Client, author: Author
) -> None:
    row = author.says("jokes", [announced_tool("tell", "jokes")])
    author.says("jokes", [announced_tool("tell", "jokes", description="Tells two.")])
    sent = {"do": "approve", "digest": row.announced_digest}
    answer = admin_client.post("/services/jokes/decide", sent)
    assert answer.status_code == 409 and "announced-since" in notes(answer)
