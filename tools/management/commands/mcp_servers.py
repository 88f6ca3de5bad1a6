"""`manage.py mcp_servers`: list, register and refresh MCP servers, and import their tools."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.imports.import_results import CREATED, UPDATED
from tools.catalog.mcp import mcp_import
from tools.catalog.mcp import mcp_servers as servers
from tools.definitions.mcp.listed_tools import review_digest
from tools.definitions.texts.lookalikes import make_visible
from tools.management import arguments, command
from tools.management.command import DONE, FAILED, ToolcribCommand, format_flaw, operator
from tools.management.imports import lint_tools
from tools.models import McpServer, Organization, Transport
from tools.shapes.catalog import mcp_server_shape


def header(written: str) -> tuple[str, Any]:
    """`Name=value`, or `Name=env:VARIABLE` and `Name=file:/path` for what the operator allows."""
    name, sign, value = written.partition("=")
    if not name or not sign:
        raise ArgumentTypeError("a header is NAME=VALUE, NAME=env:VARIABLE or NAME=file:/path")
    kind, colon, target = value.partition(":")
    return name, {kind: target} if colon and kind in {"env", "file"} else value


class Command(ToolcribCommand):
    help = "MCP servers upstream: list, add, refresh, difference, import, delete."

    def arguments(self, parser: CommandParser) -> None:
        wanted = ("list", "add", "refresh", "difference", "import", "delete")
        parser.add_argument("action", choices=wanted, nargs="?", default="list")
        parser.add_argument("name", metavar="NAME", nargs="?", default="")
        arguments.add_organization(parser)
        parser.add_argument("--url", default="", metavar="URL")
        parser.add_argument("--transport", choices=Transport.values, default=None)
        parser.add_argument(
            "--command",
            default="",
            metavar="NAME",
            help="of a stdio server, as the operator's list has it",
        )
        parser.add_argument(
            "--env", action="append", type=header, default=[], metavar="NAME=VALUE",
            help="of a stdio server; VALUE may be env:VARIABLE or file:/path as well",
        )  # fmt: skip
        parser.add_argument(
            "--arg", action="append", default=[], metavar="A", help="of the command"
        )
        parser.add_argument(
            "--header", action="append", type=header, default=[], metavar="NAME=VALUE",
            help="VALUE may be env:VARIABLE or file:/path, where the operator allows it",
        )  # fmt: skip
        parser.add_argument("--group", action="extend", nargs="+", metavar="G")
        parser.add_argument("--tool", action="append", default=[], metavar="T", help="to import")
        parser.add_argument("--all", action="store_true", help="import every tool of the list")
        parser.add_argument(
            "--digest", action="append", default=[], metavar="D",
            help="of a tool that you have read (difference); needed where it has suspicions",
        )  # fmt: skip
        parser.add_argument("--dry-run", action="store_true", help="import nothing, say what would")

    def perform(self, options: dict[str, Any]) -> int:
        organization = arguments.find_organization(options["organization"])
        if options["action"] == "list":
            return self._list(organization, options)
        if options["action"] == "add":
            return self._add(organization, options)
        row = servers.find_server(organization, options["name"])
        perform = getattr(self, f"_{options['action']}")
        return int(perform(row, options))

    def _list(self, organization: Organization, options: dict[str, Any]) -> int:
        rows = McpServer.objects.filter(organization=organization).prefetch_related("credentials")
        shapes = [mcp_server_shape(row) for row in rows]
        lines = [
            (one["name"], f"{one['status']}  {one['url'] or one['command']}  {one['last_error']}")
            for one in shapes
        ]
        self.answer(
            options, {"results": shapes}, command.format_fields(lines) if lines else "None."
        )
        return DONE

    def _add(self, organization: Organization, options: dict[str, Any]) -> int:
        written = {
            "name": options["name"],
            "url": options["url"],
            "transport": options["transport"] or _transport(options),
            "command": options["command"],
            "args": options["arg"],
            "headers": dict(options["header"]),
            "env": dict(options["env"]),
            "group": options["group"],
        }
        row = servers.create_server(
            organization=organization, server=written, by=operator(organization.slug)
        )
        self.answer(options, mcp_server_shape(row), f"{row.name} is registered; refresh it now.")
        return DONE

    def _refresh(self, row: McpServer, options: dict[str, Any]) -> int:
        row = mcp_import.refresh(row=row, by=operator(row.organization.slug))
        count = len(row.snapshot or [])
        summary = f"{row.name} lists {count} tools and speaks {row.protocol}."
        self.answer(options, mcp_server_shape(row), f"{summary}\n{_format_findings(row)}".strip())
        return DONE

    def _difference(self, row: McpServer, options: dict[str, Any]) -> int:
        found = mcp_import.difference(row)
        lines = [
            (make_visible(one["tool"]), f"{one['change']}  {_server_name(one)}") for one in found
        ]
        shown = command.format_fields(lines) if lines else "Nothing was listed."
        self.answer(options, {"server": row.name, "tools": found}, shown)
        return DONE

    def _import(self, row: McpServer, options: dict[str, Any]) -> int:
        more = {} if options["group"] is None else {"group": options["group"]}
        names = [raw["name"] for raw in row.snapshot or []] if options["all"] else options["tool"]
        read = {raw["name"]: review_digest(raw) for raw in row.snapshot or []}
        digests = {
            name: {"digest": digest} for name, digest in read.items() if digest in options["digest"]
        }
        items = mcp_import.import_tools(
            row=row,
            items=[{"tool": name, **more, **digests.get(name, {})} for name in names],
            by=operator(row.organization.slug),
            dry_run=options["dry_run"],
        )
        saved = [item.name for item in items if item.result in {CREATED, UPDATED}]
        found = {} if options["dry_run"] else lint_tools(row.organization, saved)
        lines = [(make_visible(item.name or item.tool), _format_item(item)) for item in items]
        odd = [f"{name}: {format_flaw(one)}" for name, about in found.items() for one in about]
        shape = {
            "items": [item.as_dict() | {"findings": found.get(item.name, [])} for item in items],
            "findings": row.findings,
        }
        shown = "\n".join([command.format_fields(lines), *odd, _format_findings(row)])
        self.answer(options, shape, shown.strip())
        return FAILED if any(item.errors for item in items) else DONE

    def _delete(self, row: McpServer, options: dict[str, Any]) -> int:
        servers.delete_server(row=row, by=operator(row.organization.slug))
        self.answer(options, {"name": row.name}, f"{row.name} is gone.")
        return DONE


def _transport(options: dict[str, Any]) -> Transport:
    return Transport.STDIO if options["command"] else Transport.STREAMABLE_HTTP


def _server_name(entry: dict[str, Any]) -> str:
    changed = ", ".join(field["field"] for field in entry["fields"])
    named = changed if entry["change"] == "changed" else ""
    signs = "; ".join(make_visible(one) for one in entry["suspicions"])
    return f"{named}  {signs}  {entry['digest']}".strip() if signs else named


def _format_findings(row: McpServer) -> str:
    return "\n".join(
        f"{one['result']}: {make_visible(one['tool'] or 'the list')} {make_visible(one['message'])}"
        for one in row.findings
    )


def _format_item(item: mcp_import.McpImportItem) -> str:
    flaws = "; ".join(f"{flaw['field']} {flaw['message']}" for flaw in item.errors)
    return f"{item.result}  {flaws}".strip()
