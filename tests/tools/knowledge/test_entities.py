"""Entities: validation of their properties and relations."""

from uuid import uuid4

import pytest

from tools.knowledge import entities
from tools.knowledge.rdf_terms import BadTerm


@pytest.mark.parametrize("field", ["properties", "relations"])
@pytest.mark.parametrize("name", ["createdBy", entities.CREATED_BY.value, str(entities.CREATED_BY)])
def test_nobody_says_which_call_created_an_entity(field, name):
    given = {"type": "T", "name": "n", field: {name: ["urn:a:call"]}}
    with pytest.raises(BadTerm, match="createdBy"):
        entities.read(uuid4(), given)
