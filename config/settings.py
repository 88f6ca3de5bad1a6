"""Settings. What differs between deployments is an environment variable."""

import os
from pathlib import Path

from django.utils.csp import CSP

from config.env import (
    BadSetting,
    database_options,
    env_bool,
    env_choice,
    env_days,
    env_int,
    env_issuer,
    env_keys,
    env_list,
    env_live,
    env_networks,
    env_prices,
    env_roles,
    env_text,
    env_url,
    mail_options,
    secret_from_file,
)
from config.external_servers import env_brokers, env_stdio
from config.local import oxigraph
from config.local.embedded import (
    broker_url,
    database_url,
    egress_socket,
    redis_url,
    sandbox_socket,
)
from config.local.unix_accounts import metrics_directory
from config.logs import logging_config

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env_text("TOOLCRIB_DATA") or BASE_DIR / "var").resolve()
WORKSPACES_DIR = DATA_DIR / "workspaces"
KEYS_DIR = DATA_DIR / "keys"
# What was published of the audit log. On another disk it also outlives this one.
ANCHORS_DIR = Path(env_text("AUDIT_ANCHORS_DIR") or DATA_DIR / "anchors").resolve()

SECRET_KEY = env_text("SECRET_KEY") or secret_from_file(DATA_DIR / "secret_key")
DEBUG = False
ALLOWED_HOSTS = env_list("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
HTTPS = env_bool("HTTPS", False)
# Proxies before this server: from them alone the client's address and scheme are believed.
TRUSTED_PROXIES = env_networks("TRUSTED_PROXIES")
if HTTPS and not TRUSTED_PROXIES:
    raise BadSetting(
        "HTTPS=true needs TRUSTED_PROXIES, the addresses of the proxy that ends TLS, such as"
        " 127.0.0.1: without it every request would be redirected to itself."
    )
CSRF_TRUSTED_ORIGINS = env_list("CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "tools",  # first: its changepassword and createsuperuser stand before Django's
    "tools.admin.apps.ToolcribAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.forms",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django.contrib.humanize",
    "guardian",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "sandbox",
    "audit",
]

MIDDLEWARE = [
    "config.middleware.RequestId",
    "tools.web.probes.Probes",
    "config.middleware.DatabaseErrors",
    "django.middleware.security.SecurityMiddleware",
    # Files of `static/` have these headers too.
    "config.http.browser_security.ContentSecurityPolicy",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.middleware.ApiResponses",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "config.http.request_bodies.RequestBodies",
    "config.middleware.NulCharacters",
    "tools.ui.accounts.reauthentication.ReauthenticationMiddleware",
]

ROOT_URLCONF = "config.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "config.http.browser_security.live_context",
                "tools.ui.approvals.upstream_changes.count_changes",
                "tools.ui.approvals.confirmations.count_held_calls",
                "tools.ui.settings.sandbox.notice",
                "tools.ui.licenses.licenses.notice",
            ],
            "builtins": ["tools.web.template_tags"],
        },
    }
]

# --- stores -------------------------------------------------------------------------------------
WEB_THREADS = env_int("WEB_THREADS", 64, least=4, most=1024)
WORKER_THREADS = env_int("WORKER_THREADS", 16, least=1, most=256)
DATABASES = {"default": database_options(env_text("DATABASE_URL") or database_url(DATA_DIR))}
DATABASES["default"]["OPTIONS"] = {
    **DATABASES["default"]["OPTIONS"],  # type: ignore[dict-item]
    # Threads queue for a connection rather than open one each: a request that waits for a result
    # holds none.
    # The server keeps the plan of a statement it has seen three times on a connection. Behind a
    # pooler that shares connections between transactions, set DATABASE_PREPARE to 0.
    "server_side_binding": True,
    "prepare_threshold": env_int("DATABASE_PREPARE", 3) or None,
    "pool": {"min_size": 1, "max_size": env_int("DATABASE_POOL", 20, least=2), "timeout": 10},
}
# Lock, idle-in-transaction, statement and TCP timeouts: what exceeds them would delay evidence and
# calls of others. Their order is checked in config/timeouts.py.
DATABASE_LOCK_S, DATABASE_SILENT_S, DATABASE_IDLE_S, DATABASE_STATEMENT_S = 10, 20, 60, 300
DATABASES["default"]["OPTIONS"] = {
    "options": f"-c lock_timeout={DATABASE_LOCK_S}s -c statement_timeout={DATABASE_STATEMENT_S}s"
    f" -c idle_in_transaction_session_timeout={DATABASE_IDLE_S}s",
    "tcp_user_timeout": DATABASE_SILENT_S * 1000,
    "keepalives_idle": DATABASE_SILENT_S // 2,
    "keepalives_interval": DATABASE_SILENT_S // 4,
    **DATABASES["default"]["OPTIONS"],  # type: ignore[dict-item]
}
ATOMIC_REQUESTS = False  # denials are recorded in a transaction of their own
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = env_text("REDIS_URL") or redis_url(DATA_DIR)

