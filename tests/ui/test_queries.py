"""No page asks more when there is more: each in so many statements and so many round trips to
Redis, however many rows there are.

The addresses come from the URL resolver and the administration's list of models, so that a page
that comes later is asked too.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple
from unittest import mock
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from redis.connection import AbstractConnection

from audit.models import Alert, AlertChannel
from tests import bulk, factories
from tests.browser.test_accessibility import ONE_OF_EACH
from tests.tools.api.test_authorization_matrix import Side
from tests.ui.addresses import addresses_of
from tests.ui.knowledge.test_knowledge import ELEMENTS, turtle_importer
from tools.approvals import confirmation_rules
from tools.catalog.mcp import mcp_servers
from tools.catalog.sandbox import credentials, profiles
from tools.catalog.services import services
from tools.catalog.signatures.drift import note_upstream
from tools.definitions.chains.chain_document import chain_definition
from tools.insight import workspace_reads
from tools.messaging import message_channels
from tools.models import Execution, Organization, User

MOST = 40  # statements of one page
LISTS_OF_PAGES = {
    "agents", "executions", "agent-requests", "batches", "session", "confirmations", "messages",
    "inbox", "channels", "servers", "server", "services", "catalog", "knowledge", "chains",
    "schemas", "groups", "audit", "audit-checkpoints", "audit-exports", "alerts", "alert-rules",
    "keys", "changes", "tool-who", "usage", "usage by agent", "explain", "licenses", "batch",
    "alerts, acknowledged", "alerts, channels",
}  # fmt: skip

# A proof reads two parts of the tree more where the log is 256 times as long; what is not among the
# newest 2,000 records is looked for by the index.
STEPS = {"audit-record-verify": 4, "audit, no such word": 1}


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("committed")  # the sealer signs the record that a page proves
@pytest.mark.parametrize(
    ("shown", "few_rows", "many_rows"),  # of each kind
    [
        pytest.param({*ONE_OF_EACH, "admin:tools_tool_changelist"}, 3, 9, id="one of each"),
        pytest.param(LISTS_OF_PAGES, 3, 30, id="every list"),
        pytest.param(None, 3, 30, id="every page", marks=pytest.mark.part("matrices")),
    ],
)
def test_a_page_asks_as_much_of_many_rows_as_of_few(
    organization: Organization,
    monkeypatch: pytest.MonkeyPatch,
    shown: set[str] | None,
    few_rows: int,
    many_rows: int,
) -> None:
    monkeypatch.setattr(workspace_reads, "LONGEST_READ_S", 0.1)  # no sandbox is here
    side, reader = Side(organization, "axe"), factories.superuser(organization)
    factories.workspace_file(organization, "notes/read.md", b"# Read\n\nWords.\n")
    turtle_importer(organization)(ELEMENTS.read_text())
    pages = addresses_of(side, tool=side.tool.name, agent=side.agent.slug)
    pages = {name: pages[name] for name in shown or pages}
    held = Execution.objects.filter(organization=organization, status="Running")
    held.update(lease_until=timezone.now() + timedelta(hours=1))  # no worker takes them over
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(reader, backend="tools.accounts.login.login.PeopleBackend")
    grow(side, reader, few_rows)
    few = {name: fewest(client, address) for name, address in pages.items()}
    most = {
        name: Cost(min(one.statements + STEPS.get(name, 0), MOST), one.round_trips)
        for name, one in few.items()
    }
    grow(side, reader, many_rows - few_rows)
    many = {name: fewest(client, address, most[name]) for name, address in pages.items()}
    wrong = {name: (few[name], many[name]) for name in pages if not many[name].fits(most[name])}
    assert wrong == {}, "with few rows, and with many"


class Cost(NamedTuple):
    """Of one page."""

    statements: int
    round_trips: int  # to Redis

    def fits(self, other: "Cost") -> bool:
        return self.statements <= other.statements and self.round_trips <= other.round_trips


def fewest(client: Client, address: str, enough: Cost | None = None) -> Cost:
    """The cost of a page that is asked for up to three times: what a process or a moment keeps
    is there by then. Once is too often after `enough`; without it, after two that agree."""
    found = [cost(client, address)]
    while len(found) < 3 and not (found[-1].fits(enough) if enough else found[-1] in found[:-1]):
        found.append(cost(client, address))
    return Cost(min(one.statements for one in found), min(one.round_trips for one in found))


def cost(client: Client, address: str) -> Cost:
    with CaptureQueriesContext(connection) as found, round_trips() as sent:
        response = client.get(address)
        if response.streaming:
            list(response.streaming_content)
    absent = address.startswith(("/readyz", "/workspace/"))  # no worker and no sandbox are here
    made_none = address == reverse("factor-codes")  # it shows new ones once
    ready = {200, 503} if absent else {302} if made_none else {200}
    assert response.status_code in ready, (address, response.status_code)
    response.close()
    return Cost(len(found), len(sent))


@contextmanager
def round_trips() -> Iterator[list[int]]:
    """What this thread sends to Redis meanwhile; a pipeline is sent once."""
    sent: list[int] = []
    send, here = AbstractConnection.send_packed_command, threading.get_ident()

    def counted(self: AbstractConnection, command: Any, check_health: bool = True) -> None:
        if threading.get_ident() == here:
            sent.append(1)
        send(self, command, check_health)

    with mock.patch.object(AbstractConnection, "send_packed_command", counted):
        yield sent


def grow(side: Side, reader: User, count: int) -> None:
    """So many more of everything."""
    organization = side.organization
    tools = [side.tool, *bulk.tools(organization, count, groups=count)]
    agents = [side.agent, *bulk.agents(organization, count)]
    of: dict[str, Any] = {"of": tools, "by": agents}
    bulk.executions(organization, 2 * count, **of, events=True)
    for status in ("Pending", "Cancelled", "ValidationError"):
        bulk.executions(organization, count, **of, days=1, status=status)
    bulk.executions(organization, count, of=[side.tool], by=[side.agent], status="Failed")
    bulk.confirmations(organization, count, **of)
    bulk.sessions(organization, count, by=agents)
    bulk.messages(organization, count, to=reader)
    bulk.audit_records(organization, 6 * count)
    for at in range(count):
        _one_more(organization, uuid4().hex[:8], tools[at])
    factories.token(reader), factories.token(side.agent.service_account)
    Client().force_login(reader, backend="tools.accounts.login.login.PeopleBackend")


def _one_more(organization: Organization, name: str, tool: Any) -> None:
    """Of what there are few of anywhere."""
    by = factories.actor(organization)
    here: dict[str, Any] = {"organization": organization, "by": by}
    queues = {"request_queue": f"q-{name}", "response_queue": f"r-{name}"}
    services.create_service(service={"id": f"service-{name}"} | queues, **here)
    mcp_servers.create_server(
        server={"name": f"server-{name}", "url": "https://mcp.example/mcp"}, **here
    )
    _one_more_schema(organization, name)
    credentials.create_credential(
        credential={"name": f"key-{name}", "header": "X-Key", "value": "x"}, **here
    )
    message_channels.create_channel(channel={"name": f"way-{name}", "kind": "inbox"}, **here)
    profiles.create_profile(profile={"name": f"wall-{name}"}, everywhere=True, **here)
    confirmation_rules.create_rule(name=f"rule-{name}", wanted={"tool": "write_file"}, **here)
    _one_more_chain(organization, name, tool)
    drifted = factories.tool(organization, f"drifted-{name}")
    assert drifted.version is not None
    seen = drifted.version.definition | {"description": "Other words."}
    note_upstream(tool=drifted, seen=seen, by=by)
    now = timezone.now()
    Alert.objects.create(
        organization=organization.slug, rule=name, severity="info", actor="a", message="m",
        count=1, first_at=now, last_at=now,
    )  # fmt: skip
    AlertChannel.objects.create(
        organization=organization.slug, name=f"channel-{name}", kind="email",
        target=f"{name}@example.com",
    )  # fmt: skip


def _one_more_schema(organization: Organization, name: str) -> None:
    """Without a trial in the sandbox."""
    row = organization.content_schemas.create(name=f"schema-{name}", kind="json-schema")
    row.versions.create(number=1, document={"type": "object"}, digest="", created_by="system:tests")


def _one_more_chain(organization: Organization, name: str, tool: Any) -> None:
    step = {"id": "one", "tool_name": tool.name, "parameters": {"text": "x"}}
    written = {"name": f"chain-{name}", "description": "A chain.", "steps": [step]}
    factories.register(organization, chain_definition(written | {"parameters": []}))
