"""No page asks more when there is more: each in so many statements, however many rows there are.

The addresses come from the URL resolver and the administration's list of models, so that a page
that comes later is asked too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit.models import Alert, AlertChannel
from tests import bulk, factories
from tests.tools.api.test_authorization_matrix import Side
from tests.ui.addresses import ASKED_FOR_MORE, LISTS, SHOWN, addresses_of, busiest_pages
from tests.ui.test_knowledge import ELEMENTS, teller
from tools.catalog import channels, content_schemas, credentials, mcp_servers, profiles, services
from tools.catalog.drift import note_upstream
from tools.definitions.chains.written import definition_of
from tools.models import Organization, User
from tools.policy import confirmation_rules

FEW = 6  # rows of each kind; there are three times as many in the end, and a page holds more
MOST = 40  # statements of one page

# A proof reads two parts of the tree more where the log is 256 times as long; what is not among the
# newest 2,000 records is looked for by the index.
STEPS = {"audit-record-verify": 4, "audit, no such word": 1}


@dataclass(frozen=True)
class Asked:
    """Statements of each page, with few rows and with three times as many."""

    few: dict[str, int]
    many: dict[str, int]


@pytest.fixture(scope="module")
def asked(crib: Any, django_db_setup: None, django_db_blocker: Any) -> Iterator[Asked]:
    with django_db_blocker.unblock():
        organization = factories.organization(f"org-{uuid4().hex[:12]}")
        side, reader = Side(organization, "axe"), factories.superuser(organization)
        factories.workspace_file(organization, "notes/read.md", b"# Read\n\nWords.\n")
        teller(organization)(ELEMENTS.read_text())
        pages = addresses_of(side, tool=side.tool.name, agent=side.agent.slug)
        grow(side, reader, FEW)
        few = counted(reader, pages)
        grow(side, reader, 2 * FEW)
        yield Asked(few, counted(reader, pages))
        connection.close()


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
    Client().force_login(reader, backend="tools.policy.login.PeopleBackend")


def _one_more(organization: Organization, name: str, tool: Any) -> None:
    """Of what there are few of anywhere."""
    by = factories.by(organization)
    here: dict[str, Any] = {"organization": organization, "by": by}
    queues = {"request_queue": f"q-{name}", "response_queue": f"r-{name}"}
    services.create_service(service={"id": f"service-{name}"} | queues, **here)
    mcp_servers.create_server(
        server={"name": f"server-{name}", "url": "https://mcp.example/mcp"}, **here
    )
    content_schemas.create_schema(
        schema={"name": f"schema-{name}", "document": {"type": "object"}}, **here
    )
    credentials.create_credential(
        credential={"name": f"key-{name}", "header": "X-Key", "value": "x"}, **here
    )
    channels.create_channel(channel={"name": f"way-{name}", "kind": "inbox"}, **here)
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


def _one_more_chain(organization: Organization, name: str, tool: Any) -> None:
    step = {"id": "one", "tool_name": tool.name, "parameters": {"text": "x"}}
    written = {"name": f"chain-{name}", "description": "A chain.", "steps": [step]}
    factories.register(organization, definition_of(written | {"parameters": []}))


def counted(reader: User, pages: dict[str, str]) -> dict[str, int]:
    """The least of three: what a process or a moment keeps is there by then."""
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(reader, backend="tools.policy.login.PeopleBackend")
    return {
        name: min(statements(client, address) for _ in range(3)) for name, address in pages.items()
    }


def statements(client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as found:
        response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    response.close()
    return len(found)


@pytest.mark.parametrize("name", [*SHOWN, *ASKED_FOR_MORE, *busiest_pages("x"), *LISTS])
def test_a_page_asks_as_much_of_many_rows_as_of_few(asked: Asked, name: str) -> None:
    assert asked.many[name] <= asked.few[name] + STEPS.get(name, 0)
    assert asked.many[name] <= MOST