# --- people -------------------------------------------------------------------------------------
AUTH_USER_MODEL = "tools.User"
AUTHENTICATION_BACKENDS = [
    "tools.accounts.login.login.PeopleBackend",
    "tools.policy.login.PeopleBackend",  # for the sessions that name it, until release 0.2
    "guardian.backends.ObjectPermissionBackend",
]
ANONYMOUS_USER_NAME = None  # guardian would otherwise write a user row of its own
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
# Users who must have a second factor. With TLS, approvers and administrators; without it (a trial
# on one machine) no user.
MFA_REQUIRED = env_choice(
    "MFA_REQUIRED", "privileged" if HTTPS else "nobody", ("nobody", "privileged", "everybody")
)
# Who decides, exports or changes keys proved who they are within so many seconds.
FRESH_SECONDS = env_int("FRESH_SECONDS", 900, least=30, most=86_400)
# An identity provider that speaks OpenID Connect, and what its groups are here.
OIDC_ISSUER = env_issuer("OIDC_ISSUER")
OIDC_CLIENT_ID = env_text("OIDC_CLIENT_ID")
OIDC_CLIENT_SECRET = env_text("OIDC_CLIENT_SECRET")
OIDC_NAME = env_text("OIDC_NAME", "single sign-on")
OIDC_SCOPES = env_text("OIDC_SCOPES", "openid profile email")
OIDC_GROUPS_CLAIM = env_text("OIDC_GROUPS_CLAIM", "groups")
OIDC_ROLES = env_roles("OIDC_ROLES")
OIDC_ORGANIZATION = env_text("OIDC_ORGANIZATION")
# Values of `amr` or `acr` that say the provider asked for a second factor; * takes its word for it.
OIDC_MFA = env_list("OIDC_MFA")

