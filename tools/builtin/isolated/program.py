"""The built-in `run_program`. Runs inside the sandbox, where a program of an agent is taken as far
as the answers go that its calls have had.

The program is run from its beginning each time. A call whose answer is known gets it at once; the
first that has none ends the run with what it asks for. Nothing here is trusted after the program
has run: whatever it could forge of the answer, it could have asked for or printed itself.
"""

import builtins
import hashlib
import io
import json
import keyword
import random
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from toolcrib import ToolError

MOST_PRINTED = 100_000  # characters
MOST_TOGETHER = 50
_FILE = "<tool>"
MOST_DEPTH = 48  # of parameters and the result, which are nested into other documents later
MOST_DIGITS = 300  # of an integer
_CUT = "\n… the rest of what was printed is left out"
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(allow_nan=False, sort_keys=True, separators=(",", ":")).encode


class _AnswersNeeded(BaseException):
    """Ends the program where it waits for answers. No `except Exception` of its own stops it."""


class _Astray(BaseException):
    """The program did not do again what it had done before."""


class _Printed(io.TextIOBase):
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.left = MOST_PRINTED

    def write(self, text: str) -> int:
        if self.left >= 0:
            self.parts.append(text[: self.left])
            self.left -= len(text)
        return len(text)

    @property
    def text(self) -> str:
        return _readable("".join(self.parts)) + (_CUT if self.left < 0 else "")


class _Calls:
    """The program's calls, in the order in which it makes them."""

    def __init__(self, answers: list[dict[str, Any]], report: Callable[[int], None]) -> None:
        """`report` is called with the number of calls that have an answer when it grows."""
        self._answers, self._report = answers, report
        self._next = 0
        self.wanted: list[dict[str, Any]] = []
        self.astray = ""

    @property
    def count(self) -> int:
        return self._next

    def call_one(self, name: str, parameters: dict[str, Any]) -> Any:
        return self.many([(name, parameters)])[0]

    def many(self, calls: list[tuple[str, dict[str, Any]]], *, errors: str = "raise") -> list[Any]:
        """What each gave back, in order. With `errors="return"` a failed one is its ToolError."""
        if not 0 < len(calls) <= MOST_TOGETHER:
            raise ValueError(f"1 to {MOST_TOGETHER} calls can be made together")
        asked = [_read_call(name, parameters) for name, parameters in calls]
        if self.wanted or self.astray:  # it went on though it was to wait
            raise _AnswersNeeded
        known = self._answers[self._next : self._next + len(asked)]
        for one, answer in zip(asked, known, strict=False):
            if answer["digest"] != one["digest"]:
                self.astray = f"call {self._next + 1} was another one before: {answer['tool']}"
                raise _Astray
        if len(known) < len(asked):
            self.wanted = asked[len(known) :]
            raise _AnswersNeeded
        self._next += len(asked)
        self._report(self._next)
        return [_answer_value(answer, errors) for answer in known]


class _Tools(dict[str, Callable[..., Any]]):
    """By its name, each tool as a function; `tools["a.b"](x=1)` where the name is no identifier."""

    def __init__(self, calls: _Calls) -> None:
        super().__init__()
        self._calls = calls

    def __missing__(self, name: str) -> Callable[..., Any]:
        def tool(**parameters: Any) -> Any:
            return self._calls.call_one(name, parameters)

        tool.__name__ = tool.__qualname__ = name if isinstance(name, str) else "tool"
        return tool


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    """How far it came: `wants` calls, is `done`, or has `failed`."""
    printed, scope = _Printed(), dict[str, Any]()
    known = {int(made): names for made, names in parameters["functions"].items()}
    calls = _Calls(parameters["answers"], lambda made: _define(scope, tools, known, made))
    tools = _Tools(calls)
    scope |= _names(parameters["inputs"], calls, tools, printed)
    _define(scope, tools, known, 0)
    failure = result = None
    _make_repeatable(parameters["seed"], parameters["now"])
    sys.stdout = printed
    try:
        exec(compile(parameters["source"], _FILE, "exec"), scope)  # noqa: S102 - what it is for
        result = _plain(scope.get("result"))
    except (_AnswersNeeded, _Astray):
        pass
    except SystemExit as ended:  # a program may end itself, and say why
        if ended.code is None or isinstance(ended.code, int):
            result = _plain(scope.get("result"))
        else:
            failure = _failure(ended)
    except BaseException as error:  # noqa: BLE001 - whatever it throws is its answer
        failure = _failure(error)
    finally:
        sys.stdout = sys.__stdout__
    said = {"printed": printed.text, "made": calls.count}
    if calls.astray:
        return said | {"state": "astray", "message": calls.astray}
    if calls.wanted:
        return said | {"state": "wants", "calls": calls.wanted}
    if failure is not None:
        return said | {"state": "failed"} | failure
    return said | {"state": "done", "result": result}


