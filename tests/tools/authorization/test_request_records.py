"""Request records: the tools that each request found, and those that were filtered (specification
S1, 8.2)."""

import json
import logging
import re
from datetime import timedelta

import pytest
from django.utils import timezone

from tests import factories
from tools import metrics
from tools.authorization import request_records
from tools.execution.perform import perform
from tools.models import CatalogNames, RequestRecord, ToolFilter


@pytest.fixture
def tools(organization):
    """One tool for each of the lists, and one that is filtered by group and by state."""
    factories.tool(organization, "here", group=["a"], state="next")
    factories.tool(organization, "elsewhere", group=["b"])
    factories.tool(organization, "later", group=["a"], available_in_states=["next"])
    factories.tool(organization, "both", group=["b"], available_in_states=["next"])


@pytest.fixture
def caller(organization):
    return factories.agent(organization, groups=["a", "b"])


def only(found):
    (row,) = found
    return row


def test_a_listing_leaves_a_row_with_its_three_lists(tools, caller):
    factories.api(caller).get("/tools?group=a")
    row = only(RequestRecord.objects.filter(user_id=caller.service_account_id))
    assert (row.kind, row.requested_groups, row.initial_state) == ("list", ["a"], "undefined")
    names = ("available_tools", "filtered_by_group", "filtered_by_state")
    ours = {"here", "elsewhere", "later", "both"}
    lists = [sorted(ours & set(getattr(row.tool_filter, name))) for name in names]
    assert lists == [["here"], ["both", "elsewhere"], ["later"]]


def test_a_tool_that_fails_both_tests_stands_in_the_first_list_only(tools, caller):
    factories.api(caller).get("/tools?group=a")
    row = only(RequestRecord.objects.filter(user_id=caller.service_account_id))
    assert "both" not in row.tool_filter.filtered_by_state


def test_a_call_leaves_one_too_and_a_refused_call_as_well(tools, caller):
    api = factories.api(caller)
    api.execute("here", {"text": "x"}, group=["a"], options={"wait_s": 0})
    api.execute("later", {"text": "x"}, group=["a"])
    rows = RequestRecord.objects.filter(user_id=caller.service_account_id)
    assert [row.kind for row in rows] == ["execute", "execute"]
    assert all(row.execution_id for row in rows)


def test_the_lists_are_stored_once_however_many_ask(tools, caller):
    api = factories.api(caller)
    for _ in range(3):
        api.get("/tools?group=a")
    rows = RequestRecord.objects.filter(user_id=caller.service_account_id)
    digest = only({row.tool_filter_id for row in rows})
    assert ToolFilter.objects.filter(digest=digest).count() == 1


@pytest.mark.parametrize(
    ("since", "until", "count"),
    [
        ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", 1),
        ("2020-01-01T00:00:00Z", "2020-02-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z", 0),
    ],
)
def test_a_period_has_its_requests_alone(tools, caller, since, until, count):
    api = factories.api(caller)
    api.get("/tools?group=a")
    assert len(api.get(f"/requests?since={since}&until={until}").json()["results"]) == count


def test_months_outside_of_the_period_are_not_read(tools, caller):
    since = timezone.now() + timedelta(days=400)
    found = request_records.readable(factories.caller(caller), since=since)
    assert {*re.findall(r"tools_requestrecord_\w+", found.explain())} == {
        "tools_requestrecord_default"
    }


def test_the_line_has_every_field_of_the_specification(tools, caller, caplog):
    with caplog.at_level(logging.INFO, "tools.requests"):
        factories.api(caller).get("/tools?group=a")
    line = only([entry for entry in caplog.records if entry.name == "tools.requests"])
    assert line.requested_groups == ["a"] and line.initial_state == "undefined"
    assert "here" in line.available_tools and "elsewhere" in line.filtered_by_group
    assert line.filtered_by_state == ("later",) and line.state_transitions == []
    assert line.execution_time.endswith("s")


