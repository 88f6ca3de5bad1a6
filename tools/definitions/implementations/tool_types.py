"""Reads the `implementation` of a tool: one reader for each tool type (API contract, "Shapes by
type"). That of http tools is in `http_tools`.
"""

import ast
import math
import re
from collections.abc import Callable
from typing import Any

from sandbox.spec import Language
from tools.definitions.chains import chain_document
from tools.definitions.fields import DefinitionFields
from tools.definitions.implementations.http_tools import read_http
from tools.definitions.texts import templates
from tools.definitions.texts.names import PARAMETER_NAME, TOOL_NAME
from tools.definitions.vocabulary import Delivery, ToolType

# Their effects cannot be undone, so that no definition of one runs without an approval.
ALWAYS_CONFIRMED = frozenset({"send_message"})
# Those that make calls of their own, each of which takes the whole execution pipeline, or list
# tools for such calls.
RUN_BATCH = "run_batch"
CALL_TOOL = "call_tool"
FIND_TOOLS = "find_tools"
RUN_PROGRAM = "run_program"
RUN_AGENT = "run_agent"
COMPOSITES = frozenset({RUN_BATCH, CALL_TOOL, FIND_TOOLS, RUN_PROGRAM, RUN_AGENT})
# One question of an agent to a model.
ASK_MODEL = "ask_model"
# Part of every license: the tools that they call are licensed by themselves.
IN_EVERY_LICENSE = COMPOSITES | {ASK_MODEL}
MAX_SOURCE = 256 * 1024
MOST_ROWS = 10_000
COLLECTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
PIN = re.compile(r"sha256:[0-9a-f]{64}")
LONGEST_SYSTEM = 20_000
MOST_TOKENS = 1_000_000
MOST_PROMPT_BYTES = 1_000_000
LONGEST_CONFIG_VALUE = 10_000
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

# Of the implementation's fields, and the definition's.
type ImplementationReader = Callable[[DefinitionFields, DefinitionFields], dict[str, Any]]


def read_implementation(definition: DefinitionFields) -> dict[str, Any]:
    """The implementation in canonical form; every wrong field of it is named."""
    kind = definition.raw.get("type")
    reader = next((READERS[one] for one in READERS if one == kind), None)
    if reader is None:
        _refuse_type(definition, kind)
        return definition.object("implementation", None)
    raw = definition.object("implementation", {} if kind in OPTIONAL_IMPLEMENTATIONS else None)
    if kind not in OPTIONAL_IMPLEMENTATIONS and not definition.has_value("implementation"):
        return raw
    return reader(DefinitionFields(raw, definition.flaws, "implementation."), definition)


def _refuse_type(definition: DefinitionFields, kind: Any) -> None:
    if isinstance(kind, str) and kind in set(ToolType):
        able = ", ".join(READERS)
        definition.wrong("type", f"cannot be run by this installation; these can: {able}")


