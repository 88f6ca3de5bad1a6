"""The one indexed query behind each call: a token's holder, or an account's, with the
organization's revision. Plain rows, no objects: every request runs it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from audit.inserts import fetch_one
from tools.models.pipeline_sql import HOLDER_COLUMNS, STILL_VALID, TOKEN_HOLDER

_OF_ACCOUNT = f"""
    SELECT {HOLDER_COLUMNS}, t.scopes, t.groups, t.tools, coalesce(
        {STILL_VALID}, %(token)s::uuid IS NULL
    )
    FROM tools_user u
    JOIN tools_organization o ON o.id = %(organization)s
    LEFT JOIN tools_agent a ON a.service_account_id = u.id
    LEFT JOIN tools_token t ON t.id = %(token)s::uuid AND t.user_id = u.id
    WHERE u.id = %(user)s
"""  # noqa: S608
_OF_AGENTS = f"""
    SELECT {HOLDER_COLUMNS}
    FROM tools_agent a
    JOIN tools_user u ON u.id = a.service_account_id
    JOIN tools_organization o ON o.id = a.organization_id
    WHERE a.id = ANY(%s)
"""  # noqa: S608


class Holder(NamedTuple):
    """The owner of a credential."""

    user_id: UUID
    username: str
    groups: list[str]
    permissions: list[str]
    superuser: bool
    user_active: bool
    home_id: UUID
    organization_id: UUID
    organization: str
    revision: int
    agent_id: UUID | None
    agent: str | None
    agent_active: bool | None
    strict: bool | None

    @property
    def active(self) -> bool:
        return self.user_active and (self.agent_id is None or bool(self.agent_active))


class TokenRow(NamedTuple):
    id: UUID
    secret_hash: str
    scopes: list[str]
    groups: list[str] | None
    tools: list[str] | None
    expires_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None

    @property
    def limits(self) -> "TokenLimits":
        return TokenLimits(self.scopes, self.groups, self.tools)


class TokenLimits(NamedTuple):
    """The narrowing of a token; each None stands for all of its holder's."""

    scopes: list[str] | None
    groups: list[str] | None
    tools: list[str] | None


type Account = tuple[Holder, TokenLimits, bool]  # with whether the token is valid


def holder_of_token(public_id: str) -> tuple[Holder, TokenRow] | None:
    row = fetch_one(TOKEN_HOLDER.text, {"public_id": public_id})
    width = len(Holder._fields)
    return (Holder(*row[:width]), TokenRow(*row[width:])) if row else None


def holder_of_account(*, user: UUID, organization: UUID, token: UUID | None) -> Account:
    """The account's owner and the token's narrowing by current rows, and whether the token is still
    valid."""
    row = fetch_one(_OF_ACCOUNT, {"user": user, "organization": organization, "token": token})
    if row is None:
        raise LookupError("the account is gone")
    return account_of(row)


def account_of(row: Sequence[Any]) -> Account:
    """The same of a row with `pipeline_sql.ACCOUNT_COLUMNS`."""
    width = len(Holder._fields)
    return Holder(*row[:width]), TokenLimits(*row[width:-1]), row[-1]


def holders_of_agents(agents: list[UUID]) -> list[Holder]:
    """Existing ones, in no order."""
    with connection.cursor() as cursor:
        cursor.execute(_OF_AGENTS, [agents])
        return [Holder(*row) for row in cursor.fetchall()]
