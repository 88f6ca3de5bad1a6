"""Lists grants for people who may see them."""

from tools.accounts.grants.grant_actions import AGENT, PEOPLE, PERSON
from tools.accounts.user_permissions import may, require
from tools.definitions.callers import Caller
from tools.models.permission import GrantRow, Sought, grant_rows

_SEEN_BY = {AGENT: "view_agent", PERSON: "view_user", PEOPLE: "view_user"}


def granted(
    caller: Caller,
    sought: Sought,
    *,
    most: int,
    beside: GrantRow | None = None,
    before: bool = False,
) -> list[GrantRow]:
    """In their order; those right after the row `beside`, or right before it. Grants of agents need
    permission to view agents, those of people and their groups permission to view people; raises
    `Forbidden` for a caller with neither."""
    kinds = [kind for kind, permission in _SEEN_BY.items() if may(caller, permission)]
    require(caller, _SEEN_BY[kinds[0] if kinds else AGENT])
    seen = sought._replace(subject_kinds=kinds)
    return grant_rows(caller.organization_id, seen, most=most, beside=beside, before=before)
