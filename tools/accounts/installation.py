"""Records in the audit log which environment settings changed between starts.

Of a secret only a short keyed hash is recorded: a change is visible, the value is not.
"""

import hashlib
import hmac
import os
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction

from audit import canonical
from audit.actions import Actor, as_json_value, difference, record
from audit.events import Event, Outcome
from audit.log import key_files
from audit.models import AuditRecord
from tools.accounts.described_settings import SECTIONS, Described
from tools.definitions.callers import CallerKind
from tools.models import Organization

SUBJECT = "settings"
TOLD = (
    "ALLOWED_HOSTS", "ANCHORS_DIR", "AUDIT_QUIET_SECONDS",
    "CONFIRMATION_MINUTES", "CSRF_TRUSTED_ORIGINS",
    "DATA_UPLOAD_MAX_MEMORY_SIZE", "EGRESS_ALLOW_PRIVATE", "EGRESS_CA_FILE", "EMAIL_FROM",
    "EXECUTION_GRACE_S", "EXECUTION_LEASE_S", "EXECUTION_QUEUE_S",
    "EXECUTION_TIMEOUT_S", "FRESH_SECONDS", "HTTPS", "IDEMPOTENCY_HOURS", "LIVE_STREAMS",
    "LIVE_URL", "MCP_REFERENCES_ALLOWED", "MCP_STDIO_ALLOWED", "RETENTION_DAYS", "MFA_REQUIRED",
    "OIDC_CLIENT_ID", "OIDC_GROUPS_CLAIM", "OIDC_ISSUER", "OIDC_MFA", "OIDC_NAME",
    "OIDC_ORGANIZATION", "OIDC_ROLES", "OIDC_SCOPES", "QUEUE_AGE_S", "READS_PER_MINUTE",
    "SANDBOX_ALLOW_DEGRADED", "SECURE_HSTS_INCLUDE_SUBDOMAINS", "SECURE_HSTS_PRELOAD",
    "SECURE_HSTS_SECONDS", "SESSION_IDLE_HOURS", "TOKEN_DAYS", "TRUSTED_PROXIES",
    "WAITING_PLACES", "WEB_THREADS", "WORKER_THREADS",
)  # fmt: skip
HIDDEN = (
    "AUDIT_ANCHOR_PUT_URL", "AUDIT_ANCHOR_TOKEN", "AUDIT_ANCHOR_URL", "EMAIL_OPTIONS",
    "LICENSE_KEYS", "METRICS_TOKEN", "OIDC_CLIENT_SECRET", "REDIS_URL", "SECRET_KEY",
)  # fmt: skip
SHOWN = frozenset({*TOLD, "LLM_MODEL", "OUTPUT_INLINE_BYTES"})  # on a page: nothing secret


def record_settings() -> bool:
    """Called at a start; recorded in the audit log of every organization. False where nothing has
    changed."""
    now = _written()
    digest = f"sha256:{hashlib.sha256(canonical.dumps(now)).hexdigest()}"
    noted = [_noted(place, now, digest) for place in Organization.objects.order_by("slug")]
    return any(noted)


@transaction.atomic
def _noted(place: Organization, now: dict[str, Any], digest: str) -> bool:
    """Under a lock, since two processes may start at once."""
    Organization.objects.select_for_update(no_key=True).get(pk=place.pk)
    known = AuditRecord.objects.filter(
        organization=place.slug, subject=SUBJECT, code=Event.SETTINGS_CHANGE
    )
    last = known.order_by("-occurred_at", "-pk").first()
    if last is not None and last.subject_digest == digest:
        return False
    record(
        Event.SETTINGS_CHANGE,
        by=Actor(CallerKind.SYSTEM, "start", place.slug),
        outcome=Outcome.CHANGED,
        subject=SUBJECT,
        digest=digest,
        details={**difference(last.details["now"] if last else None, now), "now": now},
    )
    return True


def _written() -> dict[str, Any]:
    told = {name: as_json_value(getattr(settings, name)) for name in TOLD}
    database = settings.DATABASES["default"]
    place = f"{database['HOST']}:{database['PORT']}/{database['NAME']}"
    hidden = {name: getattr(settings, name) for name in HIDDEN}
    hidden["DATABASE"] = f"{database['USER']}:{database['PASSWORD']}"
    marks = [f"{name} {_mark(name, value)}" for name, value in sorted(hidden.items()) if value]
    return told | {"DATABASE": place, "hidden": marks}


def _mark(name: str, value: object) -> str:
    key = key_files.derived_key("settings", name)
    return hmac.new(key, repr(value).encode(), hashlib.sha256).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class SettingStatus:
    """A setting with its value. `value` is None for a secret: only whether it is set is shown."""

    described: Described
    value: Any
    source: str  # the environment, a file, or empty: its default

    @property
    def shown(self) -> bool:
        return self.value is not None


def standings() -> dict[str, list[SettingStatus]]:
    """Every setting of an operator's, by section. Only settings that are recorded in the audit log
    have a value."""
    return {title: [_standing(one) for one in every] for title, every in SECTIONS.items()}


def _standing(described: Described) -> SettingStatus:
    name = described.attribute or described.name
    value = as_json_value(getattr(settings, name)) if name in SHOWN else None
    return SettingStatus(described, value, _source(described.name))


def _source(name: str) -> str:
    if os.environ.get(f"{name}_FILE"):
        return f"the file that {name}_FILE names"
    return "the environment" if os.environ.get(name) else ""
