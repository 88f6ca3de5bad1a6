"""Names that are reserved for routes are refused, because such a row could be created but not
read."""

from collections import defaultdict

import pytest

from tests import factories
from tests.tools.api.test_matrix import addresses
from tests.tools.shapes import check_error

KINDS = {
    "api/v1/tools": "tool", "api/v1/chains": "chain", "api/v1/groups": "group", "chains": "chain",
    "agents": "agent", "channels": "channel", "schemas": "schema", "servers": "server",
    "services": "service",
}  # fmt: skip


def taken() -> list[tuple[str, str]]:
    """The reserved path segments, by the kind of row that is named there."""
    split = [one.strip("/").split("/") for one in addresses("") if not one.startswith("admin/")]
    fixed, named = defaultdict(set), set()
    for parts in split:
        for at, part in enumerate(parts):
            fixed[tuple(parts[:at])].add(part)
            if part.startswith(("<str:", "<path:", "<slug:")):
                named.add(tuple(parts[:at]))
    return sorted(
        (KINDS["/".join(above)], part)
        for above in named
        for part in fixed[above]
        if not part.startswith("<")
    )


MADE_BY = {
    "tool": ("/tools", factories.definition),
    "chain": ("/chains", lambda name: {"name": name, "description": "Two steps.", "steps": [
        {"id": "first", "tool_name": "read_file", "parameters": {"path": "a.txt"}},
    ]}),
    "group": ("/groups", lambda name: {"name": name}),
    "agent": ("/agents", lambda name: {"slug": name}),
    "channel": ("/channels", lambda name: {"name": name, "kind": "inbox"}),
    "schema": ("/content-schemas", lambda name: {"name": name, "kind": "json", "document": {}}),
    "server": ("/mcp-servers", lambda name: {
        "name": name, "transport": "sse", "url": "https://x.example/",
    }),
    "service": ("/tool-services", lambda name: {"id": name, "name": "Service"}),
}  # fmt: skip


def test_an_address_has_been_found_for_each_kind():
    assert {kind for kind, _ in taken()} == set(MADE_BY)


@pytest.mark.parametrize(("kind", "name"), taken())
def test_nothing_is_named_like_an_address(admin_api, kind, name):
    path, body = MADE_BY[kind]
    refusal = check_error(admin_api.post(path, body(name)), 400)
    assert "is reserved" in str(refusal)
    answer = admin_api.post(path, body(f"{name}-7391"))
    assert answer.status_code in (201, 400) and "is reserved" not in answer.content.decode()