def read_builtin(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    fields.reject_unknown(("entry_point",))
    entry_point = fields.text("entry_point", str(definition.raw.get("name", "")))
    if entry_point in ALWAYS_CONFIRMED and definition.raw.get("requires_confirmation") is not True:
        definition.wrong("requires_confirmation", f"must be true for {entry_point}")
    return {"entry_point": entry_point}


def read_chain(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    fields.reject_unknown(("chain",))
    if definition.raw.get("delivery") not in (None, Delivery.IDEMPOTENT):
        definition.wrong(
            "delivery", "of a chain is idempotent: each of its calls has a delivery of its own"
        )
    return {
        "chain": chain_document.parse_chain(
            fields.raw.get("chain"), fields.flaws, f"{fields.prefix}chain."
        )
    }


def read_code(fields: DefinitionFields, _definition: DefinitionFields) -> dict[str, Any]:
    fields.reject_unknown(("language", "source", "entry_point"))
    language = fields.choice("language", Language, Language.PYTHON)
    source = fields.raw.get("source")
    entry_point = fields.text("entry_point", "main", longest=100)
    if not isinstance(source, str) or not source.strip():
        fields.wrong("source", "is required: the text of a module")
    elif len(source) > MAX_SOURCE:
        fields.wrong("source", f"is longer than {MAX_SOURCE} characters")
    elif language == Language.JAVASCRIPT:
        _check_javascript(fields, entry_point)
    elif flaw := _flaw_in_python(source, entry_point):
        fields.wrong("source", flaw)
    return {"language": language, "source": source, "entry_point": entry_point}


def _check_javascript(fields: DefinitionFields, entry_point: str) -> None:
    """JavaScript is not parsed here: only a call shows whether the module has a `main`."""
    if entry_point != "main":
        fields.wrong("entry_point", "must be main for JavaScript")


def _flaw_in_python(source: str, entry_point: str) -> str | None:
    """Parsed, never run: whether the module can be compiled and has the function."""
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        return f"is not Python: {error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError):
        return "cannot be read as Python: it nests too deeply or holds a NUL character"
    functions = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    if entry_point not in functions:
        return f"has no function {entry_point}(parameters) at its top level"
    return None


def read_knowledge_query(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    definition.need_parameter("question")
    return _read_graph(fields)


def read_graph_update(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    definition.need_parameter("triples")
    return _read_graph(fields)


def _read_graph(fields: DefinitionFields) -> dict[str, Any]:
    fields.reject_unknown(("collection", "limit"))
    collection = fields.raw.get("collection")
    if collection is not None and not (
        isinstance(collection, str) and COLLECTION.fullmatch(collection)
    ):
        fields.wrong("collection", "may hold only letters, digits, '_', '.' and '-', at most 100")
        collection = None
    return {
        "collection": collection,
        "limit": fields.integer("limit", None, least=1, most=MOST_ROWS),
    }


def read_mcp(fields: DefinitionFields, _definition: DefinitionFields) -> dict[str, Any]:
    """Without a server it is the one configured under `mcp/<tool>` (S5)."""
    fields.reject_unknown(("server", "tool", "pin"))
    tool = fields.text("tool", longest=128)
    server = fields.text("server", tool, longest=128)
    if server and not TOOL_NAME.fullmatch(server):
        fields.wrong("server", "may hold only letters, digits, '_', '.' and '-', at most 128")
    read = {"server": server, "tool": tool}
    if fields.has_value("pin"):
        pin = fields.text("pin", longest=71)
        if not PIN.fullmatch(pin):
            fields.wrong("pin", "must be sha256: and 64 hexadecimal digits")
        read["pin"] = pin
    return read


def read_prompt_tool(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    fields.reject_unknown(("template", "system", "model", "max_tokens", "max_prompt_bytes"))
    template = fields.raw.get("template")
    if not isinstance(template, str) or not template.strip():
        fields.wrong("template", "is required: the text of a prompt")
        template = ""
    try:
        templates.check_template(template, definition.parameter_names())
    except templates.BadTemplate as flaw:
        fields.wrong("template", str(flaw))
    return {"template": template} | _read_model(fields)


def read_text_completion(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    fields.reject_unknown(("system", "model", "max_tokens", "max_prompt_bytes"))
    definition.need_parameter("question", "prompt")
    return _read_model(fields)


def _read_model(fields: DefinitionFields) -> dict[str, Any]:
    """Null is the installation's default model, or a built-in limit."""
    return {
        "system": fields.text("system", "", longest=LONGEST_SYSTEM) or None,
        "model": fields.text("model", "") or None,
        "max_tokens": fields.integer("max_tokens", None, least=1, most=MOST_TOKENS),
        "max_prompt_bytes": fields.integer(
            "max_prompt_bytes", None, least=1, most=MOST_PROMPT_BYTES
        ),
    }


def read_service_tool(fields: DefinitionFields, _definition: DefinitionFields) -> dict[str, Any]:
    fields.reject_unknown(("service", "config"))
    service = fields.text("service", longest=128)
    if service and not TOOL_NAME.fullmatch(service):
        fields.wrong("service", "may hold only letters, digits, '_', '.' and '-', at most 128")
    config = fields.object("config", {})
    for name, value in config.items():
        if not PARAMETER_NAME.fullmatch(name):
            fields.wrong(f"config.{name[:60]}", "is no name of a parameter")
        elif not is_config_value(value):
            fields.wrong(f"config.{name}", "must be a text, a number, true or false")
    return {"service": service, "config": config}


def is_config_value(value: Any) -> bool:
    """What a configuration parameter may be."""
    if isinstance(value, str):
        return len(value) <= LONGEST_CONFIG_VALUE
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


READERS: dict[ToolType, ImplementationReader] = {
    ToolType.BUILTIN: read_builtin,
    ToolType.CODE: read_code,
    ToolType.HTTP: read_http,
    ToolType.MCP: read_mcp,
    ToolType.SERVICE: read_service_tool,
    ToolType.PROMPT: read_prompt_tool,
    ToolType.TEXT_COMPLETION: read_text_completion,
    ToolType.KNOWLEDGE_QUERY: read_knowledge_query,
    ToolType.STRUCTURED_QUERY: read_knowledge_query,
    ToolType.GRAPH_UPDATE: read_graph_update,
    ToolType.CHAIN: read_chain,
}
