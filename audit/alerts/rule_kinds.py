"""Kinds of alert rules: the queries that find suspicious records.

A rule is a row that names one of them and gives it numbers and codes; the SQL is written here
alone. Every query returns organization, actor, subject, count, first and last time; `what` is the
condition of one record that a finding counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

MOST_CODES = 20
LONGEST_CODE = 80


@dataclass(frozen=True)
class AlertFinding:
    organization: str
    actor: str
    subject: str
    count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True)
class NumberRange:
    """Bounds of a number that a rule gives."""

    least: float
    most: float
    usual: float


@dataclass(frozen=True)
class AlertKind:
    """`says` ends in the rule's description, where the kind is about anything a rule may name.
    `counted` is the condition of a kind that counts records."""

    query: str
    what: str
    says: Callable[[AlertFinding, str], str]
    numbers: Mapping[str, NumberRange] = field(default_factory=dict)
    lists: tuple[str, ...] = ()
    counted: str = ""
    by_subject: bool = False

    def values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The query's parameters beside `window_s` and `least`; missing ones have their
        defaults."""
        numbers = {name: values.get(name, bounds.usual) for name, bounds in self.numbers.items()}
        return numbers | {name: list(values.get(name, ())) for name in self.lists}

    @property
    def newest(self) -> str:
        """At most `most` findings of each organization, and how many it has."""
        return _NEWEST_SQL.format(query=self.query)

    @property
    def unseen(self) -> str:
        """How many of a finding's records are later than `seen_at`."""
        return _UNSEEN_SQL.format(what=self.what)


_NEWEST_SQL = """
    SELECT organization, actor, subject, records, first, last, total FROM (
        SELECT *, count(*) OVER (PARTITION BY organization) AS total,
            row_number() OVER (PARTITION BY organization ORDER BY last DESC) AS place
        FROM ({query}) AS finding (organization, actor, subject, records, first, last)
    ) AS placed
    WHERE place <= %(most)s ORDER BY last
"""
_UNSEEN_SQL = """
    SELECT count(*) FROM audit_auditrecord
    WHERE organization = %(organization)s AND occurred_at > %(seen_at)s
        AND occurred_at BETWEEN %(first_at)s AND %(last_at)s AND {what}
"""

