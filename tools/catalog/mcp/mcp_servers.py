"""Registers upstream MCP servers, and the credentials that calls are sent with."""

from typing import Any

from django.db import transaction

from audit.actions import Actor, record_change
from audit.events import Event
from sandbox.egress.rules.grammar import BrokenGrammar, Url
from tools.catalog.groups import note_groups
from tools.catalog.list_fields import ListedFields
from tools.catalog.mcp.mcp_tokens import key_of
from tools.catalog.mcp.mcp_transports import NOT_ALLOWED, allowed, forbidden
from tools.catalog.mcp.mcp_values import (
    UnreadableMcpValue,
    opened_secrets,
    read_values,
    sealed_values,
    shown_values,
)
from tools.catalog.uniqueness import unique
from tools.definitions.servers import MASK
from tools.definitions.texts.names import TOOL_NAME, flaw_in_group, is_reserved_address
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, Malformed, NotFound
from tools.models import (
    CredentialScope,
    McpCredential,
    McpOAuthClient,
    McpServer,
    OnDrift,
    Organization,
    Tool,
    Transport,
)

LONGEST_URL = 2_000
MOST_ARGUMENTS = 50
SLOWEST_CHECK_S = 86_400
_FIELDS = (
    "name", "transport", "url", "headers", "command", "args", "env", "remote_name", "group",
    "credential_scope", "on_drift", "check_every_s", "enabled",
)  # fmt: skip
_SHOWN = frozenset(
    {"status", "protocol", "tools", "snapshot_at", "findings", "last_seen_at", "last_error",
     "dead_since", "credentials", "created_at"}
)  # fmt: skip


@transaction.atomic
def create_server(*, organization: Organization, server: Any, by: Actor) -> McpServer:
    """Raises `Malformed` with an error per wrong field, `Conflict`."""
    row = McpServer(organization=organization)
    _write(row, server)
    Organization.objects.next_revision(organization.pk)
    with unique(f"There is an MCP server {row.name} already.", code="mcp_server_exists"):
        row.save(force_insert=True)
    note_groups(organization, row.default_groups or ())
    record_change(Event.MCP_SERVER_CREATE, row.name, by, None, written(row))
    return row


@transaction.atomic
def change_server(*, row: McpServer, changes: Any, by: Actor) -> bool:
    """Change the given fields; the mask in place of a value keeps it. Whether something
    changed."""
    Organization.objects.next_revision(row.organization_id)
    row.refresh_from_db()
    before, sealed = written(row), row.sealed
    _write(row, changes)
    if (written(row), row.sealed) == (before, sealed):
        return False
    row.save()
    note_groups(row.organization, row.default_groups or ())
    record_change(Event.MCP_SERVER_CHANGE, row.name, by, before, written(row))
    return True


@transaction.atomic
def delete_server(*, row: McpServer, by: Actor) -> None:
    """Raises `Conflict` while tools name it."""
    Organization.objects.next_revision(row.organization_id)
    dependants = list(tools_of(row).values_list("name", flat=True))
    if dependants:
        raise Conflict(
            f"The MCP server {row.name} is named by: {', '.join(dependants[:20])}.",
            code="has_dependants",
            dependants=dependants,
        )
    record_change(Event.MCP_SERVER_DELETE, row.name, by, written(row), None)
    row.delete()


@transaction.atomic
def set_credential(*, row: McpServer, owner: str, values: Any, by: Actor) -> bool:
    """Headers that calls of one agent or person send to the server beside the shared ones.
    Whether something changed."""
    if not isinstance(values, dict):
        raise _invalid([{"field": "", "message": "must be a JSON object"}])
    fields = ListedFields(values, [])
    fields.reject_unknown(("headers", "env"))
    kind, _, name = owner.partition(":")
    if kind != row.credential_scope or not name or len(owner) > 200:
        wanted = f"must be {row.credential_scope}:<name>, as the server's credential_scope says"
        fields.wrong("owner", wanted)
        raise _invalid(fields.flaws)
    try:
        key = key_of(row.organization_id, owner)
    except Malformed as flaw:
        fields.wrong("owner", flaw.message)
        raise _invalid(fields.flaws) from None
    Organization.objects.next_revision(row.organization_id)
    found = row.credentials.filter(owner=key).first()
    before = None if found is None else written_values(found)
    credential = found or McpCredential(server=row, owner=key)
    sealed = credential.sealed
    _write_values(credential, fields, row)
    if fields.flaws:
        raise _invalid(fields.flaws)
    after = written_values(credential)
    if (after, credential.sealed) == (before, sealed):
        return False
    credential.save()
    record_change(Event.MCP_SERVER_CHANGE, row.name, by, before, after, owner=owner)
    return True


