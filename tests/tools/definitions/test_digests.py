"""The digest of a definition exists for every value that a definition may contain."""

import pytest

from tests import factories
from tools.catalog.registry import registry
from tools.definitions.tool import definition_digest, read_definition
from tools.models import ToolVersion

NUMBERS = [2**53, -(2**53), 2**53 - 1, -0.0, 5e-324, 1e21, 1e22, 1e300]


def with_number(number):
    definition = factories.definition("numbers")
    definition.pop("parameters")
    return definition | {"input_schema": {"type": "object", "properties": {"a": {"const": number}}}}


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.django_db
@pytest.mark.parametrize("number", NUMBERS)
def test_a_definition_with_any_number_is_the_same_when_it_is_read_again(
    admin_api, organization, number
):
    answer = admin_api.post("/tools", with_number(number))
    assert answer.status_code == 201, answer.json()
    version = ToolVersion.objects.get(tool__organization=organization, tool__name="numbers")
    assert definition_digest(version.definition) == version.digest
    assert definition_digest(read_definition(with_number(number))) == version.digest


@pytest.mark.django_db
@pytest.mark.parametrize("number", [1e22, -1.5e300, 1e16, 0.1, 2.0, 5e-324], ids=str)
def test_a_default_of_a_signed_definition_stays_a_float(organization, number):
    """After it is stored, read again and verified, it is the number that its author wrote."""
    parameter = {"name": "a", "type": "Number", "description": "How much.", "default": number}
    tool = factories.tool(organization, "numbers", parameters=[parameter])
    registry.forget()
    organization.refresh_from_db()
    read = registry.snapshot(organization.pk, organization.revision).tools["numbers"]
    default = read.definition.defaults["a"]
    assert (read.flaw, repr(default)) == ("", repr(number))
    assert definition_digest(read.definition.raw) == read.digest == tool.version.digest