# --- the browser --------------------------------------------------------------------------------
SECURE_CSP = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF],
    "style-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "font-src": [CSP.SELF],
    "connect-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
    # Not report-to: that comes a minute later, or never where there is no TLS.
    "report-uri": ["/csp-report"],
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_SSL_REDIRECT = HTTPS
# How long browsers insist on HTTPS: for this host, for its subdomains, in the lists of browsers.
SECURE_HSTS_SECONDS = env_int("HSTS_SECONDS", 31_536_000) if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS and env_bool("HSTS_SUBDOMAINS", False)
SECURE_HSTS_PRELOAD = HTTPS and env_bool("HSTS_PRELOAD", False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_NAME = "__Host-session" if HTTPS else "toolcrib_session"
CSRF_COOKIE_NAME = "__Host-csrf" if HTTPS else "toolcrib_csrf"
SESSION_COOKIE_AGE = 12 * 3600
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "config.http.errors.csrf_failure"
X_FRAME_OPTIONS = "DENY"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 3600

# --- the API ------------------------------------------------------------------------------------
DATA_UPLOAD_MAX_MEMORY_SIZE = env_int("MAX_REQUEST_BYTES", 12 * 1024 * 1024, least=1024)
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1_100  # a thousand items of an import, each with its box
FILE_UPLOAD_HANDLERS = ["config.http.request_bodies.BoundedUploads"]
READS_PER_MINUTE = env_int("READS_PER_MINUTE", 1_200, least=0, most=1_000_000)
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tools.api.common.authentication.BearerAuthentication",
        "tools.api.common.authentication.PersonAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["tools.api.common.authentication.MayUseApi"],
    "DEFAULT_THROTTLE_CLASSES": ["tools.api.common.authentication.ReadThrottle"],
    "DEFAULT_PARSER_CLASSES": ["tools.api.common.content_types.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["tools.api.common.content_types.JSONRenderer"],
    "DEFAULT_PAGINATION_CLASS": "tools.web.cursor_pagination.CursorPages",
    "DEFAULT_SCHEMA_CLASS": "tools.api.documentation.ApiSchema",
    "EXCEPTION_HANDLER": "tools.api.common.errors.exception_response",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "rest_framework.negotiation.DefaultContentNegotiation",
    "PAGE_SIZE": 50,
    "URL_FORMAT_OVERRIDE": None,  # `format` is a parameter of ours
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Toolcrib",
    "DESCRIPTION": "Which agent may do what, and what did it do?",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVERS": [{"url": "/", "description": "The server that this was read from."}],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "tools.api.documentation.add_components",
    ],
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SERVE_AUTHENTICATION": ["tools.api.common.authentication.PersonAuthentication"],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "SORT_OPERATIONS": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "AlertSeverityEnum": ["info", "warning", "critical"],
        "AllowanceKindEnum": ["calls", "cost"],
        "GrantSubjectKindEnum": ["agent", "user", "people_group"],
        "AuditOutcomeEnum": ["started", "success", "failure", "denied", "changed"],
        "BatchModeEnum": ["sequential", "parallel"],
        "ContentSchemaKindEnum": ["json-schema", "table-schema", "xml-schema"],
        "ExecutionStatusEnum": "tools.api.common.serializer_fields.STATUSES",
        "FindingSeverityEnum": ["error", "warning", "information"],
        "GrantEffectEnum": ["grant"],
        "GrantKindEnum": ["tool", "tool_group", "requestable_group", "permission"],
        "GroupEffectEnum": ["group"],
        "IsolationLevelEnum": "tools.api.common.serializer_fields.LEVELS",
        "LicenseStateEnum": ["none", "valid", "expiring", "grace", "expired"],
        "McpFindingResultEnum": ["refused", "repaired"],
        "McpGrantEnum": ["authorization_code", "client_credentials"],
        "MessageKindEnum": "tools.models.message.MessageKind",
        "MessageStateEnum": "tools.models.message.MessageState",
        "ParameterTypeEnum": ["String", "Integer", "Number", "Boolean", "Array", "Object"],
        "PathModeEnum": ["ro", "rw"],
        "PayloadStateEnum": ["none", "withheld", "erased", "shown"],
        "RequestKindEnum": ["list", "execute", "agent"],
        "ResolutionEnum": "tools.models.execution.Resolution",
        "ResultEnum": ["created", "updated", "unchanged", "review", "refused"],
        "ScopeEnum": [
            "read",
            "execute",
            "catalog",
            "agents",
            "audit",
            "organization",
            "manage",
        ],
        "TierEffectEnum": ["tier"],
        "TokenScopeEnum": ["read", "execute"],
        "ToolGroupsEffectEnum": ["tool_groups"],
        "ToolStatusEnum": "tools.models.tool.ToolStatus.values",
        "ToolTypeEnum": "tools.api.common.serializer_fields.TYPES",
    },
}

# Several processes count; each writes a file of its own here and /metrics adds them up.
METRICS_DIR = Path(env_text("PROMETHEUS_MULTIPROC_DIR") or DATA_DIR / "metrics")
METRICS_DIR.mkdir(parents=True, exist_ok=True)
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics_directory(METRICS_DIR))