def find_credential(row: McpServer, owner: str) -> McpCredential | None:
    """Of an owner as people write it."""
    try:
        key = key_of(row.organization_id, owner)
    except Malformed:
        return None
    return row.credentials.filter(owner=key).first()


@transaction.atomic
def delete_credential(*, row: McpServer, owner: str, by: Actor) -> None:
    """Raises `NotFound`."""
    Organization.objects.next_revision(row.organization_id)
    found = find_credential(row, owner)
    if found is None:
        raise NotFound("There is no such credential.", code="credential_not_found")
    record_change(Event.MCP_SERVER_CHANGE, row.name, by, written_values(found), None, owner=owner)
    found.delete()


def find_server(organization: Organization, name: str) -> McpServer:
    """Raises `NotFound`, also for another organization's."""
    found = McpServer.objects.filter(organization=organization, name=name).first()
    if found is None:
        raise NotFound(f"There is no MCP server {name[:128]!r}.", code="mcp_server_not_found")
    return found


def tools_of(row: McpServer) -> Any:
    """The tools of the catalog that are this server's."""
    return Tool.objects.present().filter(
        organization_id=row.organization_id,
        type=ToolType.MCP,
        version__definition__implementation__server=row.name,
    )


def written(row: McpServer) -> dict[str, Any]:
    """As it was configured; no value of a header, and no secret, is in it."""
    return {
        "name": row.name,
        "transport": str(row.transport),
        "url": row.url,
        "command": row.command,
        "args": list(row.args),
        "remote_name": row.remote_name,
        "group": row.default_groups,
        "credential_scope": str(row.credential_scope),
        "on_drift": str(row.on_drift),
        "check_every_s": row.check_every_s,
        "enabled": row.enabled,
        **written_values(row),
    }


def written_values(row: McpServer | McpCredential) -> dict[str, Any]:
    return {"headers": shown_values(row.headers), "env": shown_values(row.env)}


def _write(row: McpServer, raw: Any) -> None:
    """Sets the given fields on the row. Raises `Malformed`."""
    if not isinstance(raw, dict):
        raise _invalid([{"field": "", "message": "an MCP server is a JSON object"}])
    fields = ListedFields(raw, [])
    fields.reject_unknown({*_FIELDS, *_SHOWN})
    _write_name(row, fields)
    before = _whom(row)
    _write_place(row, fields)
    if not row._state.adding and _whom(row) != before:
        _check_moved(row, fields)
    _write_policy(row, fields)
    _write_values(row, fields, row)
    if fields.flaws:
        raise _invalid(fields.flaws)


def _write_name(row: McpServer, fields: ListedFields) -> None:
    name = fields.text("name", row.name or None, longest=128)
    if name and not TOOL_NAME.fullmatch(name):
        fields.wrong("name", "may hold only letters, digits, '_', '.' and '-', at most 128")
    if not row.name and is_reserved_address("server", name):
        fields.wrong("name", "is reserved; choose another")
    if row.name and name != row.name:
        fields.wrong("name", "cannot be changed; definitions name it")
    row.name = name


def _write_place(row: McpServer, fields: ListedFields) -> None:
    row.transport = fields.choice("transport", Transport, row.transport)
    row.url = fields.text("url", row.url, longest=LONGEST_URL)
    row.command = fields.text("command", row.command, longest=500)
    row.remote_name = fields.text("remote_name", row.remote_name, longest=128)
    args = fields.raw.get("args", row.args)
    if not isinstance(args, list) or len(args) > MOST_ARGUMENTS or not all(map(_is_word, args)):
        fields.wrong("args", f"must be a list of at most {MOST_ARGUMENTS} texts")
    else:
        row.args = args
    if row.transport == Transport.STDIO:
        _check_command(row, fields)
    else:
        _check_url(row, fields)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 2_000 and "\x00" not in value


