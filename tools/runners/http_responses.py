"""Reads the response to a request of an http tool: its output, or what says what went wrong.

The server may be hostile: nothing here decodes by a codec that the server may choose freely, and
JSON is read by a parser with bounds.
"""

import base64
import codecs
import json
import re
from typing import Any

from sandbox import untrusted_json
from sandbox.inside.sandbox_http import Response
from sandbox.inside.toolcrib import ToolError
from tools.builtin.isolated import charsets

EXCERPT = 20_000  # characters of an error's body; who reads it outside shows less
_JSON = re.compile(r"(?:application|text)/(?:[\w.!#$&^-]+\+)?json")
_TEXT = re.compile(r"text/.*|.*[/+](?:xml|yaml|javascript|x-www-form-urlencoded)")
_MARKUP = re.compile(r"text/html|.*[/+]xml")
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_KIND = re.compile(r"\s*([\w.!#$&^+-]{1,60}/[\w.!#$&^+-]{1,60})")
_CHARSET = re.compile(r"charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_LONGEST_HEADER = 100


def read_response(answer: Response, select: Any) -> dict[str, Any]:
    """`status` and `output`; for an answer that is no success `excerpt` instead.

    Raises ToolError.
    """
    if not 200 <= answer.status < 300:
        return _error_answer(answer)
    return {"status": answer.status, "output": _output(answer, select)}


def _error_answer(answer: Response) -> dict[str, Any]:
    retry_after = charsets.printable(answer.headers.get("retry-after", ""))[:_LONGEST_HEADER]
    return {"status": answer.status, "retry_after": retry_after, "excerpt": _excerpt(answer)}


def _excerpt(answer: Response) -> str:
    """Of JSON without its escapes, so that what stands in it can be found."""
    if is_json(answer):
        try:
            value = untrusted_json.parse(_utf8(answer), large_integers=True)
            return charsets.printable(json.dumps(value, ensure_ascii=False))[:EXCERPT]
        except untrusted_json.HostileJson:
            pass  # what calls itself JSON and is none is shown as it came
    return _decoded(answer)[:EXCERPT]


def _output(answer: Response, select: Any) -> Any:
    value, more = _value(answer)
    if select is None:
        return {"status": answer.status, "body": value, **more}
    if more or (answer.body and not is_json(answer)):
        kind = kind_of(answer) or "of no stated type"
        raise ToolError("RESPONSE_NOT_JSON", f"select needs JSON, and the answer is {kind}.")
    return select_values(value, select)


def _value(answer: Response) -> tuple[Any, dict[str, str]]:
    """The body as JSON, text or base64, and what says so where it is base64."""
    if not answer.body:
        return None, {}
    if is_json(answer):
        return _parsed(answer), {}
    if _is_text(answer):
        return _decoded(answer), {}
    text = base64.b64encode(answer.body).decode("ascii")
    return text, {"encoding": "base64", "content_type": kind_of(answer)}


def _parsed(answer: Response) -> Any:
    try:
        return untrusted_json.parse(_utf8(answer), large_integers=True)
    except untrusted_json.HostileJson as reason:
        message = f"The answer says it is JSON, and cannot be read as such: {reason}."
        raise ToolError("RESPONSE_NOT_JSON", message) from None


def _utf8(answer: Response) -> bytes:
    """JSON is UTF-8, whatever a header says (RFC 8259); what is none is what the server names."""
    body, named = answer.body, charsets.encoding_name(_charset(answer) or "")
    wide = body.startswith(_WIDE) or (named or "").startswith("utf-16")
    if not wide and (named is None or _is_utf8(body)):
        return body.removeprefix(codecs.BOM_UTF8)
    return charsets.decode(body, named, markup=False)[0].encode()


def select_values(value: Any, select: Any) -> Any:
    """Of several pointers, those that lead nowhere are null. Raises ToolError for a single one."""
    if isinstance(select, dict):
        return {name: _value_at(value, pointer, None) for name, pointer in select.items()}
    if isinstance(select, list):
        return [_value_at(value, pointer, None) for pointer in select]
    found = _value_at(value, select, ToolError)
    if found is ToolError:
        raise ToolError("SELECT_MISSING", f"The answer has nothing at {select[:200]}.")
    return found


def _value_at(value: Any, pointer: str, otherwise: Any) -> Any:
    """RFC 6901."""
    for raw in pointer.split("/")[1:]:
        step = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and _index(step) < len(value):
            value = value[_index(step)]
        else:
            return otherwise
    return value


def _index(step: str) -> int:
    """Beyond any list for what is no index."""
    return int(step) if re.fullmatch(r"0|[1-9][0-9]{0,8}", step) else 1 << 31


def kind_of(answer: Response) -> str:
    """Such as text/html; empty when the server does not say."""
    found = _KIND.match(answer.headers.get("content-type", ""))
    return found[1].lower() if found else ""


def is_json(answer: Response) -> bool:
    return _JSON.fullmatch(kind_of(answer)) is not None


def _is_text(answer: Response) -> bool:
    """By its type or a charset; where the server names an unknown one, by its bytes."""
    named = _charset(answer)
    if named and charsets.encoding_name(named) is None and not answer.body.startswith(_WIDE):
        return _is_utf8(answer.body)
    if named or _TEXT.fullmatch(kind_of(answer)):
        return True
    return _is_utf8(answer.body) and b"\0" not in answer.body


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _charset(answer: Response) -> str | None:
    found = _CHARSET.search(answer.headers.get("content-type", ""))
    return found[1] if found else None


def _decoded(answer: Response) -> str:
    """As `web_fetch` reads it."""
    markup = _MARKUP.fullmatch(kind_of(answer)) is not None
    return charsets.decode(answer.body, _charset(answer), markup=markup)[0]
