"""The identifier of an identity provider, and the mapping of its groups to groups here."""

from urllib.parse import urlsplit

from config.env import BadSetting, env_list, env_url

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ROLES = ("administrator", "tool-manager", "approver", "auditor", "viewer")


def env_issuer(name: str) -> str:
    """The provider's issuer, exactly as it writes it itself. In the clear on this machine alone."""
    value = env_url(name)
    parts = urlsplit(value)
    if value and parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise BadSetting(f"{name} must begin with https://.")
    return value


def env_roles(name: str) -> dict[str, list[str]]:
    """Roles by the name of a provider's group: `crib-admins=administrator,staff=viewer`. A group
    that is named twice gives both."""
    found: dict[str, list[str]] = {}
    for pair in env_list(name):
        group, _, role = pair.rpartition("=")
        if not group.strip() or role.strip() not in ROLES:
            raise BadSetting(
                f"{name}: {pair[:60]!r} is not GROUP=ROLE, with a role of {', '.join(ROLES)}."
            )
        found.setdefault(group.strip(), []).append(role.strip())
    return found
