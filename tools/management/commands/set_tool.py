"""`manage.py set_tool`: create a tool, or change the given fields of one."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.actions import amended
from tools.catalog.imports.catalog_import import import_items
from tools.catalog.signatures.version_signatures import check_current
from tools.definitions.descriptors import FLAT_KEYS
from tools.definitions.dialects.import_entries import ImportItem, ImportItemKind
from tools.definitions.vocabulary import ArgumentValidation, ToolType
from tools.errors import InvalidDefinition
from tools.management import arguments
from tools.management.command import ToolcribCommand, operator
from tools.management.imports import report_imports
from tools.models import Organization, Tool

# Options of the implementation, and their field names in a definition.
PARTS = {
    "mcp_tool": "tool", "server": "server", "service": "service", "template": "template",
    "model": "model", "system": "system", "collection": "collection", "limit": "limit",
}  # fmt: skip
FIELDS = ("type", "title", "description", "category", "delivery", "argument_validation", "state")
LISTS = {"group": "group", "available_in": "available_in_states"}


class Command(ToolcribCommand):
    help = (
        "Creates a tool, or changes one: what is not given stays as it is. Arguments are what a "
        "model reads of the tool; giving one replaces them all, in the order they are given."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True)
        parser.add_argument("--type", choices=[str(one) for one in ToolType])
        parser.add_argument("--title")
        parser.add_argument("--description")
        parser.add_argument("--category")
        parser.add_argument("--delivery")
        parser.add_argument(
            "--argument",
            action="append",
            type=arguments.parse_tool_argument,
            metavar="NAME:TYPE:DESCRIPTION",
            help="such as city:string:'Where to look'; types: string, integer, number, boolean, "
            "array, object. Again for each argument",
        )
        parser.add_argument(
            "--required", action="extend", nargs="+", metavar="NAME", help="of these arguments"
        )
        parser.add_argument("--argument-validation", choices=[str(o) for o in ArgumentValidation])
        parser.add_argument("--group", action="extend", nargs="*", metavar="G")
        parser.add_argument("--state", help='the state it leads to; "" for none')
        parser.add_argument("--available-in", action="extend", nargs="*", metavar="STATE")
        _add_implementation_arguments(parser)
        arguments.add_organization(parser)

    def perform(self, options: dict[str, Any]) -> int:
        organization = arguments.find_organization(options["organization"])
        raw = _build_definition(organization, options)
        imported = import_items(
            organization=organization,
            items=[ImportItem(ImportItemKind.TOOL, options["name"], raw)],
            by=operator(organization.slug),
        )
        return report_imports(self, options, imported, ["set_tool"], organization)


def _add_implementation_arguments(parser: CommandParser) -> None:
    parser.add_argument("--mcp-tool", metavar="TOOL", help="its name on the MCP server")
    parser.add_argument("--server", help="the MCP server")
    parser.add_argument("--service", metavar="ID", help="the tool service")
    parser.add_argument(
        "--config", action="append", type=arguments.parse_pair, metavar="NAME=VALUE",
        help="a parameter of the tool service",
    )  # fmt: skip
    parser.add_argument("--template", metavar="TEXT", help="the prompt's template")
    parser.add_argument("--model")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt")
    parser.add_argument("--collection")
    parser.add_argument("--limit", type=int)
    parser.add_argument(
        "--implementation",
        type=arguments.parse_parameters,
        metavar="JSON",
        help="all of it at once",
    )


def _build_definition(organization: Organization, options: dict[str, Any]) -> dict[str, Any]:
    """The whole definition: the current one with the given fields. Raises `Conflict`."""
    current = _current_definition(organization, options["name"])
    changes = _changed_fields(options)
    kind = changes.get("type", current.get("type"))
    if parts := _implementation_fields(options, kind):
        kept = {} if options["implementation"] else current.get("implementation", {})
        changes["implementation"] = kept | parts
    if not current:
        return {"name": options["name"], **changes}
    return amended(current, changes)


def _current_definition(organization: Organization, name: str) -> dict[str, Any]:
    rows = Tool.objects.present().select_related("version", "organization")
    tool = rows.filter(organization=organization, name=name).first()
    if tool is None or tool.version is None:
        return {}
    check_current(tool)
    definition: dict[str, Any] = tool.version.definition
    return definition


def _changed_fields(options: dict[str, Any]) -> dict[str, Any]:
    changes = {key: options[key] for key in FIELDS if options[key] is not None}
    if changes.get("state") == "":
        changes["state"] = None
    for option, key in LISTS.items():
        if options[option] is not None:
            changes[key] = [one for one in options[option] if one]
    if options["argument"] is not None or options["required"]:
        changes["arguments"] = _arguments(options)
    return changes


def _arguments(options: dict[str, Any]) -> list[dict[str, Any]]:
    required, given = set(options["required"] or ()), options["argument"] or []
    unknown = required - {one["name"] for one in given}
    if unknown:
        message = f"names no argument: {', '.join(sorted(unknown))}"
        raise InvalidDefinition(
            "An argument is required that is not given.",
            errors=[{"field": "--required", "message": message}],
        )
    return [
        one | ({"required": True} if one["name"] in required else {}) for one in options["argument"]
    ]


def _implementation_fields(options: dict[str, Any], kind: Any) -> dict[str, Any]:
    """The given fields of the implementation. Raises `InvalidDefinition` for another type's."""
    given = {part: options[option] for option, part in PARTS.items() if options[option] is not None}
    if options["config"]:
        given["config"] = dict(options["config"])
    odd = sorted(set(given) - set(FLAT_KEYS.get(str(kind), {}).values()))
    if odd:
        flaws = [{"field": name, "message": f"is nothing a {kind} is made of"} for name in odd]
        raise InvalidDefinition("The tool was not accepted.", errors=flaws)
    return {**(options["implementation"] or {}), **given}
