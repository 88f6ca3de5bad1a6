"""GET /audit/records: for people who were granted it, in the organization where they act."""

from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from audit.records import record_search
from tests import factories


def codes(response):
    assert response.status_code == 200, response.content
    return {record["code"] for record in response.json()["results"]}


def test_a_superuser_reads_the_records_of_the_organization(admin_api, agent):
    factories.agent(agent.organization, tools=["read_file"])
    found = admin_api.get("/audit/records?page_size=200").json()["results"]
    assert {record["organization"] for record in found} == {agent.organization.slug}
    assert {"ADMIN.AGENT_CREATE", "REG.TOOL_CREATE"} <= {record["code"] for record in found}


def test_searches_narrow_the_records(admin_api, agent, api):
    api.get("/tools?group=admin")
    slug = agent.slug
    assert codes(admin_api.get("/audit/records?code=LIST.DENY")) == {"LIST.DENY"}
    assert codes(admin_api.get("/audit/records?code=LIST.")) == {"LIST.DENY"}
    assert codes(admin_api.get(f"/audit/records?agent={slug}")) == {"LIST.DENY"}
    assert codes(admin_api.get("/audit/records?outcome=denied")) == {"LIST.DENY"}
    assert codes(admin_api.get("/audit/records?q=granted_groups+admin")) == {"LIST.DENY"}
    assert codes(admin_api.get("/audit/records?tool=read_file")) == {"REG.TOOL_CREATE"}
    assert codes(admin_api.get("/audit/records?since=2999-01-01T00:00:00Z")) == set()


FITS = (
    "reason=group_not_granted", "code=LIST.", "q=not+granted", "until=2999-01-01T00:00:00Z",
    "q=ADMIN&outcome=denied", "q=group_not_granted", "since=2020-01-01T01:00:00%2B01:00",
)  # fmt: skip
FITS_NOT = (
    "reason=group", "q=nosuchword", "until=2020-01-01T00:00:00Z", "q=granter", "tool=x%25",
    "q=granted+nosuchword", "code=LIST.%25", "code=L%25.", "request=x",
)  # fmt: skip


@pytest.mark.parametrize(
    ("query", "found"), [*((one, True) for one in FITS), *((one, False) for one in FITS_NOT)]
)
def test_filters_find_the_refusal_where_it_fits(admin_api, agent, api, query, found):
    api.get("/tools?group=admin")
    seen = codes(admin_api.get(f"/audit/records?{query}"))
    assert ("LIST.DENY" in seen) if found else seen == set()


def test_a_request_is_found_with_all_its_records(admin_api, agent, api):
    name = api.get("/tools?group=admin").headers["X-Request-Id"]
    assert codes(admin_api.get(f"/audit/records?request={name}")) == {"LIST.DENY"}


WRONG = ["since=yesterday", "since=2026-01-01", "since=2026-99-99T00:00:00Z", "execution=x",
         "agent=%00", "cursor=x", "page_size=x", "q=---", "q=" + "x+" * 50, "request=" + "x" * 201,
         "until=x", "cursor=ZG93biB4IHk=", "since=0001-01-01T00:00:00%2B23:00"]  # fmt: skip


@pytest.mark.parametrize("query", WRONG)
def test_a_wrong_search_is_400(admin_api, query):
    assert admin_api.get(f"/audit/records?{query}").status_code == 400


def test_records_come_in_pages_the_newest_first(admin_api, agent):
    first = admin_api.get("/audit/records?page_size=3").json()
    second = admin_api.get(first["next"].partition("/api/v1")[2]).json()
    ids = [record["id"] for page in (first, second) for record in page["results"]]
    assert len(ids) == 6 and ids == sorted(ids, reverse=True)


def test_one_record_is_read_by_its_id_and_only_at_home(admin_api, agent):
    ours = AuditRecord.objects.filter(organization=agent.organization.slug).latest("id")
    factories.organization("elsewhere")
    theirs = AuditRecord.objects.filter(organization="elsewhere").latest("id")
    assert admin_api.get(f"/audit/records/{ours.pk}").json()["id"] == str(ours.pk)
    assert admin_api.get(f"/audit/records/{theirs.pk}").status_code == 404


