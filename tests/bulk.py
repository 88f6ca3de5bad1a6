"""Many rows at once, as the product would have left them: for what must stay quick, or be asked in
as many statements, however many there are."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import batched
from typing import Any
from uuid import UUID, uuid4

from django.db import connection
from django.utils import timezone

from audit.log import leaves
from audit.models import AuditRecord
from tests import factories
from tools.catalog.knowledge_graphs import import_graph
from tools.catalog.search import tool_words
from tools.catalog.signatures.keys import current_key
from tools.catalog.signatures.versions import statement_of
from tools.definitions.tool import definition_digest, read_definition
from tools.knowledge.graph_documents import Syntax
from tools.models import (
    Agent,
    InboxItem,
    Message,
    MessageChannel,
    Organization,
    Session,
    Tool,
    ToolGroup,
    ToolVersion,
    User,
)

_VERBS = ("read", "write", "list", "create", "delete", "update", "convert", "send", "fetch", "sum")
_THINGS = ("file", "invoice", "customer", "table", "page", "message", "report", "ticket", "order",
           "image", "contract", "sensor", "calendar", "payment", "address")  # fmt: skip
_RDFS = "http://www.w3.org/2000/01/rdf-schema#"
_EXECUTIONS = """
INSERT INTO tools_execution (id, organization_id, user_id, agent_id, tool_name, tool_version_id,
    parameters, refers_to, state, timeout_s, request_id, source_ip, fingerprint, options, rated_by,
    cache_key, cached, cost, status, fence, attempt, worker, created_at, queued_at, started_at,
    completed_at, hints, stumbles, place, depth, composite, memory, cancelled_places, state_after,
    output, output_digest, output_type, observation, error_code, error_message, error_details,
    warnings, duration_ms, output_bytes, sandbox_id, metrics, resolved_as, resolved_by,
    resolution_reason)
SELECT (lpad(to_hex((extract(epoch FROM made) * 1000)::bigint), 12, '0') || '7'
        || substr(mark, 1, 3) || '8' || substr(mark, 4, 15))::uuid,
    %(organization)s, account, agent, tool, version, '{"text": "x"}', '[]', 'undefined', 30,
    'req-' || mark, '10.0.0.1', '', '{}', '', '', false,
    CASE WHEN status IN ('Success', 'Failed') THEN at %% 7 * 0.0125 ELSE 0 END, status, 0,
    CASE WHEN ran THEN 1 ELSE 0 END, CASE WHEN ran THEN 'worker-1' ELSE '' END, made, made,
    CASE WHEN ran THEN made + interval '4 ms' END,
    CASE WHEN status NOT IN ('Pending', 'RequiresConfirmation')
        THEN made + interval '4 ms' + took * interval '1 ms' END,
    0, 0, '', 0, false, '{}', '{}', '',
    CASE WHEN status = 'Success' THEN '{"echo": {"text": "x"}}'::jsonb END, '', '',
    CASE WHEN status = 'Success' THEN '{"echo": {"text": "x"}}' ELSE '' END,
    CASE status WHEN 'Failed' THEN 'WENT_WRONG' WHEN 'Timeout' THEN 'TIMEOUT'
        WHEN 'PermissionDenied' THEN 'permission_denied' ELSE '' END,
    '', '{}', '[]', CASE WHEN ran THEN took END, 23, '', '{"queue_ms": 3.5}', '', '', ''
FROM (
    SELECT n AS at, mark, made, status, status IN ('Success', 'Failed', 'Timeout') AS ran,
        5 + 400 * power(random(), 4) AS took,
        (%(tools)s::text[])[t] AS tool, (%(versions)s::uuid[])[t] AS version,
        (%(agents)s::uuid[])[a] AS agent, (%(accounts)s::uuid[])[a] AS account
    FROM (
        SELECT n, md5(%(seed)s || n) AS mark,
            %(since)s::timestamptz + %(apart)s::interval * n AS made,
            1 + floor(power(random(), 3) * cardinality(%(tools)s::text[]))::int AS t,
            1 + floor(power(random(), 2) * cardinality(%(agents)s::uuid[]))::int AS a,
            coalesce(%(status)s::text, CASE WHEN n %% 25 = 0 THEN 'Failed'
                WHEN n %% 50 = 1 THEN 'PermissionDenied' WHEN n %% 100 = 2 THEN 'Timeout'
                WHEN n %% 100 = 3 THEN 'ValidationError' ELSE 'Success' END) AS status
        FROM generate_series(%(first)s::int, %(last)s::int) n
    ) drawn
) filled
"""
_EVENTS = """
INSERT INTO tools_executionevent (execution_id, sequence, type, message, created_at)
SELECT e.id, s.at, CASE s.at WHEN 1 THEN 'Started' WHEN 2 THEN
    CASE e.status WHEN 'Success' THEN 'Completed' ELSE 'Failed' END END, '',
    CASE s.at WHEN 1 THEN e.started_at ELSE e.completed_at END