# --- executions ---------------------------------------------------------------------------------
SANDBOX_SOCKET = env_text("SANDBOX_SOCKET") or str(sandbox_socket(DATA_DIR))
# Where the kernel forbids namespaces: Standard tools with Landlock and seccomp alone.
SANDBOX_ALLOW_DEGRADED = env_bool("SANDBOX_ALLOW_DEGRADED", False)
EGRESS_SOCKET = env_text("EGRESS_SOCKET") or str(egress_socket(DATA_DIR))
# For upstreams of one's own; every other address that is not public is refused.
EGRESS_ALLOW_PRIVATE = env_networks("EGRESS_ALLOW_PRIVATE")
EGRESS_CA_FILE = env_text("EGRESS_CA_FILE")
# MCP servers that may be started inside the sandbox, and which of this installation's environment
# variables and files (env:NAME, file:/path) a server's headers may refer to.
MCP_STDIO_ALLOWED = env_stdio("MCP_STDIO_ALLOWED")
# Tool services that are not at our own broker.
TOOL_SERVICE_BROKERS = env_brokers("TOOL_SERVICE_BROKERS")
MCP_REFERENCES_ALLOWED = env_list("MCP_REFERENCES_ALLOWED")
EXECUTION_TIMEOUT_S = env_int("EXECUTION_TIMEOUT_S", 300, least=1, most=3600)
EXECUTION_LEASE_S = env_int("EXECUTION_LEASE_S", 15, least=3, most=600)
# How long a stopping worker lets its calls run before it requeues them.
EXECUTION_GRACE_S = env_int("EXECUTION_GRACE_S", 20, least=0, most=600)
# A call that has waited so long for a worker never begins.
EXECUTION_QUEUE_S = env_int("EXECUTION_QUEUE_S", 600, least=10, most=86_400)
# Load shedding: once the oldest queued call has waited so long, further calls are rejected.
QUEUE_AGE_S = env_int("QUEUE_AGE_S", 30, least=1, most=3600)
# How long a call awaits approval.
CONFIRMATION_MINUTES = env_int("CONFIRMATION_MINUTES", 15, least=1, most=10_080)
# How long an idempotency key is bound to the request it was first sent with.
# Which calls the process that accepted them performs, while their callers wait.
EXECUTE_IN_PLACE = env_choice("EXECUTE_IN_PLACE", "upstream", ("upstream", "none"))
# How workers are woken: by an entry of a list in Redis, or by a Celery message.
EXECUTION_DISPATCH = env_choice("EXECUTION_DISPATCH", "wake", ("wake", "celery"))
IDEMPOTENCY_HOURS = env_int("IDEMPOTENCY_HOURS", 24, least=1, most=8760)
# A larger output is stored outside its execution's row and is read by its own URL.
OUTPUT_INLINE_BYTES = env_int("OUTPUT_INLINE_BYTES", 1024 * 1024, least=1024)
# Where browsers reach the live process (SSE): a URL, the path that a proxy forwards to it, or off.
# Empty: the host of the page at LIVE_PORT, and with HTTPS the path /live/.
LIVE_URL = env_live("LIVE_URL")
LIVE_PORT = env_int("LIVE_PORT", 0, most=65_535)
WEB_PORT = env_int("WEB_PORT", 0, most=65_535)
LIVE_STREAMS = env_int("LIVE_STREAMS", 2_000, least=1, most=50_000)
# Requests that wait, and event streams, of each web process.
WAITING_PLACES = env_int("WAITING_PLACES", 256, least=8, most=4096)
SESSION_IDLE_HOURS = env_int("SESSION_IDLE_HOURS", 24, least=1, most=8760)
METRICS_TOKEN = env_text("METRICS_TOKEN")
# Raw Ed25519 public keys of license issuers, in base64; without one no license can be installed.
LICENSE_KEYS = env_keys("LICENSE_KEYS")
# How many days each kind of row is kept; 0 is for ever.
RETENTION_DAYS = env_days(
    "RETENTION_DAYS",
    {
        "alerts": 400,
        "confirmations": 400,
        "deliveries": 90,
        "events": 400,
        "executions": 400,
        "exports": 30,
        "messages": 400,
        "outputs": 0,
        "payloads": 90,
        "records": 400,
        "requests": 90,
        "sessions": 90,
        "transitions": 400,
    },
)
# How often an idle log is compared with what was published of it, and signed.
AUDIT_QUIET_SECONDS = env_int("AUDIT_QUIET_SECONDS", 60, least=10, most=3600)
# Remote anchors of audit log checkpoints: POST to a webhook, PUT below an object store's URL.
AUDIT_ANCHOR_URL = env_text("AUDIT_ANCHOR_URL")
AUDIT_ANCHOR_PUT_URL = env_text("AUDIT_ANCHOR_PUT_URL")
AUDIT_ANCHOR_TOKEN = env_text("AUDIT_ANCHOR_TOKEN")
TOKEN_DAYS = env_int("TOKEN_DAYS", 90, least=1, most=365)

