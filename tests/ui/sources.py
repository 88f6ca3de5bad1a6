"""Services that announce themselves and servers that list tools, for pages to show."""

import base64
import json
from datetime import timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.utils import timezone

from tests import factories
from toolcrib_service.service import signed_bytes
from tools.catalog.mcp import mcp_servers
from tools.catalog.services import announcements
from tools.models import McpServer, Organization, ToolService


def announced_tool(name: str, service: str, **fields: Any) -> dict[str, Any]:
    """A tool as its service announces it."""
    said = {"name": name, "type": "tool-service", "description": "Tells one.", "service": service}
    return said | fields


class Author:
    """A service that announces itself, with a key of its own."""

    def __init__(self, organization: Organization) -> None:
        self.organization, self.private = organization, Ed25519PrivateKey.generate()
        self.key = base64.b64encode(self.private.public_key().public_bytes_raw()).decode()

    def says(self, name: str, tools: list[dict[str, Any]]) -> ToolService:
        document = json.dumps(
            {
                "organization": self.organization.slug,
                "service": {"id": name, "request-queue": f"q-{name}", "response-queue": "r"},
                "groups": None,
                "tools": tools,
            }
        )
        signature = base64.b64encode(self.private.sign(signed_bytes(document))).decode()
        return announcements.hear(
            organization=self.organization, document=document, key=self.key, signature=signature
        )

    def approved(self, name: str, tools: list[dict[str, Any]]) -> ToolService:
        row = self.says(name, tools)
        return announcements.approve_service(
            row=row, digest=row.announced_digest, by=factories.actor(self.organization)
        )


def lease(row: ToolService, seconds: float) -> None:
    """Until then a process stands for it; none does when that is over."""
    until = timezone.now() + timedelta(seconds=seconds)
    row.refresh_from_db()
    announcements.note_lease(row=row, until=until if seconds > 0 else None)


def server(organization: Organization, name: str, url: str, **fields: Any) -> McpServer:
    return mcp_servers.create_server(
        organization=organization,
        server={"name": name, "url": url, **fields},
        by=factories.actor(organization),
    )


def listed_server(organization: Organization, name: str, words: str) -> McpServer:
    """One that listed a tool, every text of which is `words`, and died with these words."""
    row = server(organization, name, "https://mcp.example/mcp")
    tool = {"name": words, "title": words, "description": words, "inputSchema": {"type": "object"}}
    row.snapshot, row.snapshot_at, row.dead_since = [tool], timezone.now(), timezone.now()
    row.last_error = words
    row.save()
    return row
