"""Validates an administrator's settings of a channel: every wrong field is named."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sandbox.egress.rules.grammar import BrokenGrammar, Url, parse_host
from tools.catalog.listed import ListedFields
from tools.definitions.texts import templates
from tools.definitions.texts.names import (
    flaw_in_address,
    flaw_in_mail_entry,
    flaw_in_person_entry,
)
from tools.definitions.tool import PROFILE_NAME
from tools.models import MessageKind

SECURITIES = ("tls", "starttls", "none")
# Variables of a template.
VARIABLES = ("subject", "body", "data", "sender", "channel", "recipients")
COMMON = (
    "name", "kind", "enabled", "recipients", "subject_template", "body_template",
    "most_recipients", "most_an_hour",
)  # fmt: skip
MAIL = ("host", "port", "security", "username", "sender")
_PORTS = {"tls": 465, "starttls": 587, "none": 25}
_OWN = {
    MessageKind.EMAIL: (*MAIL, "password"),
    MessageKind.WEBHOOK: ("url",),
    MessageKind.SLACK: ("url",),
    MessageKind.INBOX: (),
}


@dataclass
class ChannelFields:
    """A parsed channel: columns, options, and secrets."""

    columns: dict[str, Any]
    options: dict[str, Any]
    secrets: dict[str, str]
    flaws: list[dict[str, str]] = field(default_factory=list)


def read(raw: dict[str, Any]) -> ChannelFields:
    fields = ListedFields(raw, [])
    kind = fields.choice("kind", MessageKind)
    fields.known((*COMMON, *_OWN[MessageKind(kind)]))
    columns = _columns(fields, MessageKind(kind)) | {"kind": kind}
    options: dict[str, Any] = {}
    secrets: dict[str, str] = {}
    if kind == MessageKind.EMAIL:
        options, secrets = _mail(fields)
    elif kind != MessageKind.INBOX:
        secrets = {"url": _url(fields)}
    return ChannelFields(columns, options, secrets, fields.flaws)


def shown_url(url: str) -> str:
    """A URL without parts that may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


def _columns(fields: ListedFields, kind: MessageKind) -> dict[str, Any]:
    name = fields.text("name", longest=63)
    if name and not PROFILE_NAME.fullmatch(name):
        fields.wrong("name", "may hold only letters, digits, '_', '.' and '-'")
    return {
        "name": name,
        "enabled": fields.boolean("enabled", True),
        "recipients": _recipients(fields, kind),
        "subject_template": _template(fields, "subject_template", "{{ subject }}"),
        "body_template": _template(fields, "body_template", "{{ body }}"),
        "most_recipients": fields.integer("most_recipients", 10, least=1, most=100),
        "most_an_hour": fields.integer("most_an_hour", 60, least=1, most=10_000),
    }


def _recipients(fields: ListedFields, kind: MessageKind) -> list[str]:
    flaw_of = flaw_in_mail_entry if kind == MessageKind.EMAIL else flaw_in_person_entry
    found = fields.texts("recipients", [], flaw_of=flaw_of, most=500) or []
    if found and kind in {MessageKind.WEBHOOK, MessageKind.SLACK}:
        fields.wrong("recipients", "must be empty: the address says who receives it")
    return found


def _template(fields: ListedFields, name: str, usual: str) -> str:
    text = fields.text(name, usual, longest=templates.LONGEST_TEMPLATE)
    try:
        templates.check_template(text, VARIABLES)
    except templates.BadTemplate as flaw:
        fields.wrong(name, str(flaw))
    return text


def _mail(fields: ListedFields) -> tuple[dict[str, Any], dict[str, str]]:
    security = fields.text("security", "starttls", longest=10)
    if security not in SECURITIES:
        fields.wrong("security", "must be one of " + ", ".join(SECURITIES))
    username, password = (fields.text(name, "", longest=500) for name in ("username", "password"))
    if bool(username) != bool(password):
        fields.wrong("password", "is needed with username, and only then")
    if not f"{username}{password}".isascii():
        fields.wrong("password", "and username may hold only ASCII characters")
    sender = fields.text("sender", longest=254)
    if sender:
        fields.note("sender", flaw_in_address(sender))
    port = fields.integer("port", _PORTS.get(security, 587), least=1, most=65535)
    options = {"host": _host(fields), "port": port, "security": security, "username": username}
    return {**options, "sender": sender}, {"password": password}


def _host(fields: ListedFields) -> str:
    host = fields.text("host", longest=253)
    if not host:
        return ""
    try:
        return parse_host(host).text
    except BrokenGrammar as flaw:
        fields.wrong("host", f"is no name of a server: {flaw}")
        return ""


def _url(fields: ListedFields) -> str:
    url = fields.text("url", longest=2000)
    if not url:
        return ""
    try:
        if Url.parse(url).scheme not in {"http", "https"} or "#" in url:
            raise BrokenGrammar("only http and https, without a fragment")
    except BrokenGrammar as flaw:
        fields.wrong("url", f"must be like https://hooks.example.com/key: {flaw}")
    return url
