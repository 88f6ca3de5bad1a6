import re
import subprocess
import sys
from datetime import timedelta
from html import unescape
from pathlib import Path
from uuid import uuid4

import pytest
from django.test import Client

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import sealer
from audit.log.proofs import GROWTH
from audit.models import AuditRecord
from audit.records import record_access
from audit.verifier import toolcrib_verify as verifier
from tests.audit.logs import write
from tests.conditions import until
from tests.ui.pages import notes, text
from tools.models import Organization
from tools.ui.audit import audit_records


@pytest.fixture
def execution_id(organization: Organization):
    """One refused call on record."""
    identifier = uuid4()
    record(
        Event.TOOL_DENY,
        by=Actor("agent", "magpie", organization.slug),
        outcome=Outcome.DENIED,
        subject="shiny",
        reason="tool_not_granted",
        execution_id=identifier,
        details={"note": "<script>alert(1)</script>"},
    )
    return identifier


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    ("query", "there"),
    [
        ("code=TOOL.DENY", True), ("code=TOOL.", True), ("code=AUTH.LOGIN", False),
        ("outcome=denied", True), ("outcome=success", False), ("actor=magpie", True),
        ("agent=magpie", True), ("actor=crow", False), ("tool=shiny", True), ("tool=dull", False),
        ("q=tool_not_granted", True), ("q=nothing-such", False),
        ("since=2020-01-01T00:00", True), ("since=2999-01-01T00:00Z", False), ("since=never", True),
        ("execution=garbage", True), ("before=garbage", True),
    ],
)  # fmt: skip
def test_records_are_searched(admin_client: Client, execution_id, query: str, there: bool) -> None:
    page = admin_client.get(f"/audit/?{query}")
    assert page.status_code == 200
    assert ("tool_not_granted" in text(page).split("<ol")[-1]) is there


def test_an_execution_leads_to_its_records(admin_client: Client, execution_id) -> None:
    assert "magpie" in text(admin_client.get(f"/audit/?execution={execution_id}"))
    assert "none-matches" in notes(admin_client.get(f"/audit/?execution={uuid4()}"))


def test_details_are_text(admin_client: Client, execution_id) -> None:
    page = text(admin_client.get("/audit/"))
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


def test_evidence_needs_its_permission(client_of, execution_id) -> None:
    assert client_of().get("/audit/").status_code == 403
    assert "magpie" in text(client_of("audit.view_auditrecord").get("/audit/"))


def test_older_pages_follow_the_last_record(
    admin_client: Client, organization: Organization
) -> None:
    for at in range(51):
        by = Actor("agent", f"crow-{at:02}", organization.slug)
        record(Event.TOOL_END, by=by, outcome=Outcome.SUCCESS)
    page = text(admin_client.get("/audit/?code=TOOL.END"))
    older = page.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    assert "crow-00" not in page
    assert "crow-00" in text(admin_client.get(older))


# What is proved, and taken away.


@pytest.fixture
def proved(committed: None, organization: Organization):
    """A record that was sealed and signed."""
    (made,) = write(organization.slug)
    sealer.seal_logs(organization.slug)
    until(lambda: (found := record_access.seal_position(made)) and found.signed_at)
    return made


def test_a_record_leads_to_its_proof_where_every_step_holds(admin_client: Client, proved) -> None:
    assert f"/audit/records/{proved}/verify/" in text(admin_client.get(f"/audit/records/{proved}/"))
    page = text(admin_client.get(f"/audit/records/{proved}/verify/"))
    assert "proved" in notes(page) and 'data-holds="no"' not in page
    assert page.count('data-holds="yes"') >= 4


