"""Copies are what the product makes, so that no test runs on anything else."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps

from tests import factories, organizations
from tests.parts import begin_of_last, part_of, speaks_of
from tools.accounts import account_actions
from tools.accounts.grants.grant_queries import direct_grants, holder_of_agent
from tools.catalog.registry import registry
from tools.models import Agent, Organization, Tool, ToolGroup, ToolVersion
from tools.models.tool import ToolWords

pytestmark = pytest.mark.django_db
OWN = {
    "id",
    "date_joined",
    "organization",
    "tool",
    "version",
    "parent",
    "service_account",
    "key_id",
    "signature",
}


def name() -> str:
    return f"org-{uuid4().hex[:12]}"


def comparable_fields(row: Any) -> dict[str, Any]:
    """Every field that names no other row, no moment and no key."""
    fields = {field.name: field.value_from_object(row) for field in row._meta.concrete_fields}
    return {
        field: value
        for field, value in fields.items()
        if field not in OWN and not field.endswith("_at")
    }


def contents(organization: Organization) -> dict[str, Any]:
    tools = Tool.objects.filter(organization=organization).order_by("pk")
    groups = ToolGroup.objects.filter(organization=organization).select_related("parent")
    versions = ToolVersion.objects.filter(tool__organization=organization)
    words = ToolWords.objects.filter(organization=organization).order_by("tool__name")
    return {
        "tools": [comparable_fields(row) for row in tools],
        "groups": {
            row.name: (comparable_fields(row), row.parent and row.parent.name) for row in groups
        },
        "versions": {row.definition["name"]: comparable_fields(row) for row in versions},
        "words": [comparable_fields(row) for row in words],
        "organization": comparable_fields(organization) | {"slug": "", "name": ""},
    }


def test_a_copied_organization_is_what_the_product_makes() -> None:
    made, copied = (
        organizations.create_organization_rows(name()),
        organizations.copied(name(), "Enterprise"),
    )
    assert contents(copied) == contents(made)


def test_a_copied_organizations_tools_are_signed_for_it() -> None:
    copied = organizations.copied(name(), "Enterprise")
    tools = registry.snapshot(copied.pk, copied.revision).tools.values()
    assert len(tools) == 14
    assert [tool.name for tool in tools if tool.flaw or not tool.enabled] == []


def test_a_copied_agent_is_what_the_product_makes() -> None:
    place = organizations.ready()
    agent: dict[str, Any] = {"groups": ["write"], "permissions": ["p"], "description": "d"}
    by = organizations.system_actor(place.slug)
    made = account_actions.create_agent(
        organization=place, slug="magpie", by=by, strict=True, **agent
    )
    copied = organizations.copied_agent(place, "jackdaw", strict=True, **agent)
    assert (described(copied), direct_grants(holder_of_agent(copied))) == (
        described(made), direct_grants(holder_of_agent(made))
    )  # fmt: skip


def described(agent: Agent) -> dict[str, Any]:
    account = comparable_fields(agent.service_account) | {"username": ""}
    return comparable_fields(agent) | {"slug": ""} | account


def test_the_shared_organization_is_as_new_for_each_test() -> None:
    place = organizations.ready()
    Tool.objects.filter(organization=place).update(status="disabled")
    organizations.restore()
    known = registry.snapshot(place.pk, place.revision)
    assert all(tool.enabled for tool in known.tools.values())


def test_an_organization_that_was_used_leaves_no_row_behind() -> None:
    """The database would grow with every test that commits, and questions about all organizations
    take longer and longer."""
    kept, used = (organizations.copied(name(), "Enterprise") for _ in range(2))
    for organization in (kept, used):
        factories.tool(organization)
        agent = factories.agent(organization)
        factories.token(agent.service_account)
        factories.execution(agent)
    before = contents(kept)
    assert rows_of(used)
    organizations.remove([used.pk])
    assert rows_of(used) == [] and not Organization.objects.filter(pk=used.pk).exists()
    assert contents(kept) == before and rows_of(kept)


def rows_of(organization: Organization) -> list[str]:
    """The tables in which something names it, by whatever way."""
    return [
        model.__name__
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if field.related_model is Organization
        and model._base_manager.filter(**{field.attname: organization.pk}).exists()
    ]


@pytest.mark.part("generated", but_each=2)
@pytest.mark.parametrize("case", [0, 1, 2, pytest.param(4, marks=pytest.mark.part("walks"))])
def test_each_second_case_is_in_no_part_unless_it_says_so_itself(
    request: pytest.FixtureRequest, case: int
) -> None:
    assert part_of(request.node) == {0: None, 1: "generated", 2: None, 4: "walks"}[case]


def test_a_part_imports_no_file_that_does_not_speak_of_it() -> None:
    here, other = Path(__file__), "frame" + "works"
    assert speaks_of("walks", here) and not speaks_of(other, here)


@pytest.mark.parametrize(
    ("tests", "processes", "begin"),
    [(10, 1, 10), (10, 2, 5), (11, 2, 5), (10, 3, 6), (3, 2, 1), (0, 2, 0)],
)
def test_the_share_of_the_last_process_begins_behind_those_of_the_others(
    tests: int, processes: int, begin: int
) -> None:
    assert begin_of_last(tests, processes) == begin
