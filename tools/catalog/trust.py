"""Rotating and distrusting an organization's signing keys, and signing what stands anew."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.changes import difference
from audit.events import Event, Outcome
from tools.catalog.signing_keys import current_key, make_key, retire_current, trusted_keys
from tools.catalog.verified import in_use, verifies
from tools.catalog.versions import statement_of
from tools.definitions import signing
from tools.definitions.tool import digest
from tools.errors import Conflict, NotFound
from tools.models import Organization, SigningKey, Tool, ToolVersion, VersionSignature


@dataclass(frozen=True, slots=True)
class Checked:
    """One version, and whether it is what was signed; `in_use` is None for one that is not it."""

    tool: str
    version: str
    key_id: str
    signed: bool
    in_use: bool | None

    @property
    def good(self) -> bool:
        return self.signed and self.in_use is not False

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"good": self.good}


@transaction.atomic
def rotate_signing_key(
    *, organization: Organization, by: Actor, reason: str = "", resign: bool = True
) -> SigningKey:
    """From now on another key signs; what the one before signed stays valid.

    With `resign` each version whose signature is still good is signed by the new key too.
    """
    Organization.objects.next_revision(organization.pk)
    before = retire_current(organization)
    row, key = make_key(organization)
    signed = _resign_good(organization, key, by) if resign else 0
    record(
        Event.SIGNING_KEY_ROTATE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=organization.slug,
        reason=reason,
        details={**difference({"key_id": before}, {"key_id": row.key_id}), "resigned": signed},
    )
    return row


@transaction.atomic
def distrust_signing_key(
    *, organization: Organization, key_id: str, by: Actor, reason: str = ""
) -> SigningKey:
    """What it alone signed is not run any more, until it is signed anew. Safe to repeat."""
    Organization.objects.next_revision(organization.pk)
    row = SigningKey.objects.filter(organization=organization, key_id=key_id).first()
    if row is None:
        raise NotFound("The organization has no such signing key.", code="signing_key_not_found")
    if row.distrusted_at is None:
        row.distrusted_at = timezone.now()
        row.retired_at = row.retired_at or row.distrusted_at
        row.save(update_fields=["distrusted_at", "retired_at"])
        record(
            Event.SIGNING_KEY_DISTRUST,
            by=by,
            outcome=Outcome.CHANGED,
            subject=organization.slug,
            reason=reason,
            details={"key_id": key_id, **difference({"trusted": True}, {"trusted": False})},
        )
    return row


@transaction.atomic
def resign_tool(*, tool: Tool, by: Actor, reason: str = "") -> Tool:
    """A person answers for what is stored now: its version in use is signed with today's key.

    For after a key was distrusted. Raises `Conflict` where the definition is not its digest's.
    """
    revision = Organization.objects.next_revision(tool.organization_id)
    tool = Tool.objects.select_related("version", "organization").get(pk=tool.pk)
    version = tool.version
    if version is None or digest(version.definition) != version.digest:
        raise Conflict(
            f"What is stored of {tool.name} was altered: write it as a new version.",
            code="signature_invalid",
        )
    key = current_key(tool.organization)
    VersionSignature.objects.get_or_create(
        version=version,
        key_id=key.key_id,
        defaults={"signature": _signature(tool, version, key), "created_by": _named(by)},
    )
    _sign_head(tool, key)
    tool.revision = revision
    tool.save(update_fields=["head_key_id", "head_signature", "revision", "updated_at"])
    record(
        Event.TOOL_RESIGN,
        by=by,
        outcome=Outcome.CHANGED,
        subject=tool.name,
        digest=version.digest,
        reason=reason,
        details={
            "version": version.label,
            **difference({"key_id": version.key_id}, {"key_id": key.key_id}),
        },
    )
    return tool


def check_versions(organization: Organization) -> Iterator[Checked]:
    """Every version of every tool that is there, read from its row and held against the keys."""
    keys = trusted_keys(organization.pk, organization.slug)
    for version in _versions(organization):
        tool = version.tool
        current = tool.version_id == version.pk
        yield Checked(
            tool=tool.name,
            version=version.label,
            key_id=version.key_id,
            signed=verifies(tool, version, keys),
            in_use=_head_is_good(tool, version, keys) if current else None,
        )


def _versions(organization: Organization) -> list[ToolVersion]:
    rows = ToolVersion.objects.filter(
        tool__organization=organization, tool__deleted_at__isnull=True
    )
    rows = rows.select_related("tool__organization", "tool__version")
    return list(rows.prefetch_related("resigned").order_by("tool__name", "number"))


def _head_is_good(tool: Tool, version: ToolVersion, keys: Mapping[str, str]) -> bool:
    return tool.version_id == version.pk and in_use(tool, keys)


def _resign_good(organization: Organization, key: signing.SigningKey, by: Actor) -> int:
    """How many were signed. Tools carry the next revision, so that every process reads them."""
    keys = trusted_keys(organization.pk, organization.slug)
    good = [one for one in _versions(organization) if verifies(one.tool, one, keys)]
    VersionSignature.objects.bulk_create(
        VersionSignature(
            version=one,
            key_id=key.key_id,
            signature=_signature(one.tool, one, key),
            created_by=_named(by),
        )
        for one in good
    )
    heads = [one.tool for one in good if _head_is_good(one.tool, one, keys)]
    revision = Organization.objects.values_list("revision", flat=True).get(pk=organization.pk)
    for tool in heads:
        _sign_head(tool, key)
        tool.revision = revision
    Tool.objects.bulk_update(heads, ["head_key_id", "head_signature", "revision"], batch_size=500)
    return len(good)


def _signature(tool: Tool, version: ToolVersion, key: signing.SigningKey) -> str:
    return key.sign(
        statement_of(
            organization=tool.organization.slug,
            name=tool.name,
            number=version.number,
            label=version.label,
            version_digest=version.digest,
            origin=version.origin,
        )
    )


def _sign_head(tool: Tool, key: signing.SigningKey) -> None:
    assert tool.version is not None
    head = signing.head_statement(
        organization=tool.organization.slug, name=tool.name, number=tool.version.number
    )
    tool.head_key_id, tool.head_signature = key.key_id, key.sign(head)


def _named(by: Actor) -> str:
    return f"{by.kind}:{by.name}"