def _define(scope: dict[str, Any], tools: _Tools, known: dict[int, list[str]], made: int) -> None:
    """The functions of the tools that could be used when so many calls had been made. A name that
    the program has given to something is its own."""
    for known_at, names in known.items():
        for name in filter(_is_free, names if known_at <= made else ()):
            scope.setdefault(name, tools[name])


def _is_free(name: str) -> bool:
    """Python's own functions stay what they are, and `result` is the program's."""
    taken = keyword.iskeyword(name) or hasattr(builtins, name) or name == "result"
    return name.isidentifier() and not taken


def _names(
    inputs: dict[str, Any], calls: _Calls, tools: _Tools, printed: _Printed
) -> dict[str, Any]:
    def say(*values: Any, sep: str = " ", end: str = "\n", **_: Any) -> None:
        printed.write(sep.join(map(str, values)) + end)

    return {
        "__name__": "__main__",
        "inputs": inputs,
        "tools": tools,
        "call": calls.call_one,
        "call_many": calls.many,
        "ToolError": ToolError,
        "print": say,
    }


def _make_repeatable(seed: str, now: float) -> None:
    """The same each time: chance and the clock, as far as a program meets them without looking."""
    random.seed(seed)
    time.time = lambda: now
    time.time_ns = lambda: int(now * 1e9)
    time.sleep = lambda _seconds: None


def _read_call(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(name, str):
        raise TypeError("a tool is called by its name")
    if not isinstance(parameters, dict):
        raise TypeError("the parameters of a tool are an object")
    if _readable(name) != name:
        raise TypeError("the name of a tool is a text without NUL or half a surrogate pair")
    try:
        given = _as_json(parameters)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"the parameters of {name} are not JSON: {error}") from None
    digest = hashlib.sha256(_encode_sorted([name, given]).encode()).hexdigest()
    return {"tool": name, "parameters": given, "digest": digest}


def _as_json(value: Any) -> Any:
    """The value as JSON has it. Raises where the worker would refuse it."""
    given = json.loads(_encode(value))
    pending = [(given, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MOST_DEPTH:
            raise ValueError(f"nested deeper than {MOST_DEPTH} levels")
        if isinstance(item, dict):
            pending += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            pending += [(part, depth + 1) for part in item]
        elif isinstance(item, str) and _readable(item) != item:
            raise ValueError("a text holds NUL or half a surrogate pair")
        elif isinstance(item, int) and abs(item) >= 10**MOST_DIGITS:
            raise ValueError(f"a whole number has more than {MOST_DIGITS} digits")
    return given


def _readable(text: str) -> str:
    return (
        text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def _answer_value(answer: dict[str, Any], errors: str) -> Any:
    if answer["ok"]:
        return answer["output"]
    error = ToolError(answer["code"], answer["message"])
    if errors == "return":
        return error
    raise error


def _failure(error: BaseException) -> dict[str, Any]:
    """In the program's own lines; of an uncaught error of a tool its code as well."""
    line = None
    for frame in traceback.extract_tb(error.__traceback__):
        line = frame.lineno if frame.filename == _FILE else line
    if isinstance(error, SyntaxError) and error.filename == _FILE:
        line = error.lineno
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)[:2_000]
    except BaseException:  # noqa: BLE001 - the program's own code ran
        text = ""
    text = _readable(text)
    code = _readable(str(error.code)) if isinstance(error, ToolError) else None
    return {
        "error": _readable(type(error).__name__[:100]),
        "message": text,
        "line": line,
        "code": code,
    }


def _plain(value: Any) -> Any:
    """What is no JSON is given as its text."""
    try:
        return _as_json(value)
    except (TypeError, ValueError, RecursionError):
        return _readable(repr(value)[:10_000])