_RECENT = "occurred_at > now() - make_interval(secs => %(window_s)s)"
_EARLIER = "occurred_at <= now() - make_interval(secs => %(window_s)s)"
_SAME_ACTOR = "actor = %(actor)s"
_SAME_SUBJECT = "subject = %(subject)s"
_LISTED = """
    (cardinality(%(codes)s::text[]) = 0 OR code = ANY(%(codes)s::text[]))
    AND (cardinality(%(reasons)s::text[]) = 0 OR reason = ANY(%(reasons)s::text[]))
    AND (cardinality(%(outcomes)s::text[]) = 0 OR outcome = ANY(%(outcomes)s::text[]))
"""
_BY_ACTOR = """
    SELECT organization, actor, '', count(*), min(occurred_at), max(occurred_at)
    FROM audit_auditrecord WHERE {recent} AND {what}
    GROUP BY organization, actor HAVING count(*) >= %(least)s
"""
_BY_SUBJECT = """
    SELECT organization, actor, subject, count(*), min(occurred_at), max(occurred_at)
    FROM audit_auditrecord WHERE {recent} AND {what}
    GROUP BY organization, actor, subject HAVING count(*) >= %(least)s
"""
_EVERY_GROUP = """
    reason = 'group_not_granted' AND json_typeof(details -> 'requested_groups') = 'array'
    AND (details -> 'requested_groups')::jsonb ? '*'
"""
# What timed out or was stopped outside; where that is unknown, the reason says so.
_UNSURE = """
    details ->> 'effect_possible' = 'true' AND reason <> 'OUTCOME_UNKNOWN'
    AND code IN ('TOOL.END', 'TOOL.LOST', 'TOOL.CANCEL', 'TOOL.EXPIRE')
"""
_HASTY = "code = 'CONFIRM.APPROVE' AND (details ->> 'displayed_s')::float < %(seconds)s"
# Against the median of the hours of the last seven days in which there was a call at all. Evaluated
# only for callers that were active just now.
_UNUSUAL_USAGE = """
    WITH present AS (
        SELECT organization, actor, count(*) AS calls, min(occurred_at) AS first,
            max(occurred_at) AS last
        FROM audit_auditrecord WHERE code = 'TOOL.START' AND {recent}
        GROUP BY organization, actor HAVING count(*) >= %(least)s
    )
    SELECT organization, actor, '', calls, first, last
    FROM present CROSS JOIN LATERAL (
        SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY hour.calls) AS median, count(*) AS hours
        FROM (
            SELECT count(*) AS calls FROM audit_auditrecord earlier
            WHERE code = 'TOOL.START' AND earlier.organization = present.organization
                AND earlier.actor = present.actor AND {earlier}
                AND occurred_at > now() - interval '7 days'
            GROUP BY date_trunc('hour', occurred_at)
        ) AS hour
    ) AS usual
    WHERE hours >= 12 AND calls > %(factor)s * median * %(window_s)s / 3600.0
"""
_HISTORY = """
    (
        SELECT count(*) FROM (
            SELECT FROM audit_auditrecord earlier
            WHERE earlier.organization = lately.organization {same}
                AND {earlier}
            LIMIT %(history)s
        ) AS history
    ) = %(history)s
"""
_STARTED = "code = 'TOOL.START'"
_SAME_GROUP = """
    json_typeof(details -> 'requested_groups') = 'array'
    AND (details -> 'requested_groups')::jsonb ? %(subject)s
"""
_SAME_STEP = """
    code = 'STATE.TRANSITION'
    AND left((details ->> 'from') || ' → ' || (details ->> 'to'), 200) = %(subject)s
"""
_SAME_ACTOR_STARTS = "AND earlier.actor = lately.actor AND code = 'TOOL.START'"
# A tool that an agent with a history runs, and has not run before.
_FIRST_USE = """
    WITH lately AS (
        SELECT organization, actor, subject, count(*) AS calls, min(occurred_at) AS first,
            max(occurred_at) AS last
        FROM audit_auditrecord WHERE code = 'TOOL.START' AND {recent} AND subject <> ''
            AND actor_kind = 'agent'
        GROUP BY 1, 2, 3 HAVING count(*) >= %(least)s
    )
    SELECT * FROM lately WHERE NOT EXISTS (
        SELECT FROM audit_auditrecord earlier
        WHERE earlier.organization = lately.organization AND earlier.actor = lately.actor
            AND earlier.subject = lately.subject AND code = 'TOOL.START' AND {earlier}
    ) AND {history}
"""
# A group that an agent with a history asks for, and has not asked for in thirty days.
_UNUSUAL_GROUP = """
    WITH lately AS (
        SELECT organization, actor, name, count(*) AS calls, min(occurred_at) AS first,
            max(occurred_at) AS last
        FROM audit_auditrecord, json_array_elements_text(details -> 'requested_groups') AS name
        WHERE code = 'TOOL.START' AND {recent}
            AND json_typeof(details -> 'requested_groups') = 'array'
        GROUP BY 1, 2, 3 HAVING count(*) >= %(least)s
    )
    SELECT * FROM lately WHERE {history} AND NOT EXISTS (
        SELECT FROM audit_auditrecord earlier
        WHERE earlier.organization = lately.organization AND earlier.actor = lately.actor
            AND code = 'TOOL.START' AND (details -> 'requested_groups')::jsonb ? lately.name
            AND {earlier} AND occurred_at > now() - interval '30 days'
    )
"""
# A transition between states that is new in the organization.
_UNUSUAL_STEP = """
    WITH lately AS (
        SELECT organization, min(actor) AS actor, details ->> 'from' AS source,
            details ->> 'to' AS target, count(*) AS steps, min(occurred_at) AS first,
            max(occurred_at) AS last
        FROM audit_auditrecord WHERE code = 'STATE.TRANSITION' AND {recent}
        GROUP BY organization, source, target HAVING count(*) >= %(least)s
    )
    SELECT organization, actor, left(source || ' → ' || target, 200), steps, first, last
    FROM lately WHERE {history} AND NOT EXISTS (
        SELECT FROM audit_auditrecord earlier
        WHERE earlier.organization = lately.organization AND code = 'STATE.TRANSITION'
            AND details ->> 'from' = source AND details ->> 'to' = target AND {earlier}
    )
"""