FROM tools_execution e CROSS JOIN generate_series(1, 2) AS s(at)
WHERE e.organization_id = %s AND e.started_at IS NOT NULL AND e.completed_at IS NOT NULL
    AND NOT EXISTS (SELECT FROM tools_executionevent v WHERE v.execution_id = e.id)
"""
_CONFIRMATIONS = """
INSERT INTO tools_confirmation (id, organization_id, execution_id, covers, bound_hash, reasons,
    approvals_needed, status, created_at, expires_at)
SELECT gen_random_uuid(), e.organization_id, e.id, '{}', md5(e.id::text) || md5(e.id::text),
    '["The tool asks for a person."]', 1, 'pending', e.created_at, now() + interval '30 days'
FROM tools_execution e
WHERE e.organization_id = %s AND e.status = 'RequiresConfirmation'
    AND NOT EXISTS (SELECT FROM tools_confirmation c WHERE c.execution_id = e.id)
"""


def tools(organization: Organization, count: int, groups: int) -> list[Tool]:
    """Python tools with their versions signed, spread over so many groups."""
    names = [f"desk-{uuid4().hex[:6]}-{at}" for at in range(groups)]
    ToolGroup.objects.bulk_create(
        ToolGroup(organization=organization, name=name, description="A desk.") for name in names
    )
    key, revision = _key(organization), Organization.objects.next_revision(organization.pk)
    definitions = [read_definition(_definition(at, names)) for at in range(count)]
    rows = Tool.objects.bulk_create(
        Tool(organization=organization, name=one["name"], type=one["type"], revision=revision)
        for one in definitions
    )
    for row, one in zip(rows, definitions, strict=True):
        row.version = _version(organization, row, one, key)
    ToolVersion.objects.bulk_create([row.version for row in rows if row.version], batch_size=1_000)
    Tool.objects.bulk_update(rows, ["version"], batch_size=500)
    tool_words.note_missing()
    return rows


def _definition(at: int, groups: list[str]) -> dict[str, Any]:
    verb, thing = _VERBS[at % len(_VERBS)], _THINGS[at % len(_THINGS)]
    description = f"{verb.title()}s the {thing} of a customer, the {at}th way it can be done."
    parameters = [
        {"name": name, "type": "String", "description": f"The {name}.", "required": False}
        for name in ("text", "target")
    ]
    more = {"description": description, "parameters": parameters, "capabilities": [verb, thing]}
    group = [groups[at % len(groups)]]
    return factories.definition(f"{verb}_{thing}_{uuid4().hex[:8]}", group=group, **more)


def _key(organization: Organization) -> Any:
    return current_key(organization, factories.actor(organization))


def _version(organization: Organization, tool: Tool, one: Any, key: Any) -> ToolVersion:
    statement = statement_of(
        organization=organization.slug, tool=tool.pk, name=tool.name, number=1, label="1.0.0",
        version_digest=definition_digest(one), origin="person",
    )  # fmt: skip
    return ToolVersion(
        tool=tool, number=1, label="1.0.0", definition=one,
        digest=definition_digest(one), key_id=key.key_id,
        signature=key.sign(statement), created_by="person:bulk", origin="person",
    )  # fmt: skip


def agents(organization: Organization, count: int) -> list[Agent]:
    made = (uuid4().hex[:8] for _ in range(count))
    return [factories.agent(organization, f"bot-{name}", groups=["*"]) for name in made]


def executions(
    organization: Organization,
    count: int,
    *,
    of: Iterable[Tool],
    by: Iterable[Agent],
    days: int = 30,
    status: str | None = None,
    events: bool = False,
) -> None:
    """Evenly over the last days, of few tools and agents most; without a status, of all that ended
    somehow. With their events, where these are asked for."""
    agents = list(by)
    drawn = [tool for tool in of if tool.version_id]
    values = {
        "organization": organization.pk,
        "seed": uuid4().hex,
        "since": timezone.now() - timedelta(days=days),
        "apart": timedelta(days=days) / (count + 1),
        "tools": [tool.name for tool in drawn],
        "versions": [tool.version_id for tool in drawn],
        "agents": [agent.pk for agent in agents],
        "accounts": [agent.service_account_id for agent in agents],
        "status": status,
    }
    with connection.cursor() as cursor:
        for first in range(1, count + 1, 50_000):
            last = min(count, first + 49_999)
            cursor.execute(_EXECUTIONS, values | {"first": first, "last": last})
        if events:
            cursor.execute(_EVENTS, [organization.pk])


def confirmations(organization: Organization, count: int, **of: Any) -> None:
    """Calls of the last day that wait for a person, each with what is asked about it."""
    executions(organization, count, days=1, status="RequiresConfirmation", **of)
    with connection.cursor() as cursor:
        cursor.execute(_CONFIRMATIONS, [organization.pk])


def sessions(organization: Organization, count: int, *, by: Iterable[Agent]) -> None:
    agents = list(by)
    Session.objects.bulk_create(
        Session(
            organization=organization,
            user_id=agents[at % len(agents)].service_account_id,
            agent=agents[at % len(agents)],
            groups=["default"],
            state="undefined",
            closed_at=timezone.now() if at % 20 else None,
        )
        for at in range(count)
    )


def messages(organization: Organization, count: int, *, to: User) -> None:
    """Of a channel of the organization, each in the inbox of a person as well."""
    channel = MessageChannel.objects.filter(organization=organization).first()
    sent = Message.objects.bulk_create(
        (
            Message(
                organization=organization, channel=channel, channel_name="way", kind="inbox",
                sender="agent:bot", subject=f"Message {at}", body="Words.", state="sent",
            )
            for at in range(count)
        ),
        batch_size=5_000,
    )  # fmt: skip
    items = (InboxItem(message=one, user=to) for one in sent)
    InboxItem.objects.bulk_create(items, batch_size=5_000)


def entities(organization: Organization, count: int) -> None:
    """In the organization's graph, a thousand in each document."""
    for some in batched(range(count), 1_000):
        said = " ".join(
            f'<urn:bulk:{at}> <{_RDFS}label> "The {_THINGS[at % 15]} {at}" ; <{_RDFS}comment> "Of'
            f' customer {at % 97}." ; <urn:bulk:near> <urn:bulk:{at * 7 % count}> .'
            for at in some
        )
        import_graph(
            organization=organization, data=said.encode(), syntax=Syntax.TURTLE, collection=None,
            by=factories.actor(organization),
        )  # fmt: skip


