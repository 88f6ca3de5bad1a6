"""Prompt templates: a subset of Jinja whose work is bounded by its input.

A template is read when its definition is written. It may contain only what is listed here: texts
and arguments, conditions, loops over arguments, and filters that make nothing much larger. There is
no call, no arithmetic, no assignment, no attribute of anything but data. What is rendered is never
read as a template again.
"""

import json
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from jinja2 import ChainableUndefined, Template, TemplateError, meta, nodes, pass_context
from jinja2.runtime import Context, LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST_TEMPLATE = 20_000  # characters
LONGEST_PROMPT = 200_000  # characters, of arguments and of what is rendered
_DEEPEST = 40
_DEEPEST_LOOP = 2
_MOST_TURNS = 5_000  # of all loops of one rendering
_RENDER_S = 1.0
_COMPILED = 1_000
_TURNS = _COUNTED = "_turns"  # no name in a template may begin so
_LONGEST_CONSTANT = 8
_LOOP = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
_FILTERS = frozenset(
    {
        "capitalize", "d", "default", "first", "join", "last", "length", "lower", "title",
        "tojson", "trim", "truncate", "upper",
    }
)  # fmt: skip
_CONSTANT_ARGUMENTS = frozenset({"join", "truncate", "trim"})
_TESTS = frozenset(
    {
        "boolean", "defined", "false", "mapping", "none", "number", "sequence", "string", "true",
        "undefined",
    }
)  # fmt: skip
_DATA = (nodes.Name, nodes.Getattr, nodes.Getitem)
_ALLOWED: tuple[type[nodes.Node], ...] = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.If, nodes.For,
    nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Filter,
    nodes.Test, nodes.Keyword, *_DATA,
)  # fmt: skip


class BadTemplate(ValueError):
    """An invalid template; the message is for its author."""


class CannotRender(ValueError):
    """These arguments cannot be put into this template; the message says why."""


