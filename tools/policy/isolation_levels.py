"""Determines a call's isolation level in the sandbox: the strongest of all requirements, never
less.

The definition says what it needs; the organization, the sandbox profile and who wrote the code may
raise that. Nothing lowers it.
"""

from sandbox.levels import strongest
from sandbox.spec import IsolationLevel
from tools.builtin.manifest import ISOLATED
from tools.catalog.registry import CatalogProfile, CatalogTool, Snapshot
from tools.definitions.vocabulary import ToolType
from tools.models import VOUCHED
from tools.policy.questions import AccessRequest, Verdict, passed


def effective_level(tool: CatalogTool, snapshot: Snapshot) -> IsolationLevel:
    profile = profile_of(tool, snapshot)
    return strongest(
        IsolationLevel(tool.definition.isolation),
        snapshot.minimum_isolation,
        profile.minimum_isolation if profile else IsolationLevel.NONE,
        _of_its_author(tool),
    )


def profile_of(tool: CatalogTool, snapshot: Snapshot) -> CatalogProfile | None:
    return snapshot.profiles.get(tool.definition.sandbox_profile or "")


def profile_there(question: AccessRequest) -> Verdict:
    """Checks again at use that the profile exists: it existed when the definition was written."""
    tool = question.tool
    name = tool.definition.sandbox_profile
    if name is None or name in question.snapshot.profiles:
        return passed("isolation")
    reason = f"The tool {tool.name} names the sandbox profile {name}, which is not there."
    return Verdict("isolation", False, "sandbox_profile_missing", reason)


def network_permitted(question: AccessRequest) -> Verdict:
    """At Restricted there is no network, unless the profile says so: a tool that needs it is
    refused rather than run without."""
    tool, snapshot = question.tool, question.snapshot
    profile = profile_of(tool, snapshot)
    if (
        not _reaches_out(tool, profile)
        or (profile is not None and profile.network_when_restricted)
        or effective_level(tool, snapshot) != IsolationLevel.RESTRICTED
    ):
        return passed("network")
    reason = (
        f"The tool {tool.name} needs the network and runs at the level Restricted, which has none. "
        "A sandbox profile with network_when_restricted would permit it."
    )
    return Verdict("network", False, "network_refused_when_restricted", reason)


ISOLATION = (profile_there, network_permitted)


def _of_its_author(tool: CatalogTool) -> IsolationLevel:
    """Code that neither a person nor the product answers for is treated as hostile."""
    if not tool.custom:
        return IsolationLevel.NONE
    return IsolationLevel.STANDARD if tool.origin in VOUCHED else IsolationLevel.RESTRICTED


def _reaches_out(tool: CatalogTool, profile: CatalogProfile | None) -> bool:
    if tool.definition.type == ToolType.HTTP:
        return profile is None or profile.allow_network
    if tool.custom:
        return profile is not None and profile.allow_network
    known = ISOLATED.get(tool.definition.raw["implementation"]["entry_point"])
    return known is not None and known.network and (profile is None or profile.allow_network)
