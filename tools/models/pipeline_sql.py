"""The SQL of one call: what its acceptance, claim, run, end and answer ask of PostgreSQL, in the
order in which a call runs it, from its token to its answer.

Beside each statement stands by which indexes it reads, as EXPLAIN showed it over 60,000 executions;
tests/tools/models/test_pipeline_sql.py compares that with what PostgreSQL plans. `{parts}` are
filled where it is run, once for each shape. `{table}` is the partition of this month, or the whole
table. Evidence, request records and their payloads are inserts that `audit.inserts` makes of rows.
Triggers are in the migrations: they keep the open execution and the key equal to the row of the
execution (docs/decisions/0025-open-executions-apart.md, 0029-executions-by-month.md).

A plain call that a worker performs runs TOKEN_HOLDER, ACCEPT, CANDIDATE, TAKE and FINISH, and reads
ANSWER where the notification did not bring it; everything else has a reason of its own.
"""

from dataclasses import dataclass
from functools import lru_cache

from audit.log.log_status import HALTED_REASON_SQL


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL, and by which indexes it reads: tables with the first columns of an index."""

    text: str
    reads: tuple[str, ...]

    def filled(self, **parts: str) -> str:
        """The text with its parts, which is the same object each time."""
        return _filled(self, tuple(parts.items()))


@lru_cache(maxsize=256)
def _filled(statement: Statement, parts: tuple[tuple[str, str], ...]) -> str:
    return statement.text.format(**dict(parts))


# 1. The token of the request becomes its caller. One row, by four indexes; locks nothing.
HOLDER_COLUMNS = """
    u.id, u.username, u.granted_groups, u.granted_permissions, u.is_superuser, u.is_active,
    u.organization_id, o.id, o.slug, o.revision, a.id, a.slug, a.active, a.strict
