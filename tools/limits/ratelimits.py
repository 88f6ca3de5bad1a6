"""Rate limits of tool calls per agent and minute: a sliding window, exact under concurrency.

Redis counts, in one call. PostgreSQL counts while Redis is unavailable or not trusted, and it
decides: calls that Redis admitted are checked against it in the transaction that writes the call's
row. So the limit holds also when Redis loses its data, and when only some processes reach Redis.
`confirm` costs two short statements.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from audit.inserts import insert_row
from tools import metrics
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.results import Rate
from tools.errors import RateLimited
from tools.limits.ratewindow import WINDOW_S, RateWindow
from tools.models import RateHit
from tools.policy.questions import Gate, Verdict, passed, refused

REDIS, POSTGRES = "redis", "postgres"
window = RateWindow()
_DRAFTS = "a draft"  # no tool's name has a space
# Two locks, always in this order. Rows that Redis let pass share the first, so that they do not
# wait for each other; a process that counts here and writes hits holds it exclusively.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_TOGETHER = "SELECT pg_advisory_xact_lock_shared(hashtextextended(%s, 0))"
_ONE_BY_ONE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 1))"
_HITS = """
    SELECT at FROM tools_ratehit
    WHERE user_id = %(user)s AND tool_name = %(tool)s AND organization_id = %(organization)s
        AND at > statement_timestamp() - interval '60 s'
"""
_ANY = f"SELECT EXISTS ({_HITS})"
# The text of the conditions is that of the index execution_rated.
_PASSED = f"""
    WITH passed AS (
        {_HITS}
        UNION ALL
        SELECT created_at FROM tools_execution
        WHERE user_id = %(user)s AND tool_name = %(tool)s AND organization_id = %(organization)s
            AND rated_by = 'redis' AND NOT rated_by = ''
            AND created_at > statement_timestamp() - interval '60 s'
    ), number AS (SELECT count(*) AS used FROM passed)
    SELECT used, extract(epoch FROM statement_timestamp() - (
        SELECT at FROM passed ORDER BY at OFFSET greatest(used - %(limit)s::bigint, 0) LIMIT 1
    ))::float8 FROM number
"""  # noqa: S608
_FORGET = "DELETE FROM tools_ratehit WHERE at < statement_timestamp() - interval '120 s'"


@dataclass(frozen=True, slots=True)
class _Bound:
    """Whose calls of what are counted, and how many may pass."""

    caller: Caller
    tool: CatalogTool
    limit: int

    @property
    def key(self) -> str:
        """Per account: an agent with many tokens has one limit."""
        caller = self.caller
        return f"toolcrib:rate:{caller.organization_id}:{caller.user_id}:{self.tool.id}"

    @property
    def lock(self) -> str:
        """By the tool's name, as rows have it."""
        caller = self.caller
        return f"toolcrib:rate:{caller.organization_id}:{caller.user_id}:{self.tool.name}"

    @property
    def values(self) -> dict[str, Any]:
        return {
            "user": self.caller.user_id,
            "organization": self.caller.organization_id,
            "tool": self.tool.name,
            "limit": self.limit,
        }

    def rate(self, used: int, leaves_in_s: float, counted_by: str, ticket: bytes = b"") -> Rate:
        return Rate(self.limit, used, max(1, math.ceil(leaves_in_s)), counted_by, ticket)

    def refusal(self, used: int, leaves_in_s: float) -> RateLimited:
        wait_s = max(1, math.ceil(leaves_in_s))
        return RateLimited(
            f"{self.caller.name} may call the tool {self.tool.name} {self.limit} times a minute, "
            f"and did. Try again in {wait_s} s.",
            gate=Gate.RATE.value,
            limit=self.limit,
            used=used,
            resets_in_s=wait_s,
        )


