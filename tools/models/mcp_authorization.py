"""OAuth authorizations of MCP servers, stored encrypted."""

from django.db import models
from django.db.models import Q

from tools.models.ids import new_id
from tools.models.source import McpServer
from tools.models.user import User


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