"""
TOKEN_HOLDER = Statement(
    f"""
    SELECT {HOLDER_COLUMNS}, t.id, t.secret_hash, t.scopes, t.groups, t.tools,
        t.expires_at, t.revoked_at, t.last_used_at
    FROM tools_token t
    JOIN tools_user u ON u.id = t.user_id
    JOIN tools_organization o ON o.id = u.organization_id
    LEFT JOIN tools_agent a ON a.service_account_id = u.id
    WHERE t.public_id = %(public_id)s
    """,  # noqa: S608
    (
        "tools_token (public_id)",
        "tools_user (id)",
        "tools_organization (id)",
        "tools_agent (service_account_id)",
    ),
)

# 2. Of a call with an idempotency key or a session, before its admission: the execution that has
# the key, the session (by its id), its open call, and whether it pins versions. Always one row;
# locks nothing.
CALL_FACTS = Statement(
    """
    SELECT (SELECT k.execution_id FROM tools_executionkey k
            WHERE k.organization_id = %(organization)s::uuid AND k.user_id = %(user)s::uuid
                AND k.idempotency_key = %(key)s::varchar),
        (SELECT o.execution_id FROM tools_openexecution o WHERE o.session_id = s.id),
        EXISTS (SELECT FROM tools_pin p WHERE p.session_id = s.id),
        s.id, s.organization_id, s.user_id, s.agent_id, s.groups, s.state, s.entered_at,
        s.created_at, s.closed_at
    FROM (SELECT 1) one LEFT JOIN tools_session s ON s.id = %(session)s::uuid
        AND s.organization_id = %(organization)s::uuid AND s.user_id = %(user)s::uuid
    """,
    (
        "tools_executionkey (organization_id, user_id, idempotency_key)",
        "tools_openexecution (session_id)",
        "tools_pin (session_id, tool_id)",
    ),
)

# 3. The rate limit, where Redis did not count the call: PostgreSQL counts it and, where it passes,
# inserts a hit. The function takes the advisory lock of caller and tool until the statement ends,
# and reads what COUNT_PASSED reads.
COUNT_RATE = Statement(
    """
    SELECT used, age_s FROM tools_count_rate(
        %(rate_lock)s::text, %(rated_user)s::uuid, %(rated_place)s::uuid, %(rated_tool)s::varchar,
        %(limit)s::bigint
    )
    """,
    (),
)
# Where Redis counted it: whether PostgreSQL has counted calls within the minute, so that both are
# to be added. The function shares the lock of COUNT_RATE. A call that is held for an approval or
# may be answered from the cache asks this first; any other by a condition of ACCEPT.
HAS_HITS = Statement(
    """
    SELECT tools_has_rate_hits(
        %(rate_lock)s::text, %(rated_user)s::uuid, %(rated_place)s::uuid, %(rated_tool)s::varchar
    )
    """,
    (),
)
NO_HITS = f"NOT ({HAS_HITS.text})"
# Then: what both have counted, under the same lock, which the caller has taken. Hits are few and
# found by their caller, calls by tool and time. Its conditions are those of `tools_count_rate`.
COUNT_PASSED = Statement(
    """
    WITH passed AS (
        SELECT at FROM tools_ratehit
        WHERE user_id = %(user)s AND tool_name = %(tool)s AND organization_id = %(organization)s
            AND at > statement_timestamp() - interval '60 s'
        UNION ALL
        SELECT created_at FROM tools_execution
        WHERE user_id = %(user)s AND tool_name = %(tool)s AND organization_id = %(organization)s
            AND rated_by = 'redis' AND id > %(since)s
            AND created_at > statement_timestamp() - interval '60 s'
    ), number AS (SELECT count(*) AS used FROM passed)
    SELECT used, extract(epoch FROM statement_timestamp() - (
        SELECT at FROM passed ORDER BY at OFFSET greatest(used - %(limit)s::bigint, 0) LIMIT 1
    ))::float8 FROM number
    """,
    ("tools_execution (organization_id, tool_name, created_at)",),
)

# 4. Acceptance. `accountable` is a row where the call may be accepted: where it begins at once, its
# audit log is not halted (one that waits is held against that when it is claimed); where Redis let
# it pass, PostgreSQL has counted none. Then come what it reserves, and for that row the execution
# (`row0`), its evidence and its request record. A shortage raises, and nothing of it stays.
# Locks the keys that the rows refer to (FOR KEY SHARE), and what RESERVE_PARTS says.
ACCEPT = Statement(
    """
    WITH accountable AS (SELECT 1 WHERE {conditions}), {reservation} {rows}
    written AS (SELECT created_at, started_at FROM row0)
    SELECT created_at, started_at, {refused} FROM written
    """,
    (
        "audit_auditlog (name)",
        "tools_allowance (id)",
        "tools_allowanceuse (allowance_id, starts_on)",
    ),
)
_HALTED = HALTED_REASON_SQL.format(name="o.slug")
NOT_HALTED = HALTED_REASON_SQL.format(name="%(log)s") + " IS NULL"
# Of an agent with allowances. Amounts come from the rows as they are now, not from the catalog. A
# free call always fits. Locks allowances by their id (FOR KEY SHARE), then their periods, until the
# end of the statement.
RESERVE_PARTS = """
    wanted AS (
        SELECT w.id, w.starts_on, w.amount FROM accountable, unnest(
            %(allowance_ids)s::uuid[], %(days)s::date[], %(amounts)s::numeric[]
        ) AS w (id, starts_on, amount)
    ), bounds AS (
        SELECT id, amount FROM tools_allowance
        WHERE id IN (SELECT id FROM wanted) ORDER BY id FOR KEY SHARE
    ), taken AS (
        INSERT INTO tools_allowanceuse AS u (allowance_id, starts_on, used, held, alerted_percent)
        SELECT bounds.id, wanted.starts_on, 0, wanted.amount, 0
        FROM bounds JOIN wanted ON wanted.id = bounds.id
        WHERE wanted.amount <= bounds.amount ORDER BY bounds.id
        ON CONFLICT (allowance_id, starts_on) DO UPDATE SET held = u.held + excluded.held
        WHERE excluded.held = 0 OR u.used + u.held + excluded.held
            <= (SELECT amount FROM bounds WHERE bounds.id = excluded.allowance_id)
        RETURNING u.id, u.allowance_id
    ), kept AS (
        INSERT INTO tools_reservation (execution_id, use_id, amount)
        SELECT %(reserved_for)s::uuid, taken.id, wanted.amount
        FROM taken JOIN wanted ON wanted.id = taken.allowance_id
    ), short AS (
        SELECT tools_refuse('allowances', string_agg(id::text, ',')) AS refused FROM bounds
        WHERE id NOT IN (SELECT allowance_id FROM taken) HAVING count(*) > 0
    ),
