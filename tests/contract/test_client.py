"""A Python client generated from the API's document, as a stranger would make one, at work."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import factories
from tests.tools.api.document import document

pytestmark = pytest.mark.part("contract")
# Of a chain, which may be written as YAML too: the client sends JSON.
CONFIG = {"post_hooks": [], "content_type_overrides": {"application/yaml": "application/json"}}
NAME = "toolcrib_client"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the client is. What the generator cannot read of the document is a failure."""
    place = tmp_path_factory.mktemp("generated")
    for name, content in (("openapi.json", document()), ("config.json", CONFIG)):
        (place / name).write_text(json.dumps(content))
    _run(
        place, "openapi_python_client", "generate", "--path", "openapi.json", "--config",
        "config.json", "--meta", "none", "--output-path", NAME, "--fail-on-warning",
    )  # fmt: skip
    return place


@pytest.fixture
def client(
    generated: Path, monkeypatch: pytest.MonkeyPatch, crib: Any, admin_user: Any, committed: None
) -> Any:
    """As an administrator."""
    monkeypatch.syspath_prepend(generated)
    token = factories.token(admin_user, scopes=["read", "execute", "manage"])
    made = importlib.import_module(NAME).AuthenticatedClient(base_url=crib.url, token=token)
    with made as opened:
        yield opened


def api(operation: str) -> Any:
    return importlib.import_module(f"{NAME}.api.{operation}").sync_detailed


def models() -> Any:
    return importlib.import_module(f"{NAME}.models")


def test_its_types_are_right(generated: Path) -> None:
    made = (f"{NAME}/api", f"{NAME}/models")  # the rest is the generator's own
    _run(generated, "mypy", "--follow-imports=silent", "--cache-dir=.mypy_cache", *made)


def test_it_lists_tools_and_calls_one(client: Any, organization: Any) -> None:
    factories.tool(organization, "echo")
    listed = api("tools.list_tools")(client=client, q="echo")
    (tool,) = [one for one in listed.parsed.results if one.name == "echo"]
    assert tool.status is models().ToolStatusEnum.ACTIVE
    body = models().ToolCallBodyRequest.from_dict({"parameters": {"text": "x"}})
    done = api("tools.execute_tool")("echo", client=client, body=body, idempotency_key="one")
    assert done.parsed.status is models().ExecutionStatusEnum.SUCCESS
    assert done.parsed.output == {"echo": {"text": "x"}}
    again = api("tools.execute_tool")("echo", client=client, body=body, idempotency_key="one")
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.parsed.execution_id == done.parsed.execution_id


def test_a_change_from_an_old_reading_is_refused(client: Any) -> None:
    made = api("groups.create_group")(
        client=client, body=models().GroupBodyRequest(name="desk", description="First.")
    )
    assert made.headers["Location"] == "/api/v1/groups/desk"

    def change(to: str) -> Any:
        body = models().PatchedGroupChangeRequest(description=to)
        tag = made.headers["ETag"]
        return api("groups.change_group")("desk", client=client, body=body, if_match=tag)

    assert change("Second.").parsed.description == "Second."
    refused = change("Third.")
    assert (refused.status_code, refused.parsed.code) == (412, "changed_meanwhile")
    assert api("groups.get_group")("desk", client=client).parsed.description == "Second."


def test_an_error_is_read_as_one(client: Any) -> None:
    answer = api("tools.get_tool")("ghost", client=client)
    assert isinstance(answer.parsed, models().ErrorAnswer)
    assert (answer.status_code, answer.parsed.code) == (404, "tool_not_found")
    assert answer.parsed.request_id == answer.headers["X-Request-Id"]


def _run(place: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
