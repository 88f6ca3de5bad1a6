"""Tool services as administrators write them, and tools that must fit them."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tools.catalog.actions import register_tool, restore_version, update_tool
from tools.catalog.services.services import (
    change_service,
    create_service,
    delete_service,
    find_service,
)
from tools.errors import Conflict, InvalidDefinition, NotFound
from tools.models import ToolGroup

pytestmark = pytest.mark.django_db
SERVICE = {
    "id": "rag", "request-queue": "tg/request/rag", "response-queue": "tg/response/rag",
    "config-params": [{"name": "collection", "required": True}, {"name": "limit"}],
}  # fmt: skip


def create_test_service(organization, **fields):
    return create_service(
        organization=organization, service=SERVICE | fields, by=factories.actor(organization)
    )


def definition(config=None, **fields):
    fields.setdefault(
        "implementation", {"service": "rag", "config": config or {"collection": "customers"}}
    )
    return factories.definition("query", type="tool-service", **fields)


def register(organization, **fields):
    return register_tool(
        organization=organization, definition=definition(**fields), by=factories.actor(organization)
    )


def test_a_service_is_written_and_recorded(organization):
    row = create_test_service(organization, **{"default-groups": ["knowledge"]})
    assert (row.name, row.request_queue, row.status) == ("rag", "tg/request/rag", "approved")
    assert ToolGroup.objects.filter(organization=organization, name="knowledge").exists()
    here = AuditRecord.objects.filter(organization=organization.slug)
    record = here.filter(code="REG.SOURCE_CHANGE").latest("pk")
    assert record.details["after"]["request_queue"] == "tg/request/rag"


def test_a_name_and_a_queue_are_one_services(organization):
    create_test_service(organization)
    with pytest.raises(Conflict) as caught:
        create_test_service(organization)
    assert caught.value.code == "service_exists"
    with pytest.raises(Conflict) as caught:
        create_test_service(organization, id="other")
    assert caught.value.code == "queue_taken"
    create_test_service(factories.organization("elsewhere-" + organization.slug[:20]))


@pytest.mark.parametrize(
    ("implementation", "field"),
    [
        ({"service": "ghost", "config": {}}, "implementation.service"),
        ({"service": "rag", "config": {}}, "implementation.config.collection"),
        (
            {"service": "rag", "config": {"collection": "c", "user": "root"}},
            "implementation.config.user",
        ),
    ],
)
def test_a_tool_that_does_not_fit_is_refused_when_it_is_written(
    organization, implementation, field
):
    create_test_service(organization)
    with pytest.raises(InvalidDefinition) as caught:
        register(organization, implementation=implementation)
    assert [one["field"] for one in caught.value.details["errors"]] == [field]
    tool = register(organization)
    with pytest.raises(InvalidDefinition):
        update_tool(
            tool=tool,
            definition=definition(implementation=implementation),
            by=factories.actor(organization),
        )


def test_a_service_of_another_organization_is_none(organization):
    other = factories.organization("elsewhere-" + organization.slug[:20])
    create_test_service(other)
    with pytest.raises(InvalidDefinition):
        register(organization)
    with pytest.raises(NotFound):
        find_service(organization, "rag")


def test_a_change_that_tools_do_not_fit_names_them(organization):
    row, by = create_test_service(organization), factories.actor(organization)
    tool = register(organization)
    for params in ([], [{"name": "collection"}, {"name": "other", "required": True}]):
        with pytest.raises(Conflict) as caught:
            change_service(row=row, changes={"config-params": params}, by=by)
        assert caught.value.details["dependants"] == ["query"]
    change_service(row=row, changes={"config_params": [{"name": "collection"}]}, by=by)
    with pytest.raises(InvalidDefinition):  # an earlier version that no longer fits is refused
        update_tool(tool=tool, definition=definition({"collection": "c", "limit": 3}), by=by)


def test_an_earlier_version_that_fits_no_more_is_not_restored(organization):
    row, by = create_test_service(organization), factories.actor(organization)
    tool = register(organization, config={"collection": "c", "limit": 3})
    first = tool.version.label
    tool = update_tool(tool=tool, definition=definition(), by=by)
    change_service(row=row, changes={"config_params": [{"name": "collection"}]}, by=by)
    with pytest.raises(InvalidDefinition):
        restore_version(tool=tool, label=first, by=by)


def test_a_change_leaves_what_it_does_not_name(organization):
    row, by = create_test_service(organization), factories.actor(organization)
    changed = change_service(row=row, changes={"default-groups": ["a"]}, by=by)
    assert (changed.request_queue, changed.default_groups) == ("tg/request/rag", ["a"])
    for wrong in ({"id": "other"}, {"nonsense": 1}, {"request-queue": ""}):
        with pytest.raises(InvalidDefinition):
            change_service(row=row, changes=wrong, by=by)


def test_a_service_with_tools_is_not_deleted(organization):
    row, by = create_test_service(organization), factories.actor(organization)
    register(organization)
    with pytest.raises(Conflict) as caught:
        delete_service(row=row, by=by)
    assert caught.value.details["dependants"] == ["query"]
    row = create_test_service(organization, id="free", **{"request-queue": "free"})
    delete_service(row=row, by=by)
    assert AuditRecord.objects.filter(code="REG.SOURCE_DELETE", subject="free").exists()