"""
RESERVATION_REFUSED = "(SELECT refused FROM short)"  # where the parts have written
REFUSED = "TC001"  # what `tools_refuse` raises

# 5. Whose turn it is, of a worker with a backlog; at most `most` calls. The organizations are found
# by jumps along the index, so that a long queue of one costs nothing. The organization that would
# run the fewest calls after this one is first; among equals, the one that has waited longest.
# Reads open executions, and of those that may be answered from the cache its entry; locks nothing,
# for TAKE decides who is first.
# `busy`: tools that run as many calls as they may; only tools with running calls.
BUSY = """
    busy (organization_id, tool_name, room) AS MATERIALIZED (
        SELECT r.organization_id, r.tool_name, min(t.max_concurrency) - count(*)
        FROM tools_openexecution r
        JOIN tools_toolversion v ON v.id = r.tool_version_id JOIN tools_tool t ON t.id = v.tool_id
        WHERE r.status = 'Running' AND t.max_concurrency IS NOT NULL
        GROUP BY 1, 2
    )
"""
_WAITS = """
    ({row}.parked_below IS NOT NULL
    AND NOT ({cancel_unseen})
    AND ({row}.wake_at IS NULL OR {row}.wake_at > clock_timestamp())
    AND {row}.parked_below <= (SELECT count(*) FROM tools_openexecution c
        WHERE c.parent_id = {row}.{id}))
"""
_CANCEL_UNSEEN = (
    "{row}.cancel_requested_at IS NOT NULL AND NOT jsonb_exists({row}.memory, 'ending')"
)
# Calls of one organization that may start: not those that wait for another call's result. Written
# so that the planner expects most rows to pass, and reads the index in order instead of sorting the
# queue.
CLAIMABLE = f"""
    e.organization_id = here.id AND e.status = 'Pending'
    AND (e.parked_below IS NOT NULL OR e.queued_at > statement_timestamp() - %(age)s::interval)
    AND (e.parked_below IS NULL OR NOT
        {_WAITS.format(row="e", id="execution_id", cancel_unseen="e.cancel_unseen")})
    AND NOT here.full_tools @> ARRAY[e.tool_name::text]
    AND (e.cache_key = '' OR NOT EXISTS (
        SELECT FROM tools_cacheentry c JOIN tools_openexecution leader USING (execution_id)
        WHERE c.key = e.cache_key AND NOT c.ready AND c.execution_id <> e.execution_id
            AND leader.status IN ('Pending', 'Running')))
"""
RUNNING_HERE = """
    (SELECT count(*) FROM tools_openexecution r
        WHERE r.organization_id = o.id AND r.status = 'Running') AS running,
    ARRAY(SELECT b.tool_name::text FROM busy b
        WHERE b.organization_id = o.id AND b.room <= 0) AS full_tools
