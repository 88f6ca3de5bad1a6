"""Code tools of an organization: a module, and the function in it."""

import ast
from typing import Any

from sandbox.spec import Language
from tools.definitions.fields import DefinitionFields

MAX_SOURCE = 256 * 1024


def read_code(fields: DefinitionFields, _definition: DefinitionFields) -> dict[str, Any]:
    fields.known(("language", "source", "entry_point"))
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
