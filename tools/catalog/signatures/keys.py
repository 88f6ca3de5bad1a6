"""The signing keys of an organization's tool versions.

Each is signed by the installation's key file, so that write access to the database is not enough to
create one. A retired key still verifies what it signed; a distrusted key verifies nothing.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record_change
from audit.events import Event
from tools.catalog.signatures import newest, sealed_texts
from tools.catalog.signatures.newest import SignatureFileState
from tools.catalog.signatures.versions import installation_key
from tools.definitions import signing
from tools.errors import NotFound, Unavailable
from tools.models import Organization, SigningKey, Tool

_PURPOSE = "tool signing key"


def keys_of(
    organization_id: UUID, known: SignatureFileState | None = None, *, distrusted: bool = False
) -> Mapping[str, bytes]:
    """Public keys whose signatures are trusted; with `distrusted` also formerly trusted ones."""
    taken_back = (known or newest.newest.read_state(organization_id)).distrusted
    installation = installation_key()
    found = {installation.key_id: installation.public}
    for row in SigningKey.objects.filter(organization_id=organization_id):
        good = row.distrusted_at is None and row.key_id not in taken_back
        if vouched(row) and (good or distrusted):
            found[row.key_id] = bytes(row.public)
    return found


def closed_without(row: SigningKey) -> list[str]:
    """The tools that distrusting it closes: it signed the version that is in use."""
    tools = Tool.objects.present().filter(organization_id=row.organization_id)
    signed = tools.filter(version__key_id=row.key_id)
    return list(signed.order_by("name").values_list("name", flat=True))


def believed(row: SigningKey, known: SignatureFileState) -> bool:
    """Whether versions that the key signed may run."""
    return row.distrusted_at is None and row.key_id not in known.distrusted and vouched(row)


def vouched(row: SigningKey) -> bool:
    """Whether this installation made the key, for this organization."""
    public = bytes(row.public)
    if signing.public_key_id(public) != row.key_id:
        return False
    return signing.verify_statement(installation_key().public, _statement(row), row.voucher)


def current_key(organization: Organization, by: Actor) -> signing.PrivateSigningKey:
    """The current signing key, created when first needed. Call it with the organization locked.

    A key that cannot be decrypted any more, or that the installation has not signed, is retired for
    a new one.
    """
    row = SigningKey.objects.filter(organization=organization, retired_at=None).first()
    if row is not None:
        if (key := _opened(row)) is not None:
            return key
        _retire(row, by)
    return _create_key(organization, by)


@transaction.atomic
def rotate_key(*, organization: Organization, by: Actor) -> SigningKey:
    """A new key signs from now on; signatures of the old one stay valid."""
    Organization.objects.next_revision(organization.pk)
    for row in SigningKey.objects.filter(organization=organization, retired_at=None):
        _retire(row, by)
    key = _create_key(organization, by)
    return SigningKey.objects.get(organization=organization, key_id=key.key_id)


@transaction.atomic
def distrust_key(*, organization: Organization, key_id: str, by: Actor) -> SigningKey:
    """No version that the key signed runs before it is signed again. Safe to repeat.

    It is recorded beside the installation's keys first, so that an edit of the row cannot undo it.
    """
    Organization.objects.next_revision(organization.pk)
    row = find_key(organization, key_id)
    if (
        row.distrusted_at is not None
        and key_id in newest.newest.read_state(organization.pk).distrusted
    ):
        return row
    before, now = _written(row), timezone.now()
    try:
        newest.append(organization.pk, [f"distrust {row.key_id}"])
    except OSError as error:
        raise Unavailable(f"The directory of keys cannot be written: {error.strerror}.") from None
    row.retired_at, row.distrusted_at = row.retired_at or now, row.distrusted_at or now
    row.save(update_fields=["retired_at", "distrusted_at"])
    record_change(Event.SIGNING_KEY_DISTRUST, row.key_id, by, before, _written(row))
    return row


def find_key(organization: Organization, key_id: str) -> SigningKey:
    """Raises `NotFound`, also for another organization's."""
    rows = SigningKey.objects.filter(organization=organization)
    found = rows.filter(key_id=key_id).first() if "\x00" not in key_id else None
    if found is None:
        raise NotFound(f"There is no signing key {key_id[:16]!r}.", code="key_not_found")
    return found


def _create_key(organization: Organization, by: Actor) -> signing.PrivateSigningKey:
    key = signing.PrivateSigningKey.new()
    row = SigningKey(organization=organization, key_id=key.key_id, public=key.public)
    row.sealed = sealed_texts.seal(
        key.as_hex(), organization=organization.pk, row=row.pk, purpose=sealed_texts.SIGNING
    )
    row.voucher = installation_key().sign(_statement(row))
    row.save()
    record_change(Event.SIGNING_KEY_CREATE, row.key_id, by, None, _written(row))
    return key


def _opened(row: SigningKey) -> signing.PrivateSigningKey | None:
    if not vouched(row) or row.key_id in newest.newest.read_state(row.organization_id).distrusted:
        return None
    try:
        key = signing.PrivateSigningKey.from_hex(
            sealed_texts.unseal(
                bytes(row.sealed),
                organization=row.organization_id,
                row=row.pk,
                purpose=sealed_texts.SIGNING,
            )
        )
    except (sealed_texts.UnreadableSealedText, ValueError):
        return None
    return key if key.key_id == row.key_id else None


def _retire(row: SigningKey, by: Actor) -> None:
    before = _written(row)
    row.retired_at = timezone.now()
    row.save(update_fields=["retired_at"])
    record_change(Event.SIGNING_KEY_RETIRE, row.key_id, by, before, _written(row))


def _statement(row: SigningKey) -> dict[str, Any]:
    return {
        "purpose": _PURPOSE,
        "organization": str(row.organization_id),
        "key_id": row.key_id,
        "public": bytes(row.public).hex(),
    }


def _written(row: SigningKey) -> dict[str, Any]:
    return {
        "key_id": row.key_id,
        "retired_at": row.retired_at,
        "distrusted_at": row.distrusted_at,
    }
