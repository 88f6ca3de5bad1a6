"""GET /usage: calls and cost by agent, tool, group and day."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests import factories
from tests.api import Api
from tests.tools.shapes import check_error
from tools.errors import InvalidCall
from tools.models import Execution, Organization

FIGURES = ("calls", "failures", "denials", "cached", "cost")


NEVER_RAN = {"Pending", "Cancelled", "PermissionDenied"}


@pytest.fixture
def echo(organization):
    return factories.tool(organization, group=["default", "read-only"])


def completed_execution(agent, name="echo", **fields):
    """A completed execution with these fields."""
    execution = factories.execution(agent, name)
    fields = {"status": "Success", "completed_at": timezone.now(), "cost": Decimal(1)} | fields
    if fields["status"] in NEVER_RAN and "started_at" not in fields:
        Execution.objects.filter(pk=execution.pk).update(**fields)
    else:
        factories.end_execution(execution, **fields)
    return execution


def rows(api, query=""):
    response = api.get(f"/usage{query}")
    assert response.status_code == 200, response.content
    return response.json()["results"]


@pytest.mark.usefixtures("echo")
def test_every_kind_of_end_is_counted_once_and_paid_for_or_not(admin_api, agent):
    (
        completed_execution(agent),
        completed_execution(agent, cached=True, cached_from=uuid4(), cost=Decimal("0.25")),
    )
    (
        completed_execution(agent, status="Failed"),
        completed_execution(agent, status="Timeout"),
        completed_execution(agent, status="SandboxError"),
    )
    (
        completed_execution(agent, status="Cancelled"),
        completed_execution(agent, status="Cancelled", started_at=timezone.now()),
    )
    completed_execution(agent, status="PermissionDenied")
    with pytest.raises(InvalidCall):
        factories.execution(agent, txet="x")
    completed_execution(agent, status="Pending", completed_at=None)
    (row,) = rows(admin_api)
    assert [row[name] for name in FIGURES] == [10, 3, 2, 1, "5.25"]


@pytest.mark.usefixtures("echo")
def test_by_says_what_each_row_is_for(admin_api, agent, organization):
    factories.tool(organization, "other")
    other = factories.agent(organization)
    (
        completed_execution(agent),
        completed_execution(agent),
        completed_execution(other),
        completed_execution(other, "other"),
    )
    found = {(row["agent"], row["tool"]): row["calls"] for row in rows(admin_api, "?by=tool,agent")}
    assert found == {(agent.slug, "echo"): 2, (other.slug, "echo"): 1, (other.slug, "other"): 1}
    assert {row["tool"]: row["calls"] for row in rows(admin_api, "?by=tool")} == {
        "echo": 3,
        "other": 1,
    }


@pytest.mark.usefixtures("echo")
def test_a_call_counts_in_each_group_of_its_tool(admin_api, agent, organization):
    factories.tool(organization, "alone", group=[])
    completed_execution(agent)
    completed_execution(factories.agent(organization, "every", groups=["*"]), "echo")
    caller = factories.agent(organization, "all", groups=["*"])
    execution = factories.execution(caller, "alone", group=["*"])
    Execution.objects.filter(pk=execution.pk).update(cost=Decimal(3))
    found = {row["group"]: (row["calls"], row["cost"]) for row in rows(admin_api, "?by=group")}
    assert found == {"default": (2, "2"), "read-only": (2, "2"), None: (1, "0")}
    only = rows(admin_api, "?by=group,agent&group=default")
    assert {(row["group"], row["agent"]) for row in only} == {
        ("default", agent.slug),
        ("default", "every"),
    }


@pytest.mark.usefixtures("echo")
def test_an_agent_sees_its_own_and_its_groups(api, agent, organization):
    completed_execution(agent), completed_execution(factories.agent(organization))
    factories.tool(organization, "both", group=["default", "secret"])
    completed_execution(agent, "both")
    assert {row["tool"]: row["calls"] for row in rows(api, "?by=tool")} == {"both": 1, "echo": 1}
    assert {row["group"] for row in rows(api, "?by=group")} == {"default", "read-only"}
    assert rows(api, "?group=secret") == []
    assert [row["agent"] for row in rows(api, "?by=agent")] == [agent.slug]


@pytest.mark.usefixtures("echo")
def test_people_see_the_organization_only_where_they_may(agent, organization):
    completed_execution(agent)
    person = factories.person(organization)
    api = Api(factories.token(person, scopes=["read"]))
    assert rows(api) == []
    factories.permit(person, "view_execution")
    assert [row["calls"] for row in rows(api)] == [1]


@pytest.mark.usefixtures("echo")
def test_other_organizations_are_not_counted(admin_api, agent):
    there = factories.organization("usage-elsewhere")
    factories.tool(there)
    completed_execution(factories.agent(there, agent.slug))
    completed_execution(agent)
    assert [row["calls"] for row in rows(admin_api, "?by=agent")] == [1]
    assert [row["calls"] for row in rows(admin_api, f"?agent={agent.slug}")] == [1]


@pytest.mark.usefixtures("echo")
def test_days_are_the_organizations(admin_api, agent, organization):
    Organization.objects.filter(pk=organization.pk).update(time_zone="Europe/Berlin", revision=999)
    for at in ("2026-03-28T22:59", "2026-03-28T23:00", "2026-03-29T21:59", "2026-03-29T22:00"):
        completed_execution(agent, created_at=datetime.fromisoformat(at).replace(tzinfo=UTC))
    found = rows(admin_api, "?since=2026-03-28&until=2026-03-30")
    assert {row["day"]: row["calls"] for row in found} == {
        "2026-03-28": 1, "2026-03-29": 2, "2026-03-30": 1,
    }  # fmt: skip
    assert [row["calls"] for row in rows(admin_api, "?since=2026-03-29&until=2026-03-29")] == [2]


@pytest.mark.usefixtures("echo")
def test_without_a_range_it_is_the_last_thirty_days(admin_api, agent):
    for days in (29, 31):
        completed_execution(agent, created_at=timezone.now() - timedelta(days=days))
    answer = admin_api.get("/usage").json()
    assert [row["calls"] for row in answer["results"]] == [1]
    assert (answer["by"], answer["time_zone"], answer["truncated"]) == (["day"], "UTC", False)


def test_it_is_one_statement_whatever_is_asked_for(admin_api, agent, echo):
    completed_execution(agent)
    with CaptureQueriesContext(connection) as captured:
        rows(admin_api, "?by=agent,tool,group,day&group=default&tool=echo")
    asked = [query["sql"] for query in captured if 'FROM "tools_execution"' in query["sql"]]
    assert len(asked) == 1


WRONG = [
    "?by=", "?by=hour", "?by=day,", "?since=x", "?until=2026-13-01", "?since=2026-02-30",
    "?since=2026-01-02&until=2026-01-01", "?since=2025-01-01&until=2026-03-01", "?until=9999-12-31",
    "?until=0001-01-01", "?since=", "?agent=%00", "?since=0001-01-01",
]  # fmt: skip


def test_a_wrong_question_is_400(admin_api, subtests):
    for query in WRONG:
        with subtests.test(query=query):
            check_error(admin_api.get(f"/usage{query}"), 400)


def test_who_is_not_there_used_nothing(admin_api):
    for query in ("?agent=ghost", "?tool=ghost", "?group=ghost", "?group=&tool=é"):
        assert rows(admin_api, query) == []
