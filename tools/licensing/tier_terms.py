"""The terms of a tier as comparable values, and the limits on changing them.

A signed license names a tier and not what that tier includes. So a tier that an installed license
names includes at most what it was delivered with (specification S3, 7): otherwise the licensee
could write the terms.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from django.core.exceptions import ValidationError

from sandbox.spec import IsolationLevel
from tools.definitions.implementations.tool_types import IN_EVERY_LICENSE
from tools.errors import Conflict, Malformed
from tools.models import LicenseTier, Organization

TERMS = ("builtin_tools", "max_custom_tools", "isolation_levels", "custom_sandbox_profiles")
_CORE = ("read_file", "write_file", "search_knowledge", "web_fetch", "execute_ckvs_query")
_TEAMS = (*_CORE, "send_message", "create_entity", "validate_content")
_LEVELS = (IsolationLevel.NONE, IsolationLevel.STANDARD)
DELIVERED: Mapping[str, tuple[tuple[str, ...], int]] = MappingProxyType(
    {"Core": (_CORE, 0), "WriterPro": (_CORE, 10), "Teams": (_TEAMS, 50)}
)


def terms_of(tier: LicenseTier) -> dict[str, Any]:
    return {field: getattr(tier, field) for field in TERMS}


def same_terms(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether both include the same; the order of a list does not matter."""
    return all(_unordered(some[field]) == _unordered(others[field]) for field in TERMS)


def check_tier(tier: LicenseTier) -> None:
    """Raises `Malformed` for invalid terms, and `Conflict` for those that a license forbids."""
    if set(tier.isolation_levels or ()) - set(IsolationLevel):
        known = ", ".join(IsolationLevel)
        raise Malformed(f"isolation_levels may hold only {known}.", code="tier_invalid")
    try:
        tier.full_clean()
    except ValidationError as error:
        raise Malformed(" ".join(error.messages), code="tier_invalid") from None
    beyond = _beyond_delivery(tier)
    if beyond and (licensed := _licensed(tier)):
        raise Conflict(
            f"The signed licence of {licensed} names the tier {tier.name}, which then includes at "
            f"most what it was delivered with. Too much: {', '.join(beyond)}.",
            code="tier_is_licensed",
        )


def _beyond_delivery(tier: LicenseTier) -> list[str]:
    """In words. A tier of another name was created here, and no license limits it."""
    if tier.name not in DELIVERED:
        return []
    builtin, custom = DELIVERED[tier.name]
    allowed = {*builtin, *IN_EVERY_LICENSE}
    flaws = (
        (_exceeds(tier.builtin_tools, allowed), "built-in tools"),
        (_exceeds(tier.isolation_levels, _LEVELS), "isolation levels"),
        (_exceeds_limit(tier.max_custom_tools, custom), f"more than {custom} custom tools"),
        (tier.custom_sandbox_profiles, "sandbox profiles"),
    )  # fmt: skip
    return [words for flawed, words in flaws if flawed]


def _exceeds(names: Iterable[str] | None, allowed: Iterable[str]) -> bool:
    return names is None or not set(names) <= set(allowed)


def _exceeds_limit(limit: int | None, most: int) -> bool:
    return limit is None or limit > most


def _licensed(tier: LicenseTier) -> str:
    rows = Organization.objects.filter(tier_id=tier.pk).exclude(license_id="")
    return rows.values_list("slug", flat=True).first() or "" if tier.pk else ""


def _unordered(value: Any) -> Any:
    return frozenset(value) if isinstance(value, list | tuple) else value
