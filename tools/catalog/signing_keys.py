"""The keys an organization's versions are signed with.

A public key counts only with the voucher of the installation's key, which is a file: whoever can
write to the database alone can put no key of their own in its place.
"""

from typing import Any
from uuid import UUID

from django.utils import timezone

from tools.catalog import sealing
from tools.catalog.versions import signing_key
from tools.definitions import signing
from tools.errors import Conflict
from tools.models import Organization, SigningKey


def trusted_keys(organization_id: UUID, slug: str) -> dict[str, str]:
    """Public keys by their ids: those that are vouched for and not distrusted."""
    rows = SigningKey.objects.trusted().filter(organization_id=organization_id)
    return {row.key_id: row.public_key for row in rows if _vouched_for(row, slug)}


def sign(organization: Organization, statement: dict[str, Any]) -> tuple[str, str]:
    """The id of the organization's current key and its signature."""
    key = current_key(organization)
    return key.key_id, key.sign(statement)


def current_key(organization: Organization) -> signing.SigningKey:
    """Made with the first version that needs one. Raises `Conflict` for one that cannot be used.

    The caller holds the organization's lock, so that two of them make one key.
    """
    row = SigningKey.objects.current().filter(organization=organization).first()
    return make_key(organization)[1] if row is None else _opened(row, organization)


def make_key(organization: Organization) -> tuple[SigningKey, signing.SigningKey]:
    """The organization's next key; the one before must be retired."""
    key, row = signing.SigningKey.generate(), SigningKey(organization=organization)
    row.key_id, row.public_key = key.key_id, key.public_key
    row.voucher = signing_key().sign(_statement(row, organization.slug))
    row.sealed = sealing.seal(
        key.secret(), organization=organization.pk, row=row.pk, purpose=sealing.SIGNING
    )
    row.save()
    return row, key


def retire_current(organization: Organization) -> str:
    """The id of the key that signs nothing any more; empty where there was none."""
    row = SigningKey.objects.current().filter(organization=organization).first()
    if row is None:
        return ""
    row.retired_at = timezone.now()
    row.save(update_fields=["retired_at"])
    return row.key_id


def _opened(row: SigningKey, organization: Organization) -> signing.SigningKey:
    try:
        text = sealing.unseal(
            bytes(row.sealed), organization=organization.pk, row=row.pk, purpose=sealing.SIGNING
        )
    except sealing.Unreadable:
        raise _unusable(row) from None
    key = signing.SigningKey.from_text(text)
    if key.public_key != row.public_key or not _vouched_for(row, organization.slug):
        raise _unusable(row)
    return key


def _unusable(row: SigningKey) -> Conflict:
    return Conflict(
        f"The signing key {row.key_id} cannot be used here: rotate the organization's key.",
        code="signing_key_unusable",
    )


def _vouched_for(row: SigningKey, slug: str) -> bool:
    installation = signing_key()
    try:
        known = signing.key_id_of(row.public_key) == row.key_id
    except ValueError:
        return False
    return known and installation.verifies(_statement(row, slug), row.voucher, installation.key_id)


def _statement(row: SigningKey, slug: str) -> dict[str, Any]:
    return signing.key_statement(organization=slug, key_id=row.key_id, public_key=row.public_key)