def audit_records(organization: Organization, count: int) -> None:
    """Three of each of so many executions, spread over all there are, as they were written."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, tool_name, user_id, created_at FROM (SELECT e.*, row_number() OVER ("
            " ORDER BY created_at) AS at, count(*) OVER () AS every FROM tools_execution e"
            " WHERE organization_id = %s) e WHERE at %% greatest(1, every / %s) = 0 LIMIT %s",
            [organization.pk, max(1, count // 3), max(1, count // 3)],
        )
        calls = cursor.fetchall()
    for some in batched(_records(organization.slug, calls), 5_000):
        AuditRecord.objects.bulk_create(some)


def _records(place: str, calls: list[tuple[Any, ...]]) -> Iterator[AuditRecord]:
    for execution, tool, user, made in calls:
        for after, (code, outcome) in enumerate(
            [("TOOL.ACCEPT", "success"), ("TOOL.START", "started"), ("TOOL.END", "success")]
        ):
            moment = made + timedelta(milliseconds=2 * after)
            yield _record(place, moment, execution, (code, outcome, tool, str(user)))


def _record(
    place: str, moment: datetime, execution: UUID, said: tuple[str, str, str, str]
) -> AuditRecord:
    code, outcome, tool, user = said
    values = {
        "id": _id(moment),
        "organization": place, "code": code, "outcome": outcome, "reason": "",
        "actor_kind": "agent", "actor": f"bot-{user[:4]}", "actor_id": user, "token_id": "",
        "subject": tool, "subject_digest": "", "execution_id": execution,
        "request_id": f"req-{execution.hex[-12:]}", "source_ip": "10.0.0.1",
    }  # fmt: skip
    details: dict[str, Any] = {"attempt": 1, "version": "1.0.0", "state": "undefined"}
    mac = leaves.record_mac(place, leaves.record_body(values, leaves.canonical_details(details)))
    return AuditRecord(**values, occurred_at=moment, details=details, mac=mac)


def _id(moment: datetime) -> UUID:
    """Of the version 7: it sorts by time."""
    milliseconds = int(moment.timestamp() * 1_000)
    return UUID(int=milliseconds << 80 | 7 << 76 | uuid4().int & ~(15 << 76) & ((1 << 80) - 1))
