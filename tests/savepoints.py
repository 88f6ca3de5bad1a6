"""Requests whose changes are taken back at once, so that many of them share the same rows."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from tools.accounts.grants.grants import grants
from tools.catalog.registry import registry
from tools.models import Organization


@contextmanager
def rolled_back() -> Iterator[None]:
    """What is done inside changes no row, nor what this process keeps of catalogs and grants.

    A catalog that is read inside is forgotten too: call `read_catalogs` before many requests.
    """
    snapshots, held = dict(registry._snapshots), grants._kept.copy()
    try:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)
    finally:
        registry._snapshots = snapshots
        grants._kept = held


def read_catalogs(*organizations: Organization) -> None:
    """Keep the catalogs as they are now. To read and verify one costs as much as five requests."""
    for organization in organizations:
        organization.refresh_from_db(fields=["revision"])
        registry.snapshot(organization.pk, organization.revision)