"""
NEXT_WAITING = Statement(
    f"""
    WITH RECURSIVE place (id) AS (
        (SELECT organization_id FROM tools_openexecution
            WHERE status = 'Pending' ORDER BY organization_id, queued_at LIMIT 1)
        UNION ALL
        SELECT (SELECT e.organization_id FROM tools_openexecution e
            WHERE e.status = 'Pending' AND e.organization_id > place.id
            ORDER BY e.organization_id, e.queued_at LIMIT 1)
        FROM place WHERE place.id IS NOT NULL
    ), {BUSY}, here AS MATERIALIZED (
        SELECT o.id, o.max_concurrency, {RUNNING_HERE}
        FROM place JOIN tools_organization o ON o.id = place.id
        WHERE o.id <> ALL(%(full)s::uuid[])
    ), candidate AS (
        SELECT w.execution_id AS id, here.id AS organization_id, w.queued_at,
            coalesce(b.room, t.max_concurrency) AS room, here.max_concurrency AS most,
            here.running + row_number() OVER (PARTITION BY here.id ORDER BY w.queued_at) AS turn,
            row_number() OVER (PARTITION BY here.id, w.tool_name ORDER BY w.queued_at) AS beside
        FROM here
        CROSS JOIN LATERAL (
            SELECT e.execution_id, e.queued_at, e.tool_name, e.tool_version_id
            FROM tools_openexecution e
            WHERE {CLAIMABLE}
            ORDER BY e.organization_id, e.queued_at
            LIMIT {{most}}
        ) w
        JOIN tools_toolversion v ON v.id = w.tool_version_id
        JOIN tools_tool t ON t.id = v.tool_id
        LEFT JOIN busy b ON b.organization_id = here.id AND b.tool_name = w.tool_name
    )
    SELECT id, organization_id FROM candidate
    WHERE (room IS NULL OR beside <= room) AND (most IS NULL OR turn <= most)
    ORDER BY organization_id = ANY(%(last)s::uuid[]), turn, queued_at LIMIT {{most}}
    """,  # noqa: S608
    (
        "tools_openexecution (organization_id, queued_at)",
        "tools_openexecution (organization_id, tool_name)",
        "tools_openexecution (parent_id)",
        "tools_openexecution (execution_id)",
        "tools_cacheentry (key)",
    ),
)
# After a call that others of its organization may have waited for.
NEXT_OF_ORGANIZATION = Statement(
    f"""
    WITH {BUSY}, here AS (
        SELECT o.id, o.max_concurrency, {RUNNING_HERE}
        FROM tools_organization o WHERE o.id = %(place)s
    )
    SELECT e.execution_id FROM here JOIN tools_openexecution e ON {CLAIMABLE}
    WHERE here.max_concurrency IS NULL OR here.running < here.max_concurrency
    ORDER BY e.organization_id, e.queued_at LIMIT 1
    """,  # noqa: S608
    (
        "tools_openexecution (organization_id, queued_at)",
        "tools_openexecution (organization_id, tool_name)",
        "tools_openexecution (parent_id)",
        "tools_openexecution (execution_id)",
        "tools_cacheentry (key)",
        "tools_organization (id)",
    ),
)


def waiting_condition(row: str) -> str:
    """SQL: whether a composite call has to wait for its own calls, or for a time; `row` is that of
    its execution.

    Not when it was cancelled, until a turn has seen that and begun to end it.
    """
    return _WAITS.format(row=row, id="id", cancel_unseen=_CANCEL_UNSEEN.format(row=row))


# 6. The claim, two statements. The first reads a waiting row with all that its gates ask about: its
# account, its session, the state of its audit log, and what limits how many may run at once.
# A parked call, which waits until few enough of its calls are open, or for a time, may resume then
# regardless of its age; any other call may start as long as it is not too old. Each table is read
# by one row, the token by its id or its account; locks nothing.
_MAY_GO_ON = f"""
    w.parked_below IS NULL AND w.queued_at > clock_timestamp() - %(age)s::interval
    OR w.parked_below IS NOT NULL AND NOT {waiting_condition("w")}
"""
STILL_VALID = "t.revoked_at IS NULL AND t.expires_at > now()"
# The account of an execution `w`: columns that `callers.account_of` reads.
ACCOUNT_JOINS = """
    JOIN tools_user u ON u.id = w.user_id
    JOIN tools_organization o ON o.id = w.organization_id
    LEFT JOIN tools_agent a ON a.service_account_id = u.id
    LEFT JOIN tools_token t ON t.id = w.token_id AND t.user_id = u.id
"""
ACCOUNT_COLUMNS = f"""
    {HOLDER_COLUMNS}, t.scopes, t.groups, t.tools, coalesce({STILL_VALID}, w.token_id IS NULL)
