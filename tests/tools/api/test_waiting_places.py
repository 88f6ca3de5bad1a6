"""A request that waits occupies a thread of the web process: their number is bounded, and others
are answered at once."""

import pytest

from tests import factories
from tests.tools.shapes import check_error
from tools.api.common import event_streams
from tools.api.common.event_streams import CallerConcurrency


@pytest.fixture
def taken(monkeypatch):
    """All places are taken."""
    monkeypatch.setattr(event_streams, "_places", CallerConcurrency(0))


def test_a_call_is_answered_at_once_and_goes_on(api, organization, taken):
    factories.tool(organization)
    answer = api.execute("echo", {"text": "x"}, options={"wait_s": 60})
    assert (answer.status_code, answer.json()["status"]) == (202, "Pending")
    assert answer.headers["Location"].endswith(answer.json()["execution_id"])


SCHEMA = {"name": "a", "kind": "json-schema", "document": {"type": "object"}}
MAIL = {"name": "mail", "kind": "email", "host": "mail.example", "sender": "crib@a.example"}


@pytest.fixture
def made(admin_api, organization):
    far = {"name": "far", "transport": "sse", "url": "https://x.example/"}
    for path, body in (("/mcp-servers", far), ("/content-schemas", SCHEMA), ("/channels", MAIL)):
        answer = admin_api.post(path, body)
        assert answer.status_code == 201, answer.json()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("post", "/mcp-servers/far/refresh", {}),
     ("post", "/content-schemas", SCHEMA | {"name": "b"}),
     ("put", "/content-schemas/a", {"document": {"type": "array"}}),
     ("post", "/channels/mail/test", {"to": ["ada@a.example"]})],
)  # fmt: skip
def test_what_waits_for_others_is_503_and_says_when(made, admin_api, taken, method, path, body):
    answer = getattr(admin_api, method)(path, body)
    check_error(answer, 503, "unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
