"""What `docs/chains.md` leads a newcomer through: without code, over the running product.

A chain fetches a page from a local web server, validates it, stores what it tells of as entities,
searches them, and sends a message when a person has agreed.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests import factories
from tests.journeys.client import Http
from tests.stubs.web import Reply, Web, serving
from tests.tools.held import approve, approver
from tests.tools.waiting import until
from tools.models import Confirmation, InboxItem

ELEMENTS = [
    {"name": "Oxygen", "symbol": "O", "number": 8},
    {"name": "Xenon", "symbol": "Xe", "number": 54},
]
SCHEMA = {
    "type": "array",
    "items": {"type": "object", "required": ["name", "symbol", "number"]},
}
CHAIN = """
name: keep_elements
description: Fetches a list of elements, keeps them in the graph, and tells the team.
group: [elements]
parameters:
  - {name: url, type: String, description: Where the list is., required: true}
  - {name: ask, type: String, description: What to look for afterwards., required: true}
steps:
  - id: page
    tool_name: web_fetch
    parameters: {url: {$input: /url}, format: raw}
    retries: {attempts: 2, wait: PT0.2S}
  - id: check
    tool_name: validate_content
    parameters:
      content: {$step: page, path: /output/content}
      schema_name: elements
      give_document: true
  - id: keep
    tool_name: create_entity
    when: {equals: [{$step: check, path: /output/valid}, true]}
    for_each: {$step: check, path: /output/document}
    parallel: 2
    parameters:
      type: Element
      name: {$item: /name}
      key: {$item: /symbol}
      properties: {symbol: {$item: /symbol}, number: {$item: /number}}
  - id: find
    tool_name: search_knowledge
    when: {succeeded: keep}
    parameters: {query: {$input: /ask}}
  - id: tell
    tool_name: send_message
    when: {succeeded: find}
    parameters:
      channel: team
      to: [chief]
      subject: {$text: "{{ steps.find.output.total }} found for {{ input.ask }}"}
      body: {$step: find, path: /output/text}
output:
  found: {$step: find, path: /output/results/0/label}
  message: {$step: tell, path: /output/message_id}
"""
GROUPS = ["elements", "network", "read-only", "knowledge", "knowledge/read", "knowledge/write",
          "messages"]  # fmt: skip


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as one:
        kind = [("Content-Type", "text/plain; charset=utf-8")]
        one.replies["/elements"] = Reply(headers=kind, body=json.dumps(ELEMENTS).encode())
        yield one


@pytest.fixture
def chief(organization: Any) -> Any:
    return factories.person(organization)


@pytest.fixture
def ready(crib: Any, committed: None, organization: Any, admin: Http, web: Web, chief: Any) -> Http:
    """Everything an administrator sets up before; the agent that runs it."""
    factories.install(organization)
    allowed = [{"host": "127.0.0.1", "ports": [web.port]}]
    place = f"/api/v1/organizations/{organization.slug}"
    assert admin("PATCH", place, {"allowed_hosts": allowed}).status_code == 200
    schema = {"name": "elements", "document": SCHEMA}
    assert admin("POST", "/api/v1/content-schemas", schema).status_code == 201
    channel = {"name": "team", "kind": "inbox", "recipients": [chief.username]}
    assert admin("POST", "/api/v1/channels", channel).status_code == 201
    written = CHAIN.replace("[chief]", f"[{chief.username}]").encode()
    made = admin("POST", "/api/v1/chains", written, **{"Content-Type": "application/yaml"})
    assert made.status_code == 201, made.json()
    agent = factories.agent(organization, groups=GROUPS)
    return Http(crib.url, factories.token(agent.service_account))


def begun(http: Http, web: Web, path: str = "/elements") -> str:
    body = {
        "parameters": {"url": web.url(path), "ask": "xenon"},
        "group": GROUPS,
        "options": {"wait_s": 0},
    }
    answer = http("POST", "/api/v1/chains/keep_elements/execute", body)
    assert answer.status_code == 202, answer.json()
    return str(answer.json()["run_id"])


def test_a_page_becomes_entities_and_a_confirmed_message(ready, web, organization, chief):
    run = begun(ready, web)
    held = Confirmation.objects.filter(execution__parent=run, status="pending")
    approve(until(held.first, 60), approver(organization))
    done = ready("GET", f"/api/v1/chain-runs/{run}?wait_s=60").json()
    assert done["status"] == "Success", done["execution"]["error_message"]
    assert done["execution"]["output"]["found"] == "Xenon"
    places = [step["place"] for step in done["steps"]]
    assert places[:2] == ["page", "check"] and places[-2:] == ["find", "tell"]
    assert {"keep/0", "keep/1"} == set(places[2:4])
    item = InboxItem.objects.select_related("message").get(user=chief)
    assert item.message.subject == "1 found for xenon"
    with ready.events(f"/api/v1/executions/{run}/events") as events:
        kinds = [event["event"] for event in events]
    assert kinds[0] == "Started" and kinds[-1] == "Completed"


def test_a_page_that_is_not_what_it_should_be_stores_nothing_and_tells_nobody(ready, web, chief):
    web.replies["/wrong"] = Reply(headers=[("Content-Type", "text/plain")], body=b'[{"name": 1}]')
    run = begun(ready, web, "/wrong")
    done = ready("GET", f"/api/v1/chain-runs/{run}?wait_s=60").json()
    assert [step["place"] for step in done["steps"]] == ["page", "check"]
    assert done["execution"]["error_code"] == "OUTPUT_MISSING"
    assert not InboxItem.objects.filter(user=chief).exists()