"""
CANDIDATE = Statement(
    f"""
    SELECT {{columns}}, o.max_concurrency, t_.max_concurrency,
        EXISTS (SELECT FROM tools_confirmation c WHERE c.execution_id = w.id),
        EXISTS (SELECT FROM tools_reservation r WHERE r.execution_id = w.id),
        s.closed_at IS NOT NULL, s.state,
        EXISTS (SELECT FROM tools_pin p WHERE p.session_id = w.session_id),
        {_HALTED}, {ACCOUNT_COLUMNS}
    FROM {{table}} w {ACCOUNT_JOINS}
    JOIN tools_toolversion v ON v.id = w.tool_version_id JOIN tools_tool t_ ON t_.id = v.tool_id
    LEFT JOIN tools_session s ON s.id = w.session_id
    WHERE w.id = %(pk)s AND w.status = %(pending)s AND ({_MAY_GO_ON})
        AND w.organization_id <> ALL(%(full)s::uuid[])
    """,  # noqa: S608
    (
        "tools_execution (id)",
        "tools_user (id)",
        "tools_organization (id)",
        "tools_agent (service_account_id)",
        "tools_toolversion (id)",
        "tools_tool (id)",
        "tools_session (id)",
        "tools_confirmation (execution_id)",
        "tools_reservation (execution_id)",
        "tools_pin (session_id, tool_id)",
        "audit_auditlog (name)",
        "tools_openexecution (parent_id)",
    ),
)

# Of a call whose answer may be kept: claims the entry for the first call, for one that finds the
# answer expired, and for one whose predecessor ended without an answer. Locks the entry until the
# claim commits.
LEAD = Statement(
    """
    INSERT INTO tools_cacheentry AS entry (key, organization_id, tool_id, execution_id, ready)
    VALUES (%(key)s, %(organization)s, %(tool)s, %(execution)s, false)
    ON CONFLICT (key) DO UPDATE
    SET execution_id = excluded.execution_id, ready = false, expires_at = NULL,
        created_at = clock_timestamp()
    WHERE (entry.ready AND entry.expires_at <= clock_timestamp())
       OR (NOT entry.ready AND NOT EXISTS (
            SELECT FROM tools_openexecution leader
            WHERE leader.execution_id = entry.execution_id
              AND leader.execution_id <> excluded.execution_id
              AND leader.status IN (%(pending)s, %(running)s)))
    """,
    (
        "tools_cacheentry (key)",
        "tools_openexecution (execution_id)",
    ),
)

# 7. The start. Takes the row where it is still as it was read, by its fence, with the evidence of
# its start. Locks the row, which another process that has it skips (SKIP LOCKED). The row has no
# index that changes, so its version stays on its page (HOT).
TAKE = Statement(
    """
    WITH taken AS (
    UPDATE {table}
    SET status = %(running)s, fence = fence + 1, worker = %(worker)s,
        attempt = CASE WHEN parked_below IS NULL THEN attempt + 1 ELSE attempt END,
        started_at = CASE WHEN composite THEN coalesce(started_at, clock_timestamp())
            ELSE clock_timestamp() END,
        lease_until = clock_timestamp() + %(lease)s::interval
    FROM (
        SELECT w.id FROM {table} w
        WHERE w.id = %(pk)s AND w.status = %(pending)s AND w.fence = %(fence)s AND {room}
        FOR NO KEY UPDATE OF w SKIP LOCKED
    ) AS free (free_id)
    WHERE id = %(pk)s AND id = free_id AND status = %(pending)s
    RETURNING id, started_at, lease_until, cancel_requested_at, cancelled_places), {evidence}
    {event}
    SELECT started_at, lease_until, cancel_requested_at, cancelled_places FROM taken
    """,
    (
        "tools_execution (id)",
        "tools_openexecution (organization_id, tool_name)",
        "tools_executionevent (execution_id, sequence)",
    ),
)
# Where there is a limit on how many run at once. The caller holds the advisory locks of these
# limits before, so that the statement sees committed claims of others.
ROOM = """
    (%(here)s::bigint IS NULL OR %(here)s > (SELECT count(*) FROM tools_openexecution r
        WHERE r.organization_id = w.organization_id AND r.status = 'Running'))
    AND (%(tool)s::bigint IS NULL OR %(tool)s > (SELECT count(*) FROM tools_openexecution r
        WHERE r.organization_id = w.organization_id AND r.status = 'Running'
            AND r.tool_name = w.tool_name))
