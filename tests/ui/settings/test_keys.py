"""The keys of an organization: seen, made anew, and distrusted, with what that closes."""

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import inline_code, notes, text
from tools.catalog.signatures.newest import newest
from tools.models import Organization, SigningKey
from tools.ui.settings.signing_keys import _key_state


@pytest.fixture
def key(organization: Organization) -> SigningKey:
    factories.tool(organization)
    return SigningKey.objects.get(organization=organization)


def test_each_key_says_what_it_is_and_how_much_it_signed(
    admin_client: Client, key: SigningKey
) -> None:
    answer = admin_client.get("/keys/")
    page = text(answer)
    signed = key.organization.tools.count()
    assert key.key_id in page and 'data-note="key-state" data-status="active"' in page
    assert notes(page)["versions"] == [str(signed)]
    assert inline_code(answer) == []


def test_a_new_key_signs_and_the_old_one_stays_good(
    admin_client: Client, organization: Organization, key: SigningKey
) -> None:
    page = text(admin_client.post("/keys/", follow=True))
    made = SigningKey.objects.get(organization=organization, retired_at=None)
    assert made.key_id != key.key_id and made.key_id in notes(page)["message-success"][0]
    assert 'data-note="key-state" data-status="disabled"' in page
    codes = AuditRecord.objects.filter(organization=organization.slug, subject=made.key_id)
    assert codes.get().code == "ADMIN.SIGNING_KEY_CREATE"


def test_what_distrusting_closes_is_said_before(admin_client: Client, key: SigningKey) -> None:
    page = text(admin_client.get(f"/keys/{key.key_id}/distrust"))
    assert 'href="/tools/echo/">echo</a>' in page and "verify_tools --resign" in page
    key.refresh_from_db()
    assert key.distrusted_at is None


def test_a_key_that_nothing_in_use_was_signed_under_closes_nothing(
    admin_client: Client, key: SigningKey
) -> None:
    admin_client.post("/keys/")
    made = SigningKey.objects.get(organization=key.organization, retired_at=None)
    assert "closes-nothing" in notes(admin_client.get(f"/keys/{made.key_id}/distrust"))


def test_a_key_is_distrusted(
    admin_client: Client, organization: Organization, key: SigningKey
) -> None:
    page = text(admin_client.post(f"/keys/{key.key_id}/distrust", follow=True))
    assert key.key_id in notes(page)["message-success"][0]
    assert 'data-status="rejected">distrusted' in page
    code = "ADMIN.SIGNING_KEY_DISTRUST"
    assert AuditRecord.objects.filter(organization=organization.slug, code=code).count() == 1
    again = text(admin_client.get(f"/keys/{key.key_id}/distrust"))
    assert "not-trusted-now" in notes(again) and '<button class="danger"' not in again


def test_a_key_that_this_installation_did_not_make_says_so(
    admin_client: Client, key: SigningKey
) -> None:
    SigningKey.objects.filter(pk=key.pk).update(voucher="x" * 88)
    key.refresh_from_db()
    state, _ = _key_state(key, newest.of(key.organization_id))
    assert notes(admin_client.get("/keys/"))["key-state"] == [state]


def test_who_may_only_look_makes_and_distrusts_nothing(client_of: Grant, key: SigningKey) -> None:
    client = client_of("tools.view_signingkey")
    page = text(client.get("/keys/"))
    assert key.key_id in page
    assert 'method="post" action="/keys/"' not in page and "/distrust" not in page
    assert client.post("/keys/").status_code == 403
    assert client.get(f"/keys/{key.key_id}/distrust").status_code == 403
    assert client.post(f"/keys/{key.key_id}/distrust").status_code == 403
    assert SigningKey.objects.filter(organization=key.organization, retired_at=None).get() == key