def test_what_is_taken_away_is_proved_by_the_program_that_is_taken_away(
    admin_client: Client, proved, tmp_path: Path
) -> None:
    page = text(admin_client.get(f"/audit/records/{proved}/verify/"))
    (command,) = re.findall(r"<pre[^>]*>python3 (.*?)</pre>", page)
    addresses = re.findall(r'href="([^"]+)" download="([^"]+)"', page)
    assert len(addresses) == 3
    for address, name in addresses:
        (tmp_path / name).write_bytes(admin_client.get(address).content)
    done = subprocess.run(
        [sys.executable, "-I", *unescape(command).split()],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "The record stands in the log" in done.stdout


def test_that_a_line_was_read_is_on_record(admin_client: Client, proved) -> None:
    admin_client.get(f"/audit/records/{proved}/line")
    read = AuditRecord.objects.filter(code=Event.AUDIT_READ, subject=f"record:{proved}")
    assert read.latest("id").details["line"] is True


def test_a_record_that_waits_for_its_seal_says_so(admin_client: Client, execution_id) -> None:
    found = AuditRecord.objects.get(execution_id=execution_id)
    page = text(admin_client.get(f"/audit/records/{found.pk}/verify/"))
    assert "no-proof-yet" in notes(page) and "data-holds" not in page


def test_checkpoints_are_listed_with_who_signed_them(
    admin_client: Client, proved, django_assert_max_num_queries
) -> None:
    with django_assert_max_num_queries(8):
        page = text(admin_client.get("/audit/checkpoints/"))
    assert "no-good-signature" not in notes(page)
    identifier = re.findall(r"/audit/checkpoints/([0-9]+)/growth", page)[0]
    grown = admin_client.get(f"/audit/checkpoints/{identifier}/growth")
    size = re.findall(r'filename="([0-9]+).growth-proof"', grown["Content-Disposition"])[0]
    assert grown.content.decode().startswith(f"{GROWTH}\nfrom {size}\n")
    note = admin_client.get(f"/audit/checkpoints/{identifier}/note").content.decode()
    keys = re.findall(r"growth-proof (.*?)</pre>", page)
    assert "nothing before was changed" in verifier.check_growth(note, grown.content, keys[0])


@pytest.mark.parametrize("what", ["growth", "note"])
@pytest.mark.parametrize("identifier", [0, 10**30])
def test_a_checkpoint_that_never_was_is_not_there(
    admin_client: Client, identifier: int, what: str
) -> None:
    assert admin_client.get(f"/audit/checkpoints/{identifier}/{what}").status_code == 404


def test_older_checkpoints_are_a_page_further(admin_client: Client, proved) -> None:
    assert "nothing-older" in notes(admin_client.get("/audit/checkpoints/?before=1"))
    assert admin_client.get("/audit/checkpoints/?before=x").status_code == 200


@pytest.mark.parametrize(("over", "there"), [("1h", True), ("24h", True), ("x", True), ("", True)])
def test_a_time_that_moves_narrows_the_search(
    admin_client: Client, execution_id, over: str, there: bool
) -> None:
    page = text(admin_client.get(f"/audit/?over={over}&code=TOOL.DENY"))
    assert ("magpie" in page.split("<ol")[-1]) is there


def test_what_is_older_than_a_time_that_moves_is_left_out(
    admin_client: Client, execution_id, monkeypatch
) -> None:
    monkeypatch.setitem(audit_records.RANGES, "1h", ("the last moment", timedelta(0)))
    assert "magpie" not in text(admin_client.get("/audit/?over=1h")).split("<ol")[-1]


def test_the_filters_that_are_set_can_be_taken_away_one_by_one(
    admin_client: Client, execution_id
) -> None:
    page = unescape(text(admin_client.get("/audit/?code=TOOL.DENY&over=24h&actor=magpie")))
    assert 'href="/audit/?actor=magpie&code=TOOL.DENY"' in page
    assert 'href="/audit/?actor=magpie&over=24h"' in page
    assert "view-address" in notes(page)


def test_facets_count_what_there_is_and_lead_to_it(
    admin_client: Client, organization: Organization, execution_id
) -> None:
    by = Actor("agent", "crow", organization.slug)
    record(Event.TOOL_END, by=by, outcome=Outcome.SUCCESS, subject="dull")
    page = text(admin_client.get("/audit/?code=TOOL."))
    facets = page.partition('class="facet-counts"')[2].partition("</details>")[0]
    assert ">TOOL.DENY <b>1</b>" in facets and ">crow <b>1</b>" in facets
    assert "tallies" not in text(admin_client.get("/audit/?q=magpie"))


def test_a_search_leads_to_an_export_of_what_it_finds(admin_client: Client, execution_id) -> None:
    page = unescape(text(admin_client.get("/audit/?code=TOOL.DENY&actor=magpie")))
    assert 'href="/audit/exports/?code=TOOL.DENY&actor=magpie"' in page
