"""What the registration of a tool reads of its organization: once for all tools of a
transaction."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from audit.actions import Actor
from tools.catalog.groups import note_groups
from tools.catalog.signatures.keys import current_key
from tools.catalog.tiers import tier_of
from tools.definitions.signing import PrivateSigningKey
from tools.models import LicenseTier, Organization, ToolGroup


@dataclass(frozen=True)
class LockedCatalog:
    """Valid until the end of the transaction that has locked the organization's row: nothing else
    changes its tier and its signing key, or deletes a group, meanwhile."""

    organization: Organization
    tier: LicenseTier
    signing_key: PrivateSigningKey
    groups: set[str] = field(default_factory=set)  # names of which the row is known to exist

    @classmethod
    def for_organization(cls, organization: Organization, by: Actor) -> Self:
        """For one tool; the organization's row is locked already."""
        return cls(organization, tier_of(organization.pk), current_key(organization, by))

    @classmethod
    def for_many(cls, organization: Organization, by: Actor) -> Self:
        """Locks the organization. Call it outside of savepoints that are rolled back."""
        Organization.objects.next_revision(organization.pk)
        catalog = cls.for_organization(organization, by)
        names = ToolGroup.objects.filter(organization=organization).values_list("name", flat=True)
        catalog.groups.update(names)
        return catalog

    def note_groups(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self.groups]
        note_groups(self.organization, missing)
        self.groups.update(missing)
