"""This process's client of sandboxd."""

from functools import lru_cache

from django.conf import settings

from sandbox.client import SandboxClient


@lru_cache(maxsize=1)
def sandbox_client() -> SandboxClient:
    """Connections to sandboxd and to the egress broker; kept, never made in a call."""
    return SandboxClient(settings.SANDBOX_SOCKET, settings.EGRESS_SOCKET)