class _Environment(ImmutableSandboxedEnvironment):
    """Attributes are members of objects, items of lists, and nothing else."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        try:
            if isinstance(obj, dict) and isinstance(argument, str):
                return obj[argument]
            if isinstance(obj, list | str) and isinstance(argument, int):
                return obj[argument]
        except (KeyError, IndexError):
            pass
        return self.undefined(obj=obj, name=str(argument))


def _finalize(value: Any) -> Any:
    """Texts as they are, everything else as JSON; nothing for null."""
    if value is None:
        return ""
    if isinstance(value, str | Undefined):
        return value
    return json.dumps(value, ensure_ascii=False)


def _to_json(value: Any) -> str:
    return "" if isinstance(value, Undefined) else json.dumps(value, ensure_ascii=False)


class _LoopBudget:
    """The limit on all loops of one rendering together."""

    def __init__(self) -> None:
        self._left, self._ends_at = _MOST_TURNS, time.monotonic() + _RENDER_S

    def through(self, items: list[Any]) -> Iterator[Any]:
        for item in items:
            self._left -= 1
            if self._left < 0 or time.monotonic() > self._ends_at:
                raise CannotRender("The template repeats itself too often for these arguments.")
            yield item


@pass_context
def _count_loop(context: Context, value: Any) -> Iterator[Any]:
    """The items of a loop: a list, or nothing."""
    if value is None or isinstance(value, Undefined):
        return iter(())
    if not isinstance(value, list):
        raise CannotRender("The template loops over an argument that is no list.")
    return context[_TURNS].through(value)


def _build_environment() -> _Environment:
    made = _Environment(
        undefined=ChainableUndefined,
        finalize=_finalize,
        autoescape=False,
        keep_trailing_newline=True,
        cache_size=0,
    )
    made.filters = {name: made.filters[name] for name in _FILTERS} | {"tojson": _to_json}
    made.filters[_COUNTED] = _count_loop
    made.tests = {name: made.tests[name] for name in (*_TESTS, "in")}
    made.globals = {}
    return made


_ENVIRONMENT = _build_environment()


def check_template(text: str, declared: Iterable[str]) -> None:
    """Raises `BadTemplate` for forbidden syntax and undeclared variables."""
    if len(text) > LONGEST_TEMPLATE:
        raise BadTemplate(f"is longer than {LONGEST_TEMPLATE} characters")
    try:
        tree = _ENVIRONMENT.parse(text)
        _check_nodes(tree)
        unknown = sorted(meta.find_undeclared_variables(tree) - set(declared))
        if unknown:
            raise BadTemplate(f"uses {unknown[0][:60]!r}, which is not a declared parameter")
        _compile_template.__wrapped__(text)  # cached only when rendered: most templates never are
    except TemplateError as error:
        raise BadTemplate(f"is not a template: {str(error.message)[:200]}") from None
    except (RecursionError, SyntaxError, ValueError, MemoryError) as error:
        if isinstance(error, BadTemplate):
            raise
        raise BadTemplate("nests too deeply or holds a number that is too large") from None


def render_template(text: str, arguments: dict[str, Any]) -> str:
    """The prompt of a template that was checked. Raises `CannotRender`."""
    weight = len(json.dumps(arguments, ensure_ascii=False))
    if weight > LONGEST_PROMPT:
        raise CannotRender(f"The arguments are longer than {LONGEST_PROMPT} characters.")
    try:
        return _join_parts(_compile_template(text).generate({**arguments, _TURNS: _LoopBudget()}))
    except (TemplateError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, CannotRender):
            raise
        raise CannotRender("The arguments do not fit the template.") from None


def _join_parts(parts: Iterable[str]) -> str:
    found, length = [], 0
    for part in parts:
        length += len(part)
        if length > LONGEST_PROMPT:
            raise CannotRender(f"The prompt is longer than {LONGEST_PROMPT} characters.")
        found.append(part)
    return "".join(found)


@lru_cache(maxsize=_COMPILED)
def _compile_template(text: str) -> Template:
    tree = _ENVIRONMENT.parse(text)
    for loop in tree.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None)
    return _ENVIRONMENT.from_string(tree)


def _check_nodes(tree: nodes.Node) -> None:
    pending: list[tuple[nodes.Node, int, int]] = [(tree, 0, 0)]
    while pending:
        node, depth, loops = pending.pop()
        if depth > _DEEPEST:
            raise BadTemplate("nests too deeply")
        loops += isinstance(node, nodes.For)
        _check_node(node, loops)
        pending += [(child, depth + 1, loops) for child in node.iter_child_nodes()]


def _check_node(node: nodes.Node, loops: int) -> None:
    if not isinstance(node, _ALLOWED) or type(node) is nodes.Node:
        raise BadTemplate(f"may not use {type(node).__name__.lower()} (line {node.lineno})")
    if isinstance(node, nodes.For):
        _check_loop(node, loops)
    if isinstance(node, nodes.Filter):
        _check_filter(node)
    if isinstance(node, nodes.Test) and node.name not in {*_TESTS, "in"}:
        raise BadTemplate(f"may not use the test {node.name[:60]!r} (line {node.lineno})")
    name = getattr(node, "name", None) or getattr(node, "attr", None)
    hidden = str(name).startswith("_") or (isinstance(node, nodes.Name) and name == "self")
    if isinstance(node, nodes.Name | nodes.Getattr) and hidden:
        raise BadTemplate(f"may not use the name {str(name)[:60]!r} (line {node.lineno})")


def _check_loop(node: nodes.For, loops: int) -> None:
    if loops > _DEEPEST_LOOP:
        raise BadTemplate(f"may not nest more than {_DEEPEST_LOOP} loops (line {node.lineno})")
    if (
        node.recursive
        or not isinstance(node.iter, _DATA)
        or not isinstance(node.target, nodes.Name)
    ):
        raise BadTemplate(f"may loop over arguments only, one name each (line {node.lineno})")


def _check_filter(node: nodes.Filter) -> None:
    if node.name not in _FILTERS or node.node is None:
        raise BadTemplate(f"may not use the filter {node.name[:60]!r} (line {node.lineno})")
    given = [*node.args, *(one.value for one in node.kwargs)]
    if node.dyn_args or node.dyn_kwargs:
        raise BadTemplate(f"may not spread arguments (line {node.lineno})")
    constant = all(
        isinstance(one, nodes.Const) and len(str(one.value)) <= _LONGEST_CONSTANT for one in given
    )
    if node.name in _CONSTANT_ARGUMENTS and not constant:
        raise BadTemplate(f"takes only short constants for {node.name} (line {node.lineno})")
    if node.name == "join" and any(one.name == "join" for one in node.find_all(nodes.Filter)):
        raise BadTemplate(f"may not join what was joined (line {node.lineno})")
    if node.name == "tojson" and (given or not isinstance(node.node, _DATA)):
        raise BadTemplate(f"may use tojson on an argument only (line {node.lineno})")
