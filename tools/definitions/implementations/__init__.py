"""The `implementation` of a tool: one reader per tool type (API contract, "Shapes by type")."""

from collections.abc import Callable
from typing import Any

from tools.definitions.fields import DefinitionFields
from tools.definitions.implementations import (
    builtin,
    chain,
    code,
    http,
    knowledge,
    mcp,
    prompt,
    service,
)
from tools.definitions.vocabulary import ToolType

Reader = Callable[
    [DefinitionFields, DefinitionFields], dict[str, Any]
]  # the implementation's fields, the definition's
READERS: dict[ToolType, Reader] = {
    ToolType.BUILTIN: builtin.read_builtin,
    ToolType.CODE: code.read_code,
    ToolType.HTTP: http.read_http,
    ToolType.MCP: mcp.read_mcp,
    ToolType.SERVICE: service.read_service_tool,
    ToolType.PROMPT: prompt.read_prompt_tool,
    ToolType.TEXT_COMPLETION: prompt.read_text_completion,
    ToolType.KNOWLEDGE_QUERY: knowledge.read_knowledge_query,
    ToolType.STRUCTURED_QUERY: knowledge.read_knowledge_query,
    ToolType.GRAPH_UPDATE: knowledge.read_graph_update,
    ToolType.CHAIN: chain.read_chain,
}
# Whose implementation may be left out.
OPTIONAL_IMPLEMENTATIONS = frozenset(
    {
        ToolType.BUILTIN,
        ToolType.TEXT_COMPLETION,
        ToolType.KNOWLEDGE_QUERY,
        ToolType.STRUCTURED_QUERY,
        ToolType.GRAPH_UPDATE,
    }
)


def read_implementation(definition: DefinitionFields) -> dict[str, Any]:
    """The implementation in canonical form; every wrong field of it is named."""
    kind = definition.raw.get("type")
    reader = next((READERS[one] for one in READERS if one == kind), None)
    if reader is None:
        _refuse_type(definition, kind)
        return definition.object("implementation", None)
    raw = definition.object("implementation", {} if kind in OPTIONAL_IMPLEMENTATIONS else None)
    if kind not in OPTIONAL_IMPLEMENTATIONS and not definition.given("implementation"):
        return raw
    return reader(DefinitionFields(raw, definition.flaws, "implementation."), definition)


def _refuse_type(definition: DefinitionFields, kind: Any) -> None:
    if isinstance(kind, str) and kind in set(ToolType):
        able = ", ".join(READERS)
        definition.wrong("type", f"cannot be run by this installation; these can: {able}")
