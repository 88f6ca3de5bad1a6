"""Sources of tools beside the product and its administrators: tool services, and MCP servers with
their OAuth authorizations and changed definitions."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.tool import OnDrift, Tool
from tools.models.user import User


class Source(models.Model):
    """Carries groups for tools that name none (ruling 19)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=128)
    default_groups = ArrayField(
        models.CharField(max_length=100),
        null=True,
        blank=True,
        help_text="Groups of its tools that name none; empty value (null) is `default`.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ServiceStatus(models.TextChoices):
    """The status of the latest definition, by an administrator or by the service itself."""

    APPROVED = "approved"
    PENDING = "pending"
    REJECTED = "rejected"


class ToolService(Source):
    """A provider of tools behind a queue (specification S2).

    A self-announced service has a key. `digest` is its approved announcement; `announced_digest`
    the latest one, which may await approval.
    """

    request_queue = models.CharField(max_length=500, blank=True, default="", db_default="")
    response_queue = models.CharField(max_length=500, blank=True, default="", db_default="")
    config_params = models.JSONField(default=list, db_default=[], blank=True)
    status = models.CharField(
        max_length=10,
        choices=ServiceStatus.choices,
        default=ServiceStatus.APPROVED,
        db_default=ServiceStatus.APPROVED,
    )
    key = models.CharField(
        max_length=64, blank=True, default="", db_default="", editable=False,
        help_text="The public key it signs with, in base64; none for one that people wrote.",
    )  # fmt: skip
    digest = models.CharField(max_length=80, blank=True, default="", db_default="", editable=False)
    announced_digest = models.CharField(
        max_length=80, blank=True, default="", db_default="", editable=False
    )
    announcement = models.TextField(
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="The document it announced last.",
    )
    serving = models.BooleanField(
        default=True, db_default=True, editable=False,
        help_text="Whether a process stands for what was approved, by its lease.",
    )  # fmt: skip
    lease_until = models.DateTimeField(null=True, blank=True, editable=False)
    last_seen = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta(Source.Meta):
        constraints = [
            models.UniqueConstraint("organization", "name", name="tool_service_name_once"),
            models.UniqueConstraint(
                "organization",
                "request_queue",
                condition=~Q(request_queue=""),
                name="tool_service_queue_once",
            ),
            models.CheckConstraint(name="tool_service_has_a_name", condition=~Q(name="")),
            models.CheckConstraint(
                name="tool_service_status_is_known", condition=Q(status__in=[*ServiceStatus])
            ),
        ]

    @property
    def announced(self) -> bool:
        return self.key != ""

    @property
    def closed_because(self) -> str:
        """Why its tools cannot be called; empty where they can."""
        if not self.announced:
            return ""
        if not self.digest:
            return f"The tool service {self.name} is {self.status}; nobody approved it."
        if not self.serving:
            return f"The lease of the tool service {self.name} has run out; nobody serves it."
        return ""


class Transport(models.TextChoices):
    STREAMABLE_HTTP = "streamable-http"
    SSE = "sse"
    STDIO = "stdio"


class CredentialScope(models.TextChoices):
    """Whose credentials a call is sent with."""

    ORGANIZATION = "organization"
    USER = "user"
    AGENT = "agent"


class SealedValues(models.Model):
    """Headers and environment: references in the clear, values encrypted together (sealing.py)."""

    headers = models.JSONField(default=dict, db_default={}, blank=True)
    env = models.JSONField(default=dict, db_default={}, blank=True)
    sealed = models.BinaryField(null=True, editable=False)

    class Meta:
        abstract = True


class McpServer(Source, SealedValues):
    """An MCP server upstream. One without an address or a command only carries groups."""

    transport = models.CharField(
        max_length=20,
        choices=Transport.choices,
        default=Transport.STREAMABLE_HTTP,
        db_default=Transport.STREAMABLE_HTTP,
    )
    url = models.CharField(max_length=2_000, blank=True, default="", db_default="")
    command = models.CharField(max_length=500, blank=True, default="", db_default="")
    args = models.JSONField(default=list, db_default=[], blank=True)
    remote_name = models.CharField(
        max_length=128,
        blank=True,
        default="",
        db_default="",
        help_text="What the tool named like the server is called there.",
    )
    credential_scope = models.CharField(
        max_length=12,
        choices=CredentialScope.choices,
        default=CredentialScope.ORGANIZATION,
        db_default=CredentialScope.ORGANIZATION,
    )
    on_drift = models.CharField(
        max_length=10,
        choices=OnDrift.choices,
        default=OnDrift.REFUSE,
        db_default=OnDrift.REFUSE,
    )
    check_every_s = models.FloatField(
        default=0, db_default=0, help_text="How old the list may be that a call is held to."
    )
    enabled = models.BooleanField(default=True, db_default=True)
    protocol = models.CharField(
        max_length=20, blank=True, default="", db_default="", editable=False
    )
    protocol_at = models.DateTimeField(null=True, editable=False)
    snapshot = models.JSONField(null=True, editable=False, help_text="Its tools, as listed last.")
    snapshot_at = models.DateTimeField(null=True, editable=False)
    findings = models.JSONField(
        default=list, db_default=[], blank=True, editable=False,
        help_text="Of that list: tools refused, or read otherwise.",
    )  # fmt: skip
    last_seen_at = models.DateTimeField(null=True, editable=False)
    last_error = models.CharField(
        max_length=500, blank=True, default="", db_default="", editable=False
    )
    dead_since = models.DateTimeField(null=True, editable=False)

    class Meta(Source.Meta):
        verbose_name = "MCP server"
        constraints = [
            models.UniqueConstraint("organization", "name", name="mcp_server_name_once"),
            models.CheckConstraint(name="mcp_server_has_a_name", condition=~Q(name="")),
            models.CheckConstraint(
                name="mcp_transport_is_known", condition=Q(transport__in=Transport.values)
            ),
            models.CheckConstraint(
                name="mcp_scope_is_known", condition=Q(credential_scope__in=CredentialScope.values)
            ),
            models.CheckConstraint(
                name="mcp_drift_is_known", condition=Q(on_drift__in=OnDrift.values)
            ),
            models.CheckConstraint(name="mcp_check_age", condition=Q(check_every_s__gte=0)),
        ]


class McpCredential(SealedValues):
    """Headers that calls of one agent or person send to a server, beside the shared ones."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    server = models.ForeignKey(McpServer, on_delete=models.CASCADE, related_name="credentials")
    owner = models.CharField(max_length=250, help_text="`agent:id` or `user:id`.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "MCP credential"
        ordering = ["owner"]
        constraints = [models.UniqueConstraint("server", "owner", name="mcp_credential_once")]

    def __str__(self) -> str:
        return self.owner


class Grant(models.TextChoices):
    """The OAuth grant: a person consents, or the client uses its own credentials."""

    AUTHORIZATION_CODE = "authorization_code"
    CLIENT_CREDENTIALS = "client_credentials"


class McpOAuthClient(models.Model):
    """The OAuth client for a server's authorization server, where an administrator entered it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    server = models.OneToOneField(McpServer, on_delete=models.CASCADE, related_name="oauth_client")
    client_id = models.CharField(max_length=1_000)
    sealed = models.BinaryField(null=True, editable=False)
    grant = models.CharField(max_length=20, choices=Grant.choices, default=Grant.AUTHORIZATION_CODE)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "MCP OAuth client"
        ordering = ["server"]
        constraints = [
            models.CheckConstraint(
                name="mcp_oauth_grant_is_known", condition=Q(grant__in=Grant.values)
            )
        ]

    def __str__(self) -> str:
        return self.client_id


class McpAuthorization(models.Model):
    """The tokens that calls to a server are sent with. One process at a time renews them."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    server = models.ForeignKey(McpServer, on_delete=models.CASCADE, related_name="authorizations")
    owner = models.CharField(
        max_length=250, blank=True, help_text="`agent:id` or `user:id`; empty for everybody."
    )
    url = models.CharField(max_length=2_000, help_text="Of the server that consent was given for.")
    issuer = models.CharField(max_length=2_000)
    scope = models.JSONField(default=list)
    sealed = models.BinaryField(editable=False)
    expires_at = models.DateTimeField(null=True)
    flaw = models.CharField(
        max_length=500, blank=True, help_text="Why only a new consent helps; empty while good."
    )
    wanted = models.JSONField(null=True, help_text="What the server asked for beyond consent.")
    renewing_until = models.DateTimeField(null=True, editable=False)
    connected_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "MCP authorization"
        ordering = ["owner"]
        constraints = [models.UniqueConstraint("server", "owner", name="mcp_authorization_once")]

    def __str__(self) -> str:
        return self.owner or "the organization"


class McpConsent(models.Model):
    """A pending consent of a person at an authorization server. Valid once, for a short time."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    server = models.ForeignKey(McpServer, on_delete=models.CASCADE, related_name="consents")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="mcp_consents")
    owner = models.CharField(max_length=250, blank=True)
    url = models.CharField(max_length=2_000)
    state_digest = models.CharField(max_length=64, unique=True)
    sealed = models.BinaryField(editable=False)
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "MCP consent"
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return str(self.server)


class Decision(models.TextChoices):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn", "withdrawn: the upstream went back"


class UpstreamChange(models.Model):
    """A change of an upstream against the approved version."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="upstream_changes")
    seen = models.JSONField(help_text="The definition that follows from what the upstream says.")
    digest = models.CharField(max_length=71)
    seen_at = models.DateTimeField(auto_now_add=True)
    decision = models.CharField(max_length=9, choices=Decision.choices, default=Decision.OPEN)
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.CharField(max_length=200, blank=True)
    reason = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-seen_at", "-id"]
        indexes = [models.Index(fields=["decision", "-seen_at"], name="upstream_change_open")]
        constraints = [
            models.UniqueConstraint("tool", "digest", name="upstream_change_once"),
            models.CheckConstraint(
                name="upstream_change_decision_is_known",
                condition=Q(decision__in=Decision.values),
            ),
            models.CheckConstraint(
                name="upstream_change_decided_or_open",
                condition=Q(decision=Decision.OPEN, decided_at__isnull=True)
                | (~Q(decision=Decision.OPEN) & Q(decided_at__isnull=False)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool.name}, seen {self.seen_at:%Y-%m-%d %H:%M}"
