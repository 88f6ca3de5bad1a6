"""Parses the tools that a server lists, each by itself, so that an error in one affects no other;
and finds signs of a poisoned definition: text that a model reads and a person would not see or
expect.

A sign is not a verdict, and no list of signs is complete: with one, a person must read the tool
before an agent may use it. A tool without any is still imported only by choice.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from audit.canonical import commitment
from tools.definitions.mcp.repairs import Repair, clean_value, well_formed_schema
from tools.definitions.texts.lookalikes import find_invisible, find_lookalikes, make_visible
from tools.definitions.values.json_pointers import child_pointer

LONGEST_NAME = 128
LONGEST_TEXT = 100_000
LONGEST_TOOL = 512 * 1024
LONGEST_REASON = 500
# The fields that an approval covers: what an agent reads, the inputs, and the outputs.
APPROVED_FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
# Further fields that are kept for clients that show tools to people.
CLIENT_FIELDS = ("_meta", "icons")
_DAY_S = 86_400.0
_OTHER_NAMES = {"input_schema": "inputSchema", "output_schema": "outputSchema"}
MOST_SUSPICIONS = 10
_WORDS_OF_ORDERS = re.compile(
    r"""
    <\s*/?\s*(?:important|system|instructions?|secret|hidden|admin|assistant|critical|prompt)\b
    | \b(?:ignore|disregard|forget|override)\b[^.]{0,40}\b(?:previous|prior|earlier|above|other|all|
      any)\b[^.]{0,30}\b(?:instructions?|rules?|prompts?|messages?|tools?)\b
    | \b(?:do\s+not|don'?t|never|without)\b[^.]{0,30}\b(?:tell|telling|mention|mentioning|inform|
      informing|notify|notifying|reveal|show|asking|ask|alert)\b[^.]{0,30}\b(?:user|human|person|
      operator|anyone|them)\b
    | \b(?:before|whenever|when|after|prior\s+to)\b[^.]{0,40}\b(?:using|calling|invoking|running|
      use|call|invoke)\b[^.]{0,60}\b(?:must|always|first|read|send|call|pass)\b
    | \b(?:you|the\s+(?:model|assistant|agent|llm))\s+(?:must|shall|have\s+to|are\s+required)\b
    | \bsystem\s+prompt\b | \bjailbreak | \bexfiltrat
    | \b(?:instead\s+of|in\s+place\s+of|rather\s+than)\b[^.]{0,30}\b(?:tool|function)\b
    | \b(?:side-?note|note\s+to\s+(?:the\s+)?(?:model|assistant|agent|llm))\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PLACES_OF_SECRETS = re.compile(
    r"""
    (?:~|/home/\w+|/root|\$home)?/?\.(?:ssh|aws|gnupg|kube|netrc|npmrc|docker|cursor|env)\b
    | \bid_(?:rsa|ed25519|ecdsa)\b | \bmcp\.json\b | /etc/(?:passwd|shadow)\b
    | \b(?:private|ssh|api|secret)[\s_-]*keys?\b[^.]{0,30}\b(?:content|file|read|pass|send|value)
    | \b(?:content|contents|value)s?[\s_-]*(?:of|from)[\s_-]*(?:reading[\s_-]*)?
      (?:ssh|env|\.env|secret|password|credential|id_rsa)
    | \b(?:env|environment)[\s_-]*variables?\b[^.]{0,30}\b(?:pass|send|include|content)
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Names of parameters that ask a model for data that no tool needs.
_ASKING_NAMES = re.compile(
    r"(?i)system_?prompt|conversation(_?history)?$|chat_?history|previous_?messages|chain_?of_?thought"
    r"|side_?note|tools?_?list|list_?of_?tools|model_?name$|id_rsa|ssh_?key|private_?key|dot_?env"
    r"|env_?(file|vars?|variables)|(content|contents)_?(of|from)_?\w*(ssh|env|secret|key|passw)"
)
# As emoji are written: once behind a symbol, or between two.
_SYMBOL = "[\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
_JOINERS = re.compile(f"(?<={_SYMBOL})\ufe0f(?![\ufe00-\ufe0f])|(?<=\ufe0f)\u200d(?={_SYMBOL})"
                      f"|(?<={_SYMBOL})\u200d(?={_SYMBOL})")  # fmt: skip
_ORDERS_IN_A_NAME = re.compile(r"\s\S+\s\S+\s")  # a name of four words is suspicious
_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")
_CLIENT_ONLY = frozenset({"_meta", "icons"})  # for clients, never sent to a model


class BadTool(ValueError):
    """A tool that cannot be used. `name` is its name on the server; empty where it has none."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


@dataclass(frozen=True)
class ReadTool:
    """`raw` has the fields of APPROVED and SHOWN that were given, `size` is its length as JSON."""

    raw: dict[str, Any]
    size: int
    repairs: list[Repair] = field(default_factory=list)


@dataclass(frozen=True)
class ToolListPage:
    tools: list[Any]
    cursor: str | None
    max_age_s: float | None
    repairs: list[Repair] = field(default_factory=list)


def approval_digest(raw: dict[str, Any]) -> str:
    """The digest of what is approved."""
    return _sha256({key: raw[key] for key in APPROVED_FIELDS if key in raw})


def review_digest(raw: dict[str, Any]) -> str:
    """The digest of all that is shown to the reviewing person."""
    return _sha256(raw)


def _sha256(raw: dict[str, Any]) -> str:
    return "sha256:" + commitment(raw)


class BadPage(ValueError):
    """No list of tools at all; the message is the reason."""


def well_formed_page(message: dict[str, Any]) -> ToolListPage:
    """Raises `BadPage`."""
    repairs: list[Repair] = []
    tools = message.get("tools")
    if (tools is None and "tools" in message) or tools == {}:
        repairs.append(Repair("/tools", f"is {json.dumps(tools)}, which is read as []"))
        tools = []
    if not isinstance(tools, list):
        raise BadPage("its tools are no list")
    cursor = message.get("nextCursor")
    if cursor is False:  # a library of PHP sends it with the last page
        repairs.append(Repair("/nextCursor", "is false, which is read as the end of the list"))
        cursor = None
    if cursor is not None and (not isinstance(cursor, str) or len(cursor) > LONGEST_TEXT):
        raise BadPage("its nextCursor is no text, or too long")
    return ToolListPage(tools, cursor, _ttl_seconds(message.get("ttlMs")), repairs)


def _ttl_seconds(ms: Any) -> float | None:
    if not isinstance(ms, int | float) or isinstance(ms, bool) or not ms >= 0:
        return None
    return min(ms / 1000, _DAY_S)


def well_formed_tool(raw: Any) -> ReadTool:
    """Raises `BadTool`."""
    repairs: list[Repair] = []
    if not isinstance(raw, dict):
        raise BadTool("", "is no object")
    raw = clean_value(_rename_keys(raw, repairs), repairs)
    kept = {key: raw[key] for key in (*APPROVED_FIELDS, *CLIENT_FIELDS) if raw.get(key) is not None}
    name = kept.get("name")
    shown = name[: LONGEST_NAME * 2] if isinstance(name, str) else ""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise BadTool(shown, f"its name must be a text of 1 to {LONGEST_NAME} letters")
    _check_texts(kept, repairs, shown)
    kept["inputSchema"] = _repair_input_schema(kept.get("inputSchema"), repairs, shown)
    _repair_output_schema(kept, repairs)
    _repair_objects(kept, repairs)
    _repair_icons(kept, repairs)
    size = len(json.dumps(kept))
    if size > LONGEST_TOOL:
        raise BadTool(shown, f"it is longer than {LONGEST_TOOL} bytes")
    return ReadTool(kept, size, repairs)


def _rename_keys(raw: dict[str, Any], repairs: list[Repair]) -> dict[str, Any]:
    found = dict(raw)
    for other, proper in _OTHER_NAMES.items():
        if other in found and found.get(proper) is None:
            repairs.append(Repair(f"/{other}", f"is read as {proper}"))
            found[proper] = found[other]
    return found


def _check_texts(kept: dict[str, Any], repairs: list[Repair], name: str) -> None:
    if not isinstance(kept.get("title", ""), str):
        repairs.append(Repair("/title", "is no text; it is left out"))
        del kept["title"]
    for key in ("title", "description"):
        text = kept.get(key, "")
        if not isinstance(text, str):
            raise BadTool(name, f"its {key} must be a text")
        if len(text) > LONGEST_TEXT:
            raise BadTool(name, f"its {key} is longer than {LONGEST_TEXT} letters")


def _repair_input_schema(schema: Any, repairs: list[Repair], name: str) -> dict[str, Any]:
    if schema is None:
        return {"type": "object"}
    if schema is True:
        repairs.append(Repair("/inputSchema", 'is true, which is read as {"type": "object"}'))
        return {"type": "object"}
    read = well_formed_schema(schema, repairs, "/inputSchema")
    if not isinstance(read, dict):
        raise BadTool(name, "its inputSchema must be an object")
    return read if read or schema == {} else {"type": "object"}


def _repair_output_schema(kept: dict[str, Any], repairs: list[Repair]) -> None:
    if "outputSchema" not in kept:
        return
    read = well_formed_schema(kept["outputSchema"], repairs, "/outputSchema")
    if isinstance(read, dict):
        kept["outputSchema"] = read
    else:
        repairs.append(Repair("/outputSchema", "is no object; it is left out"))
        del kept["outputSchema"]


def _repair_objects(kept: dict[str, Any], repairs: list[Repair]) -> None:
    for key in ("annotations", "_meta"):
        value = kept.get(key, {})
        if value == [] and isinstance(value, list):
            repairs.append(Repair(f"/{key}", "is [], which is read as {}"))
            kept[key] = {}
        elif not isinstance(value, dict):
            repairs.append(Repair(f"/{key}", "is no object; it is left out"))
            del kept[key]


def _repair_icons(kept: dict[str, Any], repairs: list[Repair]) -> None:
    icons = kept.get("icons", [])
    if icons == {}:
        icons = kept["icons"] = []
        repairs.append(Repair("/icons", "is {}, which is read as []"))
    good = isinstance(icons, list) and all(
        isinstance(one, dict) and isinstance(one.get("src"), str) for one in icons
    )
    if not good:
        repairs.append(Repair("/icons", "is no list of icons with a src; it is left out"))
        del kept["icons"]


def find_suspicions(raw: dict[str, Any]) -> list[str]:
    """In words, of a well-formed tool: each names its place. [] where there is no sign."""
    found: dict[str, None] = {}
    for place, text, is_name in _readable_texts(raw):
        for sign in _find_signs(text, is_name=is_name):
            found[f"{sign} at {make_visible(place[:200])}"] = None
            if len(found) >= MOST_SUSPICIONS:
                return [*found]
    return [*found]


def _readable_texts(raw: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Place, text, and whether it names something: all that a model may read."""
    for key, value in raw.items():
        if key == "name":
            yield "/name", str(value), True
        elif key not in _CLIENT_ONLY:
            yield from _nested_texts(value, f"/{key}", named=False)


def _nested_texts(value: Any, place: str, *, named: bool) -> Iterator[tuple[str, str, bool]]:
    """`named`: the keys of this object are names of parameters, not words of JSON Schema."""
    if isinstance(value, str):
        yield place, value, False
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _nested_texts(item, f"{place}/{at}", named=False)
    elif isinstance(value, dict):
        for key, item in value.items():
            here = child_pointer(place, key)
            if named or not (key.isascii() and key.isidentifier()):
                yield here, key, named
            names = key in {"properties", "patternProperties"} and not named
            yield from _nested_texts(item, here, named=names)


def _find_signs(text: str, *, is_name: bool) -> Iterator[str]:
    yield from _unusual_signs(text) if _UNUSUAL.search(text) else ()
    if _WORDS_OF_ORDERS.search(text):
        yield "tells a model what to do beside its use"
    if _PLACES_OF_SECRETS.search(text):
        yield "names where secrets are kept"
    if is_name and (_ASKING_NAMES.search(text) or _ORDERS_IN_A_NAME.search(text)):
        yield "asks for something in a name"


def _unusual_signs(text: str) -> Iterator[str]:
    for one in find_invisible(_JOINERS.sub("", text))[:3]:
        yield f"contains {one}, which cannot be seen,"
    alike = {one.description: None for one in find_lookalikes(text)}
    for description in [*alike][:3]:
        yield f"contains {description},"
