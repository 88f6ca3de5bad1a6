"""Egress credentials are write-only: their values appear in the egress broker's rules alone."""

import json

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.tools.snapshots import current_catalog
from tools.catalog.sandbox import credentials
from tools.catalog.signatures import sealed_texts
from tools.errors import Conflict, Malformed
from tools.models import EgressCredential

SECRET = "Bearer c4nary-0123456789"


def credential(**fields):
    return {"name": "key", "header": "Authorization", "value": SECRET, **fields}


def create_credential(organization, **fields):
    return credentials.create_credential(
        organization=organization, credential=credential(**fields), by=factories.actor(organization)
    )


def test_a_value_is_not_stored_as_it_was_given(organization):
    row = create_credential(organization)
    assert b"c4nary" not in bytes(EgressCredential.objects.get(pk=row.pk).sealed)
    assert create_credential(organization, name="same").sealed != row.sealed


def test_a_worker_reads_it_from_the_catalog_without_a_query(
    organization, django_assert_num_queries
):
    create_credential(organization)
    catalog = current_catalog(organization)
    with django_assert_num_queries(0):
        assert catalog.credentials["key"].opened() == ("Authorization", SECRET)


def test_it_stands_in_no_text_about_it(organization):
    row = create_credential(organization)
    catalog = current_catalog(organization)
    shown = [row, vars(row), catalog, catalog.credentials, catalog.credentials["key"]]
    assert "c4nary" not in repr(shown)
    assert "sealed" not in repr(catalog.credentials)


def test_what_was_sealed_for_one_row_opens_in_no_other(organization):
    row, other = create_credential(organization), create_credential(organization, name="other")
    elsewhere = factories.organization("credentials-elsewhere")
    for place, key in ((organization.pk, other.pk), (elsewhere.pk, row.pk)):
        with pytest.raises(sealed_texts.UnreadableSealedText):
            sealed_texts.unseal(bytes(row.sealed), organization=place, row=key)


@pytest.mark.parametrize("change", [slice(0, 20), slice(0, 5), slice(1, None), slice(0, 0)])
def test_a_value_that_was_cut_is_not_read(organization, change):
    row = create_credential(organization)
    with pytest.raises(sealed_texts.UnreadableSealedText):
        sealed_texts.unseal(bytes(row.sealed)[change], organization=organization.pk, row=row.pk)


def test_under_another_secret_key_it_is_not_read(organization, settings):
    row = create_credential(organization)
    settings.SECRET_KEY = "another"
    with pytest.raises(sealed_texts.UnreadableSealedText):
        sealed_texts.unseal(bytes(row.sealed), organization=organization.pk, row=row.pk)


WRONG = [
    ({"name": "a/b"}, "name"),
    ({"name": ""}, "name"),
    ({"header": ""}, "header"),
    ({"header": "X Key"}, "header"),
    ({"header": "X-Key:"}, "header"),
    ({"header": "X-Key\r\nHost"}, "header"),
    ({"header": "Host"}, "header"),
    ({"header": "content-length"}, "header"),
    ({"header": "Transfer-Encoding"}, "header"),
    ({"header": "Connection"}, "header"),
    ({"value": ""}, "value"),
    ({"value": None}, "value"),
    ({"value": 5}, "value"),
    ({"value": "c4nary\r\nHost: evil"}, "value"),
    ({"value": "c4nary\x00"}, "value"),
    ({"value": " c4nary"}, "value"),
    ({"value": "c4näry"}, "value"),
    ({"value": "c4nary" * 2_000}, "value"),
    ({"secret": "x"}, "secret"),
]


@pytest.mark.parametrize(("fields", "place"), WRONG, ids=lambda part: repr(part)[:50])
def test_a_wrong_credential_is_refused_without_its_value(organization, fields, place):
    with pytest.raises(Malformed) as caught:
        create_credential(organization, **fields)
    assert [flaw["field"] for flaw in caught.value.details["errors"]] == [place]
    assert "c4n" not in json.dumps([caught.value.message, caught.value.details])
    assert not EgressCredential.objects.filter(organization=organization).exists()


def test_a_name_is_there_once(organization):
    create_credential(organization)
    with pytest.raises(Conflict):
        create_credential(organization, header="X-Key")


def test_a_new_value_is_used_from_the_next_revision_on(organization):
    row, before = create_credential(organization), current_catalog(organization)
    changed = credential(value="other", header="X-Key")
    credentials.replace_credential(row=row, credential=changed, by=factories.actor(organization))
    assert before.credentials["key"].opened() == ("Authorization", SECRET)
    assert current_catalog(organization).credentials["key"].opened() == ("X-Key", "other")


@pytest.mark.parametrize("value", [None, credentials.MASK])
def test_a_masked_value_leaves_it_as_it_is(organization, value):
    row = create_credential(organization)
    changed = credential(value=value, header="X-Key")
    credentials.replace_credential(row=row, credential=changed, by=factories.actor(organization))
    assert current_catalog(organization).credentials["key"].opened() == ("X-Key", SECRET)


def test_every_change_is_on_record_and_none_holds_the_value(organization):
    row, by = create_credential(organization), factories.actor(organization)
    credentials.replace_credential(row=row, credential=credential(value="0ther"), by=by)
    credentials.delete_credential(row=row, by=by)
    found = AuditRecord.objects.filter(
        organization=organization.slug, code__contains="CREDENTIAL"
    ).order_by("id")
    assert [record.code for record in found] == [
        "ADMIN.CREDENTIAL_CREATE", "ADMIN.CREDENTIAL_CHANGE", "ADMIN.CREDENTIAL_DELETE",
    ]  # fmt: skip
    said = json.dumps([record.details for record in found])
    assert "c4nary" not in said and "0ther" not in said
    assert {record.subject for record in found} == {"key"}