# --- alerts -------------------------------------------------------------------------------------
EMAIL_OPTIONS = mail_options(env_text("EMAIL_URL"))
EMAIL_FROM = env_text("EMAIL_FROM", "toolcrib@localhost")
ALERT_POST = "tools.httpclient.outbound.post"

# --- models and knowledge -------------------------------------------------------------------------
# Any OpenAI-compatible endpoint, up to and with its version: https://host/v1. It is the operator's
# own choice and may be private.
LLM_BASE_URL = env_url("LLM_BASE_URL")
LLM_API_KEY = env_text("LLM_API_KEY")
LLM_MODEL = env_text("LLM_MODEL")
LLM_TOOL_CALLS = env_bool("LLM_TOOL_CALLS", True)
# Per million tokens, in the unit of every other cost.
LLM_PRICES = env_prices("LLM_PRICES")
# Any SPARQL 1.1 endpoint; without one, our own.
SPARQL_URL = env_url("SPARQL_URL") or oxigraph.query_url(DATA_DIR)
SPARQL_UPDATE_URL = env_url("SPARQL_UPDATE_URL") or oxigraph.update_url_beside(SPARQL_URL)

CELERY_BROKER_URL = broker_url(REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False  # the row's lease, not the message, says who works on it
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_DEFAULT_QUEUE = "executions"  # housekeeping has one of its own: CELERY_TASK_ROUTES
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "ack_emulation": False,  # a lost dispatch is repeated; no copies are kept
    "socket_timeout": 3,  # a Redis that hangs holds up no call for longer
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "health_check_interval": 25,
    "global_keyprefix": "toolcrib:celery:",
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
# Housekeeping: how often each task begins, in seconds. One that could not begin until the next is
# due is dropped.
_BEATS = {
    "tools.execution.tasks.reap": 5,
    "tools.execution.tasks.hear_services": 5,
    "tools.execution.tasks.watch_confirmations": 10,
    "tools.execution.tasks.record_isolation": 15,
    "audit.tasks.raise_alerts": 15,
    "audit.tasks.watch_sealer": 15,
    "audit.tasks.deliver_alerts": 10,
    "audit.tasks.write_export": 5,
    "audit.tasks.sweep_exports": 600,
    "tools.execution.tasks.forget_expired": 60,
    "tools.execution.tasks.forget_rate_hits": 60,
    "tools.execution.tasks.keep_sessions": 60,
    "tools.execution.tasks.forget_idempotency_keys": 600,
    "tools.execution.tasks.expire_outputs": 600,
    "tools.execution.tasks.apply_retention": 600,
    "tools.execution.tasks.learn_questions": 300,
    "tools.execution.tasks.add_up_days": 600,
    "tools.execution.tasks.apply_license_expiry": 3600,
    "audit.tasks.thin_checkpoints": 3600,
    "audit.tasks.make_partitions": 3600,
    "audit.tasks.keep_evidence": 86_400,
    "audit.tasks.verify_logs": 86_400,
}
CELERY_BEAT_SCHEDULE = {
    task: {"task": task, "schedule": float(every_s), "options": {"expires": every_s}}
    for task, every_s in _BEATS.items()
}
CELERY_TASK_ROUTES = {task: {"queue": "housekeeping"} for task in _BEATS}

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

LOGGING = logging_config(env_text("LOG_LEVEL", "INFO"))
