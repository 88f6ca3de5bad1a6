"""Types of command-line arguments, and what they name. An invalid value is bad usage and ends with
exit code 2; what is not found ends with 1."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from tools.accounts.account_actions import MOST_TOKEN_DAYS
from tools.accounts.callers import caller_of_agent
from tools.definitions.callers import Caller
from tools.definitions.texts import names
from tools.definitions.values import durations, strict_json
from tools.definitions.vocabulary import ParameterType
from tools.errors import Forbidden, NotFound
from tools.knowledge.graph_documents import Syntax
from tools.models import Agent, Organization


def parse_slug(text: str) -> str:
    if not names.SLUG.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is no slug: lower-case letters, digits and hyphens")
    return text


def parse_days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_TOKEN_DAYS:
        raise ArgumentTypeError(f"{text!r} is not a number of days from 1 to {MOST_TOKEN_DAYS}")
    return int(text)


def parse_duration_argument(text: str) -> float:
    """Seconds of an ISO 8601 duration."""
    try:
        length_s = durations.parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is {error}") from None
    if length_s <= 0:
        raise ArgumentTypeError("a call needs more time than none")
    return length_s


def parse_json(text: str) -> Any:
    """`-` reads it from standard input."""
    try:
        return strict_json.parse(sys.stdin.buffer.read() if text == "-" else text)
    except strict_json.BadJson as error:
        raise ArgumentTypeError(f"the parameters cannot be used: {error}") from None


def parse_parameters(text: str) -> dict[str, Any]:
    """A JSON object; `-` reads it from standard input."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ArgumentTypeError('the parameters must be a JSON object such as {"path": "a.txt"}')
    return value


def add_request(parser: ArgumentParser) -> None:
    """Add `--group` and `--state`, which a request names."""
    parser.add_argument(
        "--group",
        action="extend",
        nargs="*",
        metavar="G",
        help="requested groups; absent is default, without a value it is the empty list",
    )
    parser.add_argument("--state", help="the current state of the workflow")


def parse_tool_argument(text: str) -> dict[str, str]:
    """`NAME:TYPE:DESCRIPTION`; the description may hold colons."""
    name, first, rest = text.partition(":")
    kind, second, description = rest.partition(":")
    if not (first and second and name and description.strip()):
        raise ArgumentTypeError(f"{text!r} is not NAME:TYPE:DESCRIPTION")
    if kind.casefold() not in {one.casefold() for one in ParameterType}:
        known = ", ".join(one.lower() for one in ParameterType)
        raise ArgumentTypeError(f"{kind!r} is none of the types {known}")
    return {"name": name, "type": kind, "description": description}


def parse_pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, mark, value = text.partition("=")
    if not name or not mark:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def add_organization(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--organization", type=parse_slug, default="default", metavar="O", help="default: default"
    )


def add_graph(parser: ArgumentParser) -> None:
    """Add the options for one of the organization's graphs and its syntax."""
    parser.add_argument("--collection", type=parse_slug, metavar="C", help="default: default")
    parser.add_argument("--format", choices=[str(one) for one in Syntax], default="turtle")


def add_agent(parser: ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--agent", type=parse_slug, required=required, metavar="A")
    add_organization(parser)


def requested_groups(options: dict[str, Any]) -> list[str] | None:
    """Absent stays None; `--group` and `--group ""` are both the empty list (ruling 2)."""
    given: list[str] | None = options["group"]
    return None if given is None else [name for name in given if name]


def find_organization(slug: str) -> Organization:
    found = Organization.objects.select_related("tier").filter(slug=slug).first()
    if found is None:
        known = ", ".join(Organization.objects.values_list("slug", flat=True)[:20])
        raise NotFound(
            f"There is no organization {slug!r}, only: {known}.", code="organization_not_found"
        )
    return found


def find_agent(organization: Organization, slug: str) -> Agent:
    found = (
        Agent.objects.select_related("service_account", "organization")
        .filter(organization=organization, slug=slug)
        .first()
    )
    if found is None:
        raise NotFound(
            f"There is no agent {slug!r} in the organization {organization.slug}. "
            "Make one with create_agent.",
            code="agent_not_found",
        )
    return found


def find_caller(organization: str, slug: str) -> Caller:
    """The caller for an agent that may act. Raises `NotFound`, and `Forbidden` when suspended."""
    caller = caller_of_agent(find_agent(find_organization(organization), slug))
    if not caller.active:
        raise Forbidden(
            f"The agent {slug} is suspended: it sees and runs nothing.", code="agent_suspended"
        )
    return caller
