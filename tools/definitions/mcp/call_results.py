"""The result of a tool call: its content parts, its structured content, the details of a failure,
and its text for a model, without base64.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.mcp.repairs import Repair, clean_value

_KINDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource": {"resource": dict},
    "resource_link": {"uri": str},
}
BYTE_KINDS = frozenset({"image", "audio"})
_SHORTEST_BYTES = 200  # characters of base64; a reference is longer than fewer
MOST_PARTS = 1_000
_LONGEST_SHOWN = 300
_DEFAULT_MEDIA_TYPE = "application/octet-stream"
_ALTERNATIVE_NAMES = (("mimeType", ("mime_type", "mimetype")), ("data", ("blob", "base64")))


def is_content_part(value: Any) -> bool:
    """Whether it is a part of a known kind, with all that its kind needs."""
    needed = _KINDS.get(str(value.get("type"))) if isinstance(value, dict) else None
    return needed is not None and all(
        isinstance(value.get(name), kind) for name, kind in needed.items()
    )


def is_content_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_content_part(part) for part in value)


def has_bytes(part: Any) -> bool:
    """Whether a part has bytes that are no text."""
    return is_content_part(part) and bool(_part_bytes(part))


def content_as_text(parts: list[Any], where: str) -> str:
    """Texts as they are, all else as a short reference; `where` is the URL of the bytes."""
    return "\n".join(_part_text(part, where) for part in parts)


def without_bytes(value: Any, where: str) -> Any:
    """The value with a short reference in place of the bytes of every image and audio."""
    if isinstance(value, list):
        return [without_bytes(item, where) for item in value]
    if not isinstance(value, dict):
        return value
    if is_content_part(value) and len(_part_bytes(value)) > _SHORTEST_BYTES:
        return _part_text(value, where)
    return {key: without_bytes(item, where) for key, item in value.items()}


def _part_bytes(part: dict[str, Any]) -> str:
    found = part["data"] if part["type"] in BYTE_KINDS else None
    if part["type"] == "resource":
        found = part["resource"].get("blob")
    return found if isinstance(found, str) else ""


def _part_text(part: Any, where: str) -> str:
    if not is_content_part(part):
        kind = part.get("type") if isinstance(part, dict) else None
        return f"[{str(kind)[:60]}: a kind of content that is not known here]"
    kind = part["type"]
    if kind == "text":
        return str(part["text"])
    if kind in BYTE_KINDS:
        return _bytes_reference(part["mimeType"], part["data"], where)
    if kind == "resource_link":
        return _link_text(part)
    return _resource_text(part["resource"], where)


def _bytes_reference(kind: Any, data: str, where: str) -> str:
    return f"[{str(kind)[:100]}, {_format_size(len(data) * 3 // 4)}; {where} has it]"


def _link_text(part: dict[str, Any]) -> str:
    name = part.get("title") or part.get("name")
    words = [str(one) for one in (name, part.get("description")) if isinstance(one, str) and one]
    return f"[{': '.join([*words, part['uri']])}]"


def _resource_text(resource: dict[str, Any], where: str) -> str:
    uri = str(resource.get("uri", "resource"))[:1_000]
    if isinstance(resource.get("text"), str):
        return f"[{uri}]\n{resource['text']}"
    if isinstance(resource.get("blob"), str):
        kind = resource.get("mimeType", "application/octet-stream")
        return f"[{uri}] {_bytes_reference(kind, resource['blob'], where)}"
    return f"[{uri}]"


def _format_size(count: int) -> str:
    return f"{count} bytes" if count < 1_000 else f"{round(count / 1_000)} kB"


class NotAToolResult(ValueError):
    """The message is no tool result; the text is the reason."""


@dataclass(frozen=True)
class CallResult:
    """`content` are the parts of a known kind, `unknown` the others as they came. `structured` is
    None where there is none."""

    content: list[dict[str, Any]]
    unknown: list[Any] = field(default_factory=list)
    structured: Any = None
    failed: bool = False
    repairs: list[Repair] = field(default_factory=list)


def well_formed_result(message: dict[str, Any]) -> CallResult:
    """Raises `NotAToolResult`."""
    repairs: list[Repair] = []
    result = _convert_2024_result(clean_value(message, repairs), repairs)
    if result.keys().isdisjoint({"content", "structuredContent"}):
        raise NotAToolResult("has neither content nor structuredContent")
    parts = _content_parts(result.get("content"), repairs, given="content" in result)
    content: list[dict[str, Any]] = []
    unknown: list[Any] = []
    for at, part in enumerate(parts):
        place = f"/content/{at}"
        read = _repair_part(part, repairs, place)
        if is_content_part(read):
            content.append(read)
        else:
            unknown.append(read)
            repairs.append(Repair(place, f"{_unknown_part_reason(read)}: {_shorten(read)}"))
    structured = result.get("structuredContent")
    return CallResult(content, unknown, structured, _is_failed(result, repairs), repairs)


def well_formed_error(error: Any) -> tuple[int, str, Any]:
    """Number, message and data of an error of JSON-RPC, in whatever types they come."""
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        return 0, "", None
    error = clean_value(error, [])
    number, message = error.get("code"), error.get("message")
    plain = isinstance(number, int) and not isinstance(number, bool) and abs(number) < 2**53
    return number if plain else 0, message if isinstance(message, str) else "", error.get("data")


def failure_message(structured: Any) -> str:
    """The message of a failure in its structured content; empty where there is none."""
    at = structured
    for _ in range(3):
        if isinstance(at, str):
            return at
        if not isinstance(at, dict):
            return ""
        names = ("message", "error", "detail", "reason", "error_description", "title")
        at = next((at[name] for name in names if at.get(name)), None)
    return at if isinstance(at, str) else ""


def _convert_2024_result(result: dict[str, Any], repairs: list[Repair]) -> dict[str, Any]:
    """`toolResult` may be anything: a result as later versions have it, a text, or a value."""
    if "toolResult" not in result or "content" in result:
        return result
    old = result["toolResult"]
    repairs.append(Repair("/toolResult", "is the form of 2024, which is read as a result"))
    beside = {key: value for key, value in result.items() if key != "toolResult"}
    if isinstance(old, dict) and not old.keys().isdisjoint({"content", "structuredContent"}):
        return beside | old
    if isinstance(old, str):
        return beside | {"content": [{"type": "text", "text": old}]}
    parts = isinstance(old, list) and bool(old) and all(is_content_part(part) for part in old)
    return beside | ({"content": old} if parts else {"structuredContent": old})


def _content_parts(content: Any, repairs: list[Repair], *, given: bool) -> list[Any]:
    if content is None or content == {}:
        if given:
            repairs.append(Repair("/content", f"is {json.dumps(content)}, which is read as []"))
        return []
    if isinstance(content, dict):
        repairs.append(Repair("/content", "is one part, which is read as a list of it"))
        return [content]
    if not isinstance(content, list) or len(content) > MOST_PARTS:
        raise NotAToolResult(f"has no list of at most {MOST_PARTS} parts")
    return content


def _repair_part(part: Any, repairs: list[Repair], place: str) -> Any:
    if isinstance(part, str):
        repairs.append(Repair(place, "is a text, which is read as a part of that text"))
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        return part
    made = dict(part)
    if "type" not in made and isinstance(made.get("text"), str):
        repairs.append(Repair(place, "has no type, and is read as a text"))
        made["type"] = "text"
    if made.get("type") == "text" and "text" in made and not isinstance(made["text"], str):
        repairs.append(Repair(f"{place}/text", "is no text; it is read as its JSON"))
        made["text"] = json.dumps(made["text"], ensure_ascii=False)
    if made.get("type") in {"image", "audio"}:
        _repair_bytes(made, repairs, place)
    return made


def _repair_bytes(part: dict[str, Any], repairs: list[Repair], place: str) -> None:
    for proper, others in _ALTERNATIVE_NAMES:
        found = next((other for other in others if isinstance(part.get(other), str)), None)
        if proper not in part and found:
            repairs.append(Repair(f"{place}/{found}", f"is read as {proper}"))
            part[proper] = part.pop(found)
    if isinstance(part.get("data"), str) and not isinstance(part.get("mimeType"), str):
        repairs.append(
            Repair(f"{place}/mimeType", f"is missing; it is read as {_DEFAULT_MEDIA_TYPE}")
        )
        part["mimeType"] = _DEFAULT_MEDIA_TYPE


def _unknown_part_reason(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        return "is no part that has a type"
    return f"is of the kind {json.dumps(kind[:60])}, which is not known here, or is not whole"


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _is_failed(result: dict[str, Any], repairs: list[Repair]) -> bool:
    flag = result.get("isError")
    if flag in (1, "true", "True") and flag is not True:
        repairs.append(Repair("/isError", f"is {json.dumps(flag)}, which is read as true"))
        return True
    return flag is True