"""
# The first start is derived from the row (docs/decisions/0028-nothing-written-twice.md); it is
# stored where other events are, beside their numbers.
START_EVENT = """
    start_event AS (
    INSERT INTO tools_executionevent (execution_id, sequence, type, message)
    SELECT taken.id, 1 + stored.last, %(event)s, '' FROM taken, (
        SELECT max(sequence) AS last FROM tools_executionevent WHERE execution_id = %(pk)s
    ) AS stored WHERE stored.last IS NOT NULL)
"""
NO_EVENT = "nothing AS (SELECT 1)"

# 8. While it runs: once a second, one statement for all running calls of a process, and one for
# those whose lease is due. Both lock nothing that they would wait for: a locked row is skipped
# until the next check, so that it delays no other.
SELECT_LEASES = Statement(
    """
    SELECT e.id, e.fence, e.cancel_requested_at IS NOT NULL
    FROM tools_execution e
    JOIN unnest(%(ids)s::uuid[], %(fences)s::int[]) AS held (id, fence)
        ON held.id = e.id AND held.fence = e.fence
    WHERE e.id = ANY(%(ids)s::uuid[]) AND e.status = %(running)s
    """,
    ("tools_execution (id)",),
)
RENEW_LEASES = Statement(
    """
    WITH ours AS (
        SELECT e.id FROM tools_execution e
        JOIN unnest(%(ids)s::uuid[], %(fences)s::int[]) AS held (id, fence)
            ON held.id = e.id AND held.fence = e.fence
        WHERE e.id = ANY(%(ids)s::uuid[]) AND e.status = %(running)s
        ORDER BY e.id FOR NO KEY UPDATE OF e SKIP LOCKED
    )
    UPDATE tools_execution e SET lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
    FROM ours WHERE e.id = ANY(%(ids)s::uuid[]) AND e.id = ours.id RETURNING e.id, e.fence
    """,
    ("tools_execution (id)",),
)
# An event of its progress. The function locks the execution, and numbers the event.
APPEND_EVENT = Statement(
    """
    WITH {evidence} done AS (SELECT 1)
    SELECT tools_append_event(%(execution)s, %(type)s::varchar, %(message)s::varchar) FROM done
    """,
    (),
)

# 9. The end, for the holder of the fence: the result, what was reserved, and its evidence. Locks
# the row; of a call with a reservation then the periods of its allowances, in the order of their
# ids, until the end of the statement.
FINISH = Statement(
    """
    WITH ended AS (
    UPDATE {table}
    SET status = %(status)s, output = %(output)s, output_digest = %(output_digest)s,
        output_type = %(output_type)s, observation = %(observation)s,
        error_code = %(error_code)s, error_message = %(error_message)s,
        error_details = %(error_details)s, duration_ms = %(duration_ms)s,
        output_bytes = %(output_bytes)s, sandbox_id = %(sandbox_id)s, metrics = %(metrics)s,
        cost = %(cost)s, cached = %(cached_from)s::uuid IS NOT NULL, cached_from = %(cached_from)s,
        state_after = %(state_after)s, memory = %(memory)s, warnings = warnings || %(warnings)s,
        completed_at = clock_timestamp(), lease_until = NULL,
        idempotency_key = CASE WHEN %(kept)s THEN idempotency_key END
    WHERE id = %(pk)s AND fence = %(fence)s AND status = %(running)s
        AND (cancel_requested_at IS NULL OR %(status)s <> %(success)s)
    RETURNING id, completed_at), {settlement} {evidence} {event}
    done AS (SELECT 1) SELECT completed_at, {reached} FROM ended
    """,
    (
        "tools_execution (id)",
        "tools_reservation (execution_id)",
        "tools_allowanceuse (id)",
        "tools_allowance (id)",
        "tools_reservation (id)",
        "tools_executionevent (execution_id, sequence)",
    ),
)
# Where it has reserved something; what was never run is charged nothing. `reached` has the periods
# that come to a percent which was not alerted yet.
SETTLE_PARTS = """
    settling AS MATERIALIZED (
        SELECT r.id, r.use_id, r.amount, u.alerted_percent, a.amount AS bound,
            CASE a.kind WHEN 'calls' THEN %(settled_calls)s::numeric
                ELSE %(settled_cost)s::numeric END AS spent
        FROM ended JOIN tools_reservation r ON r.execution_id = ended.id
        JOIN tools_allowanceuse u ON u.id = r.use_id
        JOIN tools_allowance a ON a.id = u.allowance_id
        ORDER BY a.id FOR UPDATE OF u
    ), settled AS (
        DELETE FROM tools_reservation r USING settling WHERE r.id = settling.id
        RETURNING settling.*
    ), charged AS (
        UPDATE tools_allowanceuse u
        SET held = u.held - settled.amount, used = u.used + settled.spent
        FROM settled WHERE u.id = settled.use_id
        RETURNING u.id, u.alerted_percent, CASE
            WHEN settled.bound = 0 THEN 0 WHEN u.used >= settled.bound THEN 100
            WHEN u.used >= settled.bound * 0.8 THEN 80 ELSE 0 END AS percent
    ), reached AS (
        SELECT array_agg(id) AS ids, array_agg(percent) AS percents FROM charged
        WHERE percent > alerted_percent
    ),
