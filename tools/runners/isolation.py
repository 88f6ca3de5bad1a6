"""What the sandbox of this host can isolate, as each process sees it, and its evidence."""

import hashlib
import json
from functools import lru_cache
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from sandbox.daemon.trials.capability import Capability
from sandbox.state import SandboxdStateCache
from tools.definitions.callers import CallerKind
from tools.models import Organization

SUBJECT = "sandboxd"


@lru_cache(maxsize=1)
def watch() -> SandboxdStateCache:
    return SandboxdStateCache(settings.SANDBOX_SOCKET)


def record_changes() -> int:
    """Note in each organization's evidence what the sandbox can isolate, where that changed.

    Every tenant's tools run behind it, and a tenant's auditors see no evidence but their own.
    Returns how many records were written; none while sandboxd does not answer.
    """
    state = watch().state()
    if state is None:
        return 0
    digest = _digest(state.capability)
    uninformed = _uninformed(digest).values_list("pk", flat=True)
    return sum(_inform(pk, state.capability, digest) for pk in list(uninformed))


def _uninformed(digest: str) -> QuerySet[Organization]:
    known = AuditRecord.objects.filter(
        organization=OuterRef("slug"), subject=SUBJECT, code=Event.SANDBOX_CAPABILITY
    )
    last = Subquery(known.order_by("-occurred_at", "-pk").values("subject_digest")[:1])
    return Organization.objects.annotate(known=last).filter(~Q(known=digest) | Q(known=None))


@transaction.atomic
def _inform(pk: UUID, capability: Capability, digest: str) -> bool:
    """Asked again under a lock: two workers may have the same news."""
    organization = Organization.objects.select_for_update(no_key=True).filter(pk=pk).first()
    if organization is None or not _uninformed(digest).filter(pk=pk).exists():
        return False
    record(
        Event.SANDBOX_CAPABILITY,
        by=Actor(CallerKind.SYSTEM, SUBJECT, organization.slug),
        outcome=Outcome.CHANGED,
        subject=SUBJECT,
        digest=digest,
        reason=f"ceiling {capability.ceiling or 'nothing'}, cgroups {capability.cgroup_mode}",
        details=capability.summary(),
    )
    return True


def _digest(capability: Capability) -> str:
    """Of what is recorded: a new examination with the same outcome is no news."""
    text = json.dumps(capability.summary(), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
