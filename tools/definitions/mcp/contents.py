"""Content parts of a result as the protocol defines them, and as a text for a model, without
base64."""

from typing import Any

_KINDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource": {"resource": dict},
    "resource_link": {"uri": str},
}
BYTE_KINDS = frozenset({"image", "audio"})
_SHORTEST_BYTES = 200  # characters of base64; a reference is longer than fewer


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
