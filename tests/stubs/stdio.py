"""The operator's list of the tests: a stub that misbehaves, and servers that others wrote."""

import sys
from pathlib import Path
from typing import Any

UPSTREAMS = Path(__file__).parents[2].joinpath(".venv", "upstreams").resolve()
STUB = Path(__file__).with_name("stdio_server.py").read_text()
PYTHON = f"{sys.base_prefix}/bin/python3"
_BIN = UPSTREAMS / "python" / "bin"
_NODE = UPSTREAMS / "node"
_MODULES = _NODE / "node_modules" / "@modelcontextprotocol"
# A server has a /tmp of its own and is shown no program below it: not those of a checkout there.
MAY_BE_SHOWN = UPSTREAMS.parts[1] != "tmp"


def _python(name: str, **more: Any) -> dict[str, Any]:
    base = (_BIN / "python").resolve().parents[1]
    return {
        "command": str(_BIN / name),
        "programs": [str(UPSTREAMS / "python"), str(base)],
        "workspace": "write",
        **more,
    }


def _node(name: str, *words: str, **more: Any) -> dict[str, Any]:
    """Node takes much address space and little memory."""
    return {
        "command": ["/usr/bin/env", "node", str(_MODULES / name / "dist" / "index.js"), *words],
        "programs": [str(_NODE)],
        "workspace": "write",
        **more,
    }


_STUB: dict[str, dict[str, Any]] = {
    "stub": {
        "command": [PYTHON, "-c", STUB],
        "programs": [sys.base_prefix],
        "arguments": ["2026-07-28", "2025-11-25"],
        "variables": ["KEY"],
    },
}
_OF_OTHERS: dict[str, dict[str, Any]] = {
    "mcp-server-time": _python("mcp-server-time", arguments=["--local-timezone=[A-Za-z_/]+"]),
    "mcp-server-git": _python(
        "mcp-server-git",
        arguments=["--repository", "/workspace(/[a-z]+)*"],
        environment={  # the workspace belongs to another user than the server's
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        },
    ),
    "mcp-server-fetch": _python(
        "mcp-server-fetch",
        arguments=["--ignore-robots-txt", "--allow-private-ips"],  # the broker looks at them
        network=True,
    ),
    "server-everything": _node("server-everything", "stdio"),
    "server-filesystem": _node("server-filesystem", "/workspace"),
    "server-memory": _node(
        "server-memory", environment={"MEMORY_FILE_PATH": "/workspace/memory.json"}
    ),
}
ALLOWED = _STUB | (_OF_OTHERS if MAY_BE_SHOWN else {})