def test_a_page_leads_back_to_the_newer_one(admin_api, agent):
    def follow(address):
        return admin_api.get(address.partition("/api/v1")[2]).json()

    first = admin_api.get("/audit/records?page_size=3").json()
    again = follow(follow(first["next"])["previous"])
    assert [one["id"] for one in again["results"]] == [one["id"] for one in first["results"]]
    assert first["previous"] is None


# --- both ways to find: among the newest, and by the inverted index ------------------------------


BY = Actor("agent", "magpie", "here", request_id="r-1")


@pytest.fixture
def by_index_alone(monkeypatch):
    """As if more was written since than is looked through."""
    monkeypatch.setattr(record_search, "MOST_SCANNED", 0)


def record_denial(**fields):
    return record(Event.TOOL_DENY, by=BY, outcome=Outcome.DENIED, **fields)


def search_ids(**fields):
    return {
        row.pk
        for row in record_search.search_page(record_search.RecordSearch("here", **fields), 50)
    }


TEXTS = {
    "naïve café": ["naïve café", "café"],
    "line\nbreak": ["break", "line"],
    "C:\\new\\path": ["new", "path"],
    "x" * 300: ["x" * 300],
    "日本語のテキスト" * 30: ["日本語のテキスト" * 30],
    'quo"ted <b>': ["quo", "ted b"],
    "a-b_c/d.e": ["a-b_c", "e d c"],
    "Ünïcode ẞ": ["Ünïcode"],
}


@pytest.mark.parametrize(("text", "queries"), TEXTS.items(), ids=ascii)
@pytest.mark.parametrize("way", ["near", "far"])
def test_a_word_is_found_whatever_stands_in_it(db, request, text, queries, way):
    if way == "far":
        request.getfixturevalue("by_index_alone")
    right = record_denial(details={"note": text})
    record_denial(details={"note": "other"})
    for words in queries:
        assert search_ids(text=words) == {right}, words


@pytest.mark.parametrize(
    "fields",
    [{"code": "TOOL.DENY"}, {"code": "TOOL."}, {"outcome": "denied"},
     {"request": "r-1"}, {"reason": "why"}, {"tool": "shiny", "code": "TOOL."},
     {"text": "shiny why"},
     {"code": "TOOL.", "actor": "magpie", "text": "magpie"}],
    ids=str,
)  # fmt: skip
def test_the_inverted_index_holds_every_filter(db, by_index_alone, fields):
    right = record_denial(subject="shiny", reason="why")
    record(Event.LOGIN, by=Actor("person", "p", "here"), outcome=Outcome.SUCCESS)
    record(Event.TOOL_DENY, by=Actor("agent", "magpie", "there"), outcome=Outcome.DENIED)
    assert search_ids(**fields) == {right}


@pytest.mark.parametrize("way", ["near", "far"])
def test_words_of_what_went_in_are_found_by_who_may_see_it(db, request, way):
    if way == "far":
        request.getfixturevalue("by_index_alone")
    right = record_denial(payload={"parameters": {"to": "Anna, in Prague"}})
    record_denial(payload={"parameters": {"to": "Anna"}})
    assert search_ids(text="prague anna", opened=True) == {right}
    assert search_ids(text="prague anna") == set()
    assert search_ids(text="prague nobody", opened=True) == set()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.integers(1, 7))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_pages_hold_every_record_once_in_the_order_of_time(db, picks, size):
    by = Actor("agent", "crow", f"o{uuid4().hex[:8]}")
    for pick in picks:
        record([*Event][pick], by=by, outcome=Outcome.SUCCESS)
    wanted, seen, place = record_search.RecordSearch(by.organization, text="crow"), [], None
    while page := record_search.search_page(wanted, size, place):
        seen += page
        place = record_search.Position.from_record(page[-1])
    assert [row.code for row in seen] == [[*Event][pick] for pick in reversed(picks)]


def test_a_word_without_an_end_can_be_written_and_found(db):
    """An entry of the index is bounded: a long word stops no evidence."""
    for unit in ("y", "ы", "𝄞", "語"):
        right = record_denial(subject="s", reason="r", details={"note": unit * 1_990})
        assert right in search_ids(text="s")


def test_a_tool_of_another_place_is_not_found_by_its_terms(db):
    record(Event.LOGIN, by=Actor("p", "in:here", "there", request_id="in:here"),
           outcome=Outcome.SUCCESS, details={"in": "here", "x": "in:here"})  # fmt: skip
    assert search_ids() == set()
    assert search_ids(text="here") == set()
