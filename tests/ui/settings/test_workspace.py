"""Browsing the workspace: as the user may read, in the sandbox, on record, and without a call."""

from collections.abc import Callable

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import inline_code, notes, text
from tools.approvals import confirmation_rules
from tools.models import Confirmation, Execution, Organization

Files = Callable[[str, bytes], None]
pytestmark = pytest.mark.usefixtures("committed", "crib")
HOSTILE = "<script>alert(1)<\u2044script>\u202e"


def test_a_directory_is_listed_and_a_file_read(
    admin_client: Client, organization: Organization, files: Files
) -> None:
    files("notes/today.txt", "Grüße".encode())
    page = text(admin_client.get("/workspace/"))
    assert 'href="/workspace/?path=notes"' in page
    below = text(admin_client.get("/workspace/?path=notes"))
    assert (
        'href="/workspace/file/?path=notes%2Ftoday.txt"' in below and 'href="/workspace/"' in below
    )
    file = text(admin_client.get("/workspace/file/?path=notes/today.txt"))
    assert "Grüße" in file and "sha256" in notes(file)


PLACES = ("", "file/?path=a", "download/?path=a", "?path=gone")


def test_looking_makes_no_call_however_often(
    admin_client: Client, organization: Organization, files: Files
) -> None:
    """Review 1.11."""
    files("a", b"secret")
    for place in PLACES * 2:
        admin_client.get(f"/workspace/{place}")
    assert not Execution.objects.filter(organization=organization).exists()
    reads = AuditRecord.objects.filter(organization=organization.slug, code="WORKSPACE.READ")
    assert reads.count() == 2 * len(PLACES)
    assert reads.filter(outcome="failure", reason="FILE_NOT_FOUND").count() == 2


def test_reading_that_waits_for_a_person_makes_no_request(
    admin_client: Client, organization: Organization, files: Files
) -> None:
    """Review 1.11."""
    files("a", b"secret")
    by = factories.actor(organization)
    confirmation_rules.create_rule(
        organization=organization, name="reads", wanted={"tool": "read_file"}, by=by
    )
    for place in PLACES:
        answer = admin_client.get(f"/workspace/{place}")
        assert answer.status_code == 403 and "secret" not in text(answer)
        assert "reading-waits" in notes(answer)
    assert not Execution.objects.filter(organization=organization).exists()
    assert not Confirmation.objects.filter(organization=organization).exists()


def test_an_empty_workspace_says_so(admin_client: Client) -> None:
    assert "empty-folder" in notes(admin_client.get("/workspace/"))


def test_a_file_is_downloaded_as_it_is(admin_client: Client, files: Files) -> None:
    files("a\u202eb.html", b"\x00<script>\xff")
    answer = admin_client.get("/workspace/download/?path=a%E2%80%AEb.html")
    assert answer.content == b"\x00<script>\xff"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment;")
    page = text(admin_client.get("/workspace/file/?path=a%E2%80%AEb.html"))
    assert "no-text" in notes(page) and 'href="/workspace/download/' in page
    assert "U+202E" in page


def test_a_name_with_line_ends_is_downloaded_under_another(
    admin_client: Client, files: Files
) -> None:
    files("a\r\nSet-Cookie: b", b"x")
    answer = admin_client.get("/workspace/download/", {"path": "a\r\nSet-Cookie: b"})
    assert answer.content == b"x" and "Set-Cookie" not in answer.headers
    assert answer["Content-Disposition"] == 'attachment; filename="a__Set-Cookie: b"'


def test_a_long_file_is_shown_in_pieces(admin_client: Client, files: Files) -> None:
    files("long", b"a" * 40_000 + b"THE END")
    page = text(admin_client.get("/workspace/file/?path=long"))
    assert "THE END" not in page and "offset=32768" in page
    assert "THE END" in text(admin_client.get("/workspace/file/?path=long&offset=32768"))


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("?path=gone", 404), ("file/?path=gone", 404), ("file/", 400), ("?path=../x", 400),
        ("?path=a%00b", 400), ("?offset=x", 400), ("?offset=-1", 400), ("file/?path=.", 400),
        ("download/?path=gone", 404), (f"?path={'a' * 5000}", 400),
        ("?offset=999999999999999", 200),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(admin_client: Client, place: str, status: int) -> None:
    answer = admin_client.get(f"/workspace/{place}")
    assert answer.status_code == status, text(answer).partition("<main")[2]


def test_hostile_names_and_contents_run_nowhere(admin_client: Client, files: Files) -> None:
    files(HOSTILE, HOSTILE.encode())
    page = admin_client.get("/workspace/")
    assert inline_code(page) == [] and "<script>alert" not in text(page) and "U+202E" in text(page)
    page = admin_client.get("/workspace/file/", {"path": HOSTILE})
    assert inline_code(page) == [] and "<script>alert" not in text(page) and "U+202E" in text(page)


def test_a_user_without_grants_is_refused(client_of: Grant, files: Files) -> None:
    files("a", b"secret")
    client = client_of()
    for place in ("", "file/?path=a", "download/?path=a"):
        answer = client.get(f"/workspace/{place}")
        assert answer.status_code == 403 and "secret" not in text(answer)


def test_grants_of_the_group_are_enough(client_of: Grant, files: Files) -> None:
    files("a", b"for readers")
    client = client_of("tools.execute_tool", granted_groups=["read-only"])
    assert "for readers" in text(client.get("/workspace/file/?path=a"))
