"""The database and Python write a record's line byte for byte the same, and in canonical form."""

import hashlib
import json
import os
import random
from contextlib import suppress
from decimal import Decimal

import orjson
import pytest
import rfc8785
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st

from audit import canonical
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import leaves, merkle
from audit.models import AuditRecord

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.part("generated")
@settings(max_examples=500, deadline=None, database=None)
@given(JSON)
def test_the_quick_way_writes_what_the_standard_says(value):
    written = canonical.dumps(value)
    assert exact(json.loads(written, parse_float=Decimal)) == exact(value)
    with suppress(rfc8785.IntegerDomainError):
        assert written == rfc8785.dumps(value)


def exact(value):
    """With every number as the decimal that its digits say."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Decimal(str(value)) if number else value


@pytest.mark.parametrize(
    "number", [1917043659912705296, -(2**53) - 1, 2**63, 2**64 - 1, 2**64, 10**299 + 1]
)
def test_an_integer_that_no_double_has_is_written_with_its_digits(number):
    assert canonical.dumps({"é": [number, 0.5]}) == '{"é":[%d,0.5]}'.encode() % number
    assert canonical.commitment(number) != canonical.commitment(number + 1)


@pytest.mark.parametrize("number", [1e16, 1e21, 1e22, 1e23, 2.0**63, 2.0**64, 1.5e300, 2**60])
def test_a_number_is_written_alike_before_and_after_it_was_in_the_database(db, number):
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb", [json.dumps([number])])
        (found,) = cursor.fetchone()
    found = json.loads(found) if isinstance(found, str) else found
    assert canonical.dumps(found) == canonical.dumps([number])


def line_in_database(record_id):
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {leaves.body_sql('r')}, {leaves.moment_sql('r')}, r.mac "
            "FROM audit_auditrecord r WHERE id = %s",
            [record_id],
        )
        body, moment, mac = cursor.fetchone()
    return body.encode(), moment, bytes(mac)


TEXTS = ['quote " and \\', "tab\tline\nbell\x07\x1f", "naïve ☕ 𝄞", "\u2028\u00ad", "</script>", ""]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("execution", [None, "01a20276-dedb-7468-8896-38eb9a1ac85b"])
def test_the_database_writes_the_body_that_the_mac_was_made_over(db, text, execution):
    by = Actor("person", f"p{text}", "somewhere", id=text[:40], source_ip="::1")
    details = {"text": text, "n": [1, 1.5, 1e22, -0.0, None, True], text or "k": {}}
    made = record(
        Event.LOGIN, by=by, outcome=Outcome.SUCCESS, subject=text, execution_id=execution,
        details=details,
    )  # fmt: skip
    body, moment, mac = line_in_database(made)
    assert body == rfc8785.dumps(json.loads(body))
    assert mac == leaves.record_mac("somewhere", body)
    line = leaves.leaf_line(body, mac, moment)
    assert line == rfc8785.dumps(orjson.loads(line))
    assert AuditRecord.objects.get(pk=made).occurred_at.isoformat()[:19] == moment[:19]


def naive_root(hashes):
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    split = 1 << (len(hashes) - 1).bit_length() - 1
    return merkle.node_hash(naive_root(hashes[:split]), naive_root(hashes[split:]))


SIZES = [*range(34), 100]


@pytest.fixture(scope="module")
def hashes():
    return [merkle.leaf_hash(os.urandom(8)) for _ in range(max(SIZES))]


@pytest.mark.parametrize("size", SIZES)
def test_a_tree_that_grew_has_the_root_of_one_that_was_built(hashes, size):
    frontier: list[bytes] = []
    grown = 0
    while grown < size:
        step = random.Random(size + grown).randint(1, size - grown)
        grown = merkle.extend(frontier, grown, hashes[grown : grown + step])
    assert merkle.frontier_root(frontier) == naive_root(hashes[:size])
    assert len(frontier) == size.bit_count()


@pytest.mark.parametrize("size", [size for size in SIZES if size])
def test_every_leaf_is_proved_and_no_other(hashes, size):
    root = naive_root(hashes[:size])

    def subtree(first, end):
        return naive_root(hashes[first:end])

    for index in range(size):
        proof = merkle.inclusion_proof(index, size, subtree)
        assert merkle.root_from_inclusion(index, size, hashes[index], proof) == root
        other = merkle.leaf_hash(b"other")
        assert merkle.root_from_inclusion(index, size, other, proof) != root


@pytest.mark.parametrize("new", [size for size in SIZES if size])
def test_every_older_tree_is_the_beginning_of_a_newer(hashes, new):
    def subtree(first, end):
        return naive_root(hashes[first:end])

    for old in range(1, new + 1):
        proof = merkle.consistency_proof(old, new, subtree)
        before, after = naive_root(hashes[:old]), naive_root(hashes[:new])
        assert merkle.is_consistent(old, new, before, after, proof)
        assert not merkle.is_consistent(old, new, merkle.EMPTY, after, proof)
        if old < new:
            assert not merkle.is_consistent(old, new, before, merkle.EMPTY, proof)
