"""The operator's list of MCP servers: read strictly, and loud where it cannot be meant."""

import json

import pytest

from config.env import BadSetting
from config.external_servers import env_stdio, read_stdio_servers
from sandbox.spec import MIB, Mount

WHOLE = {
    "command": ["/opt/mcp/bin/serve", "--quiet"],
    "arguments": ["--zone=[A-Z]+"],
    "variables": ["TOKEN"],
    "environment": {"MODE": "s3cret"},
    "programs": ["/opt/mcp"],
    "read": ["/srv/docs"],
    "write": ["/srv/state:/state"],
    "workspace": "read",
    "directory": "/state",
    "network": True,
    "memory_mb": 128,
    "processes": 8,
    "disk_mb": 4,
}


@pytest.fixture
def set_allowed_servers(monkeypatch):
    return lambda text: monkeypatch.setenv("MCP_STDIO_ALLOWED", text)


def test_nothing_is_allowed_unless_it_is_said(set_allowed_servers):
    set_allowed_servers("")
    assert env_stdio("MCP_STDIO_ALLOWED") == {}


def test_every_field_is_read(set_allowed_servers):
    set_allowed_servers(json.dumps({"serve": WHOLE}))
    one = env_stdio("MCP_STDIO_ALLOWED")["serve"]
    assert one.command == ("/opt/mcp/bin/serve", "--quiet")
    assert one.mounts == (Mount("/srv/docs", "/srv/docs"), Mount("/srv/state", "/state", True))
    assert (one.limits.memory_bytes, one.limits.processes) == (128 * MIB, 8)
    assert (one.workspace, one.directory, one.network) == ("read", "/state", True)
    assert [str(place) for place in one.paths] == ["/opt/mcp", "/srv/docs", "/srv/state"]
    assert "s3cret" not in repr(one)


def test_a_file_of_yaml_or_json_is_named_by_its_path(set_allowed_servers, tmp_path):
    (tmp_path / "list.yaml").write_text("time:\n  command: /usr/bin/time-server\n")
    set_allowed_servers(str(tmp_path / "list.yaml"))
    one = env_stdio("MCP_STDIO_ALLOWED")["time"]
    assert (one.command, one.arguments, one.network) == (("/usr/bin/time-server",), (), False)


@pytest.mark.parametrize(
    ("words", "flaw"),
    [
        ((), None),
        (("--zone=UTC", "--zone=CET"), None),
        (("--zone=UTC", "--zone=UTC;id"), "argument 2 is not one that the operator allows"),
        (("--zone=UTC\n",), "argument 1 is not one that the operator allows"),
        (("x--zone=UTC",), "argument 1 is not one that the operator allows"),
    ],
)
def test_an_argument_is_allowed_as_a_whole_or_not_at_all(words, flaw):
    assert read_stdio_servers({"serve": WHOLE})["serve"].flaw_in_arguments(words) == flaw


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": []},
        {"command": "relative/serve"},
        {"command": 1},
        {"command": "/a/../b"},
        {"arguments": ["("]},
        {"arguments": "x"},
        {"variables": ["A-B"]},
        {"environment": {"A": 1}},
        {"environment": ["A"]},
        {"programs": ["/proc"]},
        {"read": ["/proc/1"]},
        {"write": ["/srv/state:/usr/lib"]},
        {"write": ["srv"]},
        {"workspace": "all"},
        {"directory": "x"},
        {"network": "yes"},
        {"memory_mb": 0},
        {"processes": True},
        {"surprise": 1},
    ],
)
def test_what_cannot_be_meant_stops_the_start_and_is_named(set_allowed_servers, wrong):
    set_allowed_servers(json.dumps({"serve": WHOLE | wrong}))
    with pytest.raises(BadSetting, match="MCP_STDIO_ALLOWED is not as it should be: serve: "):
        env_stdio("MCP_STDIO_ALLOWED")


@pytest.mark.parametrize("text", ["{", "[]", "/no/such/file", '{"a b": {"command": "/x"}}', "uvx"])
def test_what_is_no_list_at_all_stops_the_start(set_allowed_servers, text):
    set_allowed_servers(text)
    with pytest.raises(BadSetting, match="MCP_STDIO_ALLOWED"):
        env_stdio("MCP_STDIO_ALLOWED")


def test_a_list_without_commands_is_refused():
    with pytest.raises(ValueError, match="serve"):
        read_stdio_servers({"serve": {"arguments": []}})
