"""Signs of a poisoned definition: text that a model reads and a person would not see or expect.

A sign is not a verdict, and no list of signs is complete: with one, a person must read the tool
before an agent may use it. A tool without any is still imported only by choice.
"""

import re
from collections.abc import Iterator
from typing import Any

from tools.definitions.schemas.schema_parts import child_pointer
from tools.definitions.texts.visible import find_invisible, find_lookalikes, make_visible

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
