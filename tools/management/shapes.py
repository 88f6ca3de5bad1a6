"""What `--json` prints of a tool and of an execution: the shapes of the API contract.

Doors do not import each other, so the API has its own; a test holds the two against each other.
"""

from typing import Any

from tools.catalog.registry import CatalogTool
from tools.models import Execution


def tool_document(tool: CatalogTool) -> dict[str, Any]:
    return {
        **tool.definition.raw,
        "version": tool.version,
        "enabled": tool.enabled,
        "status": tool.status,
        "digest": tool.digest,
        "signature": {"key_id": tool.key_id, "value": tool.signature},
    }


def execution_document(execution: Execution) -> dict[str, Any]:
    return {
        "execution_id": str(execution.pk),
        "status": execution.status,
        "input": {"tool_name": execution.tool_name, "parameters": execution.parameters},
        "output": execution.output,
        "observation": execution.observation,
        "error_code": execution.error_code or None,
        "error_message": execution.error_message or None,
        "cached": False,
        "cost": "0",
        "metadata": _metadata(execution),
        "session": None,
        "confirmation": None,
        "warnings": execution.warnings,
    }


def _metadata(execution: Execution) -> dict[str, Any]:
    return {
        "execution_id": str(execution.pk),
        "tool_version": execution.version_label,
        "started_at": moment(execution.started_at),
        "completed_at": moment(execution.completed_at),
        "duration_ms": execution.duration_ms,
        "output_size": execution.output_bytes,
        "sandbox_id": execution.sandbox_id or None,
        "execution_metrics": execution.metrics,
    }


def moment(time: Any) -> str | None:
    """RFC 3339 in UTC."""
    return time.isoformat().replace("+00:00", "Z") if time else None
