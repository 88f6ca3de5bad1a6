"""The built-in `web_fetch`. Runs inside the sandbox; its only way out is the egress broker."""

import base64
import json
import re
import time
from typing import Any
from urllib.parse import urljoin, urlsplit

import charsets
import readable
import sandbox_http
from toolcrib import ToolError

MOST_REDIRECTS = 5
MOST_S = 30.0  # for all requests together
MOST_CONTENT = 15 * 1024 * 1024  # bytes as JSON: less than the definition lets out
WORST_LETTER = 12  # bytes as JSON
HEADERS = {
    "User-Agent": "Toolcrib/0.1.0",
    "Accept": "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, */*;q=0.5",
}
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PIECE = 64 * 1024
_MARKUP = frozenset({"text/html", "application/xhtml+xml"})
_ANYTHING = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_TEXT = re.compile(
    r"text/.*|.*[/+](?:json|xml|yaml)|application/(?:javascript|x-javascript|ecmascript|ndjson"
    r"|x-ndjson|x-yaml|toml|sql|graphql|x-sh|x-www-form-urlencoded|xml-dtd)"
)
_KIND = re.compile(r"\s*([\w.+-]{1,60}/[\w.+-]{1,60})")
_CHARSET = re.compile(r"charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_BEGINS_AS_PAGE = re.compile(rb"\s{0,99}<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
_SNIFFED = 1024
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
# PDF, the containers, pictures, programs: what is often served under a wrong name.
_SIGNATURES = (b"%PDF-", b"PK\3\4", b"\x1f\x8b", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"\x7fELF")


def main(parameters: dict[str, Any]) -> dict[str, object]:
    """The answer whatever its status, as text, Markdown or as it came. Raises ToolError."""
    answer, redirects = _follow_redirects(parameters["url"], parameters["max_bytes"])
    content, cut = _fitting(_content(answer, parameters["format"]))
    return {
        "url": answer.url,
        "status": answer.status,
        "content_type": _kind(answer),
        **content,
        "size_bytes": len(answer.body),
        "truncated": cut,
        "redirects": redirects,
    }


def _follow_redirects(url: str, max_bytes: int) -> tuple[sandbox_http.Response, int]:
    """The answer of the last address, and how many redirects led there."""
    deadline = time.monotonic() + MOST_S
    for redirects in range(MOST_REDIRECTS + 1):
        answer = _send_request(url, redirects, deadline, max_bytes)
        location = answer.headers.get("location")
        if answer.status not in REDIRECTS or not location:
            return answer, redirects
        url = _next_address(answer.url, location)
    raise ToolError(
        "TOO_MANY_REDIRECTS", f"The address redirects more than {MOST_REDIRECTS} times."
    )


def _send_request(
    url: str, redirects: int, deadline: float, max_bytes: int
) -> sandbox_http.Response:
    left_s = max(0.001, deadline - time.monotonic())
    try:
        return sandbox_http.get(url, headers=HEADERS, timeout_s=left_s, max_bytes=max_bytes)
    except sandbox_http.EgressError as refusal:
        if not redirects:
            raise
        place = _host(url)
        raise ToolError(refusal.code, f"Redirected to {place}: {refusal.message}") from None


def _next_address(base: str, location: str) -> str:
    """Servers write letters beyond ASCII as they are, in UTF-8; headers are read as Latin-1."""
    try:
        location = location.encode("latin-1").decode("utf-8")
    except UnicodeError:
        pass
    try:
        return urljoin(base, location)
    except ValueError:
        raise ToolError("REDIRECT_INVALID", "The address redirects to what is no URL.") from None


def _host(url: str) -> str:
    """Never more of an address than this: paths may hold secrets."""
    try:
        return (urlsplit(url).hostname or "no host")[:253]
    except ValueError:
        return "no host"


def _content(answer: sandbox_http.Response, form: str) -> dict[str, object]:
    """Title, content, and what the content is. Raises ToolError for bytes that are no text."""
    body, kind = answer.body, _kind(answer)
    if _is_binary(body, kind, charset := _charset(answer)):
        return _bytes(answer, kind, form)
    markup = kind in _MARKUP or (kind in _ANYTHING and bool(_BEGINS_AS_PAGE.match(body)))
    text, encoding = charsets.decode(body, charset, markup=markup or kind.endswith("xml"))
    if not markup or form == "raw":
        return _shape(text, encoding, extraction="none")
    page = readable.read(text, answer.url, markdown=form == "markdown")
    found = "main" if page.main else "page"
    return _shape(
        charsets.printable(page.content), encoding, charsets.printable(page.title), extraction=found
    )


def _bytes(answer: sandbox_http.Response, kind: str, form: str) -> dict[str, object]:
    if form != "raw":
        reason = f"The answer is {kind or 'of no stated type'} and no text (status {answer.status})"
        raise ToolError("NOT_TEXT", f"{reason}; the format raw returns it as base64.")
    shape = _shape(base64.b64encode(answer.body).decode("ascii"), None, extraction="none")
    return shape | {"encoding": "base64"}


def _shape(
    content: str, charset: str | None, title: str = "", *, extraction: str
) -> dict[str, Any]:
    return {
        "title": title,
        "content": content,
        "charset": charset,
        "encoding": "text",
        "extraction": extraction,
    }


def _fitting(content: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """With no more text than a result may have; true when that was not all."""
    text = content["content"]
    kept = len(text) if len(text) * WORST_LETTER <= MOST_CONTENT else _how_much_fits(text)
    if kept == len(text):
        return content, False
    marker = f"\n\n[Cut here, after {kept} of {len(text)} characters.]"
    return content | {"content": text[:kept] + marker}, True


def _how_much_fits(text: str) -> int:
    size = 0
    for at in range(0, len(text), _PIECE):
        size += len(json.dumps(text[at : at + _PIECE]))
        if size > MOST_CONTENT:
            return at
    return len(text)


def _kind(answer: sandbox_http.Response) -> str:
    """Such as text/html; empty when the server does not say."""
    found = _KIND.match(answer.headers.get("content-type", ""))
    return found[1].lower() if found else ""


def _charset(answer: sandbox_http.Response) -> str | None:
    found = _CHARSET.search(answer.headers.get("content-type", ""))
    return found[1] if found else None


def _is_binary(body: bytes, kind: str, charset: str | None) -> bool:
    if not body:
        return False
    if kind not in _ANYTHING and not _TEXT.fullmatch(kind) and kind not in _MARKUP:
        return True
    wide = body.startswith((b"\xff\xfe", b"\xfe\xff")) or (charset or "").lower().startswith(
        "utf-16"
    )
    return body.startswith(_SIGNATURES) or (b"\0" in body[:_SNIFFED] and not wide)