def _check_command(row: McpServer, fields: ListedFields) -> None:
    if row.url:
        fields.wrong("url", "is not for servers over stdio")
    entry = allowed(row.command)
    if entry is None:
        fields.wrong("command", NOT_ALLOWED)
    elif isinstance(row.args, list) and (flaw := entry.flaw_in_arguments(row.args)):
        fields.wrong("args", flaw)


def _check_url(row: McpServer, fields: ListedFields) -> None:
    if row.command:
        fields.wrong("command", "is only for servers over stdio")
    try:
        Url.parse(row.url)
    except BrokenGrammar as flaw:
        fields.wrong("url", f"is {flaw}")


def _whom(row: McpServer) -> tuple[object, ...]:
    """The recipient of the stored values: command, or scheme, host and port."""
    if row.transport == Transport.STDIO:
        return (row.command,)
    try:
        url = Url.parse(row.url)
    except BrokenGrammar:
        return ()
    return url.scheme, url.host, url.port


def _check_moved(row: McpServer, fields: ListedFields) -> None:
    """Stored values are never sent to another recipient: they have to be entered again."""
    for name, kept in (("headers", row.headers), ("env", row.env)):
        given = fields.raw.get(name)
        if kept and (not isinstance(given, dict) or MASK in given.values()):
            fields.wrong(name, "must be given anew: the server is another one now")
    if row.credentials.exists():
        fields.wrong("url", "is another server's; delete the credentials of callers first")
    if row.authorizations.exists() or McpOAuthClient.objects.filter(server=row).exists():
        fields.wrong("url", "is another server's; disconnect it and delete its OAuth client first")


def _write_policy(row: McpServer, fields: ListedFields) -> None:
    if "group" in fields.raw:
        row.default_groups = fields.texts("group", None, flaw_of=flaw_in_group)
    row.credential_scope = fields.choice("credential_scope", CredentialScope, row.credential_scope)
    row.on_drift = fields.choice("on_drift", OnDrift, row.on_drift)
    row.enabled = fields.boolean("enabled", row.enabled)
    every = fields.raw.get("check_every_s", row.check_every_s)
    number = isinstance(every, int | float) and not isinstance(every, bool)
    if not number or not 0 <= every <= SLOWEST_CHECK_S:
        fields.wrong("check_every_s", f"must be a number from 0 to {SLOWEST_CHECK_S}")
    else:
        row.check_every_s = every


def _write_values(row: McpServer | McpCredential, fields: ListedFields, server: McpServer) -> None:
    """Unchanged values keep their ciphertext."""
    organization, readable = server.organization_id, True
    try:
        kept = opened_secrets(bytes(row.sealed or b""), organization=organization, row=row.pk)
    except UnreadableMcpValue:  # under another SECRET_KEY: they must be set again
        kept, readable = {}, False
    row.headers, headers = read_values(fields, "headers", row.headers, kept.get("headers", {}))
    row.env, env = read_values(fields, "env", row.env, kept.get("env", {}))
    if server.transport == Transport.STDIO:
        _check_values(row, fields, server)
    secret = {"headers": headers, "env": env}
    if readable and secret == {"headers": {}, "env": {}} | kept:
        return
    some = bool(headers or env)
    row.sealed = sealed_values(secret, organization=organization, row=row.pk) if some else None


def _check_values(row: McpServer | McpCredential, fields: ListedFields, server: McpServer) -> None:
    if row.headers:
        fields.wrong("headers", "are not for servers over stdio; they have an environment (env)")
    entry = allowed(server.command)
    for name in forbidden(entry, row.env) if entry else ():
        fields.wrong(f"env.{name}", "is not one that the operator allows for this command")


def _invalid(errors: list[dict[str, str]]) -> Malformed:
    message = "The MCP server was not accepted; see details.errors."
    return Malformed(message, code="invalid_mcp_server", errors=errors)
