"""Loaded before the settings: every test session has a data directory of its own.

What the surroundings say about databases is set aside, so that a test can never write into one.
"""

import os
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
os.environ["TOOLCRIB_DATA"] = os.environ.get("TOOLCRIB_TEST_DATA") or tempfile.mkdtemp(prefix="tc-")
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright's loop runs in the tests' thread
