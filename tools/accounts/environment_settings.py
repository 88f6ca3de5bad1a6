"""Environment settings of the operator: described, shown, and audited when they change.

At each start, changes since the last start are recorded in the audit log. Of a secret only a short
keyed hash is recorded: a change is visible, the value is not. A test compares the descriptions with
docs/operations.md.
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
from tools.definitions.callers import CallerKind
from tools.models import Organization


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    """`attribute` is the Django setting that holds the value, if it has another name."""

    name: str
    default: str
    does: str
    attribute: str = ""


SECTIONS: dict[str, tuple[DescribedSetting, ...]] = {
    "Where it runs": (
        DescribedSetting("TOOLCRIB_DATA", "var/", "the data directory"),
        DescribedSetting("PORT", "8000", "what up listens on"),
        DescribedSetting(
            "ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]", "names the server answers to, with commas"
        ),
        DescribedSetting(
            "HTTPS",
            "false",
            "behind a proxy that ends TLS: secure cookies, HSTS, redirect; needs TRUSTED_PROXIES",
        ),
        DescribedSetting(
            "TRUSTED_PROXIES",
            "none",
            "networks of your proxies, such as 127.0.0.1 or 10.1.0.0/16, with commas: from them"
            " alone X-Forwarded-For and X-Forwarded-Proto are believed",
        ),
        DescribedSetting(
            "HSTS_SECONDS",
            "31536000",
            "with HTTPS, how long browsers use nothing else for this host; 0: not at all",
            attribute="SECURE_HSTS_SECONDS",
        ),
        DescribedSetting(
            "HSTS_SUBDOMAINS",
            "false",
            "with HTTPS, for its subdomains as well",
            attribute="SECURE_HSTS_INCLUDE_SUBDOMAINS",
        ),
        DescribedSetting(
            "HSTS_PRELOAD",
            "false",
            "with HTTPS, that the lists of browsers may name this host",
            attribute="SECURE_HSTS_PRELOAD",
        ),
        DescribedSetting(
            "CSRF_TRUSTED_ORIGINS", "none", "origins of forms, such as https://tools.example.org"
        ),
        DescribedSetting(
            "SECRET_KEY",
            "the file secret_key in the data directory",
            "signs sessions, keys the hashes of tokens",
        ),
        DescribedSetting("LOG_LEVEL", "INFO", "of every process"),
    ),
    "What it stands on": (
        DescribedSetting(
            "DATABASE_URL",
            "our own PostgreSQL",
            "postgresql://user:password@host/name, 15 or newer",
        ),
        DescribedSetting("DATABASE_POOL", "20", "connections of each process at most"),
        DescribedSetting(
            "DATABASE_PREPARE", "3", "statements are prepared from the n-th time; 0 behind a pooler"
        ),
        DescribedSetting("REDIS_URL", "our own Valkey", "redis://host:6379/0"),
        DescribedSetting(
            "SPARQL_URL",
            "our own Oxigraph",
            "where a SPARQL 1.1 endpoint takes queries; it must heed default-graph-uri",
        ),
        DescribedSetting("SPARQL_UPDATE_URL", "update beside SPARQL_URL", "where it takes updates"),
    ),
    "How much at once": (
        DescribedSetting("WEB_THREADS", "64", "threads of each web process, 4 to 1024"),
        DescribedSetting("WORKER_THREADS", "16", "calls a worker runs at once, 1 to 256"),
        DescribedSetting(
            "MAX_REQUEST_BYTES",
            "12582912",
            "the largest body of a request",
            attribute="DATA_UPLOAD_MAX_MEMORY_SIZE",
        ),
        DescribedSetting(
            "READS_PER_MINUTE",
            "1200",
            "how often a token, or a person's browser, may read the API, 0 to 1000000; 0: no limit",
        ),
        DescribedSetting(
            "WAITING_PLACES",
            "256",
            "requests of each web process that wait, event streams included, and as many outputs"
            " being read; half of them by one organization, a quarter by one caller; a client that"
            " disconnects gives its place back, and its call goes on; 8 to 4096",
        ),
        DescribedSetting(
            "LIVE_PORT", "the one after PORT, or a free one", "where the live process listens"
        ),
        DescribedSetting(
            "WEB_PORT",
            "set by up",
            "where the web process listens on the same host, as the live process is told",
        ),
        DescribedSetting(
            "LIVE_URL",
            "the host of the page at LIVE_PORT; with HTTPS the path /live/",
            "where browsers reach it: an address that ends in /live/, the path that"
            " your proxy leads to it, or off",
        ),
        DescribedSetting(
            "LIVE_STREAMS",
            "2000",
            "pages that it tells of changes at once, 16 of one browser's session at"
            " most; more ask for themselves",
        ),
        DescribedSetting(
            "OUTPUT_INLINE_BYTES",
            "1048576",
            "a larger output lies outside its execution's row and is read by its "
            "own address; at least 1024",
        ),
    ),
    "Calls": (
        DescribedSetting("EXECUTION_TIMEOUT_S", "300", "the longest a tool may ask for, 1 to 3600"),
        DescribedSetting(
            "EXECUTION_LEASE_S", "15", "how long a silent worker keeps a call, 3 to 600"
        ),
        DescribedSetting(
            "EXECUTION_QUEUE_S",
            "600",
            "a call that no worker took for so long ends as Cancelled, EXPIRED, and"
            " never begins; 10 to 86400",
        ),
        DescribedSetting(
            "QUEUE_AGE_S",
            "30",
            "when the first in line has waited so long, further calls are answered 503; 1 to 3600",
        ),
        DescribedSetting(
            "EXECUTION_GRACE_S",
            "20",
            "how long a worker that was told to stop lets its calls run before it "
            "hands them back, 0 to 600",
        ),
        DescribedSetting(
            "CONFIRMATION_MINUTES",
            "15",
            "how long a call waits for a person before it is refused, 1 to 10080",
        ),
        DescribedSetting(
            "EXECUTE_IN_PLACE",
            "upstream",
            "upstream: calls of http tools, of MCP servers over HTTP, of tool services and of"
            " models are performed by the web process, while their callers wait and where it has a"
            " place free; none: workers perform all calls",
        ),
        DescribedSetting(
            "EXECUTION_DISPATCH",
            "wake",
            "wake: an entry of a list in Redis wakes a worker for each call; celery: a Celery"
            " message does, at more CPU",
        ),
        DescribedSetting(
            "IDEMPOTENCY_HOURS",
            "24",
            "how long an idempotency key stands for the request it was first sent with, 1 to 8760",
        ),
        DescribedSetting(
            "SESSION_IDLE_HOURS",
            "24",
            "a workflow session nobody has used for so long is closed, 1 to 8760",
        ),
    ),
    "Walls": (
        DescribedSetting("SANDBOX_SOCKET", "in the data directory", "where sandboxd listens"),
        DescribedSetting(
            "SANDBOX_ALLOW_DEGRADED",
            "false",
            "where namespaces are forbidden: Standard tools with Landlock and "
            "seccomp alone, no network",
        ),
        DescribedSetting(
            "EGRESS_SOCKET", "in the data directory", "where the egress broker listens"
        ),
        DescribedSetting(
            "EGRESS_ALLOW_PRIVATE",
            "none",
            "networks of your own that tools may reach where a rule names the host,"
            " such as 10.1.0.0/16, with commas; credentials go there over plain "
            "HTTP as well",
        ),
        DescribedSetting(
            "EGRESS_CA_FILE",
            "none",
            "a PEM file of authorities that the broker believes beside the system's",
        ),
    ),
    "Servers and services": (
        DescribedSetting(
            "MCP_STDIO_ALLOWED",
            "none",
            "MCP servers that may be started on this machine: JSON, or the path of "
            "a file with JSON or YAML",
        ),
        DescribedSetting(
            "MCP_REFERENCES_ALLOWED",
            "none",
            "what headers of MCP servers may refer to instead of holding a value, "
            "with commas: env:NAME, file:/path; any organization's administrators "
            "may then send it to a server of theirs",
        ),
        DescribedSetting(
            "TOOL_SERVICE_BROKERS",
            "none",
            "tool services at another broker, by service or organization/service: "
            'JSON, or the path of a file with JSON or YAML, such as {"acme/jokes": '
            '"amqps://user:password@broker/vhost"}, or {"url", "options"} with the '
            "options of kombu's transport",
        ),
    ),
    "Language models": (
        DescribedSetting(
            "LLM_BASE_URL",
            "none: prompts and text completions fail",
            "an OpenAI-compatible endpoint up to its version, https://host/v1; it "
            "may be private, in http:// too",
        ),
        DescribedSetting(
            "LLM_API_KEY", "none", "sent to it as a bearer token, and written nowhere"
        ),
        DescribedSetting("LLM_MODEL", "none", "the model of tools that name none"),
        DescribedSetting(
            "LLM_TOOL_CALLS",
            "true",
            "whether models are asked for tool calls of their own form; where not, and where the "
            "endpoint refuses them, agents use a text form",
        ),
        DescribedSetting(
            "LLM_PRICES",
            "none: a call costs what its definition says",
            'prices per million tokens: {"model": {"input": "0.15", "output": '
            '"0.6"}}; where it is set, no other model is asked',
        ),
    ),
    "People": (
        DescribedSetting(
            "MFA_REQUIRED",
            "privileged with HTTPS=true, else nobody",
            "who must have a second factor: nobody, privileged (who decides or "
            "administers), everybody",
        ),
        DescribedSetting(
            "FRESH_SECONDS",
            "900",
            "how old the proof of who somebody is may be where power is given, 30 to 86400",
        ),
        DescribedSetting(
            "OIDC_ISSUER",
            "none: no single sign-on",
            "the identity provider, exactly as it calls itself; https://, or this machine",
        ),
        DescribedSetting("OIDC_CLIENT_ID", "none", "what we are called there"),
        DescribedSetting("OIDC_CLIENT_SECRET", "none: a public client", "its secret"),
        DescribedSetting("OIDC_NAME", "single sign-on", "what its button says: Log in with …"),
        DescribedSetting("OIDC_SCOPES", "openid profile email", "what is asked for"),
        DescribedSetting("OIDC_GROUPS_CLAIM", "groups", "where its groups stand"),
        DescribedSetting(
            "OIDC_ROLES",
            "none: nobody gets an account",
            "GROUP=ROLE with commas; roles are administrator, tool-manager, "
            "approver, auditor, viewer",
        ),
        DescribedSetting(
            "OIDC_ORGANIZATION",
            "the first one",
            "the slug of the organization where accounts are made",
        ),
        DescribedSetting(
            "OIDC_MFA",
            "none: our second factor is asked",
            "values of amr or acr that count as one, with commas; * is all",
        ),
    ),
    "Tokens, mail and licences": (
        DescribedSetting("TOKEN_DAYS", "90", "how long a token is good, 1 to 365"),
        DescribedSetting(
            "EMAIL_URL",
            "none: no e-mail is sent",
            "where alerts are handed in: smtps://user:password@host:465, or smtp://"
            " with STARTTLS (without on this machine alone); EMAIL_URL_FILE names a"
            " file that holds it",
        ),
        DescribedSetting("EMAIL_FROM", "toolcrib@localhost", "whom those mails are from"),
        DescribedSetting(
            "LICENSE_KEYS",
            "none: no licence can be installed",
            "raw Ed25519 public keys in base64 of whoever issues licences, commas "
            "between them; LICENSE_KEYS_FILE names a file of them",
        ),
    ),
    "Evidence and figures": (
        DescribedSetting(
            "RETENTION_DAYS",
            "see below",
            "for how many days each kind of row is kept, such as executions=90,sessions=30",
        ),
        DescribedSetting(
            "AUDIT_QUIET_SECONDS",
            "60",
            "how often a log in which nothing happens is compared with what was published of it, "
            "and signed, 10 to 3600; with thousands of organizations each minute is work",
        ),
        DescribedSetting(
            "AUDIT_ANCHORS_DIR",
            "anchors/ in the data directory",
            "what was published of the audit log; on another disk it also outlives this one",
            attribute="ANCHORS_DIR",
        ),
        DescribedSetting(
            "AUDIT_ANCHOR_URL", "none", "every checkpoint is POSTed there: https, or this machine"
        ),
        DescribedSetting(
            "AUDIT_ANCHOR_PUT_URL",
            "none",
            "every checkpoint is PUT below it, as <log>/<size>-<time>.note",
        ),
        DescribedSetting("AUDIT_ANCHOR_TOKEN", "none", "the bearer token for both"),
        DescribedSetting(
            "METRICS_TOKEN",
            "none",
            "bearer token for /metrics; without one only this machine may read it",
        ),
        DescribedSetting(
            "PROMETHEUS_MULTIPROC_DIR",
            "metrics/ in the data directory",
            "where processes keep their counters",
        ),
    ),
}


SUBJECT = "settings"
VISIBLE = (
    "ALLOWED_HOSTS", "ANCHORS_DIR", "AUDIT_QUIET_SECONDS",
    "CONFIRMATION_MINUTES", "CSRF_TRUSTED_ORIGINS",
    "DATA_UPLOAD_MAX_MEMORY_SIZE", "EGRESS_ALLOW_PRIVATE", "EGRESS_CA_FILE", "EMAIL_FROM",
    "EXECUTE_IN_PLACE", "EXECUTION_DISPATCH", "EXECUTION_GRACE_S", "EXECUTION_LEASE_S",
    "EXECUTION_QUEUE_S", "EXECUTION_TIMEOUT_S", "FRESH_SECONDS", "HTTPS", "IDEMPOTENCY_HOURS",
    "LIVE_STREAMS", "LIVE_URL", "MCP_REFERENCES_ALLOWED", "MCP_STDIO_ALLOWED", "RETENTION_DAYS",
    "MFA_REQUIRED",
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
ON_PAGE = frozenset({*VISIBLE, "LLM_MODEL", "OUTPUT_INLINE_BYTES"})  # on a page: nothing secret


def record_settings() -> bool:
    """Called at each start; recorded in the audit log of every organization. False if nothing has
    changed."""
    now = _settings_document()
    digest = f"sha256:{hashlib.sha256(canonical.dumps(now)).hexdigest()}"
    recorded = [_record_for(one, now, digest) for one in Organization.objects.order_by("slug")]
    return any(recorded)


@transaction.atomic
def _record_for(organization: Organization, now: dict[str, Any], digest: str) -> bool:
    """Under a lock, since two processes may start at once."""
    Organization.objects.select_for_update(no_key=True).get(pk=organization.pk)
    known = AuditRecord.objects.filter(
        organization=organization.slug, subject=SUBJECT, code=Event.SETTINGS_CHANGE
    )
    last = known.order_by("-occurred_at", "-pk").first()
    if last is not None and last.subject_digest == digest:
        return False
    record(
        Event.SETTINGS_CHANGE,
        by=Actor(CallerKind.SYSTEM, "start", organization.slug),
        outcome=Outcome.CHANGED,
        subject=SUBJECT,
        digest=digest,
        details={**difference(last.details["now"] if last else None, now), "now": now},
    )
    return True


def _settings_document() -> dict[str, Any]:
    visible = {name: as_json_value(getattr(settings, name)) for name in VISIBLE}
    database = settings.DATABASES["default"]
    address = f"{database['HOST']}:{database['PORT']}/{database['NAME']}"
    hidden = {name: getattr(settings, name) for name in HIDDEN}
    hidden["DATABASE"] = f"{database['USER']}:{database['PASSWORD']}"
    hashes = [f"{key} {_keyed_hash(key, value)}" for key, value in sorted(hidden.items()) if value]
    return visible | {"DATABASE": address, "hidden": hashes}


def _keyed_hash(name: str, value: object) -> str:
    key = key_files.derived_key("settings", name)
    return hmac.new(key, repr(value).encode(), hashlib.sha256).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class SettingStatus:
    """A setting with its value. `value` is None for a secret: only whether it is set is shown."""

    described: DescribedSetting
    value: Any
    source: str  # the environment, a file, or empty for the default

    @property
    def has_value(self) -> bool:
        return self.value is not None


def setting_statuses() -> dict[str, list[SettingStatus]]:
    """Every setting of the operator, by section. Only settings that are audited have a value."""
    return {title: [_setting_status(one) for one in every] for title, every in SECTIONS.items()}


def _setting_status(described: DescribedSetting) -> SettingStatus:
    name = described.attribute or described.name
    value = as_json_value(getattr(settings, name)) if name in ON_PAGE else None
    return SettingStatus(described, value, _source(described.name))


def _source(name: str) -> str:
    if os.environ.get(f"{name}_FILE"):
        return f"the file that {name}_FILE names"
    return "the environment" if os.environ.get(name) else ""
