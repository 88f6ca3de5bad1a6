"""Restricts management with a narrowed token: it may change only its groups and tools."""

from typing import Any

from tools.definitions.callers import MANAGING_SCOPES, Caller, CallerKind
from tools.errors import Forbidden
from tools.models import Token, Tool

# Fields of a group that affect more than the group itself.
BROADER = frozenset({"parent", "permissions"})


def manages_some(caller: Caller) -> bool:
    """Whether a person's token has a managing scope, and is not narrowed."""
    if caller.kind != CallerKind.PERSON or caller.narrowed:
        return False
    return any(caller.allows(scope) for scope in MANAGING_SCOPES)


def check_own_token(caller: Caller, token: Token, *, gives: bool = False) -> None:
    """Raises `Forbidden` where the caller may not revoke a token of the same holder; with `gives`
    where it would get one with more rights than its own."""
    if caller.token_id == token.pk:
        return
    check_not_narrowed(caller)
    lacking = [scope for scope in token.scopes if not caller.allows(scope)] if gives else []
    if not manages_some(caller) or lacking:
        needed = ", ".join(lacking) or "that manages"
        raise Forbidden(
            f"This token lacks the scope {needed}; another token of yours needs it.",
            code="scope_missing",
        )


def check_not_narrowed(caller: Caller) -> None:
    """Raises `Forbidden` for a narrowed token, where the change is of no tool or group of it."""
    if caller.narrowed:
        raise _narrowed(caller)


def check_row(caller: Caller, *, tool: str | None = None, group: str | None = None) -> None:
    """Raises `Forbidden` where a narrowed token does not cover this tool or this group."""
    if not caller.narrowed:
        return
    if group is not None:
        if caller.token_tools is not None or group not in (caller.token_groups or ()):
            raise _narrowed(caller)
        return
    if caller.token_tools is not None and tool not in caller.token_tools:
        raise _narrowed(caller)
    if caller.token_groups is not None and not _lies_in(caller, tool or ""):
        raise _narrowed(caller)


def check_group_change(caller: Caller, changes: dict[str, Any]) -> None:
    """Raises `Forbidden` where a narrowed token changes a `BROADER` field of a group."""
    if caller.narrowed and changes.keys() & BROADER:
        raise _narrowed(caller)


def _lies_in(caller: Caller, tool: str) -> bool:
    """Whether all groups of the tool are among the token's."""
    if "\x00" in tool:  # which PostgreSQL cannot store
        return False
    rows = Tool.objects.filter(organization_id=caller.organization_id, name=tool)
    groups = rows.values_list("version__definition__group", flat=True).first()
    return bool(groups) and {*(groups or ())} <= (caller.token_groups or frozenset())


def _narrowed(caller: Caller) -> Forbidden:
    parts = (("groups", caller.token_groups), ("tools", caller.token_tools))
    limits = {what: sorted(items) for what, items in parts if items is not None}
    said = " and ".join(f"the {what} {', '.join(items)}" for what, items in limits.items())
    return Forbidden(
        f"This token is narrowed to {said}. It manages these and nothing else; use a token that is "
        "not narrowed.",
        code="token_narrowed",
        **limits,
    )
