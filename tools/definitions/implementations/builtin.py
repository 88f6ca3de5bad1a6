"""Built-in tools: the implementation names a function of the product."""

from typing import Any

from tools.definitions.fields import Fields

# What they do cannot be taken back, so that no definition of one runs without a person's consent.
ALWAYS_CONFIRMED = frozenset({"send_message"})
# Those that make calls of their own, each of which takes the whole road, or speak of such calls.
RUN_BATCH = "run_batch"
CALL_TOOL = "call_tool"
FIND_TOOLS = "find_tools"
RUN_PROGRAM = "run_program"
RUN_AGENT = "run_agent"
COMPOSITES = frozenset({RUN_BATCH, CALL_TOOL, FIND_TOOLS, RUN_PROGRAM, RUN_AGENT})
# One question of an agent to a model.
ASK_MODEL = "ask_model"
# About tools, and part of every licence: what they call is licensed by itself.
IN_EVERY_LICENCE = COMPOSITES | {ASK_MODEL}


def read(fields: Fields, definition: Fields) -> dict[str, Any]:
    fields.known(("entry_point",))
    entry_point = fields.text("entry_point", str(definition.raw.get("name", "")))
    if entry_point in ALWAYS_CONFIRMED and definition.raw.get("requires_confirmation") is not True:
        definition.wrong("requires_confirmation", f"must be true for {entry_point}")
    return {"entry_point": entry_point}
