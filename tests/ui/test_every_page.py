"""What holds for each page, whatever it shows."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.db import transaction
from django.test import Client

from audit.models import AuditRecord
from tests import agent_runs, factories
from tests.tools.approval_requests import call_awaiting_approval
from tests.ui.pages import POLICY, inline_code, text
from tests.ui.sources import Author, announced_tool, listed_server
from tools.catalog.actions import find_tool, update_tool
from tools.catalog.sandbox import content_schemas
from tools.catalog.signatures.drift import note_upstream
from tools.execution.admit import admit
from tools.models import Agent, Organization, Session

HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(2)>'"
RECORD = "019d0000-0000-7000-8000-000000000000"  # stands for the hostile one's
CHANGE = "019d0000-0000-7000-8000-000000000001"  # the same
SESSION = "019d0000-0000-7000-8000-000000000002"  # the same
CONFIRMATION = "019d0000-0000-7000-8000-000000000004"  # the same
REQUEST = "019d0000-0000-7000-8000-000000000003"  # the same
NOBODYS = "019d0000-0000-7000-8000-000000000000"
PAGES = [
    "/",
    "/?q=%3Cscript%3E&status=active",
    "/?origin=%22%3E%3Cscript%3E&tier=%3Cscript%3E&group=%3Cscript%3E",
    "/search/",
    "/search/?q=%22%3E%3Cscript%3E",
    "/search/?q=hostile",
    "/catalog/change/?do=disable&pick=hostile",
    "/catalog/change/?do=put&pick=hostile&into=%3Cscript%3Ealert%281%29&next=javascript:alert(1)",
    "/tools/read_file/",
    "/tools/hostile/",
    "/tools/hostile/who/",
    "/tools/hostile/who/?q=%22%3E%3Cscript%3E",
    "/tools/hostile/usage/",
    "/tools/hostile/versions/1/",
    "/tools/hostile/difference/",
    "/tools/hostile/difference/?from=1.0.1&to=1.0.0&restore=%22%3E%3Cscript%3E",
    "/tools/hostile/versions/2/",
    "/tools/hostile/difference/?from=1.0.0&to=1.0.1",
    "/explain/",
    "/explain/?q=%3Cscript%3E&state=%22%3E&refused=yes&page=9",
    "/explain/?agent=hostile&of=hostile&groups=%3Cscript%3Ealert(1)%3C/script%3E",
    "/explain/what-if/",
    "/explain/what-if/?kind=ghost",
    "/explain/what-if/?kind=grant&agent=hostile&do=give&what=groups&names=%3Cscript%3Ealert(1)",
    "/explain/what-if/?kind=tool_groups&tool=hostile&names=a&days=x",
    "/explain/what-if/?kind=tier&tier=Core&days=7",
    "/changes/",
    "/changes/?state=rejected",
    f"/changes/{CHANGE}/",
    "/keys/",
    "/chains/",
    "/chains/new/",
    "/chains/hostile_chain/edit/",
    "/tools/hostile_chain/",
    "/editor/",
    "/editor/hostile/",
    "/agents/",
    "/agents/?q=%22%3E%3Cscript%3E&state=%3Cscript%3E&page=x",
    "/agents/new/",
    "/agents/hostile/",
    "/agents/hostile/?after=%22%3E%3Cscript%3E",
    "/agents/hostile/edit/",
    "/agents/hostile/bounds/",
    f"/sessions/{SESSION}/",
    "/services/",
    "/services/new/",
    "/services/hostile/",
    "/services/hostile/edit/",
    "/services/hostile/remove/",
    "/servers/",
    "/servers/new/",
    "/servers/new/?transport=stdio",
    "/servers/hostile/",
    "/servers/hostile/edit/",
    "/servers/hostile/credentials/",
    "/servers/hostile/client/",
    "/servers/hostile/remove/",
    "/messages/",
    "/messages/?state=%22%3E%3Cscript%3E",
    "/channels/",
    "/channels/new/",
    "/channels/new/?kind=slack",
    "/channels/new/?kind=%3Cscript%3E",
    "/inbox/",
    "/profile/",
    "/profile/password/",
    "/profile/factors/",
    "/profile/factors/app/",
    "/profile/factors/key/",
    "/login/again/?next=%22%3E%3Cscript%3E",
    "/confirmations/",
    f"/confirmations/{CONFIRMATION}/",
    "/groups/",
    "/groups/?group=%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%3E%3Cimg+src%3Dx+onerror%3Dalert%282%29%3E%27",
    "/groups/new/",
    "/groups/change/default",
    "/workflow/",
    f"/workflow/?group={quote(HOSTILE)}&group=ghost",
    "/workflow/walk/?groups=%3Cscript%3E&start=%22%3E%3Cscript%3E&step=%3Cscript%3E&q=%3Cscript%3E",
    "/import/",
    "/audit/?over=24h&code=TOOL.",
    "/audit/?over=%3Cscript%3E",
    "/audit/exports/",
    "/audit/exports/?since=x&tool=%22%3E%3Cscript%3E",
    "/audit/alerts/",
    "/audit/alerts/?rule=%22%3E%3Cscript%3E&severity=x&page=9",
    "/audit/alerts/rules/",
    "/audit/alerts/rules/1/",
    "/audit/alerts/rules/new/",
    "/audit/alerts/rules/new/?kind=by_subject&window=%3Cscript%3E&list.codes=%22%3E%3Cscript%3E",
    "/sandbox/",
    "/licenses/",
    "/licenses/?tier=Core",
    "/licenses/tiers/1/",
    "/licenses/tiers/1/?show=yes&builtin=every&limited=every&levels=every&tool=%3Cscript%3E",
    "/settings/",
    "/settings/organization/",
    "/usage/",
    "/usage/?by=%3Cscript%3E&tool=%22%3E%3Cscript%3E",
    "/home/",
    "/home/?over=14d",
    "/home/?over=%3Cscript%3E&part=now&seen=%22%3E%3Cscript%3E",
    "/playground/",
    "/playground/?q=%3Cscript%3E",
    "/tools/hostile/call/",
    f"/tools/hostile/call/?record={RECORD}",
    "/agent/requests/",
    "/agent/requests/?agent=%22%3E%3Cscript%3E&status=%3Cscript%3E&pattern=%3Cscript%3E&before=x",
    "/agent/requests/new/",
    f"/agent/requests/{REQUEST}/",
    f"/agent/requests/new/?continues={REQUEST}",
    f"/agent/requests/new/?replays={REQUEST}",
    "/batches/",
    "/batches/?kind=%3Cscript%3E&tool=%22%3E%3Cscript%3E&before=x",
    "/executions/",
    "/executions/?tool=%22%3E%3Cscript%3E",
    "/schemas/",
    "/schemas/new/",
    "/schemas/hostile/",
    "/schemas/hostile/edit/",
    "/schemas/hostile/remove/",
    "/knowledge/",
    "/knowledge/?q=%3Cscript%3E&type=%22%3E%3Cscript%3E",
    "/knowledge/import/",
    "/audit/",
    "/audit/?q=%22%3E%3Cscript%3E&since=x&execution=y",
    f"/audit/records/{RECORD}/",
    f"/audit/records/{RECORD}/verify/",
    "/audit/checkpoints/",
    "/audit/checkpoints/?before=%22%3E%3Cscript%3E",
]


@pytest.fixture
def hostile(crib: Any, organization: Organization) -> None:
    """A tool whose every text tries to become code. The sandbox tries its schema."""
    parameter = {"name": "text", "type": "String", "description": HOSTILE, "default": HOSTILE}
    source = f"def main(p):\n    return {HOSTILE!r}\n"
    Author(organization).says(
        "hostile", [announced_tool("hostile-joke", "hostile", description=HOSTILE)]
    )
    listed_server(organization, "hostile", HOSTILE)
    schema = {"name": "hostile", "description": HOSTILE, "document": {"title": HOSTILE}}
    by = factories.actor(organization)
    content_schemas.create_schema(organization=organization, schema=schema, by=by)
    factories.tool(
        organization,
        "hostile",
        description=HOSTILE,
        title=HOSTILE,
        parameters=[parameter],
        group=[HOSTILE],
        implementation={"source": source},
    )
    factories.tool(
        organization, "hostile_state",
        state=HOSTILE, available_in_states=[HOSTILE], group=[HOSTILE],
    )  # fmt: skip
    factories.tool(organization, "hostile_asks", requires_confirmation=True)
    says = {"text": {"$literal": HOSTILE}}
    step = {
        "id": "one",
        "tool_name": "hostile",
        "parameters": says,
        "when": {"equals": [HOSTILE, 1]},
    }
    factories.register(
        organization,
        {
            "name": "hostile_chain",
            "type": "chain",
            "description": HOSTILE,
            "implementation": {"chain": {"steps": [step], "output": HOSTILE}},
        },
    )


@pytest.fixture
def record(hostile: None, organization: Organization) -> UUID:
    """Of a call of it, with what went in."""
    agent = factories.agent(organization, "hostile", description=HOSTILE, groups=["*", HOSTILE])
    factories.token(agent.service_account, label=HOSTILE)
    admit(factories.caller(agent), factories.call("hostile", {"text": HOSTILE}, group=["*"]))
    found = AuditRecord.objects.filter(organization=organization.slug, subject="hostile")
    return found.filter(code="TOOL.ACCEPT").latest("id").pk


@pytest.fixture
def place(record: UUID, organization: Organization) -> Callable[[str], str]:
    """An address with what is there in its places; the upstream of the tool has changed."""
    tool = find_tool(organization, "hostile")
    assert tool.version is not None
    by = factories.actor(organization)
    later = tool.version.definition | {"description": HOSTILE * 3, "change_note": HOSTILE}
    tool = update_tool(tool=tool, definition=later, by=by)
    assert tool.version is not None
    seen = tool.version.definition | {"description": HOSTILE * 2}
    change = note_upstream(tool=tool, seen=seen, by=by)
    assert change is not None
    agent = Agent.objects.get(organization=organization, slug="hostile")
    session = Session.objects.create(
        organization=organization, user=agent.service_account, agent=agent, groups=[HOSTILE],
        state=HOSTILE,
    )  # fmt: skip
    run = agent_runs.claim_agent_run(
        agent_runs.request_run_by_agent(agent, HOSTILE, group=[HOSTILE], model="")
    )
    agent_runs.thought(run, 1, HOSTILE, ("hostile", {"text": HOSTILE}))
    agent_runs.acted(run, 1, "hostile", {"text": HOSTILE}, observed=HOSTILE)
    run = agent_runs.answered(run, HOSTILE)
    there = {
        RECORD: record, CHANGE: change.pk, SESSION: session.pk, REQUEST: run.pk,
        CONFIRMATION: call_awaiting_approval(agent, "hostile_asks", text=HOSTILE).pk,
    }  # fmt: skip

    def address_of(address: str) -> str:
        for stands, pk in there.items():
            address = address.replace(stands, str(pk))
        return address

    return address_of


def flaws(client: Client, address: str) -> list[str]:
    """What is wrong with the page at an address. What asking for it changed is taken back."""
    with transaction.atomic():
        response = client.get(address)
        page = text(response)
        transaction.set_rollback(True)
    found = inline_code(response)
    if response.status_code != 200:
        found.append(f"status {response.status_code}")
    if "<script>alert" in page or "<img src=x" in page:
        found.append("a script of others")
    if POLICY not in response.get("Content-Security-Policy", ""):
        found.append("another policy")
    if "no-store" not in response.get("Cache-Control", ""):
        found.append("may be stored")
    return [f"{address}: {flaw}" for flaw in found]


def test_a_page_runs_no_code_of_others_and_is_stored_nowhere(
    admin_client: Client, place: Callable[[str], str]
) -> None:
    admin_client.raise_request_exception = False
    assert [flaw for address in PAGES for flaw in flaws(admin_client, place(address))] == []


def test_a_page_is_for_those_who_logged_in(client: Client, db: None) -> None:
    answers = {address: client.get(address) for address in PAGES}
    opened = {
        address: response.status_code
        for address, response in answers.items()
        if response.status_code != 302 or not response["Location"].startswith("/login/?next=")
    }
    assert opened == {}


def test_what_is_not_there_is_a_page_too(admin_client: Client) -> None:
    versions, execution = "/tools/read_file/versions/9/", f"/executions/{NOBODYS}/"
    addresses = ["/tools/nothing/", versions, execution, "/nowhere"]
    wrong = {}
    for address in addresses:
        response = admin_client.get(address)
        has_request_id = response["X-Request-Id"] in text(response)
        found = response.status_code, inline_code(response), has_request_id
        if found != (404, [], True):
            wrong[address] = found
    assert wrong == {}


def test_the_login_page_obeys_the_policy(client: Client, db: None) -> None:
    response = client.get("/login/")
    assert POLICY in response["Content-Security-Policy"]
    assert inline_code(response) == []