def _format_query(query: str, **parts: str) -> str:
    every = {"recent": _RECENT, "earlier": _EARLIER, **parts}
    return query.format(**every)


def _format_history_query(query: str, same: str) -> str:
    return _format_query(query, history=_format_query(_HISTORY, same=same))


def _conjunction(*conditions: str) -> str:
    return " AND ".join(conditions)


def _actor_message(found: AlertFinding, description: str) -> str:
    times = f", {found.count} times" if found.count > 1 else ""
    return f"{found.actor} {description}{times}."


def _subject_message(found: AlertFinding, description: str) -> str:
    return f"{found.subject or found.organization} {description}."


_HISTORY_RANGE = {"history": NumberRange(1, 10_000, 100)}
_LISTS = ("codes", "reasons", "outcomes")
KINDS = {
    "by_actor": AlertKind(
        _format_query(_BY_ACTOR, what=_LISTED),
        _conjunction(_SAME_ACTOR, _LISTED),
        _actor_message,
        lists=_LISTS,
        counted=_LISTED,
    ),
    "by_subject": AlertKind(
        _format_query(_BY_SUBJECT, what=_LISTED),
        _conjunction(_SAME_ACTOR, _SAME_SUBJECT, _LISTED),
        _subject_message,
        lists=_LISTS,
        counted=_LISTED,
        by_subject=True,
    ),
    "every_group": AlertKind(
        _format_query(_BY_ACTOR, what=_EVERY_GROUP),
        _conjunction(_SAME_ACTOR, _EVERY_GROUP),
        _actor_message,
        counted=_EVERY_GROUP,
    ),
    "hasty_approval": AlertKind(
        _format_query(_BY_ACTOR, what=_HASTY),
        _conjunction(_SAME_ACTOR, _HASTY),
        _actor_message,
        {"seconds": NumberRange(0.1, 3600, 2)},
        counted=_HASTY,
    ),
    "possible_effect": AlertKind(
        _format_query(_BY_SUBJECT, what=_UNSURE),
        _conjunction(_SAME_ACTOR, _SAME_SUBJECT, _UNSURE),
        _subject_message,
        counted=_UNSURE,
        by_subject=True,
    ),
    "unusual_usage": AlertKind(
        _format_query(_UNUSUAL_USAGE),
        _conjunction(_SAME_ACTOR, _STARTED),
        lambda found, _: f"{found.actor} made {found.count} calls, far more than it usually does.",
        {"factor": NumberRange(1, 1000, 4)},
    ),
    "first_use": AlertKind(
        _format_history_query(_FIRST_USE, _SAME_ACTOR_STARTS),
        _conjunction(_SAME_ACTOR, _SAME_SUBJECT, _STARTED),
        lambda found, _: f"{found.actor} runs {found.subject}, which it never ran before.",
        _HISTORY_RANGE,
    ),
    "unusual_group": AlertKind(
        _format_history_query(_UNUSUAL_GROUP, _SAME_ACTOR_STARTS),
        _conjunction(_SAME_ACTOR, _STARTED, _SAME_GROUP),
        lambda found, _: (
            f"{found.actor} uses the group {found.subject}, which it has not used for 30 days."
        ),
        _HISTORY_RANGE,
    ),
    "unusual_step": AlertKind(
        _format_history_query(_UNUSUAL_STEP, "AND code = 'STATE.TRANSITION'"),
        _SAME_STEP,
        lambda found, _: f"A workflow took a step it never took before: {found.subject}.",
        _HISTORY_RANGE,
    ),
}
CUSTOM_KINDS = ("by_actor", "by_subject")  # the kinds an administrator may write rules of