def count(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> Rate | None:
    """Count one call; None where the tool has no limit. Raises `RateLimited`, uncounted."""
    limit = tool.definition.raw["rate_limit_per_minute"]
    if limit is None:
        return None
    bound = _Bound(caller, tool, limit)
    answer = window.ask(bound.key, limit)
    if answer is None:
        return _by_postgres(bound)
    metrics.rate_decisions.labels(REDIS).inc()
    if not answer.passes:
        raise bound.refusal(answer.used, answer.leaves_in_s)
    return bound.rate(answer.used, answer.leaves_in_s, REDIS, answer.ticket)


def count_read(caller: Caller) -> Rate | None:
    """Count one request that reads, of a token or of a person's browser. Raises `RateLimited`.

    None without a limit, and while Redis does not answer: reads are not counted in PostgreSQL."""
    limit = settings.READS_PER_MINUTE
    holder = caller.token_id or caller.user_id
    answer = window.ask(f"toolcrib:rate:read:{holder}", limit) if limit else None
    if answer is None:
        return None
    resets_in_s = max(1, math.ceil(answer.leaves_in_s))
    if not answer.passes:
        raise RateLimited(
            f"{caller.name} may read {limit} times a minute, and did. "
            f"Try again in {resets_in_s} s.",
            gate=Gate.RATE.value, limit=limit, used=answer.used, resets_in_s=resets_in_s,
        )  # fmt: skip
    return Rate(limit, answer.used, resets_in_s, REDIS)


def count_drafts(caller: Caller, limit: int) -> None:
    """Count one test run of an unsaved tool, under any name. Raises `RateLimited`, uncounted.
    PostgreSQL alone counts: there are few."""
    with transaction.atomic():
        values: dict[str, Any] = {
            "user": caller.user_id,
            "organization": caller.organization_id,
            "tool": _DRAFTS,
            "limit": limit,
        }
        with connection.cursor() as cursor:
            cursor.execute(_ALONE, [f"toolcrib:rate:{caller.user_id}:{_DRAFTS}"])
            cursor.execute(_PASSED, values)
            used, age_s = cursor.fetchone()
        if used >= limit:
            wait_s = max(1, math.ceil(WINDOW_S - (age_s or 0)))
            raise RateLimited(
                f"{caller.name} may run {limit} drafts a minute, and did. Try again in {wait_s} s.",
                gate=Gate.RATE.value, limit=limit, used=used, resets_in_s=wait_s,
            )  # fmt: skip
        insert_row(
            RateHit,
            {
                "user_id": caller.user_id,
                "organization_id": caller.organization_id,
                "tool_name": _DRAFTS,
            },
        )


def confirm(rate: Rate | None, *, caller: Caller, tool: CatalogTool) -> Rate | None:
    """Check a call that Redis admitted against PostgreSQL's count. Raises `RateLimited`.

    Call it in the transaction that writes the row, before it takes any other lock.
    """
    if rate is None or rate.counted_by != REDIS:
        return rate
    bound = _Bound(caller, tool, rate.limit)
    with connection.cursor() as cursor:
        cursor.execute(_TOGETHER, [bound.lock])
        cursor.execute(_ANY, bound.values)
        if not cursor.fetchone()[0]:
            return rate
        cursor.execute(_ONE_BY_ONE, [bound.lock])
    used, leaves_in_s = _passed(bound)
    if used >= bound.limit:
        window.take_back(bound.key, rate.ticket)
        raise bound.refusal(used, leaves_in_s)
    return replace(rate, used=used + 1)


def peek(caller: Caller, tool: CatalogTool) -> Verdict:
    """The gate's current verdict, without counting."""
    limit = tool.definition.raw["rate_limit_per_minute"]
    if limit is None:
        return passed(Gate.RATE)
    bound = _Bound(caller, tool, limit)
    used, leaves_in_s = _passed(bound)
    if used >= limit:
        return refused(Gate.RATE, bound.refusal(used, leaves_in_s))
    return Verdict(Gate.RATE, True, reason=f"{used} of {limit} calls a minute are used.")


def forget_hits() -> None:
    """Delete hits that are older than every window."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET)


def _by_postgres(bound: _Bound) -> Rate:
    metrics.rate_decisions.labels(POSTGRES).inc()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_ALONE, [bound.lock])
        used, leaves_in_s = _passed(bound)
        if used >= bound.limit:
            raise bound.refusal(used, leaves_in_s)
        caller = bound.caller
        insert_row(
            RateHit,
            {
                "user_id": caller.user_id,
                "organization_id": caller.organization_id,
                "tool_name": bound.tool.name,
            },
        )
    window.note(bound.key, bound.limit)
    return bound.rate(used + 1, leaves_in_s, POSTGRES)


def _passed(bound: _Bound) -> tuple[int, float]:
    """How many calls passed within the window, and in how many seconds the next may pass.

    A statement of its own, so that it sees what was committed while the lock was waited for.
    """
    with connection.cursor() as cursor:
        cursor.execute(_PASSED, bound.values)
        used, age_s = cursor.fetchone()
    return used, WINDOW_S - (age_s or 0)
