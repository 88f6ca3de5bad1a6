"""One request of an http tool, and what of its answer counts. Runs inside the sandbox.

What to ask for was decided outside, and is all the egress broker lets through. What comes back is
read here, behind the wall: whoever answers may be hostile.
"""

import base64
import json
import re
from typing import Any

import sandbox_http
import strictjson
from toolcrib import ToolError

EXCERPT = 20_000  # characters of an error's body; who reads it outside shows less
_JSON = re.compile(r"(?:application|text)/(?:[\w.!#$&^-]+\+)?json")
_TEXT = re.compile(r"text/.*|.*[/+](?:xml|yaml|javascript|x-www-form-urlencoded)")
_KIND = re.compile(r"\s*([\w.!#$&^+-]{1,60}/[\w.!#$&^+-]{1,60})")
_CHARSET = re.compile(r"charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE)
# A stranger names the encoding, and Python's codecs include compressors.
_CODECS = {
    **dict.fromkeys(("utf-8", "utf8"), "utf-8"),
    **dict.fromkeys(("iso-8859-1", "latin1", "latin-1", "us-ascii", "windows-1252"), "cp1252"),
    **dict.fromkeys(("utf-16", "utf-16le", "utf-16be"), "utf-16"),
}
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_LONGEST_HEADER = 100


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    """`status` and `output`; for an answer that is no success `excerpt` instead.

    Raises ToolError.
    """
    answer = sandbox_http.request(
        parameters["method"],
        parameters["url"],
        headers=parameters["headers"],
        body=base64.b64decode(parameters["body"]),
        timeout_s=parameters["timeout_s"],
        max_bytes=parameters["max_bytes"],
        redirects=parameters["redirects"],
    )
    if not 200 <= answer.status < 300:
        return _told(answer)
    output = _output(answer, parameters["select"])
    return {"status": answer.status, "output": output}


def _told(answer: sandbox_http.Response) -> dict[str, Any]:
    retry_after = printable(answer.headers.get("retry-after", ""))[:_LONGEST_HEADER]
    return {"status": answer.status, "retry_after": retry_after, "excerpt": _excerpt(answer)}


def _excerpt(answer: sandbox_http.Response) -> str:
    """Of JSON without its escapes, so that what stands in it can be found."""
    if is_json(answer):
        try:
            value = strictjson.parse(answer.body)
            return printable(json.dumps(value, ensure_ascii=False))[:EXCERPT]
        except strictjson.Hostile:
            pass  # what calls itself JSON and is none is shown as it came
    return printable(_decoded(answer))[:EXCERPT]


def _output(answer: sandbox_http.Response, select: Any) -> Any:
    value, more = _value(answer)
    if select is None:
        return {"status": answer.status, "body": value, **more}
    if more or (answer.body and not is_json(answer)):
        kind = kind_of(answer) or "of no stated type"
        raise ToolError("RESPONSE_NOT_JSON", f"select needs JSON, and the answer is {kind}.")
    return selected(value, select)


def _value(answer: sandbox_http.Response) -> tuple[Any, dict[str, str]]:
    """The body as JSON, text or base64, and what says so where it is base64."""
    if not answer.body:
        return None, {}
    if is_json(answer):
        return _parsed(answer.body), {}
    if _is_text(answer):
        return printable(_decoded(answer)), {}
    text = base64.b64encode(answer.body).decode("ascii")
    return text, {"encoding": "base64", "content_type": kind_of(answer)}


def _parsed(body: bytes) -> Any:
    try:
        return strictjson.parse(body.removeprefix(b"\xef\xbb\xbf"))
    except strictjson.Hostile as reason:
        message = f"The answer says it is JSON, and cannot be read as such: {reason}."
        raise ToolError("RESPONSE_NOT_JSON", message) from None


def selected(value: Any, select: Any) -> Any:
    """Of several pointers, those that lead nowhere are null. Raises ToolError for a single one."""
    if isinstance(select, dict):
        return {name: _at(value, pointer, None) for name, pointer in select.items()}
    if isinstance(select, list):
        return [_at(value, pointer, None) for pointer in select]
    found = _at(value, select, ToolError)
    if found is ToolError:
        raise ToolError("SELECT_MISSING", f"The answer has nothing at {select[:200]}.")
    return found


def _at(value: Any, pointer: str, otherwise: Any) -> Any:
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


def kind_of(answer: sandbox_http.Response) -> str:
    """Such as text/html; empty when the server does not say."""
    found = _KIND.match(answer.headers.get("content-type", ""))
    return found[1].lower() if found else ""


def is_json(answer: sandbox_http.Response) -> bool:
    return _JSON.fullmatch(kind_of(answer)) is not None


def _is_text(answer: sandbox_http.Response) -> bool:
    if _TEXT.fullmatch(kind_of(answer)):
        return True
    try:
        return "\0" not in answer.body.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return False


def _decoded(answer: sandbox_http.Response) -> str:
    """In the encoding the server names, where that is one we know and it fits; else UTF-8."""
    found = _CHARSET.search(answer.headers.get("content-type", ""))
    codec = _CODECS.get(found[1].lower() if found else "utf-8", "utf-8")
    try:
        return answer.body.decode(codec, "strict")
    except UnicodeDecodeError:
        return answer.body.decode("utf-8", "replace")


def printable(text: str) -> str:
    """Without what neither a database nor a reader takes."""
    return _UNPRINTABLE.sub("\ufffd", text)
