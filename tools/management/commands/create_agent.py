"""`manage.py create_agent`: create an agent with its grants and its token."""

from typing import Any
from urllib.parse import quote

from django.core.management.base import CommandParser
from django.db import transaction

from tools.accounts import account_actions
from tools.accounts.grants.grant_actions import granted_tool_groups, granted_tools
from tools.catalog.builtins import install_builtins
from tools.definitions.texts.names import WILDCARD
from tools.errors import NotFound
from tools.licensing import tiers
from tools.management import arguments, command
from tools.management.command import DONE, ToolcribCommand, operator
from tools.management.commands.create_token import format_usage, token_document, token_lines
from tools.models import Agent, LicenseTier, Organization

NEW_ORGANIZATION_TIER = "Enterprise"


class Command(ToolcribCommand):
    help = (
        "Makes an agent and prints its token, which is shown once. An organization that is not "
        "there yet is made, with the built-in tools; --tier sets the tier of either."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", type=arguments.parse_slug, metavar="SLUG")
        parser.add_argument(
            "--organization", type=arguments.parse_slug, default="default", metavar="O"
        )
        parser.add_argument("--tier", help="for instance Core, WriterPro, Teams or Enterprise")
        for name, what in (
            ("group", "groups it may request; absent is default, * is all"),
            ("tool", "the only tools it may call; absent is all of its groups"),
            ("tool-group", "groups whose every tool it may call, beside --tool"),
            ("permission", "permissions tools require, such as tool.filesystem.read"),
        ):
            letter = name[0].upper()
            parser.add_argument(f"--{name}", action="extend", nargs="*", metavar=letter, help=what)

    def perform(self, options: dict[str, Any]) -> int:
        with transaction.atomic():
            organization, notes = provide_organization(options["organization"], options["tier"])
            by = operator(organization.slug)
            agent = account_actions.create_agent(
                organization=organization,
                slug=options["slug"],
                by=by,
                groups=options["group"],
                tools=options["tool"],
                tool_groups=options["tool_group"],
                permissions=options["permission"],
            )
            token, secret = account_actions.create_token(user=agent.service_account, by=by)
        document = agent_document(agent) | token_document(token, secret) | {"notes": notes}
        lines = [*_agent_lines(document), *token_lines(token, secret)]
        shown = [
            *notes,
            command.format_fields(lines),
            f"\n{format_usage(secret, _query(document['groups']))}",
        ]
        self.answer(options, document, "\n".join(shown))
        return DONE


def provide_organization(slug: str, tier_name: str | None) -> tuple[Organization, list[str]]:
    """The organization with the tier asked for, and a sentence for each thing that was changed."""
    found = Organization.objects.select_related("tier").filter(slug=slug).first()
    if found is None:
        tier = find_tier(tier_name or NEW_ORGANIZATION_TIER)
        by = operator(slug)
        made = account_actions.create_organization(slug=slug, name=slug, tier=tier, by=by)
        install_builtins(organization=made, by=by)
        return made, [f"The organization {slug} was made, with the tier {tier.name}."]
    if tier_name is None or tier_name == found.tier.name:
        return found, []
    tier, before = find_tier(tier_name), found.tier.name
    tiers.set_tier(organization=found, tier=tier, by=operator(slug))
    found.refresh_from_db()
    return found, [f"The tier of the organization {slug} is now {tier.name}; it was {before}."]


def find_tier(name: str) -> LicenseTier:
    found = LicenseTier.objects.filter(name=name).first()
    if found is None:
        known = command.join_names(LicenseTier.objects.values_list("name", flat=True))
        raise NotFound(f"There is no tier {name[:60]!r}, only: {known}.", code="tier_not_found")
    return found


def agent_document(agent: Agent) -> dict[str, Any]:
    account = agent.service_account
    return {
        "slug": agent.slug,
        "organization": agent.organization.slug,
        "tier": agent.organization.tier.name,
        "groups": account.granted_groups,
        "tools": granted_tools(agent),
        "tool_groups": granted_tool_groups(agent),
        "permissions": account.granted_permissions,
    }


def _agent_lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Agent", document["slug"]),
        ("Organization", f"{document['organization']} ({document['tier']})"),
        ("Groups", command.join_names(document["groups"])),
        ("Tools", command.join_names(document["tools"])),
        ("Tool groups", command.join_names(document["tool_groups"])),
        ("Permissions", command.join_names(document["permissions"])),
    ]


def _query(groups: list[str]) -> str:
    """Names the groups in the address only where the default would not show the agent its tools."""
    if groups == ["default"] or not groups:
        return ""
    return "?" + "&".join(f"group={quote(name, safe=WILDCARD)}" for name in groups)
