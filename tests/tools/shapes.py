"""Response shapes of the API contract."""

import json
from typing import Any
from uuid import UUID

from django.utils.dateparse import parse_datetime

EXECUTION = {"execution_id", "status", "input", "output", "observation", "error_code",
    "error_message",
             "cached", "cost", "metadata", "session", "confirmation", "warnings"}  # fmt: skip
METADATA = {"execution_id", "tool_version", "started_at", "completed_at", "duration_ms",
    "output_size",
            "sandbox_id", "execution_metrics"}  # fmt: skip
METRICS = {"peak_memory_bytes", "cpu_time_ms", "filesystem_operations", "network_requests",
    "queue_ms",
           "sandbox_start_ms"}  # fmt: skip


def check_execution(body: dict[str, Any], status: str) -> dict[str, Any]:
    """The body of an answer about an execution, if it has exactly the contract's shape."""
    assert body["status"] == status, body
    assert set(body) >= EXECUTION
    assert set(body["input"]) == {"tool_name", "parameters"}
    assert set(body["metadata"]) >= METADATA
    assert UUID(body["execution_id"]) and body["metadata"]["execution_id"] == body["execution_id"]
    assert isinstance(body["observation"], str) and isinstance(body["warnings"], list)
    assert (body["error_code"] is None) == (status in {"Success", "Pending", "Running"})
    assert (body["error_code"] is None) == (body["error_message"] is None)
    if status in {"Pending", "Running"}:
        assert body["metadata"]["completed_at"] is None
        return body
    for moment in ("started_at", "completed_at"):
        assert body["metadata"][moment].endswith("Z") and parse_datetime(body["metadata"][moment])
    assert set(body["metadata"]["execution_metrics"]) >= METRICS
    if status != "Success":
        assert body["output"] is None
    return body


def check_error(response: Any, status: int, code: str | None = None) -> dict[str, Any]:
    """The body of an error, if it has exactly the contract's shape."""
    body = response.json()
    assert response.status_code == status, body
    assert {"code", "message", "details", "request_id"} <= set(body), body
    assert isinstance(body["code"], str) and isinstance(body["details"], dict)
    assert body["message"] and body["request_id"] == response.headers["X-Request-Id"]
    if code:
        assert body["code"] == code
    return body


def is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True
