"""Loaded before the settings: every test session has a data directory of its own.

What the surroundings say about databases is set aside, so that a test can never write into one.
"""

import atexit
import os
import shutil
import tempfile

for name in ("DATABASE_URL", "REDIS_URL", "DATABASE_URL_FILE", "REDIS_URL_FILE"):
    os.environ.pop(name, None)
for name in (
    "SANDBOX_SOCKET",
    "EGRESS_SOCKET",
    "EGRESS_ALLOW_PRIVATE",
    "EGRESS_CA_FILE",
    "MCP_STDIO_ALLOWED",
):
    os.environ.pop(name, None)
for name in (
    "LLM_BASE_URL",
    "LLM_API_KEY",
    "LLM_MODEL",
    "LLM_PRICES",
    "LLM_TOOL_CALLS",
    "SPARQL_URL",
):
    os.environ.pop(name, None)
_given, _session = os.environ.get("TOOLCRIB_TEST_DATA"), os.getpid()
os.environ["TOOLCRIB_DATA"] = _given or tempfile.mkdtemp(prefix="tc-")
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright's loop runs in the tests' thread


@atexit.register
def remove_directory() -> None:
    """Of a process that started no server in it, such as xdist's first one; others did already."""
    if not _given and os.getpid() == _session:
        shutil.rmtree(os.environ["TOOLCRIB_DATA"], ignore_errors=True)
