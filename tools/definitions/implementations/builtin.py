"""Built-in tools: the implementation names a function of the product."""

from typing import Any

from tools.definitions.fields import DefinitionFields

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


def read_builtin(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    fields.known(("entry_point",))
    entry_point = fields.text("entry_point", str(definition.raw.get("name", "")))
    if entry_point in ALWAYS_CONFIRMED and definition.raw.get("requires_confirmation") is not True:
        definition.wrong("requires_confirmation", f"must be true for {entry_point}")
    return {"entry_point": entry_point}
