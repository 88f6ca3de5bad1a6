"""`/executions/<id>/output/`: what a call gave back, in pieces and folded."""

import hashlib
import json
from typing import Any

import pytest
from django.test import Client

from tests import factories
from tests.ui.pages import inline_code, notes, text
from tools.errors import Conflict, NotFound
from tools.execution.outputs import load_content
from tools.models import Agent, Execution, Organization, StoredOutput
from tools.ui.executions import outputs


@pytest.fixture
def call(organization: Organization, agent: Agent) -> Execution:
    factories.tool(organization)
    return factories.execution(agent)


def stored(call: Execution, content: bytes, kind: str = "text/plain; charset=utf-8") -> None:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    StoredOutput.objects.keep(call.organization_id, digest, content)
    factories.end_execution(call, output_digest=digest, output_type=kind, output_bytes=len(content))


def page_of(client: Client, call: Execution, query: str = "") -> str:
    response = client.get(f"/executions/{call.pk}/output/{query}")
    assert response.status_code == 200
    assert inline_code(response) == []
    return text(response)


def test_json_is_folded(admin_client: Client, call: Execution) -> None:
    factories.end_execution(
        call, output={"items": [{"name": "<b>one"}], "none": {}}, output_bytes=40
    )
    page = page_of(admin_client, call)
    assert page.count('<details class="node"') == 3
    assert "&lt;b&gt;one" in page
    assert [said.split()[0] for said in notes(page)["holds"]] == ["2", "1", "1"]
    assert "&quot;items&quot;" in page_of(admin_client, call, "?as=text")


def test_a_large_output_is_shown_in_pieces_and_never_as_a_whole(
    admin_client: Client, call: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "".join(f"{at:07}é" for at in range(10_000)).encode()
    stored(call, content)
    read = []
    real = type(StoredOutput.objects.all()).piece

    def piece(self: Any, place: Any, digest: str, start: int, length: int) -> bytes | None:
        read.append(length)
        return real(self, place, digest, start, length)

    monkeypatch.setattr(type(StoredOutput.objects.all()), "piece", piece)
    shown, query = "", ""
    while True:
        page = page_of(admin_client, call, query)
        shown += page.split('aria-label="A piece of the output">')[1].split("</pre>")[0]
        if 'rel="next" href="' not in page:
            break
        query = "?" + page.split('rel="next" href="')[1].split('"')[0].partition("?")[2]
        query = query.replace("&amp;", "&")
    assert shown.encode() == content
    assert max(read) <= outputs.PIECE_BYTES + 4


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("at", ["x", "-1", "9" * 30, "²", "999999999"])
def test_no_place_in_it_is_wrong(admin_client: Client, call: Execution, at: str) -> None:
    stored(call, b"a" * 100_000)
    page = page_of(admin_client, call, f"?as=text&at={at}")
    assert notes(page)["bytes"][0].endswith(" 100,000")


def test_secrets_are_masked_in_both(admin_client: Client, call: Execution) -> None:
    output = {"password": "swordfish", "text": f"ghp_{'a' * 30}", "pad": "x" * 50}
    stored(call, json.dumps(output).encode(), "application/json")
    for query in ("?as=folded", "?as=text"):
        page = page_of(admin_client, call, query)
        assert "swordfish" not in page and "ghp_aaa" not in page and "redacted" in page


def test_in_what_is_too_large_to_fold_too(
    admin_client: Client, call: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MOST_TREE_BYTES", 10)
    stored(call, b'{"password": "swordfish", "pin":1234567, "b": [1]}', "application/json")
    page = page_of(admin_client, call, "?as=folded")
    assert "swordfish" not in page and "1234567" not in page and "&quot;b&quot;" in page


def test_more_nodes_than_a_page_carries_are_counted(
    admin_client: Client, call: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MOST_NODES", 5)
    factories.end_execution(call, output=list(range(9)), output_bytes=20)
    assert notes(page_of(admin_client, call))["more"] == ["4"]


def test_deep_output_ends_somewhere(admin_client: Client, call: Execution) -> None:
    deep: Any = "end"
    for _ in range(60):
        deep = [deep]
    factories.end_execution(call, output=deep, output_bytes=200)
    assert "end" in page_of(admin_client, call)


def test_what_has_no_output_says_so(admin_client: Client, call: Execution) -> None:
    with pytest.raises(Conflict) as early:
        load_content(call)
    assert notes(page_of(admin_client, call))["absent"] == [early.value.message]
    factories.end_execution(call, status="Failed", error_code="X")
    call.refresh_from_db()
    with pytest.raises(NotFound) as failed:
        load_content(call)
    assert notes(page_of(admin_client, call))["absent"] == [failed.value.message]
    assert failed.value.message != early.value.message


def test_others_outputs_are_not_there(client_of, call: Execution) -> None:
    factories.end_execution(call, output="x", output_bytes=3)
    assert client_of().get(f"/executions/{call.pk}/output/").status_code == 404