@pytest.mark.usefixtures("committed")
def test_a_call_that_moved_the_state_tells_the_transition(organization, tools, caller, caplog):
    execution = factories.execution(caller, "here", group=["a"], text="x")
    with caplog.at_level(logging.INFO, "tools.requests"):
        perform(execution.pk)
    line = only([entry for entry in caplog.records if entry.name == "tools.requests"])
    step = only(line.state_transitions)
    assert (step["tool"], step["from"], step["to"]) == ("here", "undefined", "next")
    answer = factories.api(caller).get("/requests").json()["results"]
    assert only(answer)["state_transitions"][0]["to"] == "next"
    assert only(answer)["execution_time"].endswith("s")


def test_a_call_that_ends_at_the_claim_has_its_line_too(tools, caller, caplog):
    execution = factories.execution(caller, "here", group=["a"], text="x")
    type(caller).objects.filter(pk=caller.pk).update(active=False)
    with caplog.at_level(logging.INFO, "tools.requests"):
        perform(execution.pk)
    execution.refresh_from_db()
    assert execution.status == "PermissionDenied"
    line = only([entry for entry in caplog.records if entry.name == "tools.requests"])
    assert line.requested_groups == ["a"]


def test_a_line_holds_no_parameters(tools, caller, caplog):
    with caplog.at_level(logging.INFO, "tools.requests"):
        factories.api(caller).execute("later", {"text": "a secret"}, group=["a"])
    assert "a secret" not in json.dumps([vars(entry) for entry in caplog.records], default=str)


def test_an_agent_reads_its_own_rows_and_no_others(organization, tools, caller):
    factories.api(caller).get("/tools?group=a")
    other = factories.api(factories.agent(organization))
    assert other.get("/requests").json()["results"] == []
    shown = only(factories.api(caller).get("/requests").json()["results"])
    assert shown["caller"] == f"agent:{caller.slug}"


def test_people_search_by_agent_group_and_state(tools, caller, admin_api):
    factories.api(caller).get("/tools?group=a&state=next")
    for query in (f"agent={caller.slug}", "group=a", "state=next", "kind=list"):
        assert len(admin_api.get(f"/requests?{query}").json()["results"]) == 1
    for query in ("agent=nobody", "group=b", "state=undefined", "kind=agent"):
        assert admin_api.get(f"/requests?{query}").json()["results"] == []


@pytest.mark.parametrize(("query", "kind"), [("group=ghost", "group"), ("state=ghost", "state")])
def test_a_name_that_nothing_has_is_counted_without_being_named(organization, query, kind):
    api = factories.api(factories.agent(organization, groups=["*"]))
    counter = metrics.unknown_names.labels(kind)
    before = counter._value.get()
    api.get(f"/tools?{query}")
    assert counter._value.get() == before + 1


def test_lists_that_were_removed_are_stored_again_by_a_process_that_knew_them(
    tools, caller, monkeypatch, django_capture_on_commit_callbacks
):
    monkeypatch.setattr(request_records, "_stored_at", {})
    api = factories.api(caller)
    with django_capture_on_commit_callbacks(execute=True):
        api.get("/tools?group=a")
    row = only(RequestRecord.objects.filter(user_id=caller.service_account_id))
    lists, digest = row.tool_filter, row.tool_filter_id
    row.delete(), lists.delete(), lists.catalog.delete()
    monkeypatch.setattr(request_records, "KNOWN_FOR_S", 0)  # the cached digest has expired
    api.get("/tools?group=a")
    again = only(RequestRecord.objects.filter(user_id=caller.service_account_id))
    assert again.tool_filter_id == digest


def test_lists_that_are_stored_again_are_as_young_as_new_ones(tools, caller, monkeypatch):
    monkeypatch.setattr(request_records, "KNOWN_FOR_S", 0)
    api = factories.api(caller)
    api.get("/tools?group=a")
    lists = only(RequestRecord.objects.filter(user_id=caller.service_account_id)).tool_filter
    old = timezone.now() - timedelta(days=1000)
    for model in (ToolFilter, CatalogNames):
        model.objects.filter(digest__in=[lists.digest, lists.catalog_id]).update(created_at=old)
    api.get("/tools?group=a")
    lists.refresh_from_db()
    lists.catalog.refresh_from_db()
    assert old < lists.created_at and old < lists.catalog.created_at