"""
REACHED = "(SELECT ids FROM reached), (SELECT percents FROM reached)"
# The terminal event is derived from the row. It is stored of what ended at its claim: its start
# would be derived too.
UNSTARTED_END_EVENT = """
    ended_event AS (
    INSERT INTO tools_executionevent (execution_id, sequence, type, message)
    SELECT ended.id, 1, %(event)s, %(message)s FROM ended
    WHERE NOT EXISTS (SELECT FROM tools_executionevent WHERE execution_id = %(pk)s)),
"""
# What ends otherwise, such as a call that waited for too long, settles by a statement of its own.
SETTLE = Statement(
    f"""
    WITH ended AS (SELECT %(settled_for)s::uuid AS id), {SETTLE_PARTS}
    done AS (SELECT 1) SELECT {REACHED} FROM done
    """,  # noqa: S608
    (
        "tools_reservation (execution_id)",
        "tools_allowanceuse (id)",
        "tools_allowance (id)",
        "tools_reservation (id)",
    ),
)
# Of an output too large for the row, in the transaction of the end. Kept again, it counts as new,
# so that a concurrent sweep does not delete it. Locks the row of the output.
KEEP_OUTPUT = Statement(
    """
    INSERT INTO tools_storedoutput AS stored (id, organization_id, digest, size, content)
    VALUES (%(id)s, %(organization)s, %(digest)s, %(size)s, %(content)s)
    ON CONFLICT (organization_id, digest) DO UPDATE SET kept_at = clock_timestamp()
    """,
    ("tools_storedoutput (organization_id, digest)",),
)
# After the end, where a period came to a percent: once for each. Locks the period.
RAISE_ALERT = Statement(
    """
    UPDATE tools_allowanceuse u SET alerted_percent = %(percent)s
    FROM (SELECT id, alerted_percent FROM tools_allowanceuse WHERE id = %(use)s FOR UPDATE) before
    WHERE u.id = before.id AND before.alerted_percent < %(percent)s
    RETURNING before.alerted_percent
    """,
    ("tools_allowanceuse (id)",),
)

# 10. The answer of one who waits, where the notification did not bring it. One row; locks nothing.
ANSWER = Statement(
    """
    SELECT e.id, e.status, e.tool_name, e.parameters, e.output, e.observation, e.error_code,
        e.output_digest, e.output_type, e.output_expired_at, e.parameters_asked, e.refers_to,
        e.organization_id, e.error_message, e.error_details, e.started_at, e.completed_at,
        e.duration_ms, e.output_bytes,
        e.sandbox_id, e.metrics, e.warnings, e.session_id, e.state, e.state_after, e.cached,
        e.cached_from, e.cost, e.resolved_as, e.resolved_at, e.resolved_by,
        e.resolution_reason, e.parent_id, e.place, e.parked_below, v.label AS version_label
    FROM {table} e JOIN tools_toolversion v ON v.id = e.tool_version_id WHERE e.id = %(pk)s
    """,
    (
        "tools_execution (id)",
        "tools_toolversion (id)",
    ),
)
