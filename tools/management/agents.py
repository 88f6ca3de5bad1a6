"""Finds the organization and the agent that a command names, and the caller for an agent."""

from tools.accounts.callers import caller_of_agent
from tools.definitions.callers import Caller
from tools.errors import Forbidden, NotFound
from tools.models import Agent, Organization


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


def acting_as(organization: str, slug: str) -> Caller:
    """The caller for an agent that may act. Raises `NotFound`, and `Forbidden` when suspended."""
    caller = caller_of_agent(find_agent(find_organization(organization), slug))
    if not caller.active:
        raise Forbidden(
            f"The agent {slug} is suspended: it sees and runs nothing.", code="agent_suspended"
        )
    return caller
