"""What a column of JSON gives back, and which constraints Django sees."""

import json
from decimal import Decimal

import pytest
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from config.postgresql.base import encode_json
from tests import factories
from tools.models import Organization

FLOATS = [1e16, 1e17, 1e22, -1e22, 1.5e300, 1.7976931348623157e308, 123456789012345680.0, 0.1, 1e-7,
          5e-324, 2.0]  # fmt: skip
WHOLE = [0, 7, -(2**53), 2**53]
TEXTS = ["1e+22", '"1e+22"', "a\\", '\\"1e+22', "é 1e+22"]
VALUE = {"floats": FLOATS, "whole": WHOLE, "texts": TEXTS, "1e+22": {"1e+23": [1e23, None, True]}}


def canonical_json(value):
    """With the kinds of its numbers."""
    return json.dumps(value, sort_keys=True)


def test_large_floats_are_written_with_a_point():
    assert encode_json([1e22, -1.5e16, 1e16, 3]) == (
        "[10000000000000000000000.0, -15000000000000000.0, 10000000000000000.0, 3]"
    )
    assert canonical_json(json.loads(encode_json(VALUE))) == canonical_json(VALUE)


@given(st.recursive(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
))  # fmt: skip
def test_every_value_is_read_back_as_it_was(value):
    assert canonical_json(json.loads(encode_json(value))) == canonical_json(value)


def test_an_encoder_is_asked_as_before():
    assert encode_json({"a": Decimal("1.5"), "b": 1e22}, DjangoJSONEncoder) == (
        '{"a": "1.5", "b": 10000000000000000000000.0}'
    )


@pytest.mark.django_db
def test_floats_stay_floats_in_a_column():
    organization = factories.organization("floats")
    Organization.objects.filter(pk=organization.pk).update(allowed_hosts=VALUE)
    assert canonical_json(
        Organization.objects.get(pk=organization.pk).allowed_hosts
    ) == canonical_json(VALUE)
    found = Organization.objects.filter(pk=organization.pk, allowed_hosts__contains={"whole": [7]})
    assert found.exists()
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb", [connection.ops.adapt_json_value(1e22, None)])
        assert canonical_json(json.loads(cursor.fetchone()[0])) == "1e+22"


@pytest.mark.django_db
def test_a_foreign_key_to_a_partitioned_table_is_one_constraint():
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, "tools_executionevent")
    keys = [one["foreign_key"] for one in found.values() if one["columns"] == ["execution_id"]]
    assert [key for key in keys if key] == [("tools_execution", "id")]
